"""How often "never seen" is wrong if the history is a frame, and if it is stored in a vector index."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import pandas as pd

import toolkit as tk
from tests.accuracy.sentence_model import embedded
from toolkit_service.demo.local_service import LocalService

Labelled = Sequence[tuple[str, object]]


def memory_table(name: str, history: Labelled, new: Labelled) -> Iterator[str]:
    """Yield a table: how often groups of new texts are wrongly never seen, and wrongly seen.

    A group is known if one of the labels of its texts is a label of the history.
    """
    earlier = failures_of([text for text, _ in history], day=1)
    later = failures_of([text for text, _ in new], day=2)
    is_known = _known_groups(history, new, later)
    yield f"| {name} | groups | never seen | wrong of these | new groups | wrongly seen |"
    yield "|---|---|---|---|---|---|"
    found = tk.find_similar_failures(later, earlier, k=1)
    yield _row("history is a frame", found, is_known)
    with LocalService(
        indexes=["dense:dense:384:COSINE", "hybrid:hybrid:1024:COSINE:hashing+bm25"]
    ) as local:
        for kind, embed in (("dense", embedded), ("hybrid", None)):
            service = tk.connect(
                vector_url=local.vector_urls[kind], vector_token=local.token, environ={}
            )
            tk.index_failures(earlier, service, embed=embed, progress=False)
            found = tk.find_similar_failures(later, service, k=1, embed=embed)
            yield _row(f"history is a {kind} index", found, is_known)


def failures_of(texts: Sequence[str], day: int = 1) -> pd.DataFrame:
    """Return failures of one day with these response bodies."""
    times = pd.to_datetime([f"2026-01-0{day}"] * len(texts), utc=True)
    return pd.DataFrame(
        {
            "dlq_id": [f"{day}-{number}" for number in range(len(texts))],
            "workflow_url": "https://shop.example.com/flows/orders",
            "workflow_run_id": [f"wfr-{day}-{number}" for number in range(len(texts))],
            "response_status": 500,
            "failed_at": times,
            "created_at": times,
            "response_body": texts,
            "response_body_base64": None,
        }
    )


def _known_groups(history: Labelled, new: Labelled, later: pd.DataFrame) -> pd.Series:
    """Return, by group of the new texts, whether the history has a text with the same label."""
    known_labels = {label for _, label in history}
    groups = tk.group_failures(later).assign(later)["signature"]
    is_known = pd.Series([label in known_labels for _, label in new])
    return is_known.groupby(groups.to_numpy()).any()


def _row(name: str, found: tk.results.SimilarFailures, is_known: pd.Series) -> str:
    seen = found.frame.drop_duplicates("group").set_index("group")["seen"]
    # few groups have another id if they are grouped together with the history
    both = seen.index.intersection(is_known.index)
    seen, is_known = seen[both], is_known[both]
    never = int((~seen).sum())
    wrongly_never = is_known[~seen].mean()
    wrongly_seen = seen[~is_known].mean()
    return (
        f"| {name} | {len(seen)} | {never} | {wrongly_never:.3f} "
        f"| {int((~is_known).sum())} | {wrongly_seen:.3f} |"
    )
