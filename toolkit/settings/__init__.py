"""Where the service is and who asks.

``service.py`` holds the values, ``connecting.py`` finds them in arguments and variables, ``child.py``
starts the embedded service for ``connect("local")``.
"""

from toolkit.settings.connecting import connect
from toolkit.settings.service import DIALECTS, Dialect, Endpoint, Service

__all__ = ["DIALECTS", "Dialect", "Endpoint", "Service", "connect"]
