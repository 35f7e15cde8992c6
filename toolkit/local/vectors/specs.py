"""What an index is: its name, dimension, similarity and, where it has one, its embedding model."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, Final, Literal, get_args

from toolkit.errors import InputError

Kind = Literal["dense"]
Similarity = Literal["COSINE", "EUCLIDEAN", "DOT_PRODUCT"]

MAX_DIMENSION: Final = 5376
"""Most dimensions, as publicly documented."""

_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,63}", re.ASCII)
_MODEL: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.+-]{0,63}", re.ASCII)
_FORM: Final = "NAME:dense:DIMENSION:SIMILARITY or NAME:dense:DIMENSION:SIMILARITY:MODEL"
_EXAMPLE: Final = "For example docs:dense:256:COSINE:hashing, or plain:dense:2:COSINE."


@dataclass(frozen=True)
class IndexSpec:
    """What an index is. It never changes once the index is made.

    Parameters
    ----------
    name : str
        1 to 64 letters, digits, ``_`` and ``-``; part of the index's address.
    dimension : int
        1 to `MAX_DIMENSION`.
    similarity : {"COSINE", "EUCLIDEAN", "DOT_PRODUCT"}
    model : str, optional
        Name of the embedding model; an index without one answers no text queries.
    kind : {"dense"}

    Raises
    ------
    InputError
        When a value cannot be used.

    Examples
    --------
    >>> IndexSpec.parse("docs:dense:256:COSINE:hashing")
    IndexSpec(name='docs', dimension=256, similarity='COSINE', model='hashing', kind='dense')
    """

    name: str
    dimension: int
    similarity: Similarity
    model: str | None = None
    kind: Kind = "dense"

    def __post_init__(self) -> None:
        if not isinstance(self.name, str) or not _NAME.fullmatch(self.name):
            raise _refusal(f"the name {_shown(self.name)}", "1 to 64 letters, digits, '_' and '-'")
        if self.kind not in get_args(Kind):
            raise _refusal(f"the kind {_shown(self.kind)}", "dense")
        if type(self.dimension) is not int or not 1 <= self.dimension <= MAX_DIMENSION:
            raise _refusal(
                f"the dimension {_shown(self.dimension)}", f"a whole number from 1 to {MAX_DIMENSION}"
            )
        if self.similarity not in get_args(Similarity):
            raise _refusal(
                f"the similarity {_shown(self.similarity)}", f"one of {', '.join(get_args(Similarity))}"
            )
        if self.model is not None and not (isinstance(self.model, str) and _MODEL.fullmatch(self.model)):
            raise _refusal(f"the model {_shown(self.model)}", "the name of an embedding model, or none")

    @classmethod
    def parse(cls, text: str) -> IndexSpec:
        """The spec from one text, as the command line takes it.

        Parameters
        ----------
        text : str
            ``NAME:KIND:DIMENSION:SIMILARITY`` or ``NAME:KIND:DIMENSION:SIMILARITY:MODEL``; the similarity in
            any case.

        Raises
        ------
        InputError
        """
        parts = text.split(":")
        if len(parts) not in {4, 5}:
            raise InputError("reading an index", got=f"{text[:120]!r}", expected=_FORM, next_step=_EXAMPLE)
        name, kind, dimension, similarity, *model = parts
        size = int(dimension) if re.fullmatch(r"[0-9]{1,9}", dimension, re.ASCII) else dimension
        return cls.from_dict(
            {
                "name": name,
                "kind": kind,
                "dimension": size,
                "similarity": similarity.upper(),
                "model": model[0] if model else None,
            }
        )

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> IndexSpec:
        """The spec from JSON values under the names of its fields; `kind` and `model` may be left out."""
        known = {"name", "kind", "dimension", "similarity", "model"}
        if unknown := sorted(set(values) - known):
            raise _refusal(f"the unknown field {_shown(unknown[0])}", ", ".join(sorted(known)))
        if missing := sorted({"name", "dimension", "similarity"} - set(values)):
            raise _refusal(f"no {missing[0]}", "name, dimension and similarity")
        return cls(**values)

    def to_dict(self) -> dict[str, Any]:
        """The spec as JSON values."""
        return asdict(self)


def _shown(value: object) -> str:
    return repr(value)[:80] if isinstance(value, str | int | float) else type(value).__name__


def _refusal(got: str, expected: str) -> InputError:
    return InputError("describing an index", got=got, expected=expected, next_step=_EXAMPLE)
