"""The embedded service: the same API, for real, on this machine."""
