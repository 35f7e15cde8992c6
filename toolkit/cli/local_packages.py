"""Name the packages of the extra [local], which the embedded service and the demo need."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from toolkit.base.errors import LocalServiceError

LOCAL_PACKAGES: Final = "cronsim h11 httpx starlette uvicorn"
"""The packages of the extra [local], by name, which install from any source of the toolkit."""


@contextmanager
def local_packages(doing: str) -> Iterator[None]:
    """Explain how to install the extra [local] if an import of it fails."""
    try:
        yield
    except ImportError as error:
        raise LocalServiceError(
            doing,
            got=f"no module {error.name}",
            expected="the packages of the embedded service",
            next_step=f"Install them: pip install {LOCAL_PACKAGES}.",
        ) from None
