"""Loading an index beside the public SDK's range loop, and beside the bare reading of the same bytes.

    .venv/bin/python tests/benchmarks/bench_load_vectors.py [--entries 20000] [--rounds 5] [--quick]

768 dimensions, metadata and text. At 50 ms a request the pages are requested ahead: what latency costs is
compared with what it costs who asks for one page after the other. pysimdjson has no wheel for every Python:
the load without it is measured, too.
"""

from __future__ import annotations

from unittest.mock import patch

import numpy as np
import pandas as pd
import requests
from measuring import against, in_turns, options
from replay import Range, replaying
from upstash_vector import Index

import toolkit as tk
from toolkit.tables import floats

TOKEN = "token-of-the-benchmark"
LATENCY = 0.05
PAGE = 1000


def main() -> None:
    """Measure and print."""
    chosen = options(__doc__, entries=20_000, quick=4_000)
    site = Range(chosen.entries)
    print(
        f"load_vectors: {chosen.entries:,} x {site.dimension}, {chosen.rounds} rounds"
    )
    with replaying(site) as near, replaying(site, latency=LATENCY) as far:
        theirs = sdk_loop(near.url)
        same(theirs, load(near.url))
        same(theirs, load_without_pysimdjson(near.url))
        del theirs
        near.counts(), far.counts()
        load(far.url)
        pages, _ = far.counts()
        medians = in_turns(
            {
                "bare reading": lambda: bare(near.url),
                "upstash-vector range loop": lambda: len(sdk_loop(near.url)),
                "load_vectors": lambda: len(load(near.url)),
                "load_vectors without pysimdjson": lambda: len(
                    load_without_pysimdjson(near.url)
                ),
                "bare reading, 50 ms": lambda: bare(far.url),
                "load_vectors, 50 ms": lambda: len(load(far.url)),
            },
            chosen.rounds,
            chosen.entries,
        )
    ours = medians["load_vectors"]
    against(
        "load_vectors / SDK loop",
        ours / medians["upstash-vector range loop"],
        at_most=1 / 3,
    )
    without = medians["load_vectors without pysimdjson"]
    against(
        "without pysimdjson / SDK loop",
        without / medians["upstash-vector range loop"],
        at_most=1 / 3,
    )
    against("load_vectors / bare reading", ours / medians["bare reading"], at_most=2)
    waited = medians["load_vectors, 50 ms"] - ours
    one_after_another = pages * LATENCY
    print(
        f"  50 ms a request: {waited:.2f} s more for {pages} requests; one by one {one_after_another:.2f} s"
    )
    against(
        "share of the latency that is waited for", waited / one_after_another, at_most=1
    )


def load(address: str) -> pd.DataFrame:
    """Everything, and it has to be complete."""
    service = tk.connect(vector_url=address, vector_token=TOKEN)
    frame = tk.load_vectors(service, progress=False)
    if not tk.get_receipt(frame).complete:
        raise SystemExit(f"not complete: {tk.get_receipt(frame)}")
    return frame


def load_without_pysimdjson(address: str) -> pd.DataFrame:
    """The same as on a Python that pysimdjson has no wheel for."""
    with patch.object(floats, "read_block", floats.msgspec_block):
        return load(address)


def sdk_loop(address: str) -> pd.DataFrame:
    """What the SDK's documentation shows: range until the cursor is empty, then a frame."""
    rows, cursor = [], "0"
    index = Index(url=address, token=TOKEN)
    while True:
        found = index.range(
            cursor=cursor,
            limit=PAGE,
            include_vectors=True,
            include_metadata=True,
            include_data=True,
        )
        rows += found.vectors
        cursor = found.next_cursor
        if not cursor:
            break
    return pd.DataFrame(
        {
            "id": [row.id for row in rows],
            "vector": [np.asarray(row.vector, dtype=np.float32) for row in rows],
            "metadata": [row.metadata for row in rows],
            "data": [row.data for row in rows],
        }
    )


def bare(address: str) -> int:
    """Read the bytes and nothing else: the cursor is cut out of the head, without parsing."""
    found, cursor = [], "0"
    with requests.Session() as session:
        session.headers["Authorization"] = f"Bearer {TOKEN}"
        while cursor:
            body = {
                "cursor": cursor,
                "limit": PAGE,
                "includeVectors": True,
                "includeMetadata": True,
                "includeData": True,
            }
            page = session.post(f"{address}/range", json=body, timeout=60).content
            found.append(page)
            cursor = page[:80].split(b'"nextCursor": "')[1].split(b'"')[0].decode()
    return sum(page.count(b'{"id"') for page in found)


def same(theirs: pd.DataFrame, ours: pd.DataFrame) -> None:
    """Stop unless both hold the same ids with the same numbers."""
    if list(theirs["id"]) != list(ours["id"]):
        raise SystemExit("the SDK's loop and load_vectors differ in their ids")
    if not np.array_equal(np.stack(theirs["vector"].to_list()), tk.as_matrix(ours)):
        raise SystemExit("the SDK's loop and load_vectors differ in their numbers")


if __name__ == "__main__":
    main()
