"""Load vectors as frames: a complete index, some namespaces, or single ids."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Generator, Iterator
from dataclasses import dataclass
from functools import partial
from itertools import product, starmap
from typing import Any, Final

import pandas as pd
import pyarrow as pa

from toolkit.base import arguments
from toolkit.base.errors import InputError, UnexpectedResultWarning
from toolkit.base.progress import ProgressBar, ProgressOption
from toolkit.filters.metadata import MetadataFilter, parse
from toolkit.loading.coverage import empty_default_namespace, unread_note
from toolkit.loading.filtered import FilteredBatches
from toolkit.loading.load import Batch, Load, LoadPlan, LoadState
from toolkit.loading.memory import available_memory, check_memory
from toolkit.loading.options import CONNECTIONS, LoadOptions
from toolkit.loading.ranges import KEY, RangeReader, VectorRange
from toolkit.loading.rate_limiter import open_transport
from toolkit.loading.vector_names import (
    Namespaces,
    Prefixes,
    named_namespaces,
    named_prefixes,
    warn_unknown_namespace,
    without_covered,
)
from toolkit.service.settings import Service, endpoint_of
from toolkit.service.transport import Transport
from toolkit.service.vectors import (
    IndexInfo,
    VectorParts,
    namespace_path,
    namespace_title,
    read_info,
)
from toolkit.tables import schemas
from toolkit.tables.frames import to_frame

_NUMBER_BYTES: Final = 4

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
    prefixes = named_prefixes(prefix)
    to_index = partial(Transport.to, service, "vector", progress=options.progress)
    with (transport or to_index)() as sender:
        info = read_info(sender)
    spaces = _spaces_to_read(namespace, info)
    disjoint_prefixes = without_covered(prefixes)
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

    scope: dict[str, Any] = {
        "namespaces": list(spaces),
        "prefix": prefixes,
        "include": parts.names,
    }
    if prefix is None or isinstance(prefix, str):
        scope["prefix"] = prefixes[0]
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


def _spaces_to_read(namespace: Namespaces, info: IndexInfo) -> list[str]:
    """Return the names of the chosen namespaces, or of all. Warn of names that the index does not have."""
    spaces = named_namespaces(namespace)
    for name in spaces or ():
        warn_unknown_namespace(name, info, stacklevel=5)
    if spaces is None:
        spaces = sorted(info.namespaces) or [""]
    for message in empty_default_namespace(tuple(spaces), info):
        warnings.warn(message, UnexpectedResultWarning, stacklevel=4)
    for name in spaces:  # checked now, because the others may take hours
        namespace_path(f"reading vectors of {namespace_title(name)}", name)

    return spaces


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
