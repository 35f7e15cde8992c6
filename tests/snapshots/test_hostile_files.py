"""Files that somebody else wrote: each value is what it has to be, or the error is one of ours."""

from __future__ import annotations

import ast
import hashlib
import itertools
import json
import shutil
import subprocess
import sys
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from random import Random
from types import SimpleNamespace
from typing import Any

import pandas as pd
import pytest

import toolkit as tk
from toolkit.errors import (
    InputError,
    SnapshotDamagedError,
    SnapshotError,
    TransportError,
)
from toolkit.secrets.redaction import Redactor
from toolkit.snapshots.manifest import CHECKPOINT, MANIFEST
from toolkit.snapshots.store import SnapshotStore
from toolkit.snapshots.syncing import sync_load
from toolkit.tables.receipt import Receipt

CODE = "5); __import__('os').system('id') #"
NESTED = b"[" * 100_000 + b"]" * 100_000
WRONG: dict[str, list[Any]] = {
    "text": [5, None, ["a"], {"a": 1}, True],
    "time": [5, None, "", "yesterday", "2026-03-01", CODE, "9" * 400],
    "number": ["5", CODE, -1, 1.5, [1], {"a": 1}, True, 2**70],
    "flag": ["true", 1, CODE, []],
    "texts": [[5], "abc", {"a": 1}, 7],
    "object": [["kind"], "kind", 7],
}
RECEIPT = {
    "what": "text",
    "source": "text",
    "scope": "object",
    "started_at": "time",
    "ended_at": "time",
    "complete": "flag",
    "assumptions": "texts",
    "notes": "texts",
    "reasons": "texts",
    **dict.fromkeys(
        (
            "windows",
            "pages",
            "requests",
            "retries",
            "rows",
            "duplicates",
            "changed",
            "filtered_here",
        ),
        "number",
    ),
    **dict.fromkeys(("reread", "resumed", "bytes", "limit", "frame_rows"), "number"),
}
MANIFEST_FIELDS = {
    "format": "number",
    "schema_version": "number",
    "kind": "text",
    "generation": "number",
    "source": "text",
    "scope": "object",
    "written_at": "time",
    "complete_at": "time",
    "files": "texts",
    "receipts": "texts",
    "index": "text",
}
OPTIONAL = {"limit", "frame_rows", "complete_at", "index"}


def _wrong(field: str, kind: str) -> list[Any]:
    return [value for value in WRONG[kind] if not (value is None and field in OPTIONAL)]


@pytest.fixture(scope="module")
def whole(made: SimpleNamespace, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A snapshot of failures."""
    store = SnapshotStore(tmp_path_factory.mktemp("whole") / "snapshot")
    sync_load(made.load(made.entries("a", "b")), store, clock=made.clock(made.start))
    return store.path


@pytest.fixture
def copy(whole: Path, tmp_path: Path) -> Path:
    """A copy of it that a test may change."""
    return Path(shutil.copytree(whole, tmp_path / "copy"))


def _rewrite(path: Path, change: Callable[[dict[str, Any]], object]) -> None:
    """Change the manifest and set the hash of its new text."""
    manifest = json.loads((path / MANIFEST).read_text())["manifest"]
    change(manifest)
    body = json.dumps(manifest)
    sha256 = hashlib.sha256(body.encode()).hexdigest()
    (path / MANIFEST).write_text(f'{{"sha256": "{sha256}", "manifest": {body}}}')


def _uses(path: Path, made: SimpleNamespace) -> list[Callable[[], object]]:
    frame = pd.DataFrame({"a": [1]})
    return [
        lambda: tk.read_snapshot(path),
        lambda: tk.open_snapshot(path).to_arrow(),
        lambda: tk.verify_snapshot(path),
        lambda: tk.write_snapshot(frame, path),
        lambda: sync_load(made.load(made.entries("a")), SnapshotStore(path)),
    ]


@pytest.mark.parametrize(
    ("field", "value"),
    [
        (field, value)
        for field, kind in RECEIPT.items()
        for value in _wrong(field, kind)
    ],
    ids=repr,
)
def test_a_receipt_of_other_types_is_refused(
    copy: Path, field: str, value: Any
) -> None:
    """No value of a receipt is read from a manifest, or from a frame's attrs, as another type."""
    receipt = tk.read_snapshot(copy).attrs["receipt"] | {field: value}
    with pytest.raises(InputError):
        Receipt.from_dict(receipt)
    _rewrite(copy, lambda manifest: manifest["receipts"][-1].update({field: value}))
    for read in (tk.read_snapshot, tk.open_snapshot, tk.verify_snapshot):
        with pytest.raises(SnapshotDamagedError, match="an inconsistent manifest"):
            read(copy)


@pytest.mark.parametrize(
    ("field", "value"),
    [
        (field, value)
        for field, kind in MANIFEST_FIELDS.items()
        for value in _wrong(field, kind)
    ],
    ids=repr,
)
def test_a_manifest_of_other_types_is_refused(
    copy: Path, made: SimpleNamespace, field: str, value: Any
) -> None:
    """Whatever a manifest holds, reading and writing end in a SnapshotError."""
    _rewrite(copy, lambda manifest: manifest.update({field: value}))
    for use in _uses(copy, made):
        with pytest.raises(SnapshotError):
            use()


@pytest.mark.parametrize(
    "content",
    [
        NESTED,
        b'{"manifest":' + NESTED + b',"sha256":"x"}',
        b'{"sha256":"%b","manifest":%b}'
        % (hashlib.sha256(NESTED).hexdigest().encode(), NESTED),
        b"",
        b"\0" * 5_000,
        b"\xff\xfe{}",
        b"null",
        b"[]",
        b'{"sha256": 1, "manifest": {}}',
        b'{"sha256":"'
        + hashlib.sha256(b"[]").hexdigest().encode()
        + b'","manifest":[]}',
        b"9" * 100_000,
    ],
    ids=lambda content: f"{content[:20]!r} of {len(content)}",
)
def test_a_malformed_manifest_is_a_snapshot_error(
    copy: Path, made: SimpleNamespace, content: bytes
) -> None:
    """Nested 100,000 deep, empty, binary, or another JSON value: never an untyped error."""
    (copy / MANIFEST).write_bytes(content)
    for use in _uses(copy, made):
        with pytest.raises(SnapshotDamagedError):
            use()


def test_values_nested_deep_within_a_manifest_are_refused(
    copy: Path, made: SimpleNamespace
) -> None:
    """A scope that only a recursion could follow is none; a file is listed once."""
    deep: Any = "x"
    for _ in range(900):
        deep = [deep]
    for change in (
        lambda manifest: manifest["receipts"][-1]["scope"].update({"label": deep}),
        lambda manifest: manifest["files"].append(manifest["files"][0]),
    ):
        shutil.copy(copy / MANIFEST, copy / "kept")
        _rewrite(copy, change)
        for use in _uses(copy, made):
            with pytest.raises(SnapshotDamagedError):
                use()
        (copy / "kept").replace(copy / MANIFEST)


@pytest.mark.parametrize("value", [CODE, ["5", CODE], {"limit": CODE}])
def test_a_snapshot_cannot_put_code_into_a_report(copy: Path, value: Any) -> None:
    """A limit that is Python code is refused where it is read, and an invalid filter before it is printed."""
    _rewrite(copy, lambda manifest: manifest["receipts"][-1].update({"limit": value}))
    with pytest.raises(SnapshotDamagedError):
        tk.report_failures(tk.read_snapshot(copy))


@pytest.fixture(scope="module")
def calls_without_filter(whole: Path) -> int:
    """The number of calls in the code of a report on the snapshot."""
    return _calls(tk.report_failures(tk.read_snapshot(whole)).to_dict()["code"])


@pytest.mark.parametrize(
    "part", ["label", "workflow_url", "response_status", "since", "until", "error"]
)
@pytest.mark.parametrize("value", [CODE, [CODE], [[CODE]], {"a": CODE}, 7.5], ids=repr)
def test_a_filter_from_a_receipt_is_printed_as_values(
    copy: Path, calls_without_filter: int, part: str, value: Any
) -> None:
    """The code of a report has the calls that it has without the filter, and one for the filter; or none."""
    frame = tk.read_snapshot(copy)
    frame.attrs["receipt"]["scope"][part] = value
    try:
        code = tk.report_failures(frame).to_dict()["code"]
    except InputError:
        return
    assert _calls(code) - calls_without_filter == 1
    assert "system" not in {
        node.attr
        for node in ast.walk(ast.parse(code))
        if isinstance(node, ast.Attribute)
    }


def _calls(code: str) -> int:
    return sum(isinstance(node, ast.Call) for node in ast.walk(ast.parse(code)))


PIECES = (
    "-----BEGIN PRIVATE KEY-----abc",
    "-----END PRIVATE KEY-----",
    "https://u:p",
    "@h/?token=abc",
    "https://h/?token=",
    "Bearer abcdefghijklmnopqrst",
    "Cookie: a=b; c=",
    'password="',
    "password: 'x",
    '{"password": "x',
    "'",
    '"',
    "\\",
    "\n",
    "); __import__('os').system('id') #",
    "-----END PRIVATE KEY-----'); __import__('os').system('id') #",
    '-----END PRIVATE KEY-----"); __import__("os").system("id") #',
)


@pytest.mark.slow
def test_masks_in_code_end_where_their_text_ends() -> None:
    """Whatever two texts stand side by side, the code that is shown calls what the exact code calls."""
    redactor = Redactor()
    for first, second in itertools.product(PIECES, repeat=2):
        chosen = tk.FailureFilter(workflow_url=first, label=[second, first])
        shown = redactor.code(chosen.to_code())
        assert _calls(shown) == 1, (first, second)
        evaluated = eval(shown, {"tk": tk})  # noqa: S307 - that it can be run is what is shown
        assert evaluated.workflow_url == (redactor.text(first),)
        panel = tk.FailureFilterPanel(
            pd.DataFrame({"workflow_url": [first]}), value=chosen
        )
        assert repr(panel) == f"FailureFilterPanel({shown})"


@pytest.mark.parametrize(
    "change",
    [
        lambda found: found.update(began_at="yesterday"),
        lambda found: found.update(written_at="2026-03-01"),
        lambda found: found["position"].update({"done": [["a", "b"]]}),
        lambda found: found["position"].update({"open": [[1]]}),
        lambda found: found["position"].update({"pass": "2"}),
        lambda found: found["position"].update({"ranges": [["", "", 1]]}),
        lambda found: found["counts"].update({"pages": "7"}),
        lambda found: found["counts"].update({"started_at": None}),
        lambda found: found["counts"].update({"notes": [5]}),
        lambda found: found.update(position=[]),
    ],
)
def test_a_checkpoint_of_other_types_is_cleared_away(
    store: SnapshotStore,
    made: SimpleNamespace,
    clock: Any,
    change: Callable[[dict[str, Any]], object],
) -> None:
    """It is damaged, whatever its hash says: the next sync reads everything, and says so."""
    with pytest.raises(TransportError):
        sync_load(
            made.load(made.entries("a"), error=TransportError("reading")),
            store,
            clock=clock,
        )
    found = json.loads(store.content(CHECKPOINT).partition(b"\n")[2])
    change(found)
    body = json.dumps(found).encode()
    store.replace(CHECKPOINT, hashlib.sha256(body).hexdigest().encode() + b"\n" + body)
    changes = sync_load(made.load(made.entries("a")), store, clock=clock)
    assert changes.counts["added"] == 1
    assert "it is damaged" in "".join(changes.receipt.notes)


def test_columns_that_contradict_their_statistics_are_refused(tmp_path: Path) -> None:
    """Arrow ends the process when it is asked for the metadata of such a column, or filters by statistics."""
    path = tmp_path / "snapshot"
    tk.write_snapshot(pd.DataFrame({"dlq_id": ["a", "b"], "body": ["x", None]}), path)
    (file,) = path.glob("*.parquet")
    # in the footer: whether a column is required (25 00) or optional (25 02), and its name
    written = file.read_bytes().replace(
        b"\x25\x02\x18\x04body", b"\x25\x00\x18\x04body"
    )
    assert written != file.read_bytes()
    file.write_bytes(written)
    _rewrite(
        path,
        lambda manifest: manifest["files"][0].update(
            sha256=hashlib.sha256(written).hexdigest()
        ),
    )
    code = (
        "import sys, pyarrow.dataset as ds, toolkit as tk\n"
        "from toolkit.errors import SnapshotDamagedError\n"
        "wanted = ds.field('body') == 'x'\n"
        "def scan(path):\n    tk.open_snapshot(path).to_arrow().to_table(filter=wanted)\n"
        "for use in (tk.read_snapshot, scan):\n"
        "    try:\n        use(sys.argv[1])\n"
        "    except SnapshotDamagedError as error:\n        print(error)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, path], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("histogram size mismatch") == 2


def test_any_bit_of_a_footer_may_be_wrong(tmp_path: Path) -> None:
    """A changed type, size or name is an error of the snapshot to whatever reads it, or changes nothing."""
    path = tmp_path / "snapshot"
    tk.write_snapshot(pd.DataFrame({"dlq_id": ["a"], "n": [1], "t": [0.5]}), path)
    (file,) = path.glob("*.parquet")
    whole = file.read_bytes()
    footer = len(whole) - 8 - int.from_bytes(whole[-8:-4], "little")
    outcomes = Counter[str]()
    for bit in Random(5).sample(range(8 * footer, 8 * len(whole) - 64), 150):
        written = bytearray(whole)
        written[bit // 8] ^= 1 << bit % 8
        file.write_bytes(written)
        sha256 = hashlib.sha256(written).hexdigest()
        _rewrite(
            path,
            lambda manifest, sha256=sha256: manifest["files"][0].update(sha256=sha256),
        )
        for use in (tk.read_snapshot, tk.verify_snapshot, tk.open_snapshot):
            try:
                use(path)
            except SnapshotError:
                outcomes["refused"] += 1
            else:
                outcomes["read"] += 1
    assert min(outcomes["refused"], outcomes["read"]) > 30
