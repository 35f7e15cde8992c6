"""The vector indexes of the embedded service: storage, exact and approximate search, HTTP operations."""
