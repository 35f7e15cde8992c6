"""Whole collections and query results: what is read when, what came twice, whether it is complete."""
