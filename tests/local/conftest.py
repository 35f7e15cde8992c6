"""Options of the tests of the embedded service."""

from __future__ import annotations

import pytest


def pytest_addoption(parser: pytest.Parser) -> None:
    """``--api-examples N``: how many requests an operation is tried with against its description."""
    parser.addoption(
        "--api-examples",
        type=int,
        default=3,
        metavar="N",
        help="examples for each operation of /openapi.json (3)",
    )
