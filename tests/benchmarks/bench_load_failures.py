"""Loading the DLQ beside the loop a user would write, and beside the bare reading of the same bytes.

    .venv/bin/python tests/benchmarks/bench_load_failures.py [--entries 50000] [--rounds 5]

Each round runs all three, one after the other, against a replay of pre-rendered pages in another process.
What counts are the ratios of their medians: the machine's own speed cancels out.
"""

from __future__ import annotations

import argparse
import base64
import json
import statistics
import time
from collections.abc import Callable

import pandas as pd
import requests
from replay import replaying

import toolkit as tk
from toolkit.demo.history import wire_entries

TOKEN = "token-of-the-benchmark"
PAGE = 100


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--entries", type=int, default=50_000)
    parser.add_argument("--rounds", type=int, default=5)
    options = parser.parse_args()
    pages = rendered(options.entries)
    size = sum(map(len, pages.values()))
    print(
        f"{options.entries:,} entries in {len(pages):,} pages, {size / 1e6:,.1f} MB, {options.rounds} rounds"
    )
    with replaying(pages) as address:
        service = tk.connect(queue_url=address, queue_token=TOKEN)
        ways: dict[str, Callable[[], int]] = {
            "bare reading": lambda: bare(address),
            "requests + json + pandas": lambda: loop(address),
            "load_failures": lambda: len(tk.load_failures(service, progress=False)),
        }
        taken: dict[str, list[float]] = {name: [] for name in ways}
        for _ in range(options.rounds):
            for name, way in ways.items():
                start = time.perf_counter()
                found = way()
                taken[name].append(time.perf_counter() - start)
                if found != options.entries:
                    raise SystemExit(f"{name} gave {found:,} entries")
    medians = {name: statistics.median(times) for name, times in taken.items()}
    for name, median in medians.items():
        print(f"{name:<28}{median:7.2f} s   {size / median / 1e6:7.1f} MB/s")
    ours = medians["load_failures"]
    print(f"load_failures / loop          {ours / medians['requests + json + pandas']:.2f}")
    print(f"load_failures / bare reading  {ours / medians['bare reading']:.2f}")


def rendered(count: int) -> dict[str, bytes]:
    """The sample history, repeated under new ids until there are enough entries, as pages by cursor."""
    sample = wire_entries(1_767_225_600_000)
    entries = [{**sample[number % len(sample)], "dlqId": f"dlq_{number:08d}"} for number in range(count)]
    pages = {}
    for start in range(0, count, PAGE):
        cursor = f"c{start}" if start else ""
        after = f"c{start + PAGE}" if start + PAGE < count else ""
        pages[cursor] = json.dumps({"messages": entries[start : start + PAGE], "cursor": after}).encode()
    return pages


def walked(address: str) -> list[bytes]:
    """Every page's bytes: the cursor is cut out of the end, without parsing."""
    found, cursor = [], ""
    with requests.Session() as session:
        session.headers["Authorization"] = f"Bearer {TOKEN}"
        while True:
            query = f"?count={PAGE}" + (f"&cursor={cursor}" if cursor else "")
            page = session.get(f"{address}/v2/workflows/dlq{query}", timeout=30).content
            found.append(page)
            cursor = page[-40:].split(b'"cursor": "')[1].split(b'"')[0].decode()
            if not cursor:
                return found


def bare(address: str) -> int:
    """Read the bytes and nothing else."""
    return sum(page.count(b'"dlqId"') for page in walked(address))


def loop(address: str) -> int:
    """What a user would write: page by page, rows to a frame, bodies decoded, secret headers masked."""
    rows, cursor = [], None
    with requests.Session() as session:
        session.headers["Authorization"] = f"Bearer {TOKEN}"
        while True:
            answer = session.get(
                f"{address}/v2/workflows/dlq", params={"count": PAGE, "cursor": cursor}, timeout=30
            ).json()
            rows += answer["messages"]
            cursor = answer.get("cursor")
            if not cursor:
                break
    frame = pd.DataFrame(rows)
    for column in ("body", "responseBody"):
        decoded = frame[f"{column}Base64"].map(
            lambda text: base64.b64decode(text) if isinstance(text, str) else b""
        )
        frame[f"{column}Bytes"] = decoded
    for column in ("header", "responseHeader"):
        frame[column] = frame[column].map(
            lambda headers: (
                {
                    name: ["***"]
                    if any(word in name.lower() for word in ("auth", "token", "key", "secret"))
                    else values
                    for name, values in headers.items()
                }
                if isinstance(headers, dict)
                else {}
            )
        )
    for column in ("createdAt", "workflowCreatedAt"):
        frame[column] = pd.to_datetime(frame[column], unit="ms", utc=True)
    return len(frame)


if __name__ == "__main__":
    main()
