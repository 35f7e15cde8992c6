"""Frozen values that select failures and vectors: failure filters, vector queries, metadata filters."""
