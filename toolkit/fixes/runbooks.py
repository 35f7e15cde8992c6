"""Find the runbook of each group of failures in a vector index.

The nearest document always exists, also if no runbook is about an error. So the scores are compared with
scores of errors that are unrelated to any runbook (`unrelated_errors.py`):

1. The index is queried with the masked template of each group, and with each unrelated error.
2. From the score of a document, its mean score for unrelated errors is subtracted. A document that is near to
   everything, for example a table of contents, loses most of its score.
3. The best remaining score of each unrelated error is a score by chance. The cut is their median plus twice
   their spread (median absolute deviation). A group whose best score is at most the cut has no runbook.

For example, if the best scores of unrelated errors are 0.05 to 0.11 with the median 0.08 and the spread 0.02,
the cut is 0.12. No scale of scores is assumed, so the cut fits any model, and dense, sparse and hybrid
indexes.

Sources: M. Radovanović and others, Hubs in Space (2010); F. Hampel, The Influence Curve (1974), for the
spread.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pandas as pd

from toolkit.base.arguments import text, unmasked, whole, wrong
from toolkit.base.errors import UnexpectedResultWarning
from toolkit.drawing.result_tables import HasFrame, frame_table
from toolkit.drawing.wording import counted
from toolkit.failures.grouping import FailureGroups, group_failures
from toolkit.failures.selection import typed_rows
from toolkit.failures.sources import AnyFrame
from toolkit.fixes.unrelated_errors import UNRELATED_ERRORS
from toolkit.loading.fetching import fetch_vectors
from toolkit.loading.queries import run_queries
from toolkit.loading.text_embedding import Embed, text_queries
from toolkit.secrets.redaction import Redactor, visible
from toolkit.service.settings import Service, endpoint_of
from toolkit.service.vectors import describe_index
from toolkit.tables.metadata_fields import metadata_values

Numbers = npt.NDArray[np.float64]


@dataclass(frozen=True)
class RunbookTuning:
    """Constants of the search, with the data they were set on."""

    strictness: float = 2.0
    """Spreads between the median score by chance and the cut. Set on the errors at even positions of
    tests/accuracy/written_runbooks.py: 95 % of those without a runbook are below the cut."""
    spread_of_normal: float = 1.4826
    """Makes the median absolute deviation of a normal distribution the standard deviation."""
    depth: int = 100
    """Documents per query. In larger namespaces, the others count as near as the last of them."""
    most_groups: int = 200
    """Groups that are searched, the largest first."""
    batch: int = 50
    """Queries per request."""
    longest: int = 1_000
    """Characters of a template that are sent."""


TUNING: Final = RunbookTuning()
_DOING: Final = "suggesting runbooks"
_SHOWN: Final = 20
_LARGEST: Final = 1e300  # any cut: integers beyond it are no floats
_TITLE: Final = 120
_TITLES: Final = ("title", "name", "headline")
_LINKS: Final = ("url", "link", "href")
_TYPES: Final = {
    "group": "str", "title": "str", "rank": "Int64", "runbook": "str", "runbook_title": "str", "link": "str",
    "score": "float64", "matches": "bool",
}  # fmt: skip


@dataclass(frozen=True, eq=False, repr=False)
class RunbookSuggestions(HasFrame):
    """The nearest runbooks of groups of failures; made by `suggest_runbooks`.

    Attributes
    ----------
    frame : pandas.DataFrame
        Up to `k` rows per group, the largest group first: `group`, `title` (str, masked), `rank` (Int64, from
        1), `runbook` (str, the id of the document), `runbook_title`, `link` (str, from the metadata; or
        missing), `score` (float64, the score above the usual score of the document), `matches`
        (bool: whether the score is above the cut). A group without any document has one row without runbook.
    cut : float
        Scores up to it are chance: no runbook matches.

    Examples
    --------
    >>> found = suggest_runbooks(tk.load_failures(service, limit=50), service)
    >>> list(found.frame.columns[:4])
    ['group', 'title', 'rank', 'runbook']
    """

    frame: pd.DataFrame
    cut: float

    @property
    def best(self) -> dict[str, dict[str, Any]]:
        """Return the best runbook of each group that has one: id, title and link.

        Examples
        --------
        >>> found = suggest_runbooks(tk.load_failures(service, limit=50), service)
        >>> set(found.best) <= set(found.frame["group"])
        True
        """
        first = self.frame[self.frame["matches"] & (self.frame["rank"] == 1)]
        found: dict[str, dict[str, Any]] = {}
        for row in first.to_dict("records"):
            link = None
            if isinstance(row["link"], str):
                link = row["link"]
            about = {"runbook": row["runbook"], "title": row["runbook_title"]}
            found[str(row["group"])] = about | {"link": link}

        return found

    def __repr__(self) -> str:
        groups = self.frame["group"].nunique()
        matching = len(self.best)
        sentence = f"{counted(groups, 'group')}: {matching:,} with a runbook"
        if groups > matching:
            sentence += f", {groups - matching:,} without"
        return sentence

    def _repr_html_(self) -> str:
        return frame_table(repr(self), self.frame.head(_SHOWN).drop(columns="group"))


def suggest_runbooks(
    groups: FailureGroups | AnyFrame,
    service: Service,
    *,
    namespace: str = "runbooks",
    k: int = 3,
    embed: Embed | None = None,
    cut: float | None = None,
) -> RunbookSuggestions:
    """Find the nearest runbooks of each group of failures in your vector index, or that no runbook matches.

    The index is queried with the masked template of each group. If the best score is not above the scores of
    errors that no runbook is about, no runbook matches. Do not run the steps of a runbook unread: a similar
    error can have another cause.

    Parameters
    ----------
    groups : FailureGroups or frame
        Of `group_failures`, or failures, which are then grouped. The 200 largest groups are searched.
    service : Service
        With a vector index, from `connect`.
    namespace : str, default "runbooks"
        Namespace of the runbooks. The metadata of a document may have a `title` and a `url`.
    k : int, default 3
        Number of runbooks per group, 1 to 100.
    embed : callable, optional
        Function that embeds a list of strings: per string an array of d numbers, or a mapping with
        ``vector``, ``sparse`` or both. If omitted, the model of the index embeds the strings; of a hybrid
        index, the dense model.
    cut : float, optional
        Score that a runbook must exceed, instead of the measured one.

    Returns
    -------
    RunbookSuggestions
        `.frame` has up to `k` rows per group; `matches` tells whether the runbook is about the error.

    Raises
    ------
    InputError
        If a column is missing, or an argument is not valid.
    UnprocessableError
        If the index has no model and `embed` is omitted, or if the embeddings have another dimension.
    ServiceError
        If a request fails.

    Warns
    -----
    UnexpectedResultWarning
        If the namespace does not exist.

    Examples
    --------
    >>> failures = tk.load_failures(service, limit=200)
    >>> found = suggest_runbooks(tk.group_failures(failures), service, k=1)
    >>> found.frame["rank"].max()
    np.int64(1)
    """
    endpoint_of(service, "vector")
    namespace = unmasked("namespace", text("namespace", namespace))
    k = whole("k", k, most=TUNING.depth)
    if cut is not None and not _is_number(cut):
        raise wrong("cut", cut, "a number")

    if not isinstance(groups, FailureGroups):
        groups = group_failures(groups)
    searched = groups.frame.head(TUNING.most_groups)
    redactor = service.redactor
    texts = [_query_text(row, redactor) for row in searched.itertuples(index=False)]
    if not texts:
        return RunbookSuggestions(typed_rows([], _TYPES), float("nan"))

    scores, mistakes = _scores([*texts, *UNRELATED_ERRORS], service, namespace, embed)
    for mistake in mistakes:
        warnings.warn(mistake, UnexpectedResultWarning, stacklevel=2)
    own, unrelated = scores[: len(texts)], scores[len(texts) :]
    usual = usual_scores(unrelated)
    measured_cut = cut_of(unrelated, usual) if cut is None else float(cut)
    ranked = [_ranked(hits, usual, k) for hits in own]
    documents = _documents(ranked, service, namespace)

    rows: list[dict[str, Any]] = []
    for group, hits in zip(searched.itertuples(index=False), ranked, strict=True):
        title = visible(redactor.text(str(group.title)))
        about = {"group": group.group, "title": title}
        rows += _rows(about, hits, documents, measured_cut)

    return RunbookSuggestions(typed_rows(rows, _TYPES), measured_cut)


def _is_number(value: object) -> bool:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return False
    return -_LARGEST < value < _LARGEST


def _query_text(group: Any, redactor: Redactor) -> str:
    """Return the masked template of a group, or the title if the template is empty."""
    # masked first: half a secret is not recognized
    masked = redactor.text(str(group.template or group.title))
    return masked[: TUNING.longest].strip() or "empty response"


def _scores(
    texts: list[str], service: Service, namespace: str, embed: Embed | None
) -> tuple[list[dict[str, float]], list[str]]:
    """Return the scores by document of each text, and warnings about the namespace."""
    options: dict[str, Any] = {"top_k": TUNING.depth, "namespace": namespace}
    if describe_index(service).kind == "HYBRID":
        # Fused scores are made of ranks: the best one is high even if nothing is near.
        mode = {"fusion_algorithm": "DBSF"} if embed else {"query_mode": "DENSE"}
        options |= mode

    queries = text_queries(texts, embed, **options)
    scores: list[dict[str, float]] = [{} for _ in texts]

    mistakes: list[str] = []
    for start in range(0, len(queries), TUNING.batch):
        hits, found = run_queries(service, queries[start : start + TUNING.batch])
        mistakes = mistakes or found
        numbers = zip(hits["query"], hits["id"], hits["score"], strict=True)
        for number, document, score in numbers:
            scores[start + int(number)][document] = float(score)

    return scores, mistakes


def usual_scores(unrelated: Sequence[Mapping[str, float]]) -> dict[str, float]:
    """Return the mean score of each document for unrelated errors.

    A document that a query does not list is at most as near as the last one of a full list. A shorter list
    has all documents with any score.

    >>> usual_scores([{"a": 0.5, "b": 0.25}, {"a": 1.0}])
    {'a': 0.75, 'b': 0.125}
    """
    table = pd.DataFrame(list(unrelated), dtype=np.float64)
    lowest = np.array(list(map(_lowest, unrelated)))
    scores = table.to_numpy()
    known = np.where(np.isnan(scores), lowest[:, np.newaxis], scores)

    return dict(zip(table.columns, known.mean(axis=0).tolist(), strict=True))


def _lowest(scores: Mapping[str, float]) -> float:
    if len(scores) < TUNING.depth:
        return 0.0
    return min(scores.values())


def _above_usual(
    scores: Mapping[str, float], usual: Mapping[str, float]
) -> dict[str, float]:
    default = min(usual.values(), default=0.0)
    return {name: score - usual.get(name, default) for name, score in scores.items()}


def cut_of(
    unrelated: Sequence[Mapping[str, float]], usual: Mapping[str, float]
) -> float:
    """Return the score that hardly any unrelated error exceeds.

    An error is compared with the mean of the others: if s is the score and m the mean of n errors, s minus
    the mean of the others is (s - m) · n / (n - 1).
    """
    tops = [
        max(_above_usual(scores, usual).values(), default=0.0) for scores in unrelated
    ]
    best = np.array(tops) * len(tops) / (len(tops) - 1)
    middle = float(np.median(best))
    spread = TUNING.spread_of_normal * float(np.median(np.abs(best - middle)))

    return middle + TUNING.strictness * (spread or float(best.std()))


def _ranked(
    scores: Mapping[str, float], usual: Mapping[str, float], k: int
) -> list[tuple[str, float]]:
    """Return the best documents and how far the scores are above the usual ones."""
    above = _above_usual(scores, usual).items()
    return sorted(above, key=lambda pair: (-pair[1], pair[0]))[:k]


def _documents(
    ranked: list[list[tuple[str, float]]], service: Service, namespace: str
) -> dict[str, dict[str, Any]]:
    """Return the title and the link of each document."""
    ids = list(dict.fromkeys(name for hits in ranked for name, _ in hits))
    if not ids:
        return {}

    fetched = fetch_vectors(service, ids, namespace=namespace, include_vectors=False)
    about = partial(_about, redactor=service.redactor)
    metadata = metadata_values(fetched["metadata"])
    columns = zip(fetched["id"], metadata, fetched["data"], strict=True)

    return {name: about(name, values, data) for name, values, data in columns}


def _about(name: str, metadata: Any, data: Any, redactor: Redactor) -> dict[str, Any]:
    values = metadata if isinstance(metadata, Mapping) else {}
    title = _first_text(values, _TITLES)
    if title is None and isinstance(data, str):
        title = data.strip().partition("\n")[0]
    shown = visible(redactor.text(title or name))[:_TITLE]
    link = _first_text(values, _LINKS)
    if link is not None and link.startswith(("https://", "http://")):
        return {"runbook_title": shown, "link": redactor.url(link)}

    return {"runbook_title": shown}


def _first_text(values: Mapping[Any, Any], names: Sequence[str]) -> str | None:
    texts = (values.get(name) for name in names)
    return next((found for found in texts if isinstance(found, str) and found), None)


def _rows(
    about: dict[str, Any],
    hits: list[tuple[str, float]],
    documents: Mapping[str, dict[str, Any]],
    cut: float,
) -> Iterator[dict[str, Any]]:
    if not hits:
        yield about | {"matches": False, "score": float("nan")}
    for rank, (name, score) in enumerate(hits, start=1):
        found = {"rank": rank, "runbook": name, "score": score, "matches": score > cut}
        yield about | found | documents.get(name, {})
