"""Load callbacks as a frame: from bodies, from files, or from a running receiver."""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Iterator, Mapping
from itertools import chain, count, islice
from pathlib import Path
from typing import Any, Final

import pandas as pd

from toolkit.base import arguments
from toolkit.base.errors import IncompleteLoadWarning, InputError
from toolkit.base.members import elements, kind_of, read_json
from toolkit.loading.receiver import CallbackReceiver
from toolkit.secrets.redaction import Redactor
from toolkit.tables.callback_rows import (
    Body,
    ReceivedCallback,
    callback_fields,
    decode_callbacks,
)
from toolkit.tables.frames import to_frame
from toolkit.tables.json_rows import no_json
from toolkit.tables.receipt import Receipt, utc_now

__all__ = ["CallbackReceiver", "load_callbacks"]

_DOING: Final = "loading callbacks from a source"
_SUFFIXES: Final = (".json", ".jsonl")
_BOM: Final = b"\xef\xbb\xbf"

Source = CallbackReceiver | str | Path | bytes | Mapping[str, Any] | Iterable[Body]


def load_callbacks(
    source: Source,
    *,
    redactor: Redactor | None = None,
    reveal: bool = False,
    limit: int | None = None,
) -> pd.DataFrame:
    """Load callback and failure-callback bodies.

    Parameters
    ----------
    source : CallbackReceiver, path, or bodies
        A receiver: all bodies that it has received so far. A path (string or ``Path``): a ``.json`` file with
        one body or an array of bodies, a ``.jsonl`` file with one body per line, or a folder of these files
        (in the order of the names; other files are ignored). Otherwise one body, or several, as JSON bytes,
        as JSON strings (several only) or as dicts.
    redactor : Redactor, optional
        Masks header values and URLs. ``service.redactor`` also knows the tokens of the service. Default: the
        redactor of the receiver, else a new one.
    reveal : bool
        If True, header values and URLs stay as received, secrets included.
    limit : int, optional
        Maximum number of callbacks. The first ones are returned.

    Returns
    -------
    pandas.DataFrame
        One row per body: ``source_message_id``, ``kind`` ("callback" or "failure"), ``status``, ``headers``
        (JSON text), ``body`` (str; missing if not UTF-8), ``body_base64`` (only if not UTF-8),
        ``body_truncated`` (boolean: shorter than the Content-Length of the response, or, without this header,
        the base64 ends too early; the rest is decoded), ``retried``, ``max_retries`` (Int64), ``delivered``
        (2xx), ``exhausted`` (``retried`` has reached ``max_retries``), ``dlq_id`` (of a failure callback),
        ``in_dlq`` (boolean: the callback has a DLQ id, or delivery failed and is not retried; missing if
        unknown, for example for the calls of a run), ``topic_name``, ``endpoint_name``, ``url``, ``method``,
        ``source_headers``, ``source_body``, ``source_body_base64``, ``source_body_truncated``,
        ``not_before``, ``created_at`` (datetime64[ms, UTC]), ``schedule_id``, ``caller_ip``, ``received_at``
        and ``verified`` (from a receiver), ``extra`` (JSON text of everything else). The receipt is in
        ``attrs``.

    Raises
    ------
    InputError
        If the source is none of these.
    ProtocolError
        If a body is not a JSON object. The error contains the position of the body.

    Examples
    --------
    >>> frame = load_callbacks([{"sourceMessageId": "msg_1", "status": 200, "body": "b2s="}])
    >>> frame[["source_message_id", "kind", "delivered", "body"]]
      source_message_id      kind  delivered body
    0             msg_1  callback       True   ok
    """
    limit = arguments.whole("limit", limit, optional="for all")
    reveal = arguments.flag("reveal", reveal)
    arguments.instance(
        "redactor",
        redactor,
        Redactor,
        "a Redactor, such as service.redactor",
        optional=True,
    )
    started = utc_now()

    turned_away = 0
    assumptions: tuple[str, ...] = ()
    if isinstance(source, CallbackReceiver):
        turned_away = source.turned_away
        assumptions = ("callbacks that have not arrived are not in it",)
        redactor = redactor or source.redactor

    known = redactor or Redactor()
    all_bodies = _bodies(source)
    bodies = list(islice(all_bodies, limit))
    has_more = next(all_bodies, None) is not None
    table = decode_callbacks(bodies, redactor=None if reveal else known)
    reasons = []
    if has_more:
        reasons.append(f"only the first {limit:,} were requested")
    if turned_away:
        reasons.append(f"{turned_away:,} were rejected because the receiver was full")
    receipt = Receipt(
        what="callbacks",
        source=_source_name(source, known),
        scope={"revealed": reveal},
        started_at=started,
        ended_at=utc_now(),
        windows=0,
        rows=table.num_rows,
        bytes=sum(map(_size, bodies)),
        limit=limit,
        assumptions=assumptions,
        complete=not reasons,
        reasons=tuple(reasons),
    )
    if turned_away:
        warnings.warn(receipt.verdict, IncompleteLoadWarning, stacklevel=2)
    return to_frame(table, receipt)


def _bodies(source: Source) -> Iterator[Body]:
    """Yield the bodies of a source of any kind."""
    if isinstance(source, str | Path):
        return _from_path(_path_of(source))
    return map(_checked_body, _several(source), count())


def _path_of(source: str | Path) -> Path:
    """Return the path of a source. Raise InputError for JSON text, which is easily passed by mistake."""
    if isinstance(source, str) and source.lstrip().startswith(("{", "[")):
        raise InputError(
            _DOING,
            got="JSON text",
            expected="a path, or bodies",
            next_step="Write load_callbacks([text]).",
        )

    return Path(source)


def _checked_body(body: Any, index: int) -> Body:
    if not isinstance(body, _BODIES):
        got = f"{type(body).__name__} as body {index}"
        raise _no_source(got, "JSON as bytes or text, or a dict")

    checked: Body = body
    return checked


_BODIES: Final = (bytes, str, Mapping, ReceivedCallback)


def _several(source: Any) -> Iterable[Any]:
    """Return the bodies of a receiver, one body as the only one, or several bodies."""
    if isinstance(source, CallbackReceiver):
        return source.received()

    if isinstance(source, bytearray):
        source = bytes(source)
    if isinstance(source, bytes | Mapping):
        return [source]
    if isinstance(source, Iterable):
        return source

    raise _no_source(
        f"{type(source).__name__} for source",
        "a CallbackReceiver, a path, or callback bodies",
    )


def _from_path(path: Path) -> Iterator[Body]:
    """Yield the bodies of a file or of the files of a folder."""
    try:
        is_folder = path.is_dir()
    except OSError as error:
        raise _no_source(f"a path that is {error.strerror}") from None

    files = _files_of_folder(path) if is_folder else [_checked_file(path)]
    yield from chain.from_iterable(map(_from_file, files))


def _no_source(got: str, expected: str = "a file or a folder") -> InputError:
    return InputError(_DOING, got=got, expected=expected)


def _checked_file(path: Path) -> Path:
    if not path.is_file():
        raise _no_source(f"{str(path)!r}, which does not exist")
    if not _has_bodies(path):
        expected = f"a file that ends in {' or '.join(_SUFFIXES)}"
        raise _no_source(f"the file {path.name!r}", expected)

    return path


def _has_bodies(path: Path) -> bool:
    return path.suffix.lower() in _SUFFIXES


def _files_of_folder(folder: Path) -> Iterator[Path]:
    """Yield the files of a folder that can contain bodies."""
    for path in filter(_has_bodies, sorted(folder.iterdir())):
        # a link could lead out of the folder, and reading a pipe could block
        if path.is_symlink() or not path.is_file():
            unusable = f"{path.name!r}, which is not a plain file"
            raise _no_source(unusable, "a folder of plain files")
        yield path


def _from_file(path: Path) -> Iterator[Body]:
    raw = path.read_bytes().removeprefix(_BOM)
    if path.suffix.lower() == ".jsonl":
        yield from _from_lines(raw, path)
    elif raw.lstrip().startswith(b"["):
        yield from _from_array(raw, path)
    else:
        callback_fields(raw, what=repr(path.name))
        yield raw


def _from_lines(raw: bytes, path: Path) -> Iterator[bytes]:
    for number, line in enumerate(raw.split(b"\n"), start=1):
        if line.strip():
            callback_fields(line, what=f"line {number} of {path.name!r}")
            yield line


def _from_array(raw: bytes, path: Path) -> Iterator[bytes]:
    """Yield the objects of a JSON array."""
    try:
        items = elements(raw.decode("utf-8", "surrogateescape"))
    except ValueError as error:
        raise no_json(raw, error, repr(path.name)) from None

    for index, item in enumerate(items):
        if not item.startswith("{"):
            kind = kind_of(read_json(item))
            got = f"{kind} at {index} of {path.name!r}"
            raise _no_source(got, "an array of JSON objects")

        yield item.encode("utf-8", "surrogateescape")


def _source_name(source: Source, redactor: Redactor) -> str:
    if isinstance(source, CallbackReceiver):
        return redactor.url(source.url)
    if isinstance(source, str | Path):
        return Path(source).name

    return "bodies"


def _size(body: Body) -> int:
    """Return the bytes of a raw body, or 0 for an object that was parsed already."""
    raw = body
    if isinstance(body, ReceivedCallback):
        raw = body.body
    if isinstance(raw, str):
        raw = raw.encode("utf-8", "surrogatepass")
    if isinstance(raw, bytes):
        return len(raw)

    return 0
