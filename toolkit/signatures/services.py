"""Kinds of services that addresses name, for example ``redis`` for ``redis://10.0.0.5/0``.

"connection refused: redis://10.0.0.5/0" and "connection refused: postgres://10.0.0.5/shop" are two kinds of
failures, though only the address differs: two services are down. Hosts, paths and credentials vary between
failures of one kind, so the kind of service is all that an address adds to a signature. You can tell
it by the scheme, by a word of the host name, or by the well-known port that a client failed to connect to.

Addresses of the web add nothing: pages of one kind are fetched from many hosts, by ``http`` and ``https``.
"""

from __future__ import annotations

import re
from typing import Final

_WEB: Final = frozenset(("http", "https"))
_NAMES: Final = {
    "amqp": "amqp amqps rabbitmq",
    "elasticsearch": "elasticsearch opensearch",
    "kafka": "kafka",
    "ldap": "ldap ldaps",
    "memcached": "memcached memcache",
    "mongodb": "mongodb mongo",
    "mssql": "mssql sqlserver",
    "mysql": "mysql mariadb",
    "nats": "nats",
    "postgres": "postgres postgresql pgsql pgbouncer",
    "redis": "redis rediss valkey",
    "smtp": "smtp smtps",
    "zookeeper": "zookeeper",
}
_PORTS: Final = {
    "amqp": "5671 5672",
    "elasticsearch": "9200 9300",
    "kafka": "9092 9093",
    "ldap": "389 636",
    "memcached": "11211",
    "mongodb": "27017",
    "mssql": "1433",
    "mysql": "3306",
    "nats": "4222",
    "postgres": "5432 6432",
    "redis": "6379 26379",
    "smtp": "25 465 587",
    "zookeeper": "2181",
}


def _by_word(services: dict[str, str]) -> dict[str, str]:
    """Return the service of each word."""
    found: dict[str, str] = {}
    for service, words in services.items():
        found |= dict.fromkeys(words.split(), service)
    return found


_BY_NAME: Final = _by_word(_NAMES)
_BY_PORT: Final = _by_word(_PORTS)
_SECURE: Final = {"ftps": "ftp", "grpcs": "grpc", "mqtts": "mqtt", "wss": "ws"}
_SCHEME: Final = re.compile(r"[a-z]{1,20}|s3a?")  # a scheme with digits can be a value
_PORT: Final = re.compile(r":(\d{2,5})\W*$")
_WORD: Final = re.compile(r"[a-z]+")


def of_scheme(url: str) -> str:
    """Return the kind of service of a URL; "" for the web, and for a scheme that contains a value.

    >>> of_scheme("rediss://cache:6380/0"), of_scheme("postgresql+psycopg://db/shop"), of_scheme("https://a.b")
    ('redis', 'postgres', '')
    """
    scheme = url.partition("://")[0].lower().partition("+")[0]
    if scheme in _WEB or not _SCHEME.fullmatch(scheme):
        return ""

    plain = _SECURE.get(scheme, scheme)
    return _BY_NAME.get(plain, plain)


def of_host(host: str) -> str:
    """Return the kind of service that a host name contains as a word; "" if no word names one.

    >>> of_host("orders-postgres-2.internal:5432"), of_host("10.0.0.5:8080")
    ('postgres', '')
    """
    named = map(_BY_NAME.get, _WORD.findall(host.lower()))
    return next(filter(None, named), "")


def of_port(address: str) -> str:
    """Return the kind of service that usually listens on the port of an address; "" if none does.

    Only for addresses that were connected to: a port of a client is any number.

    >>> of_port("10.0.0.5:6379:"), of_port("10.0.0.5:8080")
    ('redis', '')
    """
    port = _PORT.search(address)
    if port is None:
        return ""

    return _BY_PORT.get(port[1], "")
