"""The hits of one query beyond the first: pages of a query that the service keeps open."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress

import msgspec
import numpy as np
import pandas as pd
import pyarrow as pa

from toolkit.arguments import instance, whole
from toolkit.client.pages import result_arrays, result_bytes
from toolkit.client.responses import Request, Response, envelope, not_as_specified
from toolkit.client.transport import Transport
from toolkit.client.vectors import index_request, namespace_title, wire_query
from toolkit.errors import ProtocolError, ServiceError
from toolkit.filters.query import VectorQuery
from toolkit.loading.queries import with_vectors
from toolkit.own_tokens import masked_value
from toolkit.settings.service import Service, endpoint_of
from toolkit.tables.frames import to_frame
from toolkit.tables.masking import ColumnMasker
from toolkit.tables.vectors import decode_hits


def iter_query(service: Service, wanted: VectorQuery, *, max_idle: int = 3600) -> Iterator[pd.DataFrame]:
    """Read the hits of one query page by page, as far as you like.

    Parameters
    ----------
    service : Service
        From `connect`.
    wanted : VectorQuery
        By vector, text or id; its `top_k` is the number of hits a page.
    max_idle : int
        Seconds after which the service forgets the query when no page is read, up to 86,400.

    Returns
    -------
    iterator of pandas.DataFrame
        Pages with the columns of `query`, ranks going on; the first one may be empty. Closing the iterator
        ends the query at the service.

    Raises
    ------
    InputError
        When it is not one query, at the call itself, or the index has no such id.
    UnprocessableError
        When the index does not support it.
    ServiceError
        When a request fails. The next page is not requested twice, since the service would skip one: begin
        again.

    Examples
    --------
    >>> pages = iter_query(service, tk.VectorQuery(data="connection refused", top_k=4))
    >>> next(pages)["rank"].tolist(), next(pages)["rank"].tolist()
    ([1, 2, 3, 4], [5, 6, 7, 8])
    >>> pages.close()
    """
    endpoint_of(service, "vector")
    instance("wanted", wanted, VectorQuery, "a VectorQuery")
    idle = whole("max_idle", max_idle, most=86_400)
    # not a generator itself, so that a wrong argument raises at the call
    return _pages(service, wanted, idle)


def _pages(service: Service, wanted: VectorQuery, idle: int) -> Iterator[pd.DataFrame]:
    doing = f"querying {namespace_title(wanted.namespace)}"
    masker = ColumnMasker(service.redactor)
    own = wanted.id if wanted.exclude_self else None
    with Transport.to(service, "vector") as transport:
        (sent,) = with_vectors(transport, [wanted])
        operation = "resumable-query" if sent.data is None else "resumable-query-data"
        body = wire_query(sent) | {"maxIdle": idle}
        key, rows = transport.fetch(index_request(doing, operation, sent.namespace, body), _first_page)
        seen: set[str] = set()
        try:
            while True:
                table = decode_hits(
                    [rows],
                    vectors=wanted.include_vectors,
                    metadata=wanted.include_metadata,
                    data=wanted.include_data,
                )
                ids = table["id"].to_pylist()
                fresh = [item not in seen and item != own for item in ids]
                ranks = np.cumsum(fresh, dtype=np.int64) + len(seen - {own})
                if seen and ids and seen.issuperset(ids):
                    got = f"{len(ids):,} hits, all of which came before"
                    raise ProtocolError(doing, got=got, expected="further hits, or none")
                if seen and not ids:
                    return
                seen.update(ids)
                column = table.schema.get_field_index("rank")
                table = table.set_column(column, table.schema.field("rank"), pa.array(ranks, pa.int64()))
                frame = to_frame(masker.table(table.filter(pa.array(fresh, pa.bool_()))))
                frame.attrs["queries"] = masked_value([wanted.scope()])
                yield frame
                if not ids:
                    return
                more = {"uuid": key, "additionalK": wanted.top_k}
                request = index_request(doing, "resumable-query-next", "", more, repeatable=False)
                rows = transport.fetch(request, result_arrays)[0]
        finally:
            with suppress(ServiceError):  # it expires by itself, too
                transport.send(
                    index_request(doing, "resumable-query-end", "", {"uuid": key}, repeatable=False)
                )


def _first_page(request: Request, response: Response) -> tuple[str, bytes]:
    whole_page = envelope(request, result_bytes(request, response))
    scores = whole_page.get("scores", b"")
    if not scores.lstrip().startswith(b"["):
        not_as_specified(request, got=f"{scores[:40]!r} under 'scores'", expected="an array")
    try:
        key = msgspec.json.decode(whole_page.get("uuid", b""), type=str)
    except (msgspec.DecodeError, UnicodeDecodeError):
        not_as_specified(request, got="no text under 'uuid'", expected="the id of the query")
    return key, scores
