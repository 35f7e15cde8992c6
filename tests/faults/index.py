"""A model of a vector index: vectors as a range lists them, and the rows they have to become."""

from __future__ import annotations

import json
import struct
from random import Random
from typing import Any

from collection import Collection, Version

DIMENSION = 4
SPACES = ("", "docs")
_BAD = {
    "null": "null",
    "short": "[1.5]",
    "large": "[1, 2, 1e400, 4]",
    "text": '["a", 1, 2, 3]',
    "nan": "[NaN, 1, 2, 3]",
}


class Index(Collection):
    """Vectors of a few namespaces in one listing."""

    columns = (
        "namespace",
        "id",
        "vector",
        "sparse_indices",
        "metadata",
        "data",
        "vector_problem",
    )
    key = ("namespace", "id")

    def __init__(self, random: Random, vectors: int, page: int) -> None:
        super().__init__()
        self.page_limit = page
        self._random = random
        self._cursor_first = random.random() < 0.8
        self._made = 0
        for _ in range(vectors):
            self.put(self.new())
        self.open_ledger()

    def new(self) -> Version:
        """A vector that was not there."""
        self._made += 1
        name = f"v{self._random.randrange(10**6):06d}-{self._made}"
        return self._version(name, self._random.choice(SPACES))

    def changed(self, version: Version) -> Version:
        """The same vector with other content."""
        return self._version(version.facts["id"], version.facts["namespace"])

    def select(self, namespace: str, prefix: str | None) -> Any:
        """Whether a vector is requested."""
        return lambda version: (
            version.facts["namespace"] == namespace
            and version.facts["id"].startswith(prefix or "")
        )

    def info(self) -> bytes:
        """What the index says about itself."""
        counts = {
            space: sum(
                version.facts["namespace"] == space for version in self.current.values()
            )
            for space in SPACES
        }
        result = {
            "vectorCount": len(self.current),
            "pendingVectorCount": 0,
            "dimension": DIMENSION,
            "similarityFunction": "COSINE",
            "namespaces": {
                space: {"vectorCount": count, "pendingVectorCount": 0}
                for space, count in counts.items()
            },
        }
        return json.dumps({"result": result}).encode()

    def body(self, rows: list[bytes], cursor: str | None, end: str) -> bytes:
        """A page as the service writes it, the next cursor at its head or at its end."""
        fields = [b'"vectors":[' + b",".join(rows) + b"]"]
        if cursor is not None or end != "absent":
            shown = cursor if cursor is not None else None if end == "null" else ""
            fields.insert(
                0 if self._cursor_first else 1,
                b'"nextCursor":' + json.dumps(shown).encode(),
            )
        return b'{"result":{' + b",".join(fields) + b"}}"

    def _version(self, name: str, namespace: str) -> Version:
        random = self._random
        numbers = [random.uniform(-1, 1) for _ in range(DIMENSION)]
        vector: str | None = json.dumps(numbers)
        single = list(struct.unpack("4f", struct.pack("4f", *numbers)))
        expected: dict[str, Any] = {
            "vector": single,
            "sparse_indices": None,
            "problem": False,
        }
        sparse = None
        if random.random() < 0.08:
            kind = random.choice([*_BAD, "sparse"])
            expected["vector"], expected["problem"] = None, kind != "sparse"
            vector = _BAD.get(kind)
            if kind == "sparse":
                sparse, expected["sparse_indices"] = (
                    {"indices": [1, 7], "values": [0.5, 2]},
                    [1, 7],
                )
        metadata = {"n": 2**53 + random.randrange(99), "of": name, "é": [1.0, None, {}]}
        if random.random() < 0.05:
            metadata["nextCursor"] = "0"
        expected |= {
            "metadata": metadata,
            "data": f"data {random.randrange(10**9)} of {name}",
        }
        fields = [f'"id":{json.dumps(name)}', f'"data":{json.dumps(expected["data"])}']
        fields += [f'"vector":{vector}'] if vector else []
        fields += [f'"sparseVector":{json.dumps(sparse)}'] if sparse else []
        fields += [f'"metadata":{json.dumps(metadata)}']
        facts = {"namespace": namespace, "id": name}
        wire = ("{" + ",".join(fields) + "}").encode()
        return Version(f"{namespace}\0{name}", (name, namespace), wire, expected, facts)
