"""How JSON becomes structs: by decoders made at import, on one thread."""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

_TOOLKIT = Path(__file__).parents[1] / "toolkit"

_MANY_AT_ONCE = """
import sys, threading
from toolkit.service.pages import range_page
from toolkit.service.transport import Response, Request
sys.setswitchinterval(1e-6)
request = Request(doing="reading", method="POST", path="/range")
response = Response(status=200, headers={}, body=b'{"result": {"nextCursor": "7", "vectors": []}}', tries=1)
gate, found = threading.Barrier(8), []
def read():
    gate.wait()
    found.append(range_page(request, response).cursor)
threads = [threading.Thread(target=read) for _ in range(8)]
[thread.start() for thread in threads]
[thread.join() for thread in threads]
assert found == ["7"] * 8
"""


def _struct_decodes(tree: ast.AST) -> Iterator[int]:
    """Lines of calls ``msgspec.json.decode(…, type=X)`` where X is a struct."""
    for node in ast.walk(tree):
        if not (
            isinstance(node, ast.Call)
            and ast.unparse(node.func) == "msgspec.json.decode"
        ):
            continue
        types = [name for word in node.keywords for name in ast.walk(word.value)]
        named = {name.id for name in types if isinstance(name, ast.Name)}
        if named - {"list", "dict", "str", "Any", "msgspec"}:
            yield node.lineno


@pytest.mark.slow
def test_no_struct_is_looked_at_for_the_first_time_in_a_call() -> None:
    """Fields are learned when a struct is first decoded; two threads that both do may end the process."""
    found = [
        f"{path.relative_to(_TOOLKIT)}:{line}"
        for path in _TOOLKIT.rglob("*.py")
        for line in _struct_decodes(ast.parse(path.read_text()))
    ]
    assert found == []


def test_many_threads_may_decode_the_first_page() -> None:
    """As a load does that reads several ranges at once."""
    done = subprocess.run(
        [sys.executable, "-c", _MANY_AT_ONCE],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
