"""Loading the DLQ beside the loop a user would write, and beside the bare reading of the same bytes.

    .venv/bin/python tests/benchmarks/bench_load_failures.py [--entries 50000] [--rounds 5] [--quick]

No latency is added: what is measured is reading, decoding and masking.
"""

from __future__ import annotations

import pandas as pd
from listings import TOKEN, bare, exploded, listing, loop, same
from measuring import against, in_turns, options
from replay import replaying

import toolkit as tk


def main() -> None:
    """Measure and print."""
    chosen = options(__doc__, entries=50_000, quick=10_000)
    site = listing(chosen.entries)
    size = sum(map(len, site.entries))
    print(
        f"load_failures, no latency: {chosen.entries:,} entries, {size / 1e6:,.1f} MB, {chosen.rounds} rounds"
    )
    with replaying(site) as server:
        service = tk.connect(queue_url=server.url, queue_token=TOKEN)
        same(loop(server.url), tk.load_failures(service, progress=False))
        medians = in_turns(
            {
                "bare reading": lambda: bare(server.url),
                "requests + json + pandas": lambda: len(loop(server.url)),
                "load_failures": lambda: len(tk.load_failures(service, progress=False)),
                "the loop, headers and labels": lambda: len(exploded(loop(server.url))),
                "load_failures, headers and labels": lambda: len(taken_apart(service)),
            },
            chosen.rounds,
            chosen.entries,
        )
    ours = medians["load_failures"]
    against(
        "load_failures / loop",
        ours / medians["requests + json + pandas"],
        at_most=1 / 3,
    )
    both = (
        medians["load_failures, headers and labels"]
        / medians["the loop, headers and labels"]
    )
    against("load, headers and labels / loop that does the same", both, at_most=1 / 3)
    print(f"  load_failures / bare reading {ours / medians['bare reading']:.2f}")


def taken_apart(service: tk.Service) -> pd.DataFrame:
    """Failures loaded, and their headers and labels as tables."""
    failures = tk.load_failures(service, progress=False)
    tk.explode_headers(failures)
    tk.explode_headers(failures, column="response_headers")
    tk.explode_labels(failures)
    return failures


if __name__ == "__main__":
    main()
