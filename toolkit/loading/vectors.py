"""Vectors as frames: a whole index, some namespaces, or exact ids."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Final

import pandas as pd
import pyarrow as pa

from toolkit.client.pages import Page
from toolkit.client.transport import Transport
from toolkit.client.vectors import PREFIX_LIMIT, IndexInfo, fetch_bytes, list_page, read_info
from toolkit.errors import InputError
from toolkit.loading.failures import checked_limit
from toolkit.loading.load import Load, Plan, Work
from toolkit.loading.paging import walk
from toolkit.loading.progress import Progress, ProgressOption
from toolkit.settings.service import Service
from toolkit.tables import schemas
from toolkit.tables.frames import to_frame
from toolkit.tables.vectors import decode_vectors

Namespaces = str | Sequence[str]
"""A namespace, several, or "all"."""

_PAGE: Final = 1000
_PAGE_VALUES: Final = 400_000  # numbers a page: about 8 MB of JSON text
_FETCH_BATCH: Final = 1000
_ASSUMPTIONS: Final = ("a cursor keeps its place in the range while vectors come and go",)


def load_vectors(
    service: Service,
    *,
    namespace: Namespaces = "",
    prefix: str | None = None,
    limit: int | None = None,
    include_vectors: bool = True,
    include_metadata: bool = True,
    include_data: bool = True,
    progress: ProgressOption = None,
) -> pd.DataFrame:
    """Load vectors: every one of a namespace, as one frame.

    Parameters
    ----------
    service : Service
        From `connect`.
    namespace : str or sequence of str
        Default: the default namespace, ``""``. Several names, or ``"all"`` for every namespace. (An index
        whose namespace is really named "all" is read with ``["all"]``.)
    prefix : str, optional
        Only ids that start with it.
    limit : int, optional
        At most this many, for a first look.
    include_vectors, include_metadata, include_data : bool
        What comes with each id.
    progress : bool or callable, optional
        As in `load_failures`.

    Returns
    -------
    pandas.DataFrame
        One row a vector, unique by ``namespace`` and ``id``: ``namespace``, ``id`` (str), ``vector``
        (list of float32, of fixed size where the index has a dimension), ``sparse_indices``,
        ``sparse_values`` (lists), ``metadata`` (JSON text; see `explode_metadata`), ``data`` (str),
        ``vector_problem`` (null, or why the vector cannot be used; the row stays). `as_matrix` gives the
        vectors as one matrix. The receipt is in ``attrs``.

    Raises
    ------
    IncompleteLoadError
        When the load ends short; ``.partial`` holds what was read.
    ServiceError
        When asking fails before anything was read.

    Notes
    -----
    Not the thing for an index larger than memory: `export_vectors` streams it into files.

    Examples
    --------
    >>> vectors = load_vectors(service, namespace="runbooks", limit=20)
    >>> tk.as_matrix(vectors).shape
    (20, 256)
    """
    return open_vectors(
        service,
        namespace=namespace,
        prefix=prefix,
        limit=limit,
        include_vectors=include_vectors,
        include_metadata=include_metadata,
        include_data=include_data,
        progress=progress,
    ).frame()


def iter_vectors(
    service: Service,
    *,
    namespace: Namespaces = "",
    prefix: str | None = None,
    limit: int | None = None,
    include_vectors: bool = True,
    include_metadata: bool = True,
    include_data: bool = True,
    progress: ProgressOption = None,
) -> Iterator[pd.DataFrame]:
    """Read vectors in pieces: memory does not depend on how many there are.

    Parameters are those of `load_vectors`.

    Yields
    ------
    pandas.DataFrame
        A page of vectors with the columns of `load_vectors`; ids are unique across all pieces.

    Raises
    ------
    ServiceError
        When asking fails; the pieces given until then are whole.

    Examples
    --------
    >>> sum(len(piece) for piece in iter_vectors(service, namespace="runbooks"))
    1000
    """
    for table in open_vectors(
        service,
        namespace=namespace,
        prefix=prefix,
        limit=limit,
        include_vectors=include_vectors,
        include_metadata=include_metadata,
        include_data=include_data,
        progress=progress,
    ):
        yield to_frame(table)


def fetch_vectors(
    service: Service,
    ids: Iterable[str] | None = None,
    *,
    prefix: str | None = None,
    namespace: str = "",
    include_vectors: bool = True,
    include_metadata: bool = True,
    include_data: bool = True,
) -> pd.DataFrame:
    """Fetch vectors by exact ids, or by prefix.

    Parameters
    ----------
    service : Service
    ids : iterable of str, optional
        Exact ids. Those that are not there have no row. Either `ids` or `prefix`.
    prefix : str, optional
        The vectors whose ids start with it: at most 1,000 (the service's limit); `load_vectors` with a prefix
        has none.
    namespace : str
    include_vectors, include_metadata, include_data : bool
        What comes with each id.

    Returns
    -------
    pandas.DataFrame
        The columns of `load_vectors`, in the order of `ids`.

    Raises
    ------
    InputError
        For neither or both of `ids` and `prefix`, and for a prefix that matches 1,000 vectors or more.
    ServiceError
        When asking fails.

    Examples
    --------
    >>> some = load_vectors(service, namespace="runbooks", limit=2)["id"].tolist()
    >>> fetch_vectors(service, [*some, "not there"], namespace="runbooks")["id"].tolist() == some
    True
    """
    wanted = None if ids is None else list(dict.fromkeys([ids] if isinstance(ids, str) else ids))
    if (wanted is None) == (not prefix):
        raise InputError(
            "fetching vectors",
            got="neither ids nor a prefix" if wanted is None else "ids and a prefix",
            expected="one",
        )
    with Transport.to(service, "vector") as transport:
        dimension = read_info(transport).dimension or None
        batches: list[list[str] | None] = [None]
        if wanted is not None:
            batches = [wanted[start : start + _FETCH_BATCH] for start in range(0, len(wanted), _FETCH_BATCH)]
        tables = [schemas.vectors(dimension).empty_table()]
        for some in batches:
            raw = fetch_bytes(
                transport,
                namespace=namespace,
                ids=some,
                prefix=prefix,
                include_vectors=include_vectors,
                include_metadata=include_metadata,
                include_data=include_data,
            )
            tables.append(
                decode_vectors(raw, namespace=namespace, dimension=dimension, want_vectors=include_vectors)
            )
    table = pa.concat_tables(tables)
    if wanted is None and table.num_rows >= PREFIX_LIMIT:
        raise InputError(
            f"fetching the vectors with prefix {prefix!r}",
            got=f"{table.num_rows:,}, the most a fetch returns, so there may be more",
            expected="fewer",
            next_step=f"Use load_vectors(service, prefix={prefix!r}), which has no limit.",
        )
    return to_frame(table)


def open_vectors(
    service: Service,
    *,
    namespace: Namespaces = "",
    prefix: str | None = None,
    limit: int | None = None,
    include_vectors: bool = True,
    include_metadata: bool = True,
    include_data: bool = True,
    progress: ProgressOption = None,
) -> Load:
    """A load of vectors as tables of ``schemas.vectors``: what the functions above are made of."""
    checked_limit(limit)
    half = service.need("vector")
    with Transport.to(service, "vector") as transport:
        info = read_info(transport)
    names = _chosen(namespace, info)
    dimension = info.dimension or None
    count = _page_size(dimension if include_vectors else None, limit)

    def tables(work: Work) -> Iterator[pa.Table]:
        with Transport.to(service, "vector") as transport:
            for name in names:

                def fetch(cursor: str | None, name: str = name) -> Page:
                    return list_page(
                        transport,
                        namespace=name,
                        cursor=cursor or "0",
                        limit=count,
                        prefix=prefix,
                        include_vectors=include_vectors,
                        include_metadata=include_metadata,
                        include_data=include_data,
                    )

                for page in walk(fetch, what=f"the vectors of namespace {name!r}", first="0"):
                    work.count(page)
                    yield decode_vectors(
                        page.rows, namespace=name, dimension=dimension, want_vectors=include_vectors
                    )

    plan = Plan(
        what="vectors",
        source=service.redactor.url(half.url),
        scope={
            "namespaces": list(names),
            "prefix": prefix,
            "include": [
                name
                for name, wanted in (
                    ("vectors", include_vectors),
                    ("metadata", include_metadata),
                    ("data", include_data),
                )
                if wanted
            ],
        },
        schema=schemas.vectors(dimension),
        key=("namespace", "id"),
        limit=limit,
        assumptions=_ASSUMPTIONS,
    )
    total = None if prefix else sum(info.namespaces.get(name, 0) for name in names)
    if total is not None and limit is not None:
        total = min(total, limit)
    return Load(
        plan, tables, lambda: Progress(progress, title="vectors", unit="vectors", total=total or None)
    )


def _chosen(namespace: Namespaces, info: IndexInfo) -> tuple[str, ...]:
    if namespace == "all":
        return tuple(sorted(info.namespaces)) or ("",)
    return (namespace,) if isinstance(namespace, str) else tuple(dict.fromkeys(namespace))


def _page_size(dimension: int | None, limit: int | None) -> int:
    """Vectors a page: as many as keep a page at a few megabytes."""
    count = _PAGE if dimension is None else max(1, min(_PAGE, _PAGE_VALUES // dimension))
    return count if limit is None else min(count, limit)
