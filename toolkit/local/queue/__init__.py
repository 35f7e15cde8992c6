"""The queue of the embedded service; docs/local-service.md lists what it assumes beyond the specification."""
