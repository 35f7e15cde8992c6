"""Measure the available memory, and check if data would fit into it."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Final

from toolkit.base.errors import NotEnoughMemoryError

try:
    import resource
except ImportError:  # Windows
    resource = None  # type: ignore[assignment]

_HUNDRED_MB: Final = 100_000_000
_NUMBER_BYTES: Final = 4
_PLAIN_PAGE: Final = 16 << 20
_PLAIN_DIMENSION: Final = 1 << 16
"""Pages of at most this number of bytes, with at most this number of numbers per row, are not checked."""
_CGROUP_FILES: Final = (
    (
        "sys/fs/cgroup/memory.max",
        "sys/fs/cgroup/memory.current",
        "sys/fs/cgroup/memory.stat",
    ),
    (
        "sys/fs/cgroup/memory/memory.limit_in_bytes",
        "sys/fs/cgroup/memory/memory.usage_in_bytes",
        "sys/fs/cgroup/memory/memory.stat",
    ),
)
# a little less than the largest threshold of glibc
_KEPT: Final = (32 << 20) - (8 << 10)
_CACHED: Final = ("inactive_file", "total_inactive_file")


def available_memory(root: Path = Path("/")) -> int | None:
    """Return the bytes that this process can still allocate, limited by machine, container and process."""
    return min(
        [*_of_the_machine(root), *_of_the_container(root), *_of_the_process(root)],
        default=None,
    )


def check_memory(
    what: str, *, needed: float, limit: float | None, next_step: str
) -> None:
    """Raise NotEnoughMemoryError if `what` needs more bytes than the limit. None means no limit."""
    if limit is not None and needed > limit:
        raise NotEnoughMemoryError(
            what,
            got=f"about {_size(needed)} of data",
            expected=f"at most the {_size(limit)} that are available, or that memory_limit= allows",
            next_step=next_step,
        )


def keep_freed_buffers() -> None:
    """Make glibc reuse the memory of freed buffers instead of returning it to the system.

    The system clears memory that it hands out again, page by page, which takes a quarter of the time of a
    load of vectors. The largest buffer that was freed decides which buffers glibc returns (mallopt(3),
    M_MMAP_THRESHOLD). So one large buffer is freed here; it is never written to. With other C libraries, this
    has no effect.
    """
    bytes(_KEPT)


@contextmanager
def memory_errors_named(what: str, *, next_step: str) -> Iterator[None]:
    """Raise NotEnoughMemoryError instead of MemoryError, including errors of Arrow."""
    try:
        yield
    except MemoryError as error:
        got = "no memory left"
        # Arrow names the number of bytes, Python nothing
        if str(error):
            got = f"no memory left ({str(error)[:120]})"
        raise NotEnoughMemoryError(
            what,
            got=got,
            expected="enough memory for the rows",
            next_step=next_step,
        ) from None


def check_page(page: Any, dimension: int | None, limit: float | None) -> None:
    """Raise NotEnoughMemoryError if the vectors of a page of JSON would not fit into memory."""
    if dimension is None:
        return
    if len(page) <= _PLAIN_PAGE and dimension <= _PLAIN_DIMENSION:
        return

    if limit is None:
        limit = available_memory()
    rows = bytes(page).count(b'"id"')
    check_memory(
        f"reading a page of vectors of {dimension:,} numbers each",
        needed=rows * dimension * _NUMBER_BYTES,
        limit=limit,
        next_step="Check the dimension and the rows of the index, or try in any case with "
        "memory_limit=math.inf.",
    )


def _size(count: float) -> str:
    """Return bytes for a message, for example ``1.5 GB``."""
    if count >= _HUNDRED_MB:
        return f"{count / 1e9:,.1f} GB"
    return f"{count / 1e6:,.1f} MB"


def _of_the_process(root: Path) -> Iterator[int]:
    """Yield the memory that the limit of this process leaves, if there is one."""
    if resource is None or root != Path("/"):
        return

    most = resource.getrlimit(resource.RLIMIT_AS)[0]
    if most == resource.RLIM_INFINITY:
        return

    with suppress(OSError, ValueError):
        # RLIMIT_AS limits virtual memory, and the first number of statm is its size in pages (proc(5))
        statm = (root / "proc/self/statm").read_text("utf-8")
        used = int(statm.split()[0]) * resource.getpagesize()
        yield max(0, most - used)


def _of_the_machine(root: Path) -> Iterator[int]:
    """Yield the memory that the system can hand out without swapping."""
    with suppress(OSError, ValueError):
        meminfo = (root / "proc/meminfo").read_text("utf-8")
        # for example "MemAvailable:   16326472 kB"
        match = re.search(r"^MemAvailable:\s*(\d+)", meminfo, re.MULTILINE)
        if match is not None:
            yield int(match[1]) * 1024
            return

    names = getattr(os, "sysconf_names", {})  # none on Windows
    has_names = "SC_PHYS_PAGES" in names
    if root == Path("/") and has_names:  # pragma: no cover - not on Linux
        yield os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")


def _of_the_container(root: Path) -> Iterator[int]:
    """Yield the free memory of the control group, of version 2 or 1."""
    for limit_file, usage_file, stat_file in _CGROUP_FILES:
        # a version that the system does not use has no such files
        with suppress(OSError, ValueError):
            limit = (root / limit_file).read_text("utf-8").strip()
            # version 2 writes "max" for no limit; version 1 a number so large that the minimum ignores it
            if limit != "max":
                used = int((root / usage_file).read_text("utf-8"))
                cached = _cached_bytes(root / stat_file)
                yield max(0, int(limit) - used + cached)


def _cached_bytes(stat_file: Path) -> int:
    """Return the bytes of cached files, which the system frees if it needs memory."""
    cached = 0
    for line in stat_file.read_text("utf-8").splitlines():
        name, _, count = line.partition(" ")
        if name in _CACHED:
            cached = int(count)  # if both names are present, the total comes last

    return cached
