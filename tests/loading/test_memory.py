"""Memory that is left, as Linux and its containers say it, and what would not fit."""

from __future__ import annotations

import json
import math
import platform
import subprocess
import sys

import pytest

import toolkit as tk
from toolkit.errors import NotEnoughMemoryError
from toolkit.loading.memory import available_memory, check_memory


def written(root, files):
    """A file system root with these files."""
    for name, text in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return root


MEMINFO = {"proc/meminfo": "MemTotal:  9000 kB\nMemAvailable:    4000 kB\n"}
V2 = {
    "sys/fs/cgroup/memory.current": "3000\n",
    "sys/fs/cgroup/memory.stat": "anon 1\ninactive_file 500\n",
}
V1 = {
    "sys/fs/cgroup/memory/memory.limit_in_bytes": "5000\n",
    "sys/fs/cgroup/memory/memory.usage_in_bytes": "3000\n",
    "sys/fs/cgroup/memory/memory.stat": "inactive_file 1\ntotal_inactive_file 700\n",
}


@pytest.mark.parametrize(
    ("files", "expected"),
    [
        ({}, None),
        (MEMINFO, 4000 * 1024),
        (MEMINFO | V2 | {"sys/fs/cgroup/memory.max": "max\n"}, 4000 * 1024),
        (MEMINFO | V2 | {"sys/fs/cgroup/memory.max": "10000\n"}, 7500),
        (MEMINFO | V2 | {"sys/fs/cgroup/memory.max": "2000\n"}, 0),
        (MEMINFO | V1, 2700),
        ({"proc/meminfo": "MemAvailable: many\n"}, None),
    ],
)
def test_the_least_of_machine_and_container_counts(tmp_path, files, expected):
    """What the machine has left, or the container where that is less; file caches count as free."""
    assert available_memory(written(tmp_path, files)) == expected


def test_a_load_too_large_for_memory_says_needed_and_available():
    """The error names both, and what to do; no known limit refuses nothing."""
    with pytest.raises(
        NotEnoughMemoryError, match=r"3\.0 GB.*1\.0 GB.*Do this"
    ) as caught:
        check_memory("loading", needed=3e9, limit=1e9, next_step="Do this.")
    assert caught.value.doing == "loading"
    for limit in (None, 3e9, math.inf):
        check_memory("loading", needed=3e9, limit=limit, next_step="")


def test_a_page_whose_rows_take_a_huge_dimension_is_refused(server):
    """Rows without a vector need the memory of one: a page of them is counted before it is decoded."""
    info = {
        "vectorCount": 1,
        "dimension": 1_000_000,
        "namespaces": {"": {"vectorCount": 1}},
    }
    rows = [{"id": str(row)} for row in range(1_000)]

    def respond(request):
        if request.path == "/info":
            return json.dumps({"result": info}).encode()
        if request.path.startswith("/fetch"):
            return json.dumps({"result": rows}).encode()
        return json.dumps({"result": {"nextCursor": "", "vectors": rows}}).encode()

    server.responding(respond)
    with pytest.raises(NotEnoughMemoryError, match=r"4\.0 GB.*1\.0 GB.*memory_limit"):
        tk.load_vectors(
            server.service(), include_vectors=False, memory_limit=1e9, progress=False
        )


@pytest.mark.slow
@pytest.mark.skipif(
    platform.libc_ver()[0] != "glibc", reason="other allocators have other thresholds"
)
def test_the_memory_of_freed_buffers_is_used_again():
    """Buffers of pages that are freed together are not handed out anew, page fault by page fault."""
    code = (
        "import resource, sys\n"
        "from toolkit.loading.memory import keep_freed_buffers\n"
        "keep_freed_buffers() if len(sys.argv) > 1 else None\n"
        "def load():\n"
        "    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt\n"
        "    pages = [bytearray(8 << 20) for _ in range(4)]\n"
        "    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before\n"
        "load(), load()\n"
        "print(load())"
    )

    def faults(*arguments):
        command = [sys.executable, "-c", code, *arguments]
        return int(
            subprocess.run(command, capture_output=True, text=True, check=True).stdout
        )

    assert faults("kept") < faults() / 10
