"""Frozen values that say what to load: failure filters, vector queries, the metadata filter language."""
