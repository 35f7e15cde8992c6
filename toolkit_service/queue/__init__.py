"""The queue of the embedded service. Assumptions beyond the specification are in docs/local-service.md."""
