"""Addresses and tokens of the service."""

from toolkit.settings.connecting import connect
from toolkit.settings.service import DIALECTS, Dialect, Endpoint, Service

__all__ = ["DIALECTS", "Dialect", "Endpoint", "Service", "connect"]
