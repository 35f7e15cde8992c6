"""Loading the DLQ where every request takes 50 ms, beside the loop a user would write.

    .venv/bin/python tests/benchmarks/bench_latency_failures.py [--entries 50000] [--rounds 5] [--quick]

Uniform over a week; in six bursts of a minute; in six bursts of normal shape (standard deviation 50 minutes)
within two weeks; and with at most 100 requests a second. The loop asks for one
page after the other, so that neither the times of the entries nor the limit change anything for it.
"""

from __future__ import annotations

from listings import TOKEN, listing, loop, same
from measuring import against, in_turns, options
from replay import Replay, replaying

import toolkit as tk

LATENCY = 0.05


def main() -> None:
    """Measure and print."""
    chosen = options(__doc__, entries=50_000, quick=10_000)
    uniform, bursts = listing(chosen.entries), listing(chosen.entries, bursts=6)
    normal = listing(chosen.entries, bursts=6, deviation=50 * 60_000, days=14)
    print(
        f"load_failures, {LATENCY * 1000:g} ms a request: {chosen.entries:,} entries, {chosen.rounds} rounds"
    )
    with (
        replaying(uniform, latency=LATENCY) as plain,
        replaying(bursts, latency=LATENCY) as bursting,
        replaying(normal, latency=LATENCY) as swelling,
        replaying(uniform, latency=LATENCY, a_second=100) as limited,
    ):
        asked, refused = [], []
        same(loop(plain.url), load(plain))
        same(loop(bursting.url), load(bursting))
        same(loop(swelling.url), load(swelling))
        limited.counts()

        def limited_load() -> int:
            found = len(load(limited))
            counts = limited.counts()
            asked.append(counts[0])
            refused.append(counts[1])
            return found

        medians = in_turns(
            {
                "requests + json + pandas": lambda: len(loop(plain.url)),
                "load_failures, uniform": lambda: len(load(plain)),
                "load_failures, six bursts": lambda: len(load(bursting)),
                "load_failures, six normal bursts": lambda: len(load(swelling)),
                "load_failures, 100 requests/s": limited_load,
            },
            chosen.rounds,
            chosen.entries,
        )
    theirs = medians["requests + json + pandas"]
    against(
        "loop / load_failures, uniform",
        theirs / medians["load_failures, uniform"],
        at_least=8,
    )
    against(
        "loop / load_failures, six bursts",
        theirs / medians["load_failures, six bursts"],
        at_least=6,
    )
    against(
        "loop / load_failures, six normal bursts",
        theirs / medians["load_failures, six normal bursts"],
        at_least=6,
    )
    against(
        "loop / load_failures, 100 requests/s",
        theirs / medians["load_failures, 100 requests/s"],
        at_least=3,
    )
    against(
        "share of requests refused, all rounds", sum(refused) / sum(asked), at_most=0.02
    )
    print(
        f"  requests a load: {sorted(asked)} for {-(-chosen.entries // 100):,} pages, refused: {refused}"
    )


def load(server: Replay) -> object:
    """Everything, and it has to be complete."""
    service = tk.connect(queue_url=server.url, queue_token=TOKEN)
    frame = tk.load_failures(service, progress=False)
    if not tk.get_receipt(frame).complete:
        raise SystemExit(f"not complete: {tk.get_receipt(frame)}")
    return frame


if __name__ == "__main__":
    main()
