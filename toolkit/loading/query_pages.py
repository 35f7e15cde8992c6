"""Read the results of one query page by page, with the resumable queries of the service."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from typing import NoReturn

import msgspec
import numpy as np
import pandas as pd
import pyarrow as pa

from toolkit.base.errors import ProtocolError, ServiceError
from toolkit.base.own_tokens import masked_value
from toolkit.filters.query import VectorQuery
from toolkit.loading.query_by_id import with_vectors
from toolkit.service.pages import result_arrays, result_bytes
from toolkit.service.responses import Request, Response, envelope, raise_malformed
from toolkit.service.settings import Service
from toolkit.service.transport import Transport
from toolkit.service.vectors import index_request, namespace_title, wire_query
from toolkit.tables.frames import to_frame
from toolkit.tables.masking import ColumnMasker
from toolkit.tables.vectors import decode_hits


def query_pages(
    service: Service, wanted: VectorQuery, idle: int
) -> Iterator[pd.DataFrame]:
    """Yield the pages of a query until the service has no more hits, then end the query.

    `idle` are the seconds after which the service forgets the query if no page is read.
    """
    doing = f"querying {namespace_title(wanted.namespace)}"
    hits = _Hits(wanted, ColumnMasker(service.redactor), doing)
    with Transport.to(service, "vector") as transport:
        (sent,) = with_vectors(transport, [wanted])
        operation = "resumable-query-data"
        if sent.data is None:
            operation = "resumable-query"
        body = wire_query(sent) | {"maxIdle": idle}
        start = index_request(doing, operation, sent.namespace, body)
        key, rows = transport.fetch(start, _first_page)

        try:
            while hits.add(rows):
                yield hits.page
                more = {"uuid": key, "additionalK": wanted.top_k}
                request = index_request(
                    doing, "resumable-query-next", "", more, repeatable=False
                )
                rows = transport.fetch(request, result_arrays)[0]

            if hits.is_first_page:
                yield hits.page
        finally:
            # While Python ends, no request can be sent. The query expires then, as after an error.
            if not sys.is_finalizing():
                end = index_request(
                    doing, "resumable-query-end", "", {"uuid": key}, repeatable=False
                )
                with suppress(ServiceError):
                    transport.send(end)


@dataclass
class _Hits:
    """The pages of one query, with ranks that continue from page to page."""

    wanted: VectorQuery
    masker: ColumnMasker
    doing: str
    seen: set[str] = field(default_factory=set)
    page: pd.DataFrame = field(default_factory=pd.DataFrame)

    @property
    def is_first_page(self) -> bool:
        """Return True if no page before had hits."""
        return not self.seen

    def add(self, rows: bytes) -> bool:
        """Read a page into `page`. Return False if it is empty, which ends the query."""
        table = decode_hits(
            [rows],
            vectors=self.wanted.include_vectors,
            metadata=self.wanted.include_metadata,
            data=self.wanted.include_data,
        )
        ids = table["id"].to_pylist()
        # a service that repeats itself would make the query endless
        if self.seen and ids and self.seen.issuperset(ids):
            self._raise_repeated(len(ids))
        excluded = self._excluded()
        is_new = [key not in self.seen and key not in excluded for key in ids]
        new_hits = table.filter(pa.array(is_new, pa.bool_()))
        self.page = to_frame(self.masker.table(new_hits))
        first_rank = 1 + len(self.seen - excluded)
        ranks = np.arange(first_rank, first_rank + len(self.page))
        self.page["rank"] = pd.array(ranks, dtype="Int64")
        self.page.attrs["queries"] = masked_value([self.wanted.scope()])
        self.seen.update(ids)

        return bool(ids)

    def _excluded(self) -> set[str]:
        """Return the id of the query if the vector itself is no hit."""
        if self.wanted.exclude_self and self.wanted.id is not None:
            return {self.wanted.id}
        return set()

    def _raise_repeated(self, count: int) -> NoReturn:
        got = f"{count:,} hits, all of which came before"
        raise ProtocolError(self.doing, got=got, expected="further hits, or none")


def _first_page(request: Request, response: Response) -> tuple[str, bytes]:
    """Return the key of a query and the hits of the first page."""
    members = envelope(request, result_bytes(request, response))
    scores = members.get("scores", b"")
    if not scores.lstrip().startswith(b"["):
        got = f"{scores[:40]!r} under 'scores'"
        raise_malformed(request, got=got, expected="an array")

    try:
        key = msgspec.json.decode(members.get("uuid", b""), type=str)
    except (msgspec.DecodeError, UnicodeDecodeError):
        got = "no text under 'uuid'"
        raise_malformed(request, got=got, expected="the id of the query")

    return key, scores
