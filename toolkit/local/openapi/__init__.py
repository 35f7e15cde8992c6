"""The interface of the embedded service as an OpenAPI 3.1 document: written, and held true by tests."""
