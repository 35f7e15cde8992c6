"""Asking an index, fetching the vectors of an id first where they are not here; Cancel waits for nobody."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from threading import Event, Thread
from typing import Any, Final, TypeVar

import pandas as pd

from toolkit.errors import InputError
from toolkit.filters.query import VectorQuery
from toolkit.loading.queries import ask
from toolkit.loading.vectors import ABSENT, fetch_vectors
from toolkit.settings.service import Service
from toolkit.widgets.similarity_question import Question, vectors_of
from toolkit.widgets.work import Job

T = TypeVar("T")

_LOOK: Final = 0.05  # seconds between two looks at whether to stop


@dataclass(frozen=True)
class Answer:
    """What a run gave.

    Attributes
    ----------
    asked : VectorQuery
    hits : pandas.DataFrame
        Its hits, with data and metadata also where they are not asked for: they tell what a hit is.
    fetched : Question or None
        The vectors that were fetched for an id.
    mistakes : list of str
        Without hits: which namespace or metadata field is not there.
    """

    asked: VectorQuery
    hits: pd.DataFrame
    fetched: Question | None
    mistakes: list[str]


def answer(
    service: Service,
    job: Job,
    value: VectorQuery | None,
    pending: tuple[Question, Mapping[str, Any]] | None,
) -> Answer:
    """Ask, by a query or by an id whose vectors are fetched first.

    Parameters
    ----------
    service : Service
    job : Job
    value : VectorQuery or None
    pending : tuple or None
        The question without its vectors, and the options; comes before the value.

    Raises
    ------
    InputError
        When there is nothing to ask by, or no vector of the id.
    ServiceError
    Stopped
    """
    fetched = None
    if pending is not None:
        question, options = pending
        fetched = stoppable(job, lambda: _fetched(service, str(question.stored), options["namespace"]))
        value = fetched.query(options)
    if value is None:
        raise InputError(
            "asking for similar vectors",
            got="nothing to ask by",
            expected="a text, a vector, a stored id or a row",
            next_step="Fill one of the fields, or set the panel's value.",
        )
    telling = replace(value, include_data=True, include_metadata=True)
    hits, mistakes = stoppable(job, lambda: ask(service, [telling]))
    hits.attrs["queries"] = [value.scope()]
    return Answer(value, hits, fetched, mistakes)


def as_asked(hits: pd.DataFrame, asked: VectorQuery) -> pd.DataFrame:
    """Hits with what was asked for alone, as `query` gives them."""
    extra = [name for name in ("data", "metadata") if not getattr(asked, f"include_{name}")]
    return hits.drop(columns=[name for name in extra if name in hits.columns])


def _fetched(service: Service, identity: str, namespace: str) -> Question:
    found = fetch_vectors(
        service, [identity], namespace=namespace, include_metadata=False, include_data=False
    )
    if found["vector_problem"].iloc[0] == ABSENT:
        raise InputError(
            f"asking by the vector of {identity!r}",
            got=f"no such id in {f'namespace {namespace!r}' if namespace else 'the default namespace'}",
            expected="the id of a stored vector",
            next_step="Look at index names the namespaces.",
        )
    return vectors_of({str(name): value for name, value in found.iloc[0].items()}, "the service")


def stoppable(job: Job, call: Callable[[], T]) -> T:
    """The result of a call that cannot be interrupted; Cancel leaves it behind, and its answer is dropped.

    Raises
    ------
    Stopped
    """
    job.step()
    ended = Event()
    results: list[T] = []
    errors: list[BaseException] = []

    def work() -> None:
        try:
            results.append(call())
        except BaseException as error:  # noqa: BLE001 - raised again where it is waited for
            errors.append(error)
        ended.set()

    Thread(target=work, name="toolkit query", daemon=True).start()
    while not ended.wait(_LOOK):
        job.step()
    if errors:
        raise errors[0]
    return results[0]
