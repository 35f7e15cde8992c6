"""What is new and what is gone between two frames of failures."""

from __future__ import annotations

from dataclasses import dataclass

from narwhals.typing import IntoFrame

from toolkit.analysis.columns import collect, effective_time, select


@dataclass(frozen=True, kw_only=True)
class NewAndGone:
    """The difference of two frames, by `dlq_id`.

    Attributes
    ----------
    new : tuple of str
        Ids that only the later frame has, the latest failure first.
    gone : tuple of str
        Ids that only the earlier frame has, sorted: resumed, deleted or expired since.
    new_workflows : tuple of str
        Workflow URLs that only the later frame has, sorted.
    """

    new: tuple[str, ...]
    gone: tuple[str, ...]
    new_workflows: tuple[str, ...]


def new_and_gone(failures: IntoFrame, previous: IntoFrame) -> NewAndGone:
    """Compare two frames of failures by `dlq_id`.

    Where one of the two loads was not complete, an id can look new or gone without being it.

    Parameters
    ----------
    failures, previous : frame
        The later frame and the earlier one: `dlq_id`, `workflow_url`; the later also `failed_at`,
        `created_at`.

    Returns
    -------
    NewAndGone

    Examples
    --------
    >>> import pandas as pd
    >>> times = pd.to_datetime(["2026-01-01", "2026-01-02"], utc=True)
    >>> later = pd.DataFrame({"dlq_id": ["b", "c"], "workflow_url": "u", "failed_at": times})
    >>> later["created_at"] = times
    >>> new_and_gone(later, pd.DataFrame({"dlq_id": ["a", "b"], "workflow_url": "u"}))
    NewAndGone(new=('c',), gone=('a',), new_workflows=())
    """
    doing = "comparing failures"
    columns = ["dlq_id", "workflow_url", "failed_at", "created_at"]
    later = collect(select(failures, columns, doing=doing).with_columns(when_=effective_time()))
    earlier = collect(select(previous, ["dlq_id", "workflow_url"], doing=doing, name="previous"))
    known = set(earlier["dlq_id"].to_pylist())
    ids = later["dlq_id"].to_pylist()
    moments = [-when.timestamp() if when else 0.0 for when in later["when_"].to_pylist()]
    fresh = sorted((moment, name) for moment, name in zip(moments, ids, strict=True) if name not in known)
    workflows = set(later["workflow_url"].to_pylist()) - set(earlier["workflow_url"].to_pylist()) - {None}
    return NewAndGone(
        new=tuple(name for _, name in fresh),
        gone=tuple(sorted(known - set(ids))),
        new_workflows=tuple(sorted(workflows)),
    )
