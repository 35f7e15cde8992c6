"""Audits of large indexes: seconds and memory of each, in a process of its own, on two cores.

    .venv/bin/python tests/benchmarks/bench_vector_audits.py [--entries 1000000] [--quick]

384 dimensions, metadata and text, written as a snapshot by this script and removed afterwards. Recall is that
of a server in another process which searches two thirds of the rows exactly, so that it misses neighbours.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
import tempfile
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import numpy as np
from measuring import against, options

TOKEN = "token-of-the-benchmark"
DIMENSION, TOPICS, QUERIES = 384, 1000, 300
LIMITS = {  # rows: seconds and megabytes
    ("health", 100_000): (60, 2048),
    ("recall", 1_000_000): (60, 3072),
}


def main() -> None:
    """Measure and print."""
    if sys.argv[1:2] == ["--child"]:
        child(*sys.argv[2:])
        return
    chosen = options(__doc__, entries=1_000_000, quick=100_000)
    for rows in dict.fromkeys((100_000, chosen.entries)):
        with tempfile.TemporaryDirectory() as folder:
            run("write", folder, rows)
            run("health", folder, rows)
            with searching(folder) as address:
                run("recall", folder, rows, address)


def run(what: str, folder: str, rows: int, address: str = "") -> None:
    """One audit in a process of its own, with its seconds and peak of memory beside their limits."""
    command = [sys.executable, __file__, "--child", what, folder, str(rows), address]
    said = json.loads(
        subprocess.run(command, check=True, capture_output=True, text=True).stdout
    )
    print(
        f"  {what}, {rows:,} x {DIMENSION}: {said['seconds']:.1f} s, CPU {said['cpu']:.1f} s, peak"
    )
    print(
        f"    {said['peak']:,.0f} MB{said['verdict'] and '; '}{said['verdict']}",
        flush=True,
    )
    if (what, rows) in LIMITS:
        seconds, peak = LIMITS[what, rows]
        against(f"{what} of {rows:,}, s", said["seconds"], at_most=seconds)
        against(f"{what} of {rows:,}, peak MB", said["peak"], at_most=peak)


def child(what: str, folder: str, rows: str, address: str = "") -> None:
    """Run one audit, and print what it took."""
    if what == "serve":
        serve(folder)
        return
    import toolkit as tk  # noqa: PLC0415 - the measuring process does without

    begun, verdict = time.perf_counter(), ""
    if what == "write":
        write(folder, int(rows))
    elif what == "health":
        verdict = tk.audit_vectors(f"{folder}/snapshot").verdict
    else:
        service = tk.connect(vector_url=address, vector_token=TOKEN)
        verdict = tk.audit_recall(service, f"{folder}/snapshot", sample=QUERIES).verdict
    took, cpu = time.perf_counter() - begun, time.process_time()
    # not getrusage, whose peak begins with the parent's
    peak = re.search(r"VmHWM:\s+(\d+) kB", Path("/proc/self/status").read_text())
    said = {
        "seconds": took,
        "cpu": cpu,
        "peak": int(peak[1]) / 1024 if peak else 0,
        "verdict": verdict,
    }
    print(json.dumps(said))


def write(folder: str, rows: int) -> None:
    """A snapshot of vectors in topics of a narrow and a wide spread, and the same numbers beside it."""
    import pandas as pd  # noqa: PLC0415
    import pyarrow as pa  # noqa: PLC0415

    import toolkit as tk  # noqa: PLC0415
    from toolkit.tables.vector_dtype import VectorDtype  # noqa: PLC0415

    rng = np.random.default_rng(384)
    topics = rng.standard_normal((TOPICS, DIMENSION), dtype=np.float32)
    topic = rng.integers(0, TOPICS, rows)
    matrix = np.lib.format.open_memmap(
        f"{folder}/vectors.npy", mode="w+", dtype=np.float32, shape=(rows, DIMENSION)
    )
    for start in range(0, rows, 50_000):
        part = topic[start : start + 50_000]
        block = topics[part] + 0.7 * rng.standard_normal(
            (len(part), DIMENSION), dtype=np.float32
        )
        matrix[start : start + 50_000] = block / np.linalg.norm(
            block, axis=1, keepdims=True
        )
    flat = pa.FixedSizeListArray.from_arrays(
        pa.array(np.asarray(matrix).reshape(-1)), DIMENSION
    )
    frame = pd.DataFrame(
        {
            "namespace": pd.Series([""] * rows, dtype="str"),
            "id": pd.Series(
                [f"doc-{number:07}" for number in range(rows)], dtype="str"
            ),
            "vector": pd.Series(VectorDtype().__from_arrow__(flat)),
            "metadata": pd.Series(
                [f'{{"topic": {number}, "lang": "en"}}' for number in topic],
                dtype="str",
            ),
            "data": pd.Series(
                [f"text {number} of topic {topic[number]}" for number in range(rows)],
                dtype="str",
            ),
        }
    )
    tk.write_snapshot(frame, f"{folder}/snapshot")


class searching:  # noqa: N801 - used as a function
    """A service in a process of its own that searches the first two thirds of the rows."""

    def __init__(self, folder: str) -> None:
        self._folder = folder

    def __enter__(self) -> str:
        command = [sys.executable, __file__, "--child", "serve", self._folder, "0"]
        self._process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        assert self._process.stdout is not None
        return self._process.stdout.readline().strip()

    def __exit__(self, *_: object) -> None:
        self._process.terminate()
        self._process.wait()


def serve(folder: str) -> None:
    """Respond to /info and /query until ended."""
    matrix: Any = np.load(f"{folder}/vectors.npy", mmap_mode="r")
    rows, known = len(matrix), len(matrix) * 2 // 3

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            self._respond(
                {"vectorCount": rows, "pendingVectorCount": 0, "indexSize": 0, "dimension": DIMENSION,
                 "similarityFunction": "COSINE", "indexType": "DENSE",
                 "namespaces": {"": {"vectorCount": rows, "pendingVectorCount": 0}}}
            )  # fmt: skip

        def do_POST(self) -> None:
            asked = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            vectors = np.array([query["vector"] for query in asked], dtype=np.float32)
            count = asked[0]["topK"]
            scores, ids = (
                np.zeros((len(asked), 0), np.float32),
                np.zeros((len(asked), 0), np.int64),
            )
            for start in range(0, known, 50_000):
                block = (1 + vectors @ matrix[start : min(start + 50_000, known)].T) / 2
                top = np.argpartition(block, -count, axis=1)[:, -count:]
                scores = np.hstack([scores, np.take_along_axis(block, top, axis=1)])
                ids = np.hstack([ids, top + start])
            order = np.argsort(-scores, axis=1)[:, :count]
            self._respond(
                [[{"id": f"doc-{ids[n, place]:07}", "score": float(scores[n, place])} for place in row]
                 for n, row in enumerate(order)]
            )  # fmt: skip

        def _respond(self, result: Any) -> None:
            body = json.dumps({"result": result}).encode()
            self.send_response(200)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    print(f"http://127.0.0.1:{server.server_port}", flush=True)
    server.serve_forever()


if __name__ == "__main__":
    main()
