"""Read the addresses and tokens of the service."""

from toolkit.settings.service import DIALECTS, Dialect, Endpoint, Service, connect

__all__ = ["DIALECTS", "Dialect", "Endpoint", "Service", "connect"]
