"""Texts of installed packages, and embeddings of them by models whose weights are part of packages.

The models run offline: only files of the installed packages are read, and no code of these packages is run.

- `wordllama`: 256 numbers, the mean of the vectors of all tokens of a text;
- `tokenlearn`: 64 numbers, a weighted mean of the vectors of all tokens of a text.
"""

from __future__ import annotations

import importlib
import inspect
import json
import re
import struct
from collections.abc import Callable, Iterator, Sequence
from functools import cache
from importlib.metadata import distribution
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

Matrix = npt.NDArray[np.float32]

MODULES = (
    "pandas",
    "pandas.api.types",
    "numpy",
    "numpy.linalg",
    "numpy.random",
    "numpy.fft",
    "scipy.stats",
    "scipy.signal",
    "scipy.optimize",
    "scipy.sparse",
    "scipy.spatial",
    "scipy.linalg",
    "sklearn.cluster",
    "sklearn.decomposition",
    "sklearn.ensemble",
    "sklearn.linear_model",
    "sklearn.metrics",
    "sklearn.preprocessing",
    "matplotlib.pyplot",
    "asyncio",
    "argparse",
    "email",
    "http.client",
    "json",
    "logging",
    "multiprocessing",
    "os",
    "pathlib",
    "random",
    "socket",
    "sqlite3",
    "statistics",
    "subprocess",
    "threading",
    "zipfile",
)
"""Modules whose docstrings are the texts."""

MOST = 4000
"""Number of texts, drawn at random."""

_SIZES = {"U8": np.uint8, "I8": np.int8, "F16": np.float16, "F32": np.float32}
_SIZES |= {"I64": np.int64}
_CODE = re.compile(r">>>|^\.\. |[=+|-]{3}")
# a paragraph of fewer characters has hardly any subject
_SHORTEST, _LONGEST = 120, 800


@cache
def texts() -> tuple[tuple[str, str], ...]:
    """Return ids and paragraphs of docstrings, for example ``pandas.concat#2``.

    Texts with the same letters are one text, because models that add vectors of words cannot tell them apart.
    Ids that differ by case alone are left out: an audit names them.
    """
    found: dict[str, tuple[str, str]] = {}
    ids: set[str] = set()
    for module in MODULES:
        for name, documentation in _docstrings(module):
            if name.lower() in ids:
                continue
            ids.add(name.lower())
            for number, paragraph in enumerate(_paragraphs(documentation), 1):
                letters = "".join(sorted(paragraph.lower()))
                found.setdefault(letters, (f"{name}#{number}", paragraph))
    listed = list(found.values())
    kept = np.random.default_rng(0).permutation(len(listed))[:MOST]
    return tuple(listed[number] for number in sorted(kept))


def _docstrings(module: str) -> Iterator[tuple[str, str]]:
    loaded = importlib.import_module(module)
    for name in sorted(vars(loaded)):
        value = getattr(loaded, name)
        if name.startswith("_") or not (inspect.isclass(value) or callable(value)):
            continue
        yield f"{module}.{name}", inspect.getdoc(value) or ""
        if not inspect.isclass(value):
            continue
        for method, inner in sorted(vars(value).items()):
            if not method.startswith("_") and callable(inner):
                yield f"{module}.{name}.{method}", inspect.getdoc(inner) or ""


def _paragraphs(documentation: str) -> Iterator[str]:
    for part in documentation.split("\n\n"):
        text = re.sub(r"\s+", " ", part).strip()
        # code and tables are no prose
        if len(text) >= _SHORTEST and not _CODE.search(text):
            yield text[:_LONGEST]


def models() -> dict[str, Callable[[Sequence[str]], Matrix]]:
    """Return the models by name."""
    return {"wordllama": _wordllama, "tokenlearn": _tokenlearn}


@cache
def embedded(model: str) -> Matrix:
    """Return unit vectors of all texts by a model."""
    return models()[model]([text for _, text in texts()])


def _packaged(package: str, path: str) -> Path:
    return Path(str(distribution(package).locate_file(path)))


def _tokenizer(path: str) -> Any:
    # only `make accuracy` installs the package
    return importlib.import_module("tokenizers").Tokenizer.from_file(path)


def _tensors(path: Path) -> dict[str, npt.NDArray[Any]]:
    """Return the arrays of a safetensors file: the length of a JSON header, the header, and the numbers."""
    content = path.read_bytes()
    (length,) = struct.unpack("<Q", content[:8])
    header = json.loads(content[8 : 8 + length])
    header.pop("__metadata__", None)
    arrays = {}
    for name, about in header.items():
        first, last = (8 + length + offset for offset in about["data_offsets"])
        flat = np.frombuffer(content[first:last], dtype=_SIZES[about["dtype"]])
        arrays[name] = flat.reshape(about["shape"])
    return arrays


def _unit(matrix: npt.NDArray[Any]) -> Matrix:
    lengths = np.linalg.norm(matrix, axis=1, keepdims=True)
    return np.asarray(matrix / np.maximum(lengths, 1e-12), dtype=np.float32)


def _wordllama(given: Sequence[str]) -> Matrix:
    weights = _tensors(
        _packaged("wordllama", "wordllama/weights/l2_supercat_256.safetensors")
    )
    vectors = weights["embedding.weight"].astype(np.float32)
    tokenizer = _tokenizer(
        str(
            _packaged(
                "wordllama", "wordllama/tokenizers/l2_supercat_tokenizer_config.json"
            )
        )
    )
    encoded = tokenizer.encode_batch(list(given), add_special_tokens=False)
    return _unit(np.array([vectors[text.ids].mean(axis=0) for text in encoded]))


def _tokenlearn(given: Sequence[str]) -> Matrix:
    folder = _packaged("tokenlearn-static-model", "static_model/model")
    weights = _tensors(folder / "model.safetensors")
    vectors = weights["embeddings"].astype(np.float32)
    tokenizer = _tokenizer(str(folder / "tokenizer.json"))
    rows = []
    for text in tokenizer.encode_batch(list(given), add_special_tokens=False):
        shares = weights["weights"][text.ids]
        rows.append(shares @ vectors[weights["mapping"][text.ids]])
    return _unit(np.array(rows))
