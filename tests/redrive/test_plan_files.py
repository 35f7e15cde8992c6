"""A plan is checked as a whole when it is read: nothing in its file is trusted, and the rest is refused."""

from __future__ import annotations

import ast
import json
import sqlite3
from collections.abc import Callable
from contextlib import closing
from hashlib import sha256
from pathlib import Path
from typing import Any, get_args

import msgspec
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import toolkit as tk
from tests.redrive.test_planning import URL, failures
from toolkit.errors import InputError
from toolkit.failures.classes import CLASSES
from toolkit.redrive import plan_file
from toolkit.redrive.choices import ACTIONS, LEAVE, LEFT_OUT, MARKS, Action, refusal
from toolkit.redrive.ledger_file import Content, Entry, Step, replace_file
from toolkit.redrive.limits import Limits

PAYLOAD = "__import__('os').system('id')"
Edit = Callable[[dict[str, Any]], object]


@pytest.fixture(scope="module")
def plan() -> tk.RedrivePlan:
    """A plan of a run, a plain message, a masked body, an entry that has left, one without a function."""
    frame = failures(
        {}, {"workflow_run_id": None}, {"body": '[{"token": "REDACTED:0f"}]'},
        {"gone_before": pd.Timestamp("2026-11-21", tz="UTC")}, {"workflow_url": f"{URL}/ship"},
    )  # fmt: skip
    return tk.plan_redrive(
        frame,
        changed=[f"{URL}/ship"],
        idempotent=[f"{URL}/ship"],
        rate=5,
        retention="3d",
    )


def content_of(plan: tk.RedrivePlan) -> dict[str, Any]:
    """What the file of a plan holds."""
    content: dict[str, Any] = json.loads(plan.to_json())
    return content


def read(content: object) -> tk.RedrivePlan:
    """The plan of a file's content."""
    return tk.RedrivePlan.from_json(json.dumps(content).encode(), "mine.json")


def test_each_entry_has_marks_that_its_action_follows_from(
    plan: tk.RedrivePlan,
) -> None:
    """Marks are in the frame and in the file, and reading derives the same actions and reasons."""
    marks = plan.frame.set_index("dlq_id")["marks"]
    assert marks["d2"] == "masked body, no failure function"
    assert marks["d3"] == "gone, no failure function"
    again = read(content_of(plan))
    pd.testing.assert_frame_equal(again.frame, plan.frame)
    assert (again.hash, again.options, again.learned) == (
        plan.hash,
        plan.options,
        plan.learned,
    )
    assert set(plan.acted["action"]) == {"resume", "restart"}


EDITS: dict[str, Edit] = {
    "title": lambda found: found["entries"][0].update(title="harmless"),
    "class": lambda found: found["entries"][0].update({"class": "transient"}),
    "reason": lambda found: found["entries"][0].update(reason="finished steps"),
    "expiry": lambda found: found["entries"][0].update(
        expires_at="2026-12-01 00:00:00+00:00"
    ),
    "entry left": lambda found: found["entries"].pop(),
    "entry invented": lambda found: found["entries"].append(
        {**found["entries"][0], "dlq_id": "other"}
    ),
    "order": lambda found: found["entries"].reverse(),
    "source": lambda found: found.update(source="0" * 64),
    "learned": lambda found: found["learned"].update(templates=["x"]),
    "options": lambda found: found["options"].update(retention="7d"),
    "limits": lambda found: found["limits"].update(wave=7),
    "run": lambda found: found["entries"][0].update(workflow_run_id="wfr_other"),
    "hash": lambda found: found.update(hash="0" * 64),
}


@pytest.mark.parametrize("name", EDITS)
def test_an_edit_is_refused_and_changes_the_confirmation(
    name: str, plan: tk.RedrivePlan
) -> None:
    """All that is shown or that decides is covered, whether or not the hash of the file is made to fit."""
    content = content_of(plan)
    EDITS[name](content)
    with pytest.raises(InputError, match=r"mine\.json"):
        read(content)
    if name == "hash":
        return
    parts = plan_file.read_parts(json.dumps(content).encode(), "reading", older=False)
    made = tk.RedrivePlan(
        parts.frame, parts.source, parts.limits, parts.options, parts.learned
    )
    assert made.hash != plan.hash


def fitting(content: dict[str, Any]) -> dict[str, Any]:
    """The content with the hash that fits it."""
    parts = plan_file.read_parts(json.dumps(content).encode(), "reading", older=False)
    made = tk.RedrivePlan(
        parts.frame, parts.source, parts.limits, parts.options, parts.learned
    )
    return {**content, "hash": made.hash}


def entry(content: dict[str, Any], dlq_id: str) -> dict[str, Any]:
    """An entry of a plan's file."""
    found: dict[str, Any] = next(
        one for one in content["entries"] if one["dlq_id"] == dlq_id
    )
    return found


UNDERIVED: dict[str, Edit] = {
    "an action that the options do not lead to": lambda found: entry(
        found, "d0"
    ).update(action="delete", reason="as requested"),
    "a restart of a plain message": lambda found: entry(found, "d1").update(
        action="restart", reason="as requested, stated to be idempotent"
    ),
    "a resume of a masked body": lambda found: entry(found, "d2").update(
        action="resume", reason="finished steps do not run again"
    ),
    "a resume of what has left": lambda found: entry(found, "d3").update(
        action="resume", reason="finished steps do not run again"
    ),
    "a reason that hides the restart": lambda found: entry(found, "d4").update(
        reason="a harmless resume"
    ),
    "a workflow that is no longer idempotent": lambda found: found["options"].update(
        idempotent=[]
    ),
}


@pytest.mark.parametrize("name", UNDERIVED)
def test_an_action_is_derived_from_the_entries(name: str, plan: tk.RedrivePlan) -> None:
    """A file whose hash was made to fit is refused if it states another action or reason than follows."""
    content = content_of(plan)
    UNDERIVED[name](content)
    with pytest.raises(InputError, match=r"the (action|reason) .* for 'd\d'"):
        read(fitting(content))


WRONG: dict[str, Edit] = {
    "review only": lambda found: found["entries"][0].update(action="review only"),
    "unknown option": lambda found: found["options"].update(
        {f"wave=1, x={PAYLOAD}, y": 1}
    ),
    "option type": lambda found: found["options"].update(idempotent="all"),
    "option action": lambda found: found["options"].update(actions="explode"),
    "include": lambda found: found["options"].update(include=["bug"]),
    "retention": lambda found: found["options"].update(retention="soon"),
    "unknown key": lambda found: found.update(more=1),
    "missing key": lambda found: found.pop("source"),
    "unknown limit": lambda found: found["limits"].update(speed=1),
    "canaries": lambda found: found["limits"].update(canaries=-1),
    "wave": lambda found: found["limits"].update(wave=0),
    "stop_above": lambda found: found["limits"].update(stop_above=5),
    "deadline": lambda found: found["limits"].update(deadline=-1),
    "endless deadline": lambda found: found["limits"].update(deadline=1e300),
    "rate": lambda found: found["limits"].update(rate=0),
    "parallelism": lambda found: found["limits"].update(parallelism=10**30),
    "limit type": lambda found: found["limits"].update(wave="50"),
    "boolean limit": lambda found: found["limits"].update(wave=True),
    "learned": lambda found: found.update(learned={"templates": 7}),
    "learned deep": lambda found: found.update(learned={"frames": [[[["a"]]]]}),
    "learned surrogate": lambda found: found.update(learned={"templates": ["\ud800"]}),
    "mark": lambda found: found["entries"][0].update(marks=["fine"]),
    "class": lambda found: found["entries"][0].update({"class": PAYLOAD}),
    "status": lambda found: found["entries"][0].update(response_status=10**30),
    "time": lambda found: found["entries"][0].update(expires_at="soon"),
    "id type": lambda found: found["entries"][0].update(dlq_id=7),
    "no id": lambda found: found["entries"][0].update(dlq_id=None),
    "id twice": lambda found: found["entries"].append(found["entries"][0]),
    "surrogate": lambda found: found["entries"][0].update(title="\ud800"),
    "entries": lambda found: found.update(entries={}),
    "entry": lambda found: found.update(entries=[7]),
    "hash type": lambda found: found.update(hash=7),
    "newer format": lambda found: found.update(format="redrive-plan/3"),
}


@pytest.mark.parametrize("name", WRONG)
def test_wrong_keys_types_and_ranges_are_named(name: str, plan: tk.RedrivePlan) -> None:
    """Each is an `InputError` that names the file."""
    content = content_of(plan)
    WRONG[name](content)
    with pytest.raises(InputError, match=r"reading the plan mine\.json"):
        read(content)


@pytest.mark.parametrize(
    "content",
    [
        b"", b"[]", b"7", b"null", b"{", b"\xff", b"\xef\xbb\xbf{}", b"[" * 100_000, b'{"a":' * 100_000,
        b'{"format": NaN}', b'{"format": ' + b"9" * 5_000 + b"}", b'{"format": "x", "format": "x"}',
    ],
    ids=range(12),
)  # fmt: skip
def test_what_is_no_plan_is_refused(content: bytes, tmp_path: Path) -> None:
    """Deep, cut, doubled or huge JSON, and what is not JSON, with the file's name."""
    path = tmp_path / "odd.json"
    path.write_bytes(content)
    with pytest.raises(InputError, match=r"reading the plan .*odd\.json"):
        tk.RedrivePlan.read(path)


def test_a_key_twice_is_refused(plan: tk.RedrivePlan) -> None:
    """In the limits, too: the second would count in silence."""
    text = plan.to_json().decode().replace('"wave": 50', '"wave": 50, "wave": 50')
    with pytest.raises(InputError, match="'wave' twice"):
        tk.RedrivePlan.from_json(text.encode(), "mine.json")


def test_a_key_twice_among_many_is_found_by_one_pass() -> None:
    """200,000 other keys before it: comparing each with all of them would take minutes."""
    keys = "".join(f'"k{number}": 0, ' for number in range(200_000))
    with pytest.raises(InputError, match="'last' twice"):
        tk.RedrivePlan.from_json(
            f'{{{keys}"last": 0, "last": 0}}'.encode(), "mine.json"
        )


@pytest.mark.parametrize(
    "limits",
    [
        {"canaries": -1}, {"canaries": 0}, {"canaries": 1.5}, {"canaries": True}, {"wave": 0},
        {"wave": 10**30},
        {"stop_above": 5}, {"stop_above": 0}, {"stop_above": float("nan")}, {"deadline": 0.0},
        {"deadline": float("inf")}, {"deadline": "10m"}, {"rate": 0}, {"parallelism": -1}, {"rate": "5"},
    ],
)  # fmt: skip
def test_limits_are_checked_when_code_makes_them(
    limits: dict[str, Any], plan: tk.RedrivePlan
) -> None:
    """By `Limits` itself, and so in a plan that code makes."""
    with pytest.raises(InputError, match=next(iter(limits))):
        Limits(**limits)
    with pytest.raises(InputError, match="limits"):
        tk.RedrivePlan(plan.frame, plan.source, {"wave": 0}, plan.options, plan.learned)  # type: ignore[arg-type]


def test_options_of_code_are_checked_and_written_as_literals(
    plan: tk.RedrivePlan,
) -> None:
    """An unknown name is refused where the plan is made; a hostile value stays one literal."""
    with pytest.raises(InputError, match="options"):
        tk.RedrivePlan(plan.frame, plan.source, plan.limits, {f"x={PAYLOAD}": 1}, {})
    hostile = {
        **plan.options,
        "history": f"'+{PAYLOAD}+'",
        "changed": [f'"); {PAYLOAD} #'],
    }
    code = tk.RedrivePlan(plan.frame, plan.source, plan.limits, hostile, {}).to_code()
    names = {
        node.id for node in ast.walk(ast.parse(code)) if isinstance(node, ast.Name)
    }
    assert names == {"tk", "failures", "plan", "service"}


def test_a_frame_edited_after_the_preview_is_not_run(shop: Any, ledger: Path) -> None:
    """The plan is checked once more before anything is sent or written."""
    made = tk.plan_redrive(failures({}, {}))
    confirmation = made.confirmation
    made.frame.loc[0, "title"] = "another"
    with pytest.raises(InputError, match="edited"):
        tk.run_redrive(shop.service, made, ledger=ledger, confirm=confirmation)
    made.frame.loc[0, "action"] = "review only"
    with pytest.raises(InputError, match="review only"):
        tk.run_redrive(shop.service, made, ledger=ledger, confirm=made.confirmation)
    assert not ledger.exists()


def test_what_the_service_has_now_decides_whether_an_action_is_possible() -> None:
    """No resume without a run, no failure function without one, and no action that is not known."""
    run = {"workflow_run_id": "wfr_1", "failure_callback": "https://a.example"}
    assert [refusal(action, run) for action in ACTIONS] == [""] * 4
    assert all(refusal(action, {**run, "workflow_run_id": None}) for action in ACTIONS)
    assert refusal("failure function", {**run, "failure_callback": None})
    assert refusal("review only", run)


def test_names_in_the_schema_are_those_of_the_package() -> None:
    """Classes, marks, actions and what may be included."""
    assert get_args(plan_file._Class) == CLASSES
    assert get_args(plan_file._Mark) == MARKS
    assert get_args(plan_file._Included) == LEFT_OUT
    assert get_args(Action) == (*ACTIONS, LEAVE)


def older(plan: tk.RedrivePlan) -> tuple[dict[str, Any], str]:
    """The same plan as format 1 had it, and its hash."""
    content = content_of(plan)
    entries = [
        {name: value for name, value in one.items() if name != "marks"}
        for one in content["entries"]
    ]
    for one in entries:
        one["response_status"] = str(one["response_status"])
    kept = [
        name
        for name in plan_file.COLUMNS
        if name not in ("title", "class", "reason", "expires_at", "marks")
    ]
    rows = [[one[name] for name in kept] for one in entries if one["action"] != "leave"]
    limits = plan.limits
    hashed = sha256(msgspec.json.encode(["redrive-plan/1", limits, rows])).hexdigest()
    options = {
        name: value for name, value in content["options"].items() if name != "retention"
    }
    return {
        **content,
        "format": "redrive-plan/1",
        "hash": hashed,
        "options": options,
        "entries": entries,
    }, hashed


def test_a_plan_of_the_older_format_names_the_way_out(plan: tk.RedrivePlan) -> None:
    """Its file is refused, and the error tells to plan again with the ledger as history."""
    content, _ = older(plan)
    with pytest.raises(InputError, match=r"redrive-plan/1.*plan_redrive.*history="):
        read(content)


def ledger_of(path: Path, content: dict[str, Any], key: str) -> Path:
    """A ledger of one plan, of which one entry is done."""
    step = Step(state="succeeded", run_id="wfr_new", intended_at=1, ended_at=2)
    done = Entry(
        plan=key,
        dlq_id="d0",
        grouped="g",
        action="resume",
        origin_run="wfr_0",
        step=step,
    )
    plans = {key: json.dumps(content).encode()}
    replace_file(
        path, Content(plans=plans, began_at={key: 1}, entries={(key, "d0"): done})
    )
    return path


def test_a_ledger_with_an_older_plan_is_readable(
    shop: Any, plan: tk.RedrivePlan, ledger: Path
) -> None:
    """Status and history by the hash that it was run with; it cannot be run or saved again."""
    content, key = older(plan)
    ledger_of(ledger, content, key)
    result = tk.read_redrive_status(ledger)
    states = result.frame.set_index("dlq_id")["state"]
    assert (result.plan.hash, states["d0"], states["d4"], states["d1"]) == (
        key,
        "succeeded",
        "waiting",
        "left",
    )
    assert tk.read_redrive_history(ledger)["plan"].tolist() == [key]
    for call in (
        lambda: tk.run_redrive(
            shop.service, result.plan, ledger=ledger, confirm=result.plan.confirmation
        ),
        result.plan.to_json,
    ):
        with pytest.raises(InputError, match=r"redrive-plan/1.*plan_redrive"):
            call()


@pytest.mark.parametrize(
    "name", ["review only", "unknown option", "wave", "id twice", "learned"]
)
def test_a_hostile_plan_in_a_ledger_is_refused(
    name: str, plan: tk.RedrivePlan, ledger: Path
) -> None:
    """Of either format, before its code can be shown; under another hash as well."""
    for content, key in ((content_of(plan), plan.hash), older(plan)):
        WRONG[name](content)
        path = ledger_of(ledger.with_name(f"{key}.sqlite"), content, key)
        with pytest.raises(InputError, match="reading the plan"):
            tk.read_redrive_status(path)
    typed = ledger_of(ledger.with_name("typed.sqlite"), content_of(plan), plan.hash)
    with closing(sqlite3.connect(typed)) as database, database:
        database.execute("UPDATE plans SET plan = 7")
    with pytest.raises(InputError, match="opening the ledger"):
        tk.read_redrive_status(typed)
    swapped = ledger_of(ledger, content_of(plan), "0" * 64)
    with pytest.raises(InputError, match="another plan"):
        tk.read_redrive_status(swapped)


def outcome(content: object) -> tk.RedrivePlan | str:
    """The plan, or why it is refused."""
    try:
        return read(content)
    except InputError as error:
        return str(error)


any_text = st.text(st.characters(exclude_categories=()), max_size=8)
"""Text as JSON can contain it, with lone surrogates."""

json_values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | any_text
    | st.sampled_from([PAYLOAD]),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(any_text, inner, max_size=3)
    ),
    max_leaves=6,
)


@settings(max_examples=60, deadline=None)
@given(data=st.data())
def test_any_value_anywhere_is_refused_or_the_same_plan(
    data: st.DataObject, plan: tk.RedrivePlan
) -> None:
    """Whatever stands in the place of a value: an `InputError`, or nothing has changed."""
    content = content_of(plan)
    part = data.draw(st.sampled_from([content, content["options"], content["limits"], content["learned"],
                                      content["entries"][0]]))  # fmt: skip
    names = st.sampled_from(sorted(part)) | st.text(max_size=6)
    part[data.draw(names)] = data.draw(json_values)
    made = outcome(content)
    if isinstance(made, str):
        assert made.startswith("reading the plan mine.json")
    else:
        assert made.hash == plan.hash
        ast.parse(made.to_code())


def test_the_short_code_of_an_earlier_version_is_refused_by_name(
    plan: tk.RedrivePlan, tmp_path: Path
) -> None:
    """Eight digits can be searched for: the error shows the code of sixteen, and no ledger is made."""
    service = tk.connect(
        queue_url="http://127.0.0.1:9", queue_token="token-of-no-service", environ={}
    )
    number, digits = plan.confirmation.split("-")
    assert (number, len(digits)) == (str(len(plan.acted)), 16)
    with pytest.raises(InputError, match="earlier version") as caught:
        tk.run_redrive(
            service, plan, ledger=tmp_path / "ledger", confirm=f"{number}-{digits[:8]}"
        )
    assert plan.confirmation in str(caught.value)
    assert not [*tmp_path.iterdir()]
