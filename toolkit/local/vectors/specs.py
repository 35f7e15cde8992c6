"""What an index is: its name and kind, dimension and similarity, and its models for text, if any."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from typing import Any, Final, Literal, NamedTuple, get_args

from toolkit.errors import InputError

Kind = Literal["dense", "sparse", "hybrid"]
Similarity = Literal["COSINE", "EUCLIDEAN", "DOT_PRODUCT"]

MAX_DIMENSION: Final = 5376
"""Most dimensions, as publicly documented."""

_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,63}", re.ASCII)
_MODEL: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,63}", re.ASCII)
_FORM: Final = (
    "NAME:dense:DIMENSION:SIMILARITY[:MODEL], NAME:hybrid:DIMENSION:SIMILARITY[:MODEL+MODEL] or "
    "NAME:sparse[:MODEL]"
)
_EXAMPLE: Final = (
    "For example docs:dense:256:COSINE:hashing, docs:hybrid:256:COSINE:hashing+bm25, plain:dense:2:COSINE, "
    "words:sparse or words:sparse:bm25."
)


class ModelNames(NamedTuple):
    """The models of an index; None where it has none."""

    dense: str | None
    sparse: str | None


@dataclass(frozen=True)
class IndexSpec:
    """What an index is. It never changes once the index is made.

    A value that cannot be used is an InputError.

    >>> IndexSpec.parse("docs:hybrid:256:COSINE:hashing+bm25").models
    ModelNames(dense='hashing', sparse='bm25')
    """

    name: str
    dimension: int = 0
    similarity: Similarity | None = None
    model: str | None = None
    """Embeds text; on a hybrid index two, such as ``hashing+bm25``."""
    kind: Kind = "dense"
    rank_start: int = 1
    """The rank of the best result in reciprocal rank fusion, 0 or 1: not publicly documented.

    1 is the authors' choice (Cormack, Clarke, Büttcher, 2009).
    """

    def __post_init__(self) -> None:
        if not isinstance(self.name, str) or not _NAME.fullmatch(self.name):
            raise _wrong(f"the name {_shown(self.name)}", "1 to 64 letters, digits, '_' and '-'")
        if self.kind not in get_args(Kind):
            raise _wrong(f"the kind {_shown(self.kind)}", f"one of {', '.join(get_args(Kind))}")
        if self.has_dense:
            if type(self.dimension) is not int or not 1 <= self.dimension <= MAX_DIMENSION:
                expected = f"a whole number from 1 to {MAX_DIMENSION}"
                raise _wrong(f"the dimension {_shown(self.dimension)}", expected)
            if self.similarity not in get_args(Similarity):
                expected = f"one of {', '.join(get_args(Similarity))}"
                raise _wrong(f"the similarity {_shown(self.similarity)}", expected)
        elif type(self.dimension) is not int or self.dimension != 0 or self.similarity is not None:
            got = f"the dimension {_shown(self.dimension)} and the similarity {_shown(self.similarity)}"
            raise _wrong(f"{got} of a sparse index", "neither: a sparse index has none")
        self._check_models()
        if type(self.rank_start) is not int or self.rank_start not in {0, 1}:
            raise _wrong(f"the rank_start {_shown(self.rank_start)}", "0 or 1")

    def _check_models(self) -> None:
        if self.model is None:
            return
        names = self.model.split("+") if isinstance(self.model, str) else []
        expected = 2 if self.kind == "hybrid" else 1
        if len(names) != expected or not all(map(_MODEL.fullmatch, names)):
            wanted = "two names of models, such as hashing+bm25" if expected > 1 else "the name of one model"
            raise _wrong(f"the model {_shown(self.model)} on a {self.kind} index", f"{wanted}, or none")

    @property
    def has_dense(self) -> bool:
        """Whether its rows have dense vectors."""
        return self.kind != "sparse"

    @property
    def has_sparse(self) -> bool:
        """Whether its rows have sparse vectors."""
        return self.kind != "dense"

    @property
    def models(self) -> ModelNames:
        """The names of its models."""
        if self.model is None:
            return ModelNames(None, None)
        if self.kind == "hybrid":
            return ModelNames(*self.model.split("+"))
        return ModelNames(self.model, None) if self.has_dense else ModelNames(None, self.model)

    @classmethod
    def parse(cls, text: str) -> IndexSpec:
        """The spec from one text, as the command line takes it: NAME:KIND with what that kind has.

        The similarity is in any case. Dimension and similarity of a sparse index may also be there and empty:
        ``words:sparse:::bm25``.
        """
        name, *parts = text.split(":")
        values: dict[str, Any] = {"name": name}
        if parts[:1] == ["sparse"]:
            rest = parts[3:] if parts[1:3] == ["", ""] else parts[1:]
            if len(rest) > 1:
                raise _unreadable(text, "NAME:sparse or NAME:sparse:MODEL: it has no dimension or similarity")
        else:
            rest = parts[3:]
            if not 3 <= len(parts) <= 4:  # noqa: PLR2004 - kind, dimension, similarity and perhaps a model
                raise _unreadable(text, _FORM)
            size, similarity = parts[1], parts[2].upper()
            values["dimension"] = int(size) if re.fullmatch(r"[0-9]{1,9}", size, re.ASCII) else size
            values["similarity"] = similarity
        return cls.from_dict(values | {"kind": parts[0], "model": rest[0] if rest else None})

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> IndexSpec:
        """The spec from JSON values under the names of its fields; those with a default may be left out."""
        known = [field.name for field in fields(cls)]
        if unknown := sorted(set(values) - set(known)):
            raise _wrong(f"the unknown field {_shown(unknown[0])}", ", ".join(sorted(known)))
        needed = {"name"} if values.get("kind") == "sparse" else {"name", "dimension", "similarity"}
        if missing := sorted(needed - set(values)):
            raise _wrong(f"no {missing[0]}", ", ".join(sorted(needed)))
        return cls(**values)

    def to_dict(self) -> dict[str, Any]:
        """The spec as JSON values."""
        return asdict(self)


def _shown(value: object) -> str:
    shown = isinstance(value, str | int | float) or value is None
    return repr(value)[:80] if shown else type(value).__name__


def _unreadable(text: str, expected: str) -> InputError:
    return InputError("reading an index", got=f"{text[:120]!r}", expected=expected, next_step=_EXAMPLE)


def _wrong(got: str, expected: str) -> InputError:
    return InputError("describing an index", got=got, expected=expected, next_step=_EXAMPLE)
