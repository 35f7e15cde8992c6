"""Connect to the service: settings, requests, retries, and responses as bytes or small values."""
