"""Find the document that a vector belongs to, by the id, by a metadata field, or by a function.

Chunks of one document are alike. If 30 new documents have 150 chunks, there are 30 independent observations
of the new vectors, not 150. Without documents, tests report a difference for nearly every new document.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

from toolkit.base.arguments import nearest, wrong
from toolkit.base.errors import InputError
from toolkit.vectors.vector_rows import (
    IndexRows,
    InNamespace,
    VectorSource,
    VectorTables,
)

Groups: TypeAlias = str | Callable[[str], object] | None

NOT_FOUND: Final = "not found"

_FIELDS: Final = (
    "document_id", "doc_id", "documentId", "docId", "ref_doc_id", "parent_id", "document", "doc",
    "source_id", "file_path", "filepath", "path", "file_name", "filename", "file", "url", "uri", "source",
)  # fmt: skip
"""Metadata fields that usually name the document, the most specific first."""

_SEPARATORS: Final = ("::", "/", "|", ":", "_", "-", ".")
_MARK: Final = "#"  # by convention, what follows is a part of the document


@dataclass(frozen=True)
class DocumentTuning:
    """Limits for ids and fields that name documents."""

    # ids that must have the form; a few rows may have been added by hand
    share: float = 0.9
    # documents in a namespace; three years or two languages are no documents
    documents: int = 10
    # documents after a second number is cut off, for example of a page
    outer_documents: int = 20
    # documents whose numbers begin at 0 or 1
    begins: float = 0.8
    # numbers between the first and last chunk that exist; deleted chunks leave gaps
    density: float = 0.5
    # ids that are examined: neighbours in sorted order, so that documents are complete
    ids: int = 20_000


_TUNING: Final = DocumentTuning()


@dataclass(frozen=True)
class DocumentPattern:
    """The form of ids that consist of a document, a separator and the number of a chunk."""

    separators: tuple[str, ...]  # from the end of the id

    def document(self, key: str) -> str:
        """Return the document of an id, for example ``doc-12`` of ``doc-12_c3``."""
        for separator in self.separators:
            if separator == _MARK:
                key = key.partition(_MARK)[0]
            elif match := _form(separator).fullmatch(key):
                key = match[1]

        return key

    def __str__(self) -> str:
        return f"ids before {' and '.join(map(repr, self.separators))}"


def document_pattern(ids: Sequence[str]) -> DocumentPattern | None:
    """Return how ids name documents; None if they do not.

    >>> document_pattern([f"doc-{number}_c{chunk}" for number in range(20) for chunk in range(3)])
    DocumentPattern(separators=('_',))
    """
    examined = sorted(set(ids))[: _TUNING.ids]
    separators: list[str] = []
    least = _TUNING.documents
    # Numbers are cut off from the end, for example the chunk and then the page of `guide_p3_c1`.
    while separator := _separator(examined, least):
        separators.append(separator)
        pattern = DocumentPattern((separator,))
        examined = sorted({pattern.document(key) for key in examined})
        least = _TUNING.outer_documents

    if separators:
        return DocumentPattern(tuple(separators))

    return None


def _separator(ids: Sequence[str], least: int) -> str | None:
    """Return the separator between a document and the number of a chunk."""
    if sum(_MARK in key for key in ids) > _TUNING.share * len(ids):
        return _MARK

    for separator in _SEPARATORS:
        form = _form(separator)
        numbers: dict[str, list[int]] = {}
        for key in ids:
            if match := form.fullmatch(key):
                numbers.setdefault(match[1], []).append(int(match[2]))

        if _are_chunks(numbers, len(ids), least):
            return separator

    return None


def _form(separator: str) -> re.Pattern[str]:
    """Return a pattern for ids such as ``doc-3``, ``doc-c3`` or ``doc-chunk_3``, with `-` as separator."""
    number = r"[A-Za-z]{0,10}[-_ ]?(\d{1,6})"
    return re.compile(f"(.+){re.escape(separator)}{number}", re.DOTALL)


def _are_chunks(numbers: Mapping[str, list[int]], ids: int, least: int) -> bool:
    """Return whether numbers at the end of ids count the chunks of documents."""
    found = sum(map(len, numbers.values()))
    if len(numbers) < least or found < _TUNING.share * ids:
        return False

    begin_low = sum(min(chunks) <= 1 for chunks in numbers.values())
    spans = sum(max(chunks) - min(chunks) + 1 for chunks in numbers.values())

    return (
        begin_low >= _TUNING.begins * len(numbers) and found >= _TUNING.density * spans
    )


def documents_by(
    name: str, function: Callable[[str], object], ids: Iterable[str]
) -> list[object]:
    """Return the document of each id by a function of the caller. `name` is the argument, for errors."""
    documents = []
    for key in ids:
        try:
            documents.append(function(key))
        except Exception as error:
            raise InputError(
                f"reading {name} with the id {str(key)[:80]!r}",
                got=f"{type(error).__name__}: {error}"[:200],
                expected="a function that returns the document of each id",
                next_step="Return the id itself if it has another form.",
            ) from error

    return documents


class DocumentFinder:
    """Names the documents of rows of two states, per namespace."""

    def __init__(
        self,
        before: IndexRows,
        after: IndexRows,
        sources: Sequence[VectorSource | InNamespace],
        groups: Any,
        *,
        doing: str,
    ) -> None:
        if not (groups is None or isinstance(groups, str) or callable(groups)):
            raise wrong(
                "groups",
                groups,
                "the name of a metadata field, or a function that returns the document of an id",
            )

        self._states, self._groups = (before, after), groups
        self._sources, self._doing = sources, doing
        if isinstance(groups, str):
            known: set[str] = set()
            for state in self._states:
                known.update(*state.fields.values())
            if groups not in known:
                raise wrong(
                    "groups", groups, "a metadata field", nearest(groups, sorted(known))
                )

    def documents(
        self, namespace: str, sides: Sequence[Iterable[str]]
    ) -> tuple[str, list[list[object]] | None]:
        """Return how documents were found, and the document of each id of both sides."""
        chosen = [list(map(str, side)) for side in sides]
        if callable(self._groups):
            return "groups", [
                documents_by("groups", self._groups, side) for side in chosen
            ]

        for field in self._fields(namespace):
            values = [
                self._values(source, namespace, field, set(side))
                for source, side in zip(self._sources, chosen, strict=True)
            ]
            distinct = {document for side in values for document in side.values()}
            if self._groups is not None or len(distinct) >= _TUNING.documents:
                # a row without the field is a document of its own
                named = [
                    [one.get(key, ("id", key)) for key in side]
                    for one, side in zip(values, chosen, strict=True)
                ]
                return f"metadata field {field}", named

        return self._documents_by_pattern(namespace, chosen)

    def _documents_by_pattern(
        self, namespace: str, sides: list[list[str]]
    ) -> tuple[str, list[list[object]] | None]:
        """Return the document of each id, if the ids have the form of chunks, such as "guide#3"."""
        every_id: list[str] = []
        for state in self._states:
            rows = state.rows
            every_id += rows["id"][rows["namespace"] == namespace].tolist()

        pattern = document_pattern(every_id)
        if pattern is None:
            return NOT_FOUND, None

        return str(pattern), [[pattern.document(key) for key in side] for side in sides]

    def _fields(self, namespace: str) -> list[str]:
        """Return the fields that may name the document."""
        if self._groups is not None:
            return [self._groups]

        usual = []
        for field in _FIELDS:
            shares = []
            for state in self._states:
                counts = state.fields.get(namespace, {}).get(field)
                rows = int((state.rows["namespace"] == namespace).sum())
                shares.append(counts.counts.total() / rows if counts and rows else 0.0)

            if min(shares) >= _TUNING.share:
                usual.append(field)

        return usual

    def _values(
        self,
        source: VectorSource | InNamespace,
        namespace: str,
        field: str,
        ids: set[str],
    ) -> dict[str, object]:
        """Return the value of a metadata field by id, as JSON."""
        values: dict[str, object] = {}
        for batch in VectorTables(source, doing=self._doing):
            for name, key, text in zip(
                batch.namespaces, batch.ids, batch.metadata, strict=True
            ):
                if name == namespace and key in ids and text:
                    value = _field(text, field)
                    if value is not None:
                        values[key] = json.dumps(value)

        return values


def _field(text: str, field: str) -> Any:
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        return None

    if isinstance(value, dict):
        return value.get(field)

    return None
