"""Acting on exact ids: confirmed, one request each, and what was done by then when one fails."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from toolkit.arguments import confirmed, texts, unmasked, wrong
from toolkit.client.transport import Transport
from toolkit.errors import InputError, ResponseError, ToolkitError
from toolkit.settings.service import Service

Ids = str | Iterable[str]
"""Exact ids, or a frame with a column of them."""


def checked_id(value: str, name: str = "dlq_id", *, column: str = "dlq_id") -> str:
    """The id, or an `InputError` when it cannot be one."""
    if not isinstance(value, str) or not value or not value.isprintable() or value in {".", ".."}:
        raise wrong(name, value, f"an id as in a frame's {column} column")
    return unmasked(name, value)


def confirmed_ids(
    given: Ids, *, confirm: bool, verb: str, name: str, column: str, nouns: tuple[str, str]
) -> tuple[str, list[str]]:
    """The operation, for errors, and its ids: each once, in order."""
    ids = list(dict.fromkeys(texts(name, given, column=column)))
    for value in ids:
        checked_id(value, name, column=column)
    if not ids:
        raise InputError(
            f"reading {name}", got="no ids", expected=f"exact ids, or a frame with a column {column!r}"
        )
    doing = f"{verb} {counted_ids(ids, nouns)}"
    confirmed(doing, confirm, "Look at the ids once more, then call again with confirm=True.")
    return doing, ids


def counted_ids(ids: Sequence[str], nouns: tuple[str, str]) -> str:
    """How many there are of what."""
    return f"1 {nouns[0]}" if len(ids) == 1 else f"{len(ids):,} {nouns[1]}"


def one_by_one(service: Service, ids: list[str], run: Callable[[Transport, str], str]) -> dict[str, str]:
    """One request an id, so that it is always known which were done; from each to what `run` returned."""
    done: dict[str, str] = {}
    with Transport.to(service, "queue") as transport:
        for value in ids:
            try:
                done[value] = run(transport, value)
            except (ToolkitError, KeyboardInterrupt) as error:
                done_ids = (
                    ", ".join(f"{item} → {new}" if new else item for item, new in done.items()) or "none"
                )
                # an error status means that it was not done
                known = isinstance(error, ResponseError)
                error.add_note(
                    f"Done before this ({len(done)} of {len(ids)}): {done_ids}."
                    + f" Whether {value} was done is unknown: it may have been." * (not known)
                    + f" Not requested: {len(ids) - len(done) - 1}."
                )
                raise
    return done
