"""Run the audits of an index report: health, map, recall, scores, drift and pinned queries."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

import numpy.typing as npt

from toolkit.base.errors import InputError
from toolkit.loading.vector_names import Namespaces
from toolkit.service.settings import Service
from toolkit.service.vectors import IndexInfo
from toolkit.tables.arrow_input import FrameLike
from toolkit.vectors.answers import AnswerChanges, check_queries
from toolkit.vectors.calibration import Calibration, calibrate_threshold
from toolkit.vectors.documents import Groups
from toolkit.vectors.exact_comparison import SIMILARITIES
from toolkit.vectors.health import VectorAudit, audit_vectors
from toolkit.vectors.projection import VectorProjection, project_vectors
from toolkit.vectors.recall_audit import audit_recall
from toolkit.vectors.recall_result import RecallAudit
from toolkit.vectors.vector_changes import VectorChanges, compare_vectors
from toolkit.vectors.vector_rows import VectorSource

MAP_POINTS: Final = 800  # each point is drawn four times: in two widths and two themes


@dataclass(frozen=True, kw_only=True, eq=False)
class AuditedIndex:
    """An index and the arguments of a report on it."""

    source: VectorSource
    service: Service | None
    """None if only vectors were passed."""
    info: IndexInfo | None
    """The description by the service."""
    previous: VectorSource | None
    """An earlier state of the index."""
    labels: FrameLike | None
    queries: FrameLike | npt.ArrayLike | None
    groups: Groups
    namespace: Namespaces | None
    """The namespaces that were loaded; None for all."""
    pinned: str | os.PathLike[str] | None
    """The file of the pinned queries."""
    k: int
    sample: int
    seed: int
    precision: float
    scale: str | None
    """The similarity of the index."""

    @property
    def dense_scale(self) -> str | None:
        """Return the similarity of dense vectors; None if the index has none."""
        return self.scale if self.scale in SIMILARITIES else None

    @property
    def recall_options(self) -> dict[str, Any]:
        """Return the options of `audit_recall`."""
        options: dict[str, Any] = {
            "k": self.k,
            "sample": self.sample,
            "seed": self.seed,
        }
        if self.queries is not None:
            options["queries"] = self.queries
        return options

    def map(self) -> VectorProjection | str:
        """Return the vectors projected onto a plane, or the reason why the map is missing."""
        try:
            return project_vectors(self.source, sample=MAP_POINTS, seed=self.seed)
        except InputError as error:
            # for example vectors of several dimensions, or only sparse vectors
            return f"There is no map: {error.got}."

    def recall(self) -> RecallAudit | str:
        """Return the recall of the service, or the reason why it was not measured."""
        if self.service is None or self.info is None:
            return "Recall was not measured: that takes a service to query."
        # a hybrid index is searched by its dense vectors
        if self.info.similarity not in SIMILARITIES:
            return "Recall was not measured: the index has no dense vectors."

        return audit_recall(self.service, self.source, **self.recall_options)

    def scores(self) -> Calibration | str:
        """Return a threshold of scores, or the reason why scores have no threshold."""
        if self.info is not None and self.info.kind != "DENSE":
            # sparse and hybrid scores depend on the words or on the other results, so no threshold fits them
            kind = self.info.kind.lower()
            return f"The scores of a {kind} index have no common scale."

        return calibrate_threshold(
            self.source,
            self.labels,
            queries=self.queries,
            precision=self.precision,
            similarity=self.scale,
            seed=self.seed,
        )

    def drift(self) -> VectorChanges | str:
        """Return the changes since the earlier state, or a sentence if no earlier state was passed."""
        if self.previous is None:
            return "There is no earlier state to compare with."

        return compare_vectors(
            self.previous,
            self.source,
            groups=self.groups,
            namespace=self.namespace,
            seed=self.seed,
        )

    def answers(self) -> AnswerChanges | str | None:
        """Return the changed answers to pinned queries, or why they were not asked; None without queries."""
        if self.pinned is None:
            return None
        if self.service is None:
            return "Pinned queries were not asked: that takes a service to query."

        return check_queries(self.service, self.pinned, seed=self.seed)


@dataclass(frozen=True, eq=False)
class IndexAudits:
    """The audits of an index, or the reason why an audit could not be made."""

    health: VectorAudit
    map: VectorProjection | str
    recall: RecallAudit | str
    scores: Calibration | str
    drift: VectorChanges | str
    answers: AnswerChanges | str | None = None  # None without pinned queries


STEPS: Final = 5  # number of audits that `run_audits` runs without pinned queries


def run_audits(index: AuditedIndex, step: Callable[[str], None]) -> IndexAudits:
    """Run all audits, which takes long. `step` is called with the name of each."""
    step("auditing vectors")
    health = audit_vectors(index.source, similarity=index.dense_scale)
    step("making a map")
    projected = index.map()
    step("measuring recall")
    recall = index.recall()
    step("calibrating scores")
    scores = index.scores()
    step("comparing with the earlier state")
    drift = index.drift()
    if index.pinned is not None:
        step("asking pinned queries")
    return IndexAudits(
        health=health,
        map=projected,
        recall=recall,
        scores=scores,
        drift=drift,
        answers=index.answers(),
    )
