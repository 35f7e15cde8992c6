"""Whole collections and query results: reading, duplicates, and checks for completeness."""
