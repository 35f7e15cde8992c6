"""Load vectors as frames: a complete index, some namespaces, or single ids."""

from __future__ import annotations

import warnings
from collections import Counter
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import product, starmap
from typing import Any, Final

import pandas as pd
import pyarrow as pa

from toolkit.base import arguments
from toolkit.base.arguments import nearest
from toolkit.base.errors import InputError, UnexpectedResultWarning
from toolkit.base.progress import ProgressBar, ProgressOption
from toolkit.filters.metadata import MetadataFilter, parse
from toolkit.loading.coverage import empty_default_namespace, unread_note
from toolkit.loading.filtered import FilteredBatches
from toolkit.loading.load import Batch, Load, LoadPlan, LoadState
from toolkit.loading.memory import available_memory, check_memory, check_page
from toolkit.loading.options import CONNECTIONS, LoadOptions
from toolkit.loading.ranges import KEY, RangeReader, VectorRange
from toolkit.loading.rate_limiter import open_transport
from toolkit.service.settings import Service, endpoint_of
from toolkit.service.transport import Transport
from toolkit.service.vectors import (
    PREFIX_LIMIT,
    IndexInfo,
    VectorParts,
    fetch_bytes,
    namespace_path,
    namespace_title,
    read_info,
)
from toolkit.tables import schemas
from toolkit.tables.frames import to_frame
from toolkit.tables.masking import ColumnMasker
from toolkit.tables.receipt import Receipt, utc_now
from toolkit.tables.vectors import decode_vectors

Namespaces = str | Sequence[str]
"""One namespace, several, or "all"."""

Prefixes = str | Sequence[str] | None
"""Prefix of the ids: one, several, or None for all ids."""

_NUMBER_BYTES: Final = 4
FETCH_BATCH: Final = 1000
"""Maximum number of ids per fetch request."""

ABSENT: Final = "no such id"
"""The `vector_problem` of an id that was fetched and does not exist."""
_ASSUMPTIONS: Final = (
    "a cursor keeps its position in the range while vectors come and go",
)


def load_vectors(
    service: Service,
    *,
    namespace: Namespaces = "all",
    prefix: Prefixes = None,
    filter: str | MetadataFilter | None = None,  # noqa: A002 - the service's own name
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
    """Load all vectors of an index, or of some namespaces, as one frame.

    Parameters
    ----------
    service : Service
        From `connect`.
    namespace : str or sequence of str
        Default: ``"all"``, every namespace. Give one name or several; ``""`` is the default namespace. The
        notes of the receipt list the namespaces that were not read. (If a namespace is really named "all",
        write ``["all"]``.)
    prefix : str or sequence of str, optional
        Load only ids that start with the prefix, or with one of several prefixes.
    filter : str or MetadataFilter, optional
        Load only vectors whose metadata match, for example ``"lang = 'en'"``. The service cannot list by
        metadata, so all rows are read, and the others are dropped as they arrive.
    limit : int, optional
        Maximum number of vectors, for a first look.
    include_vectors, include_metadata, include_data : bool
        Parts that are loaded in addition to the id.
    progress, connections, requests_per_second
        As in `load_failures`.
    passes : {1, 2}
        With 2, everything is read twice and compared. Use it if vectors come and go during the load.
    memory_limit : float, optional
        Bytes of memory that the vectors may take. Default: the memory that the machine or the container has
        left. With ``math.inf``, there is no limit.

    Returns
    -------
    pandas.DataFrame
        One row per vector, unique by ``namespace`` and ``id``: ``namespace``, ``id`` (str), ``vector``
        (list of float32, of fixed size if the index has a dimension), ``sparse_indices``,
        ``sparse_values`` (lists), ``metadata`` (JSON text; see `explode_metadata`), ``data`` (str),
        ``vector_problem`` (null, or the reason why the vector cannot be used; the row stays). `as_matrix`
        returns the vectors as one matrix. The receipt is in ``attrs``.

    Raises
    ------
    NotEnoughMemoryError
        If the vectors would not fit into memory. This is estimated before they are read, from the count of
        the index and the size of the first vectors.
    IncompleteLoadError, ServiceError, InputError
        As in `load_failures`.

    Warns
    -----
    UnexpectedResultWarning
        If the index has no such namespace; the warning names the nearest. If only the default namespace was
        requested, and only others have vectors.
    IncompleteLoadWarning
        If vectors changed while they were read, and reading them again did not help.

    Notes
    -----
    If the index is larger than memory, use `export_vectors`, which streams it into files.

    Requests run ahead of decoding, and several namespaces or prefixes are read in turn. Rows are in the order
    of the namespaces and prefixes, and within each in the order of the index.

    Examples
    --------
    >>> vectors = load_vectors(service, namespace="runbooks", limit=20)
    >>> tk.as_matrix(vectors).shape
    (20, 256)
    """
    options = LoadOptions(limit, progress, connections, requests_per_second, passes)
    parts = VectorParts(
        vectors=include_vectors, metadata=include_metadata, data=include_data
    )
    most = available_memory()
    if memory_limit is not None:
        most = arguments.positive("memory_limit", memory_limit, finite=False)
    load = open_vectors(
        service,
        options,
        namespace=namespace,
        prefix=prefix,
        condition=_parsed(filter),
        parts=parts,
        memory_limit=most,
    )
    return load.frame()


def _parsed(condition: str | MetadataFilter | None) -> MetadataFilter | None:
    """Return a filter as a tree; None and spaces mean no filter."""
    if isinstance(condition, str):
        if not condition.strip():
            return None
        return parse(condition)
    if condition is None or isinstance(condition, MetadataFilter):
        return condition
    raise arguments.wrong(
        "filter", condition, "text in the filter language, or a MetadataFilter"
    )


def load_index(
    service: Service,
    namespace: Namespaces | None,
    *,
    include_metadata: bool = True,
    include_data: bool = True,
) -> pd.DataFrame:
    """Return the vectors of some namespaces of an index, or of all if `namespace` is None."""
    namespaces = namespace
    if namespaces is None:
        namespaces = "all"
    return load_vectors(
        service,
        namespace=namespaces,
        include_metadata=include_metadata,
        include_data=include_data,
    )


def of_vectors(namespace: object) -> InputError:
    """Return the error for a namespace that is given together with vectors, which have their own."""
    return arguments.wrong(
        "namespace",
        namespace,
        "no namespace, because the vectors were loaded earlier",
        "Pass the vectors of the namespace: load_vectors(service, namespace=...).",
    )


def iter_vectors(
    service: Service,
    *,
    namespace: Namespaces = "all",
    prefix: Prefixes = None,
    filter: str | MetadataFilter | None = None,  # noqa: A002 - the service's own name
    limit: int | None = None,
    include_vectors: bool = True,
    include_metadata: bool = True,
    include_data: bool = True,
    progress: ProgressOption = None,
    connections: int = CONNECTIONS,
    requests_per_second: float | None = None,
    passes: int = 1,
) -> Iterator[pd.DataFrame]:
    """Read vectors in batches. The memory needed does not depend on the number of vectors.

    Parameters are the same as in `load_vectors`. Batches of several namespaces come in turn.

    Returns
    -------
    iterator of pandas.DataFrame
        Pages of vectors with the columns of `load_vectors`. Ids are unique across all frames.

    Raises
    ------
    InputError
        As in `load_vectors`, at the call itself.
    ServiceError
        If a request fails. The frames yielded so far are complete.

    Examples
    --------
    >>> sum(len(batch) for batch in iter_vectors(service, namespace="runbooks"))
    1000
    """
    options = LoadOptions(limit, progress, connections, requests_per_second, passes)
    parts = VectorParts(
        vectors=include_vectors, metadata=include_metadata, data=include_data
    )
    load = open_vectors(
        service,
        options,
        namespace=namespace,
        prefix=prefix,
        condition=_parsed(filter),
        parts=parts,
    )
    # `iter_vectors` is not a generator itself, so that an invalid argument raises at the call
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
        Exact ids, or a frame with an ``id`` column. Give either `ids` or `prefix`.
    prefix : str, optional
        Fetch the vectors with ids that start with the prefix: at most 1,000 (a limit of the service).
        `load_vectors` with a prefix has no limit.
    namespace : str, optional
        Default: for a frame with a ``namespace`` column the namespace of each row, else the default
        namespace.
    include_vectors, include_metadata, include_data : bool
        Parts that are fetched in addition to the id.

    Returns
    -------
    pandas.DataFrame
        The columns of `load_vectors`. For `ids`, one row per id, in the same order, repeated ids included. If
        an id does not exist, only the ``vector_problem`` of the row is set, to ``"no such id"``. The notes of
        the receipt in ``attrs`` contain the numbers of missing and of repeated ids.

    Raises
    ------
    InputError
        If neither or both of `ids` and `prefix` are given, if a prefix matches 1,000 vectors or more, or if
        an argument cannot be used.
    ServiceError
        If a request fails.

    Examples
    --------
    >>> some = load_vectors(service, namespace="runbooks", limit=2)["id"].tolist()
    >>> fetched = fetch_vectors(service, [some[1], "nope", *some], namespace="runbooks")
    >>> fetched["id"].tolist() == [some[1], "nope", *some]
    True
    >>> fetched["vector_problem"].dropna().to_dict()
    {1: 'no such id'}
    >>> tk.get_receipt(fetched).notes
    ('1 of 3 ids is not there', '1 id was requested more than once')
    """
    endpoint = endpoint_of(service, "vector")
    default_name = ""
    if namespace is not None:
        default_name = arguments.unmasked(
            "namespace", arguments.text("namespace", namespace)
        )
    parts = VectorParts(
        vectors=include_vectors, metadata=include_metadata, data=include_data
    )
    requested = None
    if ids is not None:
        requested = ids_in_namespaces("ids", ids, namespace)
    if prefix is not None:
        prefix = arguments.unmasked(
            "prefix", arguments.text("prefix", prefix, empty=False)
        )
    if (requested is None) == (prefix is None):
        raise InputError(
            "reading ids and prefix",
            got="neither" if requested is None else "both",
            expected="either ids or a prefix",
            next_step="To load all ids, use load_vectors.",
        )
    unique_ids: dict[str, dict[str, None]] = {}
    for name, identity in requested or ():
        unique_ids.setdefault(name, {})[identity] = None
    names = list(unique_ids) or [default_name]
    # one request per batch of ids; a prefix is one request
    batches: list[tuple[str, list[str] | None]] = []
    for name, ids_of_name in unique_ids.items():
        batches += [(name, batch) for batch in batched([*ids_of_name], FETCH_BATCH)]
    if requested is None:
        batches = [(default_name, None)]
    started = utc_now()
    with Transport.to(service, "vector") as transport:
        info = read_info(transport)
        for name in names:
            warn_unknown_namespace(name, info, stacklevel=3)
        table = _fetch(
            transport, batches, info.dimension or None, prefix=prefix, parts=parts
        )
    notes: tuple[str, ...] = ()
    if requested is None:
        _check_prefix_limit(prefix, table.num_rows)
    else:
        table, missing = _in_order(table, requested)
        notes = _fetch_notes(requested, missing)
    receipt = Receipt(
        what="vectors",
        source=service.redactor.url(endpoint.url),
        scope={
            "namespaces": names,
            "prefix": prefix,
            "ids": None if requested is None else sum(map(len, unique_ids.values())),
            "include": parts.names,
        },
        started_at=started,
        ended_at=utc_now(),
        pages=len(batches),
        requests=len(batches) + 1,
        rows=table.num_rows,
        notes=notes,
        complete=True,
    )
    return to_frame(ColumnMasker(service.redactor).table(table), receipt)


def _fetch(
    transport: Transport,
    batches: list[tuple[str, list[str] | None]],
    dimension: int | None,
    *,
    prefix: str | None,
    parts: VectorParts,
) -> pa.Table:
    """Fetch batches of ids, each with a namespace, or the ids of a prefix."""
    tables = [schemas.vectors(dimension).empty_table()]
    for name, ids in batches:
        raw = fetch_bytes(
            transport, namespace=name, ids=ids, prefix=prefix, parts=parts
        )
        check_page(raw, dimension, None)
        table = decode_vectors(
            raw, namespace=name, dimension=dimension, want_vectors=parts.vectors
        )
        tables.append(table)
    return pa.concat_tables(tables)


def _check_prefix_limit(prefix: str | None, rows: int) -> None:
    if rows < PREFIX_LIMIT:
        return
    raise InputError(
        f"fetching the vectors with prefix {prefix!r}",
        got=f"{rows:,} vectors, the most that a fetch returns, so there may be more",
        expected=f"a prefix of fewer than {PREFIX_LIMIT:,} vectors",
        next_step=f"Use load_vectors(service, prefix={prefix!r}), which has no limit.",
    )


def _fetch_notes(requested: list[tuple[str, str]], missing: int) -> tuple[str, ...]:
    """Return the notes of the receipt about missing and repeated ids."""
    occurrences = Counter(requested)
    of_all = f"{missing:,} of {len(occurrences):,} ids"
    repeated = sum(count > 1 for count in occurrences.values())
    notes = []
    if missing == 1:
        notes.append(f"{of_all} is not there")
    elif missing:
        notes.append(f"{of_all} are not there")
    if repeated == 1:
        notes.append("1 id was requested more than once")
    elif repeated:
        notes.append(f"{repeated:,} ids were requested more than once")
    return tuple(notes)


def ids_in_namespaces(
    argument: str, ids: Any, namespace: object = None
) -> list[tuple[str, str]]:
    """Return ids with namespaces: the given one, or the column of a frame, or the default.

    >>> ids_in_namespaces("ids", pd.DataFrame({"namespace": ["x", ""], "id": ["a", "b"]}))
    [('x', 'a'), ('', 'b')]
    """
    texts = arguments.texts(argument, ids, column="id")
    wanted = [arguments.unmasked(argument, text) for text in texts]
    if namespace is None and "namespace" in getattr(ids, "columns", ()):
        spaces = arguments.texts(argument, ids, column="namespace", empty=True)
        names = [arguments.unmasked("namespace", name) for name in spaces]
        return list(zip(names, wanted, strict=True))
    one_name = ""
    if namespace is not None:
        name = arguments.text("namespace", namespace)
        one_name = arguments.unmasked("namespace", name)
    return [(one_name, key) for key in wanted]


def batched(ids: list[str], size: int) -> Iterator[list[str]]:
    """Yield the ids in lists of at most this size."""
    return (ids[start : start + size] for start in range(0, len(ids), size))


def warn_unknown_namespace(namespace: str, info: IndexInfo, *, stacklevel: int) -> None:
    """Warn if an index does not count a namespace: it is mistyped, or too new to be counted."""
    for message in unknown_namespace(namespace, info):
        warnings.warn(message, UnexpectedResultWarning, stacklevel=stacklevel)


def unknown_namespace(namespace: str, info: IndexInfo) -> list[str]:
    """Return a message with the nearest namespace if an index does not count a namespace, else no message."""
    if not namespace or not info.namespaces or namespace in info.namespaces:
        return []
    return [
        f"The index has no namespace {namespace[:80]!r}. {nearest(namespace, sorted(info.namespaces))}"
    ]


def _in_order(
    table: pa.Table, requested: list[tuple[str, str]]
) -> tuple[pa.Table, int]:
    """Return one row per requested namespace and id, in order, and the number of ids that do not exist."""
    keys = zip(table["namespace"].to_pylist(), table["id"].to_pylist(), strict=True)
    positions = {key: position for position, key in enumerate(keys)}
    missing = list(dict.fromkeys(key for key in requested if key not in positions))
    absent = pa.Table.from_pylist(
        [
            {"namespace": name, "id": item, "vector_problem": ABSENT}
            for name, item in missing
        ],
        schema=table.schema,
    )
    positions |= {
        key: table.num_rows + position for position, key in enumerate(missing)
    }
    both = pa.concat_tables([table, absent])
    return both.take(pa.array([positions[key] for key in requested], pa.int64())), len(
        missing
    )


def open_vectors(
    service: Service,
    options: LoadOptions | None = None,
    *,
    namespace: Namespaces = "all",
    prefix: Prefixes = None,
    condition: MetadataFilter | None = None,
    parts: VectorParts | None = None,
    memory_limit: float | None = None,
    transport: Callable[[], Transport] | None = None,
) -> Load:
    """Return a load of vectors as tables of ``schemas.vectors``."""
    endpoint = endpoint_of(service, "vector")
    options = options or LoadOptions()
    parts = parts or VectorParts()
    prefixes = _prefixes(prefix)
    spaces = _named(namespace)
    with transport() if transport else Transport.to(service, "vector") as sender:
        info = read_info(sender)
    for name in spaces or ():
        warn_unknown_namespace(name, info, stacklevel=4)
    if spaces is None:
        spaces = sorted(info.namespaces) or [""]
    for message in empty_default_namespace(tuple(spaces), info):
        warnings.warn(message, UnexpectedResultWarning, stacklevel=3)
    for name in spaces:  # checked now, because the others may take hours
        namespace_path(f"reading vectors of {namespace_title(name)}", name)
    disjoint_prefixes = _disjoint(prefixes)
    ranges = list(starmap(VectorRange, product(spaces, disjoint_prefixes)))
    counted = None
    if not any(disjoint_prefixes):
        counted = sum(info.namespaces.get(name, 0) for name in spaces)
    expected = counted
    if options.limit is not None:
        expected = min(options.limit, counted or options.limit)
    check = _MemoryCheck(expected or 0, memory_limit)
    number_bytes = 0
    if parts.vectors:
        number_bytes = info.dimension * _NUMBER_BYTES

    def read(state: LoadState) -> Generator[Batch]:
        check.row(number_bytes)
        sender, limiter = open_transport(service, "vector", options, transport)
        selected = FilteredBatches(condition, parts, state)
        reader = RangeReader(
            sender,
            limiter,
            state,
            info,
            options,
            parts=selected.parts_to_read,
            redactor=service.redactor,
            memory_limit=memory_limit,
        )
        try:
            for batch in map(selected.matching, reader.batches(ranges)):
                check.first_rows(batch.table)
                yield batch
            for reason in selected.explanations():
                warnings.warn(
                    f"Nothing matches: {reason}", UnexpectedResultWarning, stacklevel=2
                )
        finally:
            reader.stop()

    stated_prefix: Any = prefixes
    if prefix is None or isinstance(prefix, str):
        stated_prefix = prefixes[0]
    scope: dict[str, Any] = {
        "namespaces": list(spaces),
        "prefix": stated_prefix,
        "include": parts.names,
    }
    if condition is not None:
        scope["filter"] = condition.text()
    plan = LoadPlan(
        what="vectors",
        source=service.redactor.url(endpoint.url),
        scope=scope,
        schema=schemas.vectors(info.dimension or None),
        key=KEY,
        limit=options.limit,
        assumptions=_ASSUMPTIONS,
        notes=unread_note(tuple(spaces), info),
        rereads=True,
    )
    progress = partial(
        ProgressBar,
        options.progress,
        title="vectors",
        unit="vectors",
        total=expected or None,
    )
    return Load(plan, read, progress)


@dataclass
class _MemoryCheck:
    """Check if the rows of a load fit into one frame: by the dimension, then by the first rows."""

    expected_rows: int
    limit: float | None
    _has_measured: bool = False

    def row(self, row_bytes: float) -> None:
        """Raise NotEnoughMemoryError if rows of this size do not fit."""
        check_memory(
            f"loading {self.expected_rows:,} vectors into one frame",
            needed=self.expected_rows * row_bytes,
            limit=self.limit,
            next_step="Use export_vectors, which writes them into files as they come, or iter_vectors; "
            "memory_limit=math.inf tries in any case.",
        )

    def first_rows(self, table: pa.Table) -> None:
        """Raise NotEnoughMemoryError if rows as large as the first ones do not fit."""
        if self._has_measured or not table.num_rows:
            return
        self._has_measured = True
        self.row(table.nbytes / table.num_rows)


def _prefixes(prefix: Prefixes) -> list[str | None]:
    """Return the prefixes of ids, or a single None for all ids."""
    if prefix is None:
        return [None]
    expected = "a prefix, several, or None for all ids"
    return [*_unique_texts("prefix", prefix, expected)]


def _named(namespace: Namespaces) -> list[str] | None:
    """Return the names of namespaces, or None for all."""
    if isinstance(namespace, str) and namespace == "all":
        return None
    return _unique_texts("namespace", namespace, "a namespace, several, or 'all'")


def _disjoint(prefixes: list[str | None]) -> list[str | None]:
    """Drop prefixes that another prefix covers, so that no row is in two ranges.

    For example, of ``["a", "ab", "b"]`` the prefixes ``["a", "b"]`` remain.
    """
    starts = [prefix or "" for prefix in prefixes]
    kept = [start for start in starts if not _is_covered(start, starts)]
    return [start or None for start in kept]


def _is_covered(start: str, others: list[str]) -> bool:
    """Return True if another prefix has all ids with this one."""
    return any(start != other and start.startswith(other) for other in others)


def _unique_texts(name: str, value: str | Sequence[str], expected: str) -> list[str]:
    given = arguments.texts(name, value, empty=True)
    result = list(dict.fromkeys(arguments.unmasked(name, item) for item in given))
    if not result:
        raise arguments.wrong(name, value, expected)
    return result
