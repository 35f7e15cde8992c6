"""Analyses on a scheduler and workers of Dask, over an object store: bytes, CPU seconds and memory.

.venv/bin/python tests/benchmarks/bench_cluster.py [--entries 300000] [--workers 2] [--quick]
.venv/bin/python tests/benchmarks/bench_cluster.py --entries 3000000 --workers 1
.venv/bin/python tests/benchmarks/bench_cluster.py --entries 3000000 --parts comparison explanation

The scheduler, the workers and moto are started from the command line, with 1 GiB of memory per worker, and
the snapshot is in a bucket of moto. 30 % of the bodies are distinct. Each result is compared with that of
pandas by a hash. Bytes are those that the client receives over its sockets, and CPU seconds are those of each
process.
"""

from __future__ import annotations

import argparse
import contextlib
import hashlib
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pandas as pd
from bench_any_size import END, generated
from distributed import Client
from pyarrow.fs import LocalFileSystem, S3FileSystem, copy_files
from tornado.iostream import IOStream

import toolkit as tk
from toolkit.failures.selection import facts_of

DISTINCT = 0.3
MOST_MEGABYTES = 20
ROW_PER_FAILURE = {"classes": 12, "expiring": 8, "outcomes": 100, "rises": 8}
"""Results with a row per failure, and the bytes that each row may have on the way to the client."""
PARTS: dict[str, Callable[[Any], Any]] = {
    "report": lambda rows: _comparable(tk.report_failures(rows, now=END).to_dict()),
    "groups": lambda rows: tk.group_failures(rows).frame.to_json(date_format="iso"),
    "counts": lambda rows: tk.analysis.count_by(rows, "workflow_url").to_json(),
    "overview": tk.analysis.failure_overview,
    "classes": lambda rows: tk.classify_failures(rows).counts.to_json(),
    "offenders": lambda rows: _json(tk.analysis.repeat_offenders(rows)),
    "expiry": lambda rows: _json(tk.analysis.count_expiring(rows, "90d", END)),
    "expiring": lambda rows: _json(
        tk.find_expiring(rows, "31d", END, within="48h").sort_values("dlq_id")
    ),
    "comparison": lambda rows: _json(
        tk.compare_failures(rows, since="1d", now=END).frame
    ),
    "frames": lambda rows: _json(
        tk.compare_failures(
            rows[rows["failed_at"] < END - timedelta(days=1)],
            rows[rows["failed_at"] >= END - timedelta(days=20)],
        ).frame
    ),
    "outcomes": lambda rows: _json(
        tk.find_retry_outcomes(rows, retention="3d", now=END).frame.sort_values(
            "dlq_id"
        )
    ),
    "explanation": lambda rows: _explained(
        tk.explain_spike(rows, (END - timedelta(hours=12), END), progress=False)
    ),
    "rises": lambda rows: _explained(tk.explain_spike(rows, progress=False)),
}

_received = 0
"""Bytes that arrived at the sockets of this process."""


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--entries", type=int, default=300_000)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--quick", action="store_true", help="30,000 entries")
    parser.add_argument("--parts", nargs="+", choices=PARTS, default=list(PARTS))
    chosen = parser.parse_args()
    # ends the processes of the cluster, too, if this process is told to end
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    if chosen.quick:
        chosen.entries = 30_000
    _count_bytes()
    for folder in generated(chosen.entries, varied=True, distinct=DISTINCT):
        frame = _signed(folder)
        expected = {name: _hash(PARTS[name](frame)) for name in chosen.parts}
        del frame
        with cluster(chosen.workers) as (address, processes, store_port):
            filesystem = _filled(folder, store_port)
            measure(address, processes, filesystem, expected, chosen.entries)


def measure(
    address: str,
    processes: dict[str, int],
    filesystem: S3FileSystem,
    expected: dict[str, str],
    rows: int,
) -> None:
    """Print what each analysis costs, and stop if a result is not that of pandas."""
    workers = [name for name in processes if name.startswith("worker")]
    with Client(address) as client:
        client.wait_for_workers(len(workers))
        frame = tk.open_snapshot("bucket/failures", filesystem=filesystem).to_dask()
        print(f"  {frame.npartitions} partitions, {len(workers)} workers")
        for name, wanted in expected.items():
            part = PARTS[name]
            before, bytes_before = _cpu(processes), _received
            start = time.process_time()
            found = _hash(part(frame))
            spent = {
                process: seconds - before[process]
                for process, seconds in _cpu(processes).items()
            }
            megabytes = (_received - bytes_before) / 1e6
            listed = ", ".join(f"{process} {spent[process]:.1f}" for process in spent)
            print(
                f"  {name:<10}{megabytes:8.2f} MB to the client; CPU seconds: client "
                f"{time.process_time() - start:.1f}, {listed}",
                flush=True,
            )
            if found != wanted:
                raise SystemExit(f"{name} differs from the result of pandas")
            most = _most_megabytes(name, rows)
            if megabytes > most:
                raise SystemExit(f"{name}: more than {most:.0f} MB")
    for worker in workers:
        print(f"  {worker}: peak {_peak(processes[worker]) / 1e6:,.0f} MB")


def _most_megabytes(name: str, rows: int) -> float:
    """Return how much the client may receive: a fixed number, but for results with a row per failure."""
    return max(MOST_MEGABYTES, ROW_PER_FAILURE.get(name, 0) * rows / 1e6)


@contextlib.contextmanager
def cluster(workers: int) -> Iterator[tuple[str, dict[str, int], int]]:
    """Start all processes; yield the address of the scheduler, the process ids, and the port of the store."""
    port, store_port = _free_port(), _free_port()
    address = f"tcp://127.0.0.1:{port}"
    dask = [sys.executable, "-m", "dask"]
    scheduler = [*dask, "scheduler", "--host", "127.0.0.1", "--port", str(port)]
    worker = [*dask, "worker", address, "--host", "127.0.0.1", "--no-nanny"]
    options = ["--nthreads", "1", "--memory-limit", "1GiB", "--no-dashboard"]
    store = [sys.executable, "-m", "moto.server", "-H", "127.0.0.1"]
    commands = {
        "store": [*store, "-p", str(store_port)],
        "scheduler": [*scheduler, "--no-dashboard"],
    }
    for number in range(workers):
        commands[f"worker {number + 1}"] = [*worker, *options]
    started = {
        name: subprocess.Popen(
            command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )
        for name, command in commands.items()
    }
    try:
        _wait_for(store_port)
        processes = {name: process.pid for name, process in started.items()}
        yield address, processes, store_port
    finally:
        for process in reversed(started.values()):
            process.terminate()
            process.wait()


def _free_port() -> int:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port: int = free.getsockname()[1]
        return port


def _wait_for(port: int) -> None:
    """Wait until a server accepts connections."""
    for _ in range(600):
        with (
            contextlib.suppress(OSError),
            socket.create_connection(("127.0.0.1", port)),
        ):
            return
        time.sleep(0.1)
    raise SystemExit("the store did not start")


def _filled(folder: str, port: int) -> S3FileSystem:
    """Return the file system of the store, with the snapshot in the bucket."""
    filesystem = S3FileSystem(
        endpoint_override=f"127.0.0.1:{port}",
        scheme="http",
        access_key="key-of-the-benchmark",
        secret_key="secret-of-the-benchmark",
        region="us-east-1",
        allow_bucket_creation=True,
        request_timeout=60,
    )
    filesystem.create_dir("bucket")
    copy_files(
        folder,
        "bucket/failures",
        source_filesystem=LocalFileSystem(),
        destination_filesystem=filesystem,
    )
    return filesystem


def _count_bytes() -> None:
    """Count what arrives at the sockets of Tornado, which connect the client to scheduler and workers."""
    read = IOStream.read_from_fd

    def counting(stream: IOStream, buffer: bytearray | memoryview) -> int | None:
        global _received  # noqa: PLW0603 - one counter of this process
        size = read(stream, buffer)
        _received += size or 0
        return size

    IOStream.read_from_fd = counting


def _signed(folder: str) -> pd.DataFrame:
    """Return the failures of a snapshot as pandas, with the stored signatures."""
    frame = tk.read_snapshot(folder)
    source = tk.open_snapshot(folder).to_arrow()
    stored = source.to_table(["dlq_id", "signature"])
    signatures = stored.to_pandas().set_index("dlq_id")["signature"]
    signed = frame.assign(signature=frame["dlq_id"].map(signatures))
    # the words that the signatures have learned, so that parts of the frame can be compared by them
    signed.attrs |= facts_of(source)
    return signed


def _explained(found: Any) -> str:
    return f"{found.window} {_json(found.frame)}"


def _json(frame: pd.DataFrame) -> str:
    return frame.to_json(date_format="iso")


def _comparable(findings: dict[str, Any]) -> str:
    """Return what a report contains, but for the code that loads the frame again."""
    sections = [
        section for section in findings["sections"] if section["name"] != "code"
    ]
    return repr(findings | {"sections": sections})


def _hash(result: object) -> str:
    return hashlib.sha256(str(result).encode()).hexdigest()


def _cpu(processes: dict[str, int]) -> dict[str, float]:
    """Return the CPU seconds of each process."""
    ticks = os.sysconf("SC_CLK_TCK")
    seconds = {}
    for name, pid in processes.items():
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        seconds[name] = (int(fields[11]) + int(fields[12])) / ticks
    return seconds


def _peak(pid: int) -> int:
    """Return the peak of the resident memory of a process in bytes."""
    status = Path(f"/proc/{pid}/status").read_text()
    line = next(line for line in status.splitlines() if line.startswith("VmHWM"))
    return int(line.split()[1]) * 1024


if __name__ == "__main__":
    main()
