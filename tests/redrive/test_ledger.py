"""The file of a ledger: complete after every step, read without a change, and one redrive per entry."""

from __future__ import annotations

import os
import shutil
import sqlite3
from itertools import chain, combinations
from pathlib import Path

import pandas as pd
import pytest

import toolkit as tk
from tests.redrive.conftest import Shop
from tests.redrive.killed_clients import Clients, Kill, mixed_plan
from toolkit.errors import InputError, LedgerLockedError, ToolkitError
from toolkit.redrive.ledger import Ledger, returned_entries
from toolkit.redrive.ledger_file import STEP_BYTES

PAGE = 4096
LONG = "é" * 400  # a reason that does not fit
FIRST_VERSION = """
PRAGMA journal_mode = WAL;
CREATE TABLE plans (hash TEXT PRIMARY KEY, plan BLOB NOT NULL, began_at INTEGER NOT NULL);
CREATE TABLE entries (
  plan TEXT NOT NULL, dlq_id TEXT NOT NULL, grouped TEXT NOT NULL, action TEXT NOT NULL, run_id TEXT,
  origin_run TEXT, state TEXT NOT NULL, intended_at INTEGER, ended_at INTEGER, new_dlq_id TEXT,
  new_group TEXT, reason TEXT, PRIMARY KEY (plan, dlq_id)
) WITHOUT ROWID;
CREATE TABLE stopped (
  plan TEXT NOT NULL, grouped TEXT NOT NULL, reason TEXT NOT NULL, PRIMARY KEY (plan, grouped)
) WITHOUT ROWID;
PRAGMA user_version = 1;
"""


@pytest.fixture(scope="module")
def plan() -> tk.RedrivePlan:
    """A plan of 30 entries in one group."""
    count = 30
    numbers = range(count)
    failures = pd.DataFrame({
        "dlq_id": [f"entry-{number}" for number in numbers],
        "workflow_run_id": [f"wfr_{number}" for number in numbers],
        "workflow_url": "https://shop.example/pay",
        "created_at": pd.Timestamp("2026-10-01T12:00", tz="UTC"),
        "failed_at": pd.Timestamp("2026-10-01T12:01", tz="UTC"),
        "response_status": pd.array([500] * count, dtype="Int64"),
        "response_body": '{"error": "no stock"}',
        "response_body_base64": None,
        "failure_function_state": None,
    })  # fmt: skip
    return tk.plan_redrive(failures)


def files_of(folder: Path) -> dict[str, tuple[bytes, int, int]]:
    """Return the content, mode and time of change of all files in a folder."""
    found = {}
    for path in sorted(folder.rglob("*")):
        state = path.stat()
        found[path.name] = (
            path.read_bytes() if path.is_file() else b"",
            state.st_mode,
            state.st_mtime_ns,
        )
    return found


def first_version(path: Path, plan: tk.RedrivePlan) -> sqlite3.Connection:
    """Write a ledger as the first version did, with one entry that was called; it stays open."""
    database = sqlite3.connect(path)
    database.executescript(FIRST_VERSION)
    entry = plan.acted.iloc[0]
    with database:
        database.execute(
            "INSERT INTO plans VALUES (?, ?, ?)", (plan.hash, plan.to_json(), 1)
        )
        values = (
            plan.hash,
            entry["dlq_id"],
            entry["group"],
            entry["action"],
            None,
            "wfr_0",
            "started",
            5,
        )
        database.execute(
            "INSERT INTO entries (plan, dlq_id, grouped, action, run_id, origin_run, state, intended_at) "
            "VALUES (?, ?, ?, ?, ?, ?, ?, ?)",
            values,
        )
    return database


@pytest.mark.slow
def test_a_kill_between_any_two_writes_leaves_the_file_complete(
    plan: tk.RedrivePlan, tmp_path: Path
) -> None:
    """With any part of the pages of a step written, and no journal, it is stored or it is not."""
    path, copy = tmp_path / "ledger.sqlite", tmp_path / "copy.sqlite"
    ledger = Ledger(path, make=True)
    ledger.add(plan)
    entries = plan.acted.to_dict("records")
    steps = []
    for entry in entries[:6]:
        dlq_id = entry["dlq_id"]
        steps += [
            lambda entry=entry: ledger.intend(
                plan.hash, entry, "wfr_redrive_" + "0" * 32
            ),
            lambda dlq_id=dlq_id: ledger.set(plan.hash, dlq_id, "started", ended=False),
            lambda dlq_id=dlq_id: ledger.set(
                plan.hash, dlq_id, "failed again", new_dlq_id="new", reason=LONG
            ),
        ]
    steps += [lambda: ledger.skip(plan.hash, entries[7], "gone")]
    steps += [
        lambda: ledger.stop(plan.hash, entries[0]["group"], "3 of 3 runs failed again")
    ]
    for step in steps:
        before, was = path.read_bytes(), states(path)
        step()
        after, is_now = path.read_bytes(), states(path)
        assert len(before) == len(after)
        changed = [
            at
            for at in range(0, len(after), PAGE)
            if before[at : at + PAGE] != after[at : at + PAGE]
        ]
        assert 1 <= len(changed) <= 2
        for written in chain.from_iterable(
            combinations(changed, count) for count in (0, 1, 2)
        ):
            torn = bytearray(before)
            for at in written:
                torn[at : at + PAGE] = after[at : at + PAGE]
            copy.write_bytes(torn)
            assert states(copy) in (was, is_now)
    ledger.close()
    assert [
        name.name for name in tmp_path.iterdir() if name.name.startswith("ledger")
    ] == ["ledger.sqlite"]


def run(path: Path) -> None:
    """Open a ledger as a run does."""
    with Ledger.running(path):
        pass


def states(path: Path) -> list[tuple[str, str]]:
    """Return the state and reason of each entry."""
    frame = tk.read_redrive_status(path).frame
    return list(zip(frame["state"], frame["reason"].fillna(""), strict=True))


def test_a_ledger_of_the_first_version_is_read_and_converted(
    plan: tk.RedrivePlan, tmp_path: Path
) -> None:
    """Everything may be in its log alone; a run takes that into the one file, and reading leaves it."""
    folder, killed = tmp_path / "open", tmp_path / "killed"
    folder.mkdir(), killed.mkdir()
    database = first_version(folder / "old.sqlite", plan)
    for name in ("old.sqlite", "old.sqlite-wal"):  # as after a kill
        shutil.copyfile(folder / name, killed / name)
    database.close()
    assert (killed / "old.sqlite").stat().st_size == PAGE
    files = files_of(killed)
    assert (
        tk.read_redrive_status(killed / "old.sqlite")
        .frame["state"]
        .value_counts()["started"]
        == 1
    )
    assert len(tk.read_redrive_history(killed / "old.sqlite")) == 1
    assert files_of(killed) == files
    with Ledger.running(killed / "old.sqlite") as ledger:
        ledger.add(plan)
        ledger.set(plan.hash, plan.acted["dlq_id"].iloc[0], "succeeded")
        ledger.skip(plan.hash, plan.acted.iloc[1].to_dict(), "gone")
        assert not (killed / "old.sqlite-wal").exists()
    counts = (
        tk.read_redrive_status(killed / "old.sqlite")
        .frame["state"]
        .value_counts()
        .to_dict()
    )
    assert counts == {"succeeded": 1, "skipped": 1, "waiting": 28}


@pytest.mark.parametrize("version", [0, 1, 7])
def test_files_of_other_programs_are_left_as_they_are(
    plan: tk.RedrivePlan, tmp_path: Path, version: int
) -> None:
    """Reading and running are refused, and neither changes the file, its mode or its folder."""
    path = tmp_path / "folder" / "other.sqlite"
    path.parent.mkdir()
    database = sqlite3.connect(path)
    database.executescript(f"CREATE TABLE entries (a); PRAGMA user_version = {version}")
    database.close()
    path.chmod(0o644)
    files = files_of(path.parent)
    for call in (
        tk.read_redrive_status,
        tk.read_redrive_history,
        returned_entries,
        run,
    ):
        with pytest.raises(InputError, match="another program"):
            call(path)
    assert files_of(path.parent) == files


def test_reading_an_unfinished_redrive_changes_nothing(
    plan: tk.RedrivePlan, tmp_path: Path
) -> None:
    """A process that was killed while it stored a step has left a journal: it is read from a copy."""
    folder = tmp_path / "folder"
    folder.mkdir()
    path = folder / "ledger.sqlite"
    ledger = Ledger(path, make=True)
    ledger.add(plan)
    ledger.intend(plan.hash, plan.acted.iloc[0].to_dict(), None)
    stored = path.read_bytes()
    assert ledger._database is not None
    ledger._database.execute("PRAGMA cache_spill = 1")
    ledger._database.execute("PRAGMA cache_size = 1")
    ledger._database.execute("BEGIN")
    # spills pages, with a journal
    ledger._database.execute("UPDATE steps SET step = ?", (" " * STEP_BYTES,))
    torn = tmp_path / "torn"
    torn.mkdir()
    for file in folder.iterdir():
        shutil.copyfile(file, torn / file.name)
    assert (torn / path.name).read_bytes() != stored
    torn.chmod(0o500)
    files = files_of(torn)
    try:
        assert (
            tk.read_redrive_status(torn / path.name)
            .frame["state"]
            .value_counts()["intended"]
            == 1
        )
        assert files_of(torn) == files
    finally:
        torn.chmod(0o700)
        ledger._database.execute("ROLLBACK")
        ledger.close()


def test_an_empty_file_is_no_ledger_until_a_run(
    plan: tk.RedrivePlan, tmp_path: Path
) -> None:
    """Readers refuse it and leave it empty; a run begins its ledger there."""
    path = tmp_path / "empty.sqlite"
    path.touch()
    for call in (tk.read_redrive_status, tk.read_redrive_history):
        with pytest.raises(InputError, match="an empty file"):
            call(path)
    assert not path.stat().st_size
    with Ledger.running(path) as ledger:
        ledger.add(plan)
    assert (tk.read_redrive_status(path).frame["state"] == "waiting").all()


DAMAGE = {
    "a state": "UPDATE steps SET step = replace(step, 'intended\"', 'sent\"    ') WHERE id = 0",
    "no JSON": "UPDATE steps SET step = '{' WHERE id = 0",
    "a number as a step": "UPDATE steps SET step = 5 WHERE id = 0",
    "a text as a time": 'UPDATE steps SET step = \'{"state": "started", "intended_at": "now"}\'',
    "a year beyond any": 'UPDATE steps SET step = \'{"state": "started", "intended_at": 99999999999999999}\'',
    "no time": 'UPDATE steps SET step = \'{"state": "started"}\'',
    "a blob as an id": "UPDATE planned SET dlq_id = x'00ff' WHERE id = 0",
    "bytes that are no text": "UPDATE planned SET grouped = CAST(x'ff' AS TEXT) WHERE id = 0",
    "a text as a plan": "UPDATE plans SET plan = 'text'",
    "a text as a beginning": "UPDATE plans SET began_at = 'now'",
    "a blob as a reason": "UPDATE stops SET reason = x'00'",
    "no steps": "DROP TABLE steps",
    "a missing step": "DELETE FROM steps WHERE id = 1",
    "a missing entry": "DELETE FROM planned WHERE id = 1",
    "a newer version": "PRAGMA user_version = 3",
}


@pytest.mark.parametrize("damage", DAMAGE)
def test_a_damaged_ledger_is_a_clear_error(
    plan: tk.RedrivePlan, tmp_path: Path, damage: str
) -> None:
    """Values of wrong types and missing rows are refused by readers and by a run."""
    path = tmp_path / "ledger.sqlite"
    with Ledger.running(path) as ledger:
        ledger.add(plan)
        ledger.intend(plan.hash, plan.acted.iloc[0].to_dict(), None)
    database = sqlite3.connect(path)
    database.executescript(DAMAGE[damage])
    database.close()
    for call in (tk.read_redrive_status, tk.read_redrive_history):
        with pytest.raises(InputError, match="opening the ledger"):
            call(path)
    with pytest.raises(InputError, match="opening the ledger"):
        run(path)


def test_every_page_may_be_overwritten(plan: tk.RedrivePlan, tmp_path: Path) -> None:
    """Each page filled with other bytes, or cut off: an error of the toolkit, or the ledger as it was."""
    path, copy = tmp_path / "ledger.sqlite", tmp_path / "copy.sqlite"
    with Ledger.running(path) as ledger:
        ledger.add(plan)
        ledger.intend(plan.hash, plan.acted.iloc[0].to_dict(), None)
    content, right = path.read_bytes(), states(path)
    for at in range(0, len(content), PAGE):
        for damaged in (
            content[:at] + b"\xa5" * PAGE + content[at + PAGE :],
            content[: at + 100],
        ):
            copy.write_bytes(damaged)
            try:
                assert states(copy) == right
            except ToolkitError:
                continue


@pytest.mark.parametrize("kind", ["a link", "a folder", "a pipe"])
def test_the_lock_must_be_a_file(
    plan: tk.RedrivePlan, tmp_path: Path, kind: str
) -> None:
    """Something else with the name of the lock is an error that names it, and is left alone."""
    lock, target = tmp_path / "ledger.sqlite.lock", tmp_path / "target"
    target.write_text("somebody's")
    {
        "a link": lambda: lock.symlink_to(target),
        "a folder": lock.mkdir,
        "a pipe": lambda: os.mkfifo(lock),
    }[kind]()
    with pytest.raises(InputError, match=r"ledger\.sqlite\.lock"):
        run(tmp_path / "ledger.sqlite")
    assert target.read_text() == "somebody's"
    assert not (tmp_path / "ledger.sqlite").exists()


def test_a_lock_that_is_held_makes_no_ledger(
    plan: tk.RedrivePlan, tmp_path: Path
) -> None:
    """The second run of a ledger is refused before it opens or converts the file."""
    path = tmp_path / "ledger.sqlite"
    with Ledger.running(path), pytest.raises(LedgerLockedError), Ledger.running(path):
        pass


def test_steps_that_were_not_stored_stop_the_run(
    plan: tk.RedrivePlan, tmp_path: Path
) -> None:
    """A row that another program removed is an error, and the step is not remembered either."""
    path = tmp_path / "ledger.sqlite"
    with Ledger.running(path) as ledger:
        ledger.add(plan)
        assert ledger._database is not None
        ledger._database.execute("DELETE FROM steps WHERE id = 0")
        with pytest.raises(ToolkitError, match="writing the ledger"):
            ledger.intend(plan.hash, plan.acted.iloc[0].to_dict(), None)
        assert not ledger.entries()


@pytest.mark.slow
def test_killed_at_its_steps_a_copied_file_continues_elsewhere(
    shop: Shop, tmp_path: Path
) -> None:
    """Each machine gets the one file that the docs name: nothing is done twice, and the deletes are known."""
    clients = Clients(shop, mixed_plan(shop, "copied", 4, workflows=4), tmp_path)
    kills = [
        Kill(change, stored=stored)
        for change, stored in ((1, True), (2, True), (3, False), (4, True))
    ]
    result = clients.killed_with_copies(
        [*kills, Kill(6, stored=True), Kill(5, stored=False)]
    )
    assert clients.wrong([result]) == {}
    assert result.finished


@pytest.mark.slow
def test_one_plan_with_two_ledgers_calls_each_function_once(
    shop: Shop, tmp_path: Path
) -> None:
    """Two processes at once, of which either is killed: no entry is acted on twice."""
    clients = Clients(shop, mixed_plan(shop, "two", 4, workflows=2), tmp_path)
    assert clients.wrong(clients.killed_with_two_ledgers((0.7, 0.4), seed=1)) == {}


@pytest.mark.slow
def test_another_plan_calls_a_function_again_once_the_outcome_is_known(
    shop: Shop, tmp_path: Path
) -> None:
    """A claim ends with the call; while it is open, another plan and another ledger leave the entry."""
    failed = shop.fail_with_function("claimed", 2)
    first = tk.plan_redrive(failed, actions="failure function", stop_above=1)
    second = tk.plan_redrive(failed, actions="failure function", stop_above=1, wave=7)
    found = []
    for plan, name in ((first, "a"), (first, "b"), (second, "c")):
        path = tmp_path / f"{name}.sqlite"
        tk.run_redrive(
            shop.service, plan, ledger=path, confirm=plan.confirmation, progress=False
        )
        found.append(tk.read_redrive_status(path).frame)
    assert [set(frame["state"]) for frame in found] == [
        {"failed again"},
        {"skipped"},
        {"failed again"},
    ]
    assert found[1]["reason"].str.contains("a.sqlite").all()
    assert set(shop.called.values()) == {2}
