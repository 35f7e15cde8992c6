"""How much memory there is, and whether something would fit into it."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

from toolkit.errors import NotEnoughMemoryError

try:
    import resource
except ImportError:  # Windows
    resource = None  # type: ignore[assignment]

_HUNDRED_MB: Final = 100_000_000
_NUMBER_BYTES: Final = 4
_PLAIN_PAGE: Final = 16 << 20
_PLAIN_DIMENSION: Final = 1 << 16
"""The rows of a page of at most so many bytes and numbers a row fit, as they did when they were requested."""
_CGROUP_FILES: Final = (
    ("sys/fs/cgroup/memory.max", "sys/fs/cgroup/memory.current", "sys/fs/cgroup/memory.stat"),
    (
        "sys/fs/cgroup/memory/memory.limit_in_bytes",
        "sys/fs/cgroup/memory/memory.usage_in_bytes",
        "sys/fs/cgroup/memory/memory.stat",
    ),
)
_KEPT: Final = (32 << 20) - (8 << 10)  # a little less than the largest threshold of glibc
_CACHED: Final = ("inactive_file", "total_inactive_file")


def available_memory(root: Path = Path("/")) -> int | None:
    """Bytes of memory that this process may still take: of the machine, its container, or its own limit."""
    return min([*_of_the_machine(root), *_of_the_container(root), *_of_the_process(root)], default=None)


def check_memory(what: str, *, needed: float, limit: float | None, next_step: str) -> None:
    """Raise NotEnoughMemoryError when `what` needs more bytes than it may take; a limit of None is none."""
    if limit is not None and needed > limit:
        raise NotEnoughMemoryError(
            what,
            got=f"about {_size(needed)} to hold",
            expected=f"at most the {_size(limit)} of memory there are, or that memory_limit= allows",
            next_step=next_step,
        )


def keep_freed_buffers() -> None:
    """Have glibc use the memory of freed buffers again instead of returning it to the system.

    The system clears what it hands out again, page by page: a quarter of the time of a load of vectors. Which
    buffers glibc returns depends on the largest that has been freed (mallopt(3), M_MMAP_THRESHOLD), so that
    one is freed here, of memory that was never written to. Elsewhere this does nothing.
    """
    bytes(_KEPT)


@contextmanager
def memory_errors_named(what: str, *, next_step: str) -> Iterator[None]:
    """Make a MemoryError, Arrow's too, a NotEnoughMemoryError."""
    try:
        yield
    except MemoryError as error:
        raise NotEnoughMemoryError(
            what,
            got=f"no memory left ({str(error)[:120]})" if str(error) else "no memory left",
            expected="enough for its rows",
            next_step=next_step,
        ) from None


def check_page(page: Any, dimension: int | None, limit: float | None) -> None:
    """Raise NotEnoughMemoryError when a page of vectors, as JSON with an id in each row, would not fit."""
    if dimension is None or (len(page) <= _PLAIN_PAGE and dimension <= _PLAIN_DIMENSION):
        return
    check_memory(
        f"reading a page of vectors of {dimension:,} numbers each",
        needed=bytes(page).count(b'"id"') * dimension * _NUMBER_BYTES,
        limit=available_memory() if limit is None else limit,
        next_step="See that the dimension and the rows are those of the index. memory_limit=math.inf tries "
        "in any case.",
    )


def _size(count: float) -> str:
    return f"{count / 1e9:,.1f} GB" if count >= _HUNDRED_MB else f"{count / 1e6:,.1f} MB"


def _of_the_process(root: Path) -> Iterator[int]:
    if resource is None or root != Path("/"):
        return
    most = resource.getrlimit(resource.RLIMIT_AS)[0]
    if most == resource.RLIM_INFINITY:
        return
    try:
        pages = int((root / "proc/self/statm").read_text("utf-8").split()[0])
    except (OSError, ValueError):
        return
    yield max(0, most - pages * resource.getpagesize())


def _of_the_machine(root: Path) -> Iterator[int]:
    try:
        for line in (root / "proc/meminfo").read_text("utf-8").splitlines():
            if line.startswith("MemAvailable:"):
                yield int(line.split()[1]) * 1024
                return
    except (OSError, ValueError):
        pass
    names = getattr(os, "sysconf_names", {})  # none on Windows
    if root == Path("/") and "SC_PHYS_PAGES" in names:  # pragma: no cover - not on Linux
        yield os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")


def _of_the_container(root: Path) -> Iterator[int]:
    for most, used, stat in _CGROUP_FILES:
        try:
            text = (root / most).read_text("utf-8").strip()
            if text == "max":
                continue
            cached = 0
            for line in (root / stat).read_text("utf-8").splitlines():
                name, _, value = line.partition(" ")
                if name in _CACHED:
                    cached = int(value)  # the total, where both are given, comes last
            yield max(0, int(text) - int((root / used).read_text("utf-8")) + cached)
        except (OSError, ValueError):
            continue
