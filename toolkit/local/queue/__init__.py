"""The queue of the embedded service; docs/local-service.md lists its assumptions beyond the specification."""
