"""Ids that an older version of the rules gave lead to the groups of today, after the next sync."""

from __future__ import annotations

import hashlib
import json

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import toolkit as tk
from toolkit.errors import InputError, UnexpectedResultWarning
from toolkit.failures.group_rules import GroupRules
from toolkit.signatures.signing import Learned
from toolkit.snapshots.manifest import read_manifest, write_manifest

DISK, TOKEN, PORT = "s1-00000000000a", "s1-00000000000b", "s1-00000000000c"
EARLIER = "s1-00000000000e"
TIME = 1_772_000_000_000


def _signed_by_older_rules(store, ids, **learned):
    """Write the files of a snapshot as if older rules had given these ids to the bodies."""
    manifest = read_manifest(store)
    files = []
    for listed in manifest.files:
        path = store.path / listed.path
        table = pq.read_table(path)
        bodies = table["response_body"].to_pylist()
        signatures = pa.array([ids[body] for body in bodies], pa.string())
        place = table.schema.get_field_index("signature")
        pq.write_table(
            table.set_column(place, table.schema.field(place), signatures), path
        )
        content = path.read_bytes()
        files.append(
            msgspec.structs.replace(
                listed,
                bytes=len(content),
                sha256=hashlib.sha256(content).hexdigest(),
            )
        )
    older = msgspec.structs.replace(manifest.learned, rules_version=1, **learned)
    write_manifest(
        store, msgspec.structs.replace(manifest, files=tuple(files), learned=older)
    )


def _entries(made, *bodies):
    return [
        made.entry(f"d{number}", response_body=body, failed_at=TIME)
        for number, body in enumerate(bodies)
    ]


BODIES = ("disk full", "disk full", "bad token", "port in use", "no port")
IDS = {
    "disk full": DISK,
    "bad token": TOKEN,
    "port in use": PORT,
    "no port": PORT,
}


@pytest.fixture
def older(sync, store, made):
    """A snapshot that was signed by older rules, which put two bodies into one group."""
    entries = _entries(made, *BODIES)
    sync(entries)
    present = _ids(store)
    _signed_by_older_rules(
        store, IDS, renamed={EARLIER: DISK, "s1-" + 12 * "f": "s1-x"}
    )
    changes = sync([*entries, made.entry("new", response_body="port in use")])
    return present, changes


def _ids(store):
    """The stored id of each body, which `read_snapshot` returns for a synced snapshot."""
    frame = tk.read_snapshot(store.path)
    return dict(zip(frame["response_body"], frame["signature"], strict=True))


def test_each_id_leads_to_the_one_that_most_of_its_rows_have(older, store):
    """Ids that an earlier sync has joined, too; a group without rows is forgotten."""
    present, _ = older
    assert _ids(store) == present
    renamed = read_manifest(store).learned.renamed
    assert renamed.pop(PORT) in {present["no port"], present["port in use"]}
    assert renamed == {
        DISK: present["disk full"],
        EARLIER: present["disk full"],
        TOKEN: present["bad token"],
    }


def test_a_change_of_rules_is_no_change_of_the_queue(older):
    """Nothing is reported as joined or changed."""
    _, changes = older
    assert changes.joined == {}
    assert changes.counts == {"added": 1, "changed": 0, "gone": 0}


def test_a_later_sync_keeps_the_ids(older, sync, store, made):
    """Also when it joins groups, or when the rules change once more."""
    present, _ = older
    before = read_manifest(store).learned.renamed
    sync(_entries(made, *BODIES, "out of memory"))
    assert read_manifest(store).learned.renamed == before
    # the rules change once more: the first ids led to the second ones
    second = {body: f"s2-{number:012}" for number, body in enumerate(present)}
    second["out of memory"] = "s2-" + 12 * "e"
    chained = {old: second[body] for body, old in IDS.items()}
    _signed_by_older_rules(store, second, renamed=chained)
    sync(_entries(made, *BODIES, "out of memory"))
    renamed = read_manifest(store).learned.renamed
    assert renamed[DISK] == renamed[second["disk full"]] == present["disk full"]


def test_ids_that_were_written_down_find_their_group(older, store):
    """In rules, in selections, in a plan and in a check of a fix."""
    present, _ = older
    group = present["disk full"]
    text = f'name {DISK} "Disks"\nmerge {TOKEN} into {DISK}\n'
    for failures in (store.path, tk.read_snapshot(store.path)):
        frame = tk.group_failures(failures, rules=GroupRules(text)).frame
        assert frame.set_index("group").loc[group, ["title", "count"]].tolist() == [
            "Disks",
            3,
        ]
        assert len(tk.select_failures(failures, {"signature": DISK})) == 2
        plan = tk.plan_redrive(failures, actions={DISK: "delete"})
        assert plan.options["actions"] == {group: "delete"}
        check = tk.check_fix(failures, DISK, since="2026-02-25T10:00:00Z")
        assert check.group == group


def test_two_ids_of_one_group_have_one_action(older, store):
    """Otherwise nobody could tell which of the two is meant."""
    present, _ = older
    actions = {DISK: "delete", EARLIER: "delete"}
    plan = tk.plan_redrive(store.path, actions=actions)
    assert plan.options["actions"] == {present["disk full"]: "delete"}
    with pytest.raises(InputError, match="one action per group"):
        tk.plan_redrive(store.path, actions={DISK: "delete", EARLIER: "leave"})


def test_a_group_that_a_rule_splits_off_keeps_its_id(older, store):
    """It is made from the id in the line and has the version of that id, so that rules can name it."""
    split = f'split {PORT} where body contains "port"'
    before = GroupRules(split)
    (rule,) = before.rules
    assert rule.group == PORT
    frame = tk.group_failures(store.path, rules=before).frame
    (group,) = (one for one in frame["group"] if one.startswith("s1-"))
    named = f'{split}\nname {group} "Ports"'
    frame = tk.group_failures(store.path, rules=GroupRules(named)).frame
    assert "Ports" in frame["title"].tolist()


def test_rules_that_older_rules_learned_are_left_out_of_a_file(older, store, tmp_path):
    """With a warning. The lines of the file apply, and the templates of the snapshot are used."""
    present, _ = older
    learned = msgspec.to_builtins(Learned(rules_version=1, templates=("bad token",)))
    path = tmp_path / "groups.txt"
    path.write_text(f'name {DISK} "Disks"\nlearned {json.dumps(learned)}\n')
    with pytest.warns(UnexpectedResultWarning, match="version 1 of the rules"):
        groups = tk.group_failures(store.path, rules=path)
    frame = groups.frame.set_index("group")
    assert frame.loc[present["disk full"], "title"] == "Disks"
    assert "bad token" in groups.learned["templates"]
    with pytest.raises(InputError, match="version 1 of the toolkit"):
        GroupRules("", learned)
