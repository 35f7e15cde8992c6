"""The embedded service, which implements the API of the queue and of the vector index on this machine."""
