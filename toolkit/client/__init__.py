"""Requests to the service, whose responses become bytes or small values."""
