"""Functions that change a vector index: upserts and updates, removals, and restoring a snapshot."""
