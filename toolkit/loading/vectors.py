"""Vectors as frames: a whole index, some namespaces, or exact ids."""

from __future__ import annotations

import warnings
from collections import Counter
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from functools import partial
from typing import Any, Final

import pandas as pd
import pyarrow as pa

from toolkit import arguments
from toolkit.arguments import nearest
from toolkit.client.transport import Transport
from toolkit.client.vectors import (
    PREFIX_LIMIT,
    IndexInfo,
    VectorParts,
    fetch_bytes,
    namespace_path,
    namespace_title,
    read_info,
)
from toolkit.errors import InputError, UnexpectedResultWarning
from toolkit.loading.load import Batch, Load, LoadState, Plan
from toolkit.loading.memory import available_memory, check_memory, check_page
from toolkit.loading.options import CONNECTIONS, LoadOptions, ProgressBar, ProgressOption
from toolkit.loading.ranges import KEY, RangeReader, VectorRange
from toolkit.loading.rate_limiter import open_transport
from toolkit.receipt import Receipt, utc_now
from toolkit.settings.service import Service, endpoint_of
from toolkit.tables import schemas
from toolkit.tables.frames import to_frame
from toolkit.tables.masking import ColumnMasker
from toolkit.tables.vectors import decode_vectors

Namespaces = str | Sequence[str]
"""A namespace, several, or "all"."""

Prefixes = str | Sequence[str] | None
"""What ids start with: a prefix, several, or anything."""

_NUMBER_BYTES: Final = 4
FETCH_BATCH: Final = 1000
"""Ids that one request fetches at most."""

ABSENT: Final = "no such id"
"""The `vector_problem` of an id that was fetched and is not there."""
_ASSUMPTIONS: Final = ("a cursor keeps its position in the range while vectors come and go",)


def load_vectors(
    service: Service,
    *,
    namespace: Namespaces = "",
    prefix: Prefixes = None,
    limit: int | None = None,
    include_vectors: bool = True,
    include_metadata: bool = True,
    include_data: bool = True,
    progress: ProgressOption = None,
    connections: int = CONNECTIONS,
    requests_per_second: float | None = None,
    passes: int = 1,
    memory_limit: float | None = None,
) -> pd.DataFrame:
    """Load vectors: every one of a namespace, as one frame.

    Parameters
    ----------
    service : Service
        From `connect`.
    namespace : str or sequence of str
        Default: the default namespace, ``""``. Several names, or ``"all"`` for every namespace. (An index
        whose namespace is really named "all" is read with ``["all"]``.)
    prefix : str or sequence of str, optional
        Only ids that start with it, or with one of them.
    limit : int, optional
        At most this many, for a first look.
    include_vectors, include_metadata, include_data : bool
        What comes with each id.
    progress, connections, requests_per_second
        As in `load_failures`.
    passes : {1, 2}
        2 reads everything a second time and compares, where vectors may come and go while they are read.
    memory_limit : float, optional
        Bytes of memory that the vectors may take. Default: what the machine, or its container, has left.
        ``math.inf`` tries in any case.

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
    NotEnoughMemoryError
        When the vectors would not fit into memory: said before they are read, from what the index counts and
        from the size of the first ones.
    IncompleteLoadError, ServiceError, InputError
        As in `load_failures`.

    Warns
    -----
    UnexpectedResultWarning
        When the index has no such namespace; it names the nearest.
    IncompleteLoadWarning
        When vectors changed while they were read, and reading again did not help.

    Notes
    -----
    Not the thing for an index larger than memory: `export_vectors` streams it into files.

    Requests run ahead of what is decoded, and several namespaces or prefixes are read in turn; rows
    are in the order of the namespaces and prefixes, and in the index's own inside one.

    Examples
    --------
    >>> vectors = load_vectors(service, namespace="runbooks", limit=20)
    >>> tk.as_matrix(vectors).shape
    (20, 256)
    """
    options = LoadOptions(limit, progress, connections, requests_per_second, passes)
    parts = VectorParts(vectors=include_vectors, metadata=include_metadata, data=include_data)
    most = available_memory()
    if memory_limit is not None:
        most = arguments.positive("memory_limit", memory_limit, finite=False)
    load = open_vectors(service, options, namespace=namespace, prefix=prefix, parts=parts, memory_limit=most)
    return load.frame()


def load_index(
    service: Service,
    namespace: Namespaces | None,
    *,
    include_metadata: bool = True,
    include_data: bool = True,
) -> pd.DataFrame:
    """The vectors of some namespaces of an index, or of all."""
    namespaces = "all" if namespace is None else namespace
    return load_vectors(
        service, namespace=namespaces, include_metadata=include_metadata, include_data=include_data
    )


def of_vectors(namespace: object) -> InputError:
    """The error for a namespace beside vectors, which are of their own."""
    next_step = "Pass the vectors of it: load_vectors(service, namespace=...)."
    return arguments.wrong("namespace", namespace, "none beside vectors that were loaded earlier", next_step)


def iter_vectors(
    service: Service,
    *,
    namespace: Namespaces = "",
    prefix: Prefixes = None,
    limit: int | None = None,
    include_vectors: bool = True,
    include_metadata: bool = True,
    include_data: bool = True,
    progress: ProgressOption = None,
    connections: int = CONNECTIONS,
    requests_per_second: float | None = None,
    passes: int = 1,
) -> Iterator[pd.DataFrame]:
    """Read vectors in batches: memory does not depend on how many there are.

    Parameters are those of `load_vectors`. Batches of several namespaces come in turn.

    Returns
    -------
    iterator of pandas.DataFrame
        Pages of vectors with the columns of `load_vectors`; ids are unique across all of them.

    Raises
    ------
    InputError
        As in `load_vectors`, at the call itself.
    ServiceError
        When a request fails; the frames yielded until then are whole.

    Examples
    --------
    >>> sum(len(batch) for batch in iter_vectors(service, namespace="runbooks"))
    1000
    """
    options = LoadOptions(limit, progress, connections, requests_per_second, passes)
    parts = VectorParts(vectors=include_vectors, metadata=include_metadata, data=include_data)
    load = open_vectors(service, options, namespace=namespace, prefix=prefix, parts=parts)
    # not a generator itself, so that a wrong argument raises at the call
    return (to_frame(table) for table in load)


def fetch_vectors(
    service: Service,
    ids: str | Iterable[str] | None = None,
    *,
    prefix: str | None = None,
    namespace: str | None = None,
    include_vectors: bool = True,
    include_metadata: bool = True,
    include_data: bool = True,
) -> pd.DataFrame:
    """Fetch vectors by exact ids, or by prefix.

    Parameters
    ----------
    service : Service
    ids : str, iterable of str, or DataFrame, optional
        Exact ids, or a frame with an ``id`` column. Either `ids` or `prefix`.
    prefix : str, optional
        The vectors whose ids start with it: at most 1,000 (the service's limit); `load_vectors` with a prefix
        has none.
    namespace : str, optional
        Default: for a frame with a ``namespace`` column the one of each row, else the default namespace.
    include_vectors, include_metadata, include_data : bool
        What comes with each id.

    Returns
    -------
    pandas.DataFrame
        The columns of `load_vectors`. For `ids` one row an id, in that order, as often as it is passed.
        The row of an id that is not there has nothing else, and its ``vector_problem`` is ``"no such id"``.
        The receipt in ``attrs`` says in its notes how many are not there and how many were repeated.

    Raises
    ------
    InputError
        For neither or both of `ids` and `prefix`, for a prefix that matches 1,000 vectors or more, and for
        an argument that cannot be used.
    ServiceError
        When a request fails.

    Examples
    --------
    >>> some = load_vectors(service, namespace="runbooks", limit=2)["id"].tolist()
    >>> fetched = fetch_vectors(service, [some[1], "nope", *some], namespace="runbooks")
    >>> fetched["id"].tolist() == [some[1], "nope", *some]
    True
    >>> fetched["vector_problem"].dropna().to_dict()
    {1: 'no such id'}
    >>> tk.receipt(fetched).notes
    ('1 of 3 ids is not there', '1 id was requested more than once')
    """
    endpoint = endpoint_of(service, "vector")
    space = (
        "" if namespace is None else arguments.unmasked("namespace", arguments.text("namespace", namespace))
    )
    parts = VectorParts(vectors=include_vectors, metadata=include_metadata, data=include_data)
    requested = None if ids is None else ids_in_namespaces("ids", ids, namespace)
    if prefix is not None:
        prefix = arguments.unmasked("prefix", arguments.text("prefix", prefix, empty=False))
    if (requested is None) == (prefix is None):
        raise InputError(
            "reading ids and prefix",
            got="neither" if requested is None else "both",
            expected="one of them",
            next_step="load_vectors loads all ids.",
        )
    wanted: dict[str, dict[str, None]] = {}
    for name, identity in requested or ():
        wanted.setdefault(name, {})[identity] = None
    names = list(wanted) or [space]
    count = sum(map(len, wanted.values()))
    started = utc_now()
    with Transport.to(service, "vector") as transport:
        info = read_info(transport)
        dimension = info.dimension or None
        for name in names:
            warn_unknown_namespace(name, info, stacklevel=3)
        batches: list[tuple[str, list[str] | None]] = [
            (name, some) for name, ids in wanted.items() for some in batched([*ids], FETCH_BATCH)
        ]
        if requested is None:
            batches = [(space, None)]
        tables = [schemas.vectors(dimension).empty_table()]
        for name, some in batches:
            raw = fetch_bytes(transport, namespace=name, ids=some, prefix=prefix, parts=parts)
            check_page(raw, dimension, None)
            tables.append(
                decode_vectors(raw, namespace=name, dimension=dimension, want_vectors=include_vectors)
            )
    table = pa.concat_tables(tables)
    if requested is None and table.num_rows >= PREFIX_LIMIT:
        raise InputError(
            f"fetching the vectors with prefix {prefix!r}",
            got=f"{table.num_rows:,}, the most a fetch returns, so there may be more",
            expected="fewer",
            next_step=f"Use load_vectors(service, prefix={prefix!r}), which has no limit.",
        )
    notes: list[str] = []
    if requested is not None:
        table, missing = _in_order(table, requested)
        repeated = sum(often > 1 for often in Counter(requested).values())
        if missing:
            notes.append(f"{missing:,} of {count:,} ids {'is' if missing == 1 else 'are'} not there")
        if repeated:
            notes.append(f"{repeated:,} {'id was' if repeated == 1 else 'ids were'} requested more than once")
    receipt = Receipt(
        what="vectors",
        source=service.redactor.url(endpoint.url),
        scope={
            "namespaces": names,
            "prefix": prefix,
            "ids": None if requested is None else count,
            "include": parts.names,
        },
        started_at=started,
        ended_at=utc_now(),
        pages=len(batches),
        requests=len(batches) + 1,
        rows=table.num_rows,
        notes=tuple(notes),
        complete=True,
    )
    return to_frame(ColumnMasker(service.redactor).table(table), receipt)


def ids_in_namespaces(argument: str, ids: Any, namespace: object = None) -> list[tuple[str, str]]:
    """Ids with the namespace of each: the one passed, or of a frame with that column its own, or the default.

    >>> ids_in_namespaces("ids", pd.DataFrame({"namespace": ["x", ""], "id": ["a", "b"]}))
    [('x', 'a'), ('', 'b')]
    """
    wanted = [arguments.unmasked(argument, item) for item in arguments.texts(argument, ids, column="id")]
    spaces = [""] * len(wanted)
    if namespace is not None:
        spaces = [arguments.text("namespace", namespace)] * len(wanted)
    elif "namespace" in getattr(ids, "columns", ()):
        spaces = arguments.texts(argument, ids, column="namespace", empty=True)
    return [(arguments.unmasked("namespace", name), item) for name, item in zip(spaces, wanted, strict=True)]


def batched(ids: list[str], size: int) -> Iterator[list[str]]:
    """The ids in lists of this size at most."""
    return (ids[start : start + size] for start in range(0, len(ids), size))


def warn_unknown_namespace(namespace: str, info: IndexInfo, *, stacklevel: int) -> None:
    """Say that an index does not count a namespace: mistyped, or so new that it is not counted yet."""
    for message in unknown_namespace(namespace, info):
        warnings.warn(message, UnexpectedResultWarning, stacklevel=stacklevel)


def unknown_namespace(namespace: str, info: IndexInfo) -> list[str]:
    """That an index does not count a namespace, and the nearest that it does; nothing where it does."""
    if not namespace or not info.namespaces or namespace in info.namespaces:
        return []
    return [f"The index has no namespace {namespace[:80]!r}. {nearest(namespace, sorted(info.namespaces))}"]


def _in_order(table: pa.Table, requested: list[tuple[str, str]]) -> tuple[pa.Table, int]:
    """A row for each requested namespace and id, in that order; how many of them are not there."""
    there = zip(table["namespace"].to_pylist(), table["id"].to_pylist(), strict=True)
    positions = {key: position for position, key in enumerate(there)}
    missing = list(dict.fromkeys(key for key in requested if key not in positions))
    absent = pa.Table.from_pylist(
        [{"namespace": name, "id": item, "vector_problem": ABSENT} for name, item in missing],
        schema=table.schema,
    )
    positions |= {key: table.num_rows + position for position, key in enumerate(missing)}
    both = pa.concat_tables([table, absent])
    return both.take(pa.array([positions[key] for key in requested], pa.int64())), len(missing)


def open_vectors(
    service: Service,
    options: LoadOptions | None = None,
    *,
    namespace: Namespaces = "",
    prefix: Prefixes = None,
    parts: VectorParts | None = None,
    memory_limit: float | None = None,
    transport: Callable[[], Transport] | None = None,
) -> Load:
    """A load of vectors as tables of ``schemas.vectors``: what the functions above are made of."""
    endpoint = endpoint_of(service, "vector")
    options = options or LoadOptions()
    parts = parts or VectorParts()
    several = (
        None if prefix is None else _unique_texts("prefix", prefix, "a prefix, several, or None for all ids")
    )
    prefixes = [None] if several is None else _disjoint(several)
    spaces = _named(namespace)
    with transport() if transport else Transport.to(service, "vector") as sender:
        info = read_info(sender)
    for name in spaces or ():
        warn_unknown_namespace(name, info, stacklevel=4)
    names = tuple(sorted(info.namespaces) or [""]) if spaces is None else tuple(spaces)
    for name in names:  # before others are read for hours
        namespace_path(f"reading vectors of {namespace_title(name)}", name)
    ranges = [VectorRange(name, start) for name in names for start in prefixes]
    counted = None if any(prefixes) else sum(info.namespaces.get(name, 0) for name in names)
    expected = counted if options.limit is None else min(options.limit, counted or options.limit)

    def check_fits(row_bytes: float) -> None:
        check_memory(
            f"loading {expected or 0:,} vectors into one frame",
            needed=(expected or 0) * row_bytes,
            limit=memory_limit,
            next_step="Use export_vectors, which writes them into files as they come, or iter_vectors; "
            "memory_limit=math.inf tries in any case.",
        )

    def read(state: LoadState) -> Generator[Batch]:
        check_fits(info.dimension * _NUMBER_BYTES if parts.vectors else 0)
        sender, limiter = open_transport(service, "vector", options, transport)
        reader = RangeReader(
            sender,
            limiter,
            state,
            info,
            options,
            parts=parts,
            redactor=service.redactor,
            memory_limit=memory_limit,
        )
        measured = False
        try:
            for batch in reader.batches(ranges):
                if not measured and batch.table.num_rows:
                    check_fits(batch.table.nbytes / batch.table.num_rows)
                    measured = True
                yield batch
        finally:
            reader.stop()

    plan = Plan(
        what="vectors",
        source=service.redactor.url(endpoint.url),
        scope={
            "namespaces": list(names),
            "prefix": several[0] if several and isinstance(prefix, str) else several,
            "include": parts.names,
        },
        schema=schemas.vectors(info.dimension or None),
        key=KEY,
        limit=options.limit,
        assumptions=_ASSUMPTIONS,
        rereads=True,
    )
    progress = partial(ProgressBar, options.progress, title="vectors", unit="vectors", total=expected or None)
    return Load(plan, read, progress)


def _named(namespace: Namespaces) -> list[str] | None:
    """The namespaces named; None for all."""
    if isinstance(namespace, str) and namespace == "all":
        return None
    return _unique_texts("namespace", namespace, "a namespace, several, or 'all'")


def _disjoint(prefixes: list[str]) -> list[str | None]:
    """The prefixes without those that another one covers, so that no row is in two ranges."""
    return [
        start or None
        for start in prefixes
        if not any(start != other and start.startswith(other) for other in prefixes)
    ]


def _unique_texts(name: str, value: str | Sequence[str], expected: str) -> list[str]:
    given = arguments.texts(name, value, empty=True)
    result = list(dict.fromkeys(arguments.unmasked(name, item) for item in given))
    if not result:
        raise arguments.wrong(name, value, expected)
    return result
