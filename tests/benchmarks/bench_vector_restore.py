"""A large snapshot restored to the embedded index: killed half way, continued, and compared row by row.

    .venv/bin/python tests/benchmarks/bench_vector_restore.py [--entries 1000000] [--quick]

64 dimensions, metadata and text. The snapshot is written by this script and removed afterwards; the service
and each of the two calls are processes of their own, whose peaks of memory are printed.
"""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
from clusters import clustered
from measuring import against, options

import toolkit as tk
from toolkit.tables.vector_dtype import VectorDtype
from toolkit_service.demo.local_service import LocalService

DIMENSION = 64
BLOCK = 50_000
TOKEN = "RESTORING_TOKEN"
MEGABYTES = 4096


def main() -> None:
    """Measure and print."""
    if sys.argv[1:2] == ["--child"]:
        restore(*sys.argv[2:])
        return
    rows = options(__doc__, entries=1_000_000, quick=20_000, rounds=1).entries
    with tempfile.TemporaryDirectory() as folder:
        timed("writing the snapshot", lambda: write(f"{folder}/snapshot", rows))
        with LocalService(
            Path(folder) / "service",
            indexes=[f"restored:dense:{DIMENSION}:COSINE"],
            approximate_above=10 * rows,
        ) as service:
            environment = os.environ | {TOKEN: service.token}
            command = [
                *(sys.executable, __file__, "--child", service.vector_urls["restored"]),
                *(f"{folder}/snapshot", f"{folder}/checkpoint"),
            ]
            killed = timed(
                "until it was killed, half stored",
                lambda: subprocess.run(
                    [*command, str(rows // 2)], env=environment, check=False
                ),
            )
            if killed.returncode != -signal.SIGKILL:
                raise SystemExit(f"the first call ended with {killed.returncode}")
            second = timed(
                "continued, stored, compared",
                lambda: subprocess.run(
                    [*command, "0"],
                    env=environment,
                    check=True,
                    stdout=subprocess.PIPE,
                    text=True,
                ),
            )
            said = json.loads(second.stdout)
            print(f"  {said['verdict']} It continued at row {said['resumed_at']:,}.")
            print(
                f"  stored after {said['stored']:.1f} s, compared in {said['compared']:.1f} s"
            )
            against("peak of the call, MB", said["peak"], at_most=MEGABYTES)
            against("peak of the service, MB", peak(service.pid), at_most=MEGABYTES)
            if said["verified"] != rows or said["resumed_at"] < rows // 2:
                raise SystemExit("not every row was restored")


def timed(what: str, call: Callable[[], Any]) -> Any:
    """What a call returns; its seconds are printed."""
    begun = time.perf_counter()
    result = call()
    print(f"  {what:<40}{time.perf_counter() - begun:8.1f} s", flush=True)
    return result


def write(path: str, rows: int) -> None:
    """A snapshot of vectors in clusters."""
    blocks = [
        clustered(min(BLOCK, rows - start), DIMENSION, seed=start).reshape(-1)
        for start in range(0, rows, BLOCK)
    ]
    flat = pa.FixedSizeListArray.from_arrays(
        pa.array(np.concatenate(blocks)), DIMENSION
    )
    frame = pd.DataFrame(
        {
            "namespace": pd.Series([""] * rows, dtype="str"),
            "id": pd.Series(
                [f"doc-{number:07}" for number in range(rows)], dtype="str"
            ),
            "vector": pd.Series(VectorDtype().__from_arrow__(flat)),
            "metadata": pd.Series(
                [f'{{"n": {number}}}' for number in range(rows)], dtype="str"
            ),
            "data": pd.Series(
                [f"text {number}" for number in range(rows)], dtype="str"
            ),
        }
    )
    tk.write_snapshot(frame, path)


def restore(url: str, snapshot: str, checkpoint: str, most: str) -> None:
    """Restore in this process, and print what it took; end as a crash would once `most` rows are stored."""
    service = tk.connect(vector_url=url, vector_token=os.environ[TOKEN], environ={})
    begun, stored = time.perf_counter(), 0.0

    def report(done: int, total: int | None) -> None:
        nonlocal stored
        if int(most) and done >= int(most):
            os.kill(os.getpid(), signal.SIGKILL)
        if total and not stored and done >= total // 2:
            stored = time.perf_counter() - begun

    result = tk.restore_vectors(
        service, snapshot, checkpoint=checkpoint, progress=report
    )
    said = {
        "verdict": result.verdict,
        "verified": int(result.frame["verified"].sum()),
        "resumed_at": result.resumed_at,
        "stored": stored,
        "compared": time.perf_counter() - begun - stored,
        "peak": peak(os.getpid()),
    }
    print(json.dumps(said))


def peak(process: int) -> float:
    """The most memory a process had, in megabytes."""
    found = re.search(r"VmHWM:\s+(\d+) kB", Path(f"/proc/{process}/status").read_text())
    return int(found[1]) / 1024 if found else float("nan")


if __name__ == "__main__":
    main()
