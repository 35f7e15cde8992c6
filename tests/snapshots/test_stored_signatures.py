"""Signatures of failures, as a column of the snapshots that syncs write."""

from __future__ import annotations

import gc

import msgspec
import pandas as pd
import pyarrow as pa
import pytest

import toolkit as tk
from toolkit.failures.counts import stored_counts
from toolkit.secrets.redaction import Redactor, Secret
from toolkit.signatures import signing
from toolkit.signatures.document import masked_part
from toolkit.signatures.reading import read_document
from toolkit.signatures.signing import Learned, document_of
from toolkit.snapshots.manifest import read_manifest, write_manifest
from toolkit.snapshots.object_store import open_store
from toolkit.tables import signed_rows
from toolkit.tables.frames import to_frame
from toolkit.tables.schemas import FAILURES
from toolkit.tables.signed_rows import BodyReader, with_signatures

BODIES = ("no order 17", "disk full", '{"error": "no stock"}', "", "no order 4711")


def _entries(made, *bodies, start=0):
    return [
        made.entry(f"d{number}", response_body=body or None, response_status=500)
        for number, body in enumerate(bodies, start)
    ]


def test_rows_are_written_with_the_signature_of_their_group(sync, store, made):
    """The ids are those that grouping the same failures gives, and the groups are counted from them."""
    sync(_entries(made, *BODIES))
    frame = tk.read_snapshot(store.path)
    unsigned = frame.drop(columns="signature")
    groups = tk.group_failures(unsigned)
    assert frame["signature"].tolist() == groups.assign(unsigned)["signature"].tolist()
    assert frame["signature"].nunique() == 4
    pd.testing.assert_frame_equal(tk.group_failures(store.path).frame, groups.frame)
    assert (
        tk.group_failures(tk.open_snapshot(store.path).to_arrow()).learned
        == groups.learned
    )


def test_signatures_stay_when_others_come(sync, store, clock, made):
    """A later sync knows the templates of earlier ones: rows of one kind have one id, whenever they came."""
    sync(_entries(made, *BODIES))
    before = tk.read_snapshot(store.path).set_index("dlq_id")["signature"]
    clock.forward(days=1)
    changes = sync(_entries(made, *BODIES, "no order 5", "no route"))
    after = tk.read_snapshot(store.path).set_index("dlq_id")["signature"]
    assert (after[before.index] == before).all()
    assert after["d5"] == before["d0"]
    assert after["d6"] not in set(before)
    assert changes.added["signature"].tolist() == after[["d5", "d6"]].tolist()


def test_a_body_that_repeats_is_read_once(monkeypatch):
    """However many batches of rows it is in; one that is too long to be remembered is read in each."""
    read, long = [], "x" * (signed_rows._REMEMBERED + 1)

    def counting(text):
        read.append(text)
        return read_document(text)

    for module in (signing, signed_rows):
        monkeypatch.setattr(module, "read_document", counting)
    bodies = [BODIES[1], BODIES[2], long]
    table = pa.table(
        {
            "response_status": [500] * 3,
            "response_body": bodies,
            "response_body_base64": [""] * 3,
        }
    )
    reader, learned = BodyReader(Redactor()), Learned()
    for _ in range(4):
        signed, learned = with_signatures(table, learned, reader)
        assert signed["signature"].to_pylist() == tk.analysis.error_signatures(bodies)
    assert [read.count(body) for body in bodies] == [1 + 4, 1 + 4, 4 + 4]


SECRETS = (
    "password=hunter2 refused", '{"error": "no stock", "token": "k3J9x0Q2v7B1m5"}',
    r'{"message": "sent Bearer k3J9x0Q2v7B1m5 \\ud83d to https:\/\/ann:pw@app.example"}',
    "no user ann@mail.example",
    "<html><title>502 Bad Gateway</title><p>api_key: k3J9x0Q2v7B1m5</p></html>",
)  # fmt: skip


@pytest.mark.parametrize("personal", [False, True])
@pytest.mark.parametrize("copies", [1, 40])
def test_many_bodies_are_masked_and_read_as_one_by_one(personal, copies):
    """Masks, documents and lone surrogates are the same, and blank bodies and own tokens are no exception."""
    own = Secret("own-token-of-a-service-4711")
    redactor = Redactor(key=b"key", own=[own], mask_personal=personal)
    texts = [*SECRETS, f"sent {own.reveal()}", *BODIES, "  ", "x" * 300_000]
    bodies = [f"{text}{' ' * number}" for text in texts for number in range(copies)]
    reader = BodyReader(redactor)
    masked = reader.masked([*bodies, None])
    one_by_one = [redactor.text(masked_part(body)) for body in bodies]
    is_blank = [not body.strip() for body in bodies]
    assert masked[-1] is None
    for found, expected, blank in zip(masked, one_by_one, is_blank, strict=False):
        assert found == (None if blank else expected)
    assert not any("hunter2" in (text or "") for text in masked)
    documents = BodyReader(redactor).documents(masked)
    for text in masked:
        assert documents[text] == document_of(text, reader.clean)


def test_bodies_without_secrets_are_not_masked_one_by_one(monkeypatch):
    """A column of bodies is searched for secrets at once, a hundred times faster."""
    gc.collect()  # a redactor of another test that masks personal data would slow down all others
    masked_one_by_one = []

    def counting(self, text):
        masked_one_by_one.append(text)
        return text

    monkeypatch.setattr(Redactor, "text", counting)
    bodies = [
        f'{{"error": "order {number}: no response from https://pay.example/v1/{number} within 30 s"}}'
        for number in range(500)
    ]
    reader = BodyReader(Redactor(key=b"key"))
    assert len(reader.documents(reader.masked(bodies))) == 501
    assert masked_one_by_one == []


def test_rows_signed_by_other_rules_are_signed_again_by_the_next_sync(
    sync, store, made, monkeypatch
):
    """Ids of other rules are of no use: groups are read from the rows until then."""
    sync(_entries(made, *BODIES))
    frame = tk.read_snapshot(store.path)
    manifest = read_manifest(store)
    outdated = msgspec.structs.replace(manifest.learned, rules_version=0)
    write_manifest(store, msgspec.structs.replace(manifest, learned=outdated))
    # the ids are those of older rules
    monkeypatch.setattr("toolkit.tables.signed_rows._CURRENT", "s99-")
    assert sync(_entries(made, *BODIES)).counts == {"added": 0, "changed": 0, "gone": 0}
    pd.testing.assert_frame_equal(tk.read_snapshot(store.path), frame)
    assert read_manifest(store).learned == manifest.learned


@pytest.mark.parametrize("form", ["path", "dataset"])
def test_a_report_on_a_snapshot_is_that_on_its_frame(sync, store, made, form):
    """Completeness, too: the receipt of the latest load comes with the snapshot."""
    sync(_entries(made, *BODIES))
    given = store.path if form == "path" else tk.open_snapshot(store.path).to_arrow()
    now = pd.Timestamp("2026-03-02", tz="UTC")
    expected = tk.report_failures(tk.read_snapshot(store.path), now=now).to_dict()
    assert tk.report_failures(given, now=now).to_dict() == expected
    assert tk.summarize(given).lines == tk.summarize(tk.read_snapshot(store.path)).lines


def test_a_part_without_rows_is_analysed(sync, store, made):
    """A frame of no row of a snapshot has no errors and no groups; a report can have it as previous."""
    sync(_entries(made, *BODIES))
    frame = tk.read_snapshot(store.path)
    none = frame[frame["dlq_id"] == "nope"]
    assert tk.analysis.count_errors(none).empty
    assert tk.group_failures(none).frame.empty
    assert tk.classify_failures(none).frame.empty
    assert set(tk.compare_failures(none, frame).frame["change"]) == {"new"}
    assert tk.report_failures(frame, previous=none).to_markdown()


def _written(made, path, *bodies):
    frame = to_frame(made.failures(_entries(made, *bodies)))
    tk.write_snapshot(frame, path)
    return frame


def test_failures_that_are_written_are_signed_once(tmp_path, made, monkeypatch):
    """The column is in the files, in no frame that is read back, and groups are counted by it."""
    frame = _written(made, tmp_path, *BODIES)
    groups = tk.group_failures(frame)
    dataset = tk.open_snapshot(tmp_path).to_arrow()
    assert dataset.schema.names == [*FAILURES.names, "signature"]
    assert (
        dataset.to_table()["signature"].to_pylist()
        == groups.assign(frame)["signature"].tolist()
    )
    pd.testing.assert_frame_equal(tk.read_snapshot(tmp_path), frame)
    counted = []
    monkeypatch.setattr(
        "toolkit.failures.grouping.stored_counts",
        lambda *values, **options: (
            counted.append(stored_counts(*values, **options)) or counted[-1]
        ),
    )
    found = tk.group_failures(tmp_path)
    assert sum(table.num_rows for table in counted) == 4
    pd.testing.assert_frame_equal(found.frame, groups.frame)
    assert found.learned == groups.learned


def test_what_was_learned_stays_when_other_failures_are_written(tmp_path, made):
    """Frames written one after the other to one folder have one id for each kind."""
    _written(made, tmp_path, *BODIES)
    before = tk.open_snapshot(tmp_path).to_arrow().to_table()["signature"].to_pylist()
    learned = read_manifest(open_store(tmp_path)).learned
    assert learned.templates
    _written(made, tmp_path, *BODIES, "no route", "no order 5")
    after = tk.open_snapshot(tmp_path).to_arrow().to_table()["signature"].to_pylist()
    assert after[: len(before)] == before
    assert after[-1] == before[0]
    assert set(learned.templates) < set(
        read_manifest(open_store(tmp_path)).learned.templates
    )


@pytest.mark.parametrize("signature", ["mine", None])
def test_a_signature_of_ones_own_is_kept(tmp_path, made, signature):
    """A column of this name that came with the frame is the user's: it is read back as it was."""
    frame = to_frame(made.failures(_entries(made, *BODIES)))
    frame = frame.assign(signature=pd.Series([signature] * len(frame), dtype="str"))
    tk.write_snapshot(frame, tmp_path)
    pd.testing.assert_frame_equal(tk.read_snapshot(tmp_path), frame)
    assert len(tk.group_failures(tmp_path).frame) == 4


def test_frames_that_are_no_failures_are_written_as_they_are(tmp_path, made):
    """Columns of which no signature can be made get none."""
    frame = to_frame(made.failures(_entries(made, *BODIES)))
    statuses = frame["response_status"].astype("str")
    others = frame[["dlq_id", "response_body"]], frame.assign(response_status=statuses)
    for number, other in enumerate(others):
        tk.write_snapshot(other, tmp_path / str(number))
        assert (
            "signature"
            not in tk.open_snapshot(tmp_path / str(number)).to_arrow().schema.names
        )


def test_a_snapshot_without_signatures_is_read_and_grouped(tmp_path, made, monkeypatch):
    """As one that an earlier version wrote; the next write adds them, to the same snapshot."""
    with monkeypatch.context() as patched:
        patched.setattr(
            "toolkit.snapshots.writing.can_be_signed", lambda _schema: False
        )
        frame = _written(made, tmp_path, *BODIES)
    assert tk.open_snapshot(tmp_path).to_arrow().schema.names == FAILURES.names
    pd.testing.assert_frame_equal(tk.read_snapshot(tmp_path), frame)
    expected = tk.group_failures(frame).frame
    pd.testing.assert_frame_equal(tk.group_failures(tmp_path).frame, expected)
    _written(made, tmp_path, *BODIES)
    assert "signature" in tk.open_snapshot(tmp_path).to_arrow().schema.names
    pd.testing.assert_frame_equal(tk.group_failures(tmp_path).frame, expected)
