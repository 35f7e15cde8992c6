"""Code that panels, plans and reports show calls public functions with literals, whatever the values are."""

from __future__ import annotations

import ast
import inspect
import json
from collections.abc import Iterator
from collections.abc import Set as AbstractSet
from types import SimpleNamespace
from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import toolkit as tk
from toolkit.base.python_code import (
    Code,
    PublicCall,
    fill,
    joined,
    listed,
    literal,
    variable,
)
from toolkit.errors import InputError
from toolkit.filters import failure, query
from toolkit.redrive import plan as redrive_plan
from toolkit.reports import explained_sections, failure_report, findings, index_report
from toolkit.reports.sections import ReportCode
from toolkit.secrets.redaction import Redactor
from toolkit.widgets import failure_filter, failure_grouping, failure_rows

PAYLOAD = "__import__('os').system('id')"
VARIABLES = {
    "service", "failures", "previous", "plan", "vectors", "rules", "groups", "ids", "selected", "chosen",
    "status", "result", "datetime", "recent", "before", "is_recent", "is_later", "frame", "key", "dated",
    "latest", "new", "zip", "tk", "labels", "queries", "map", "health", "recall", "scores", "changes",
}  # fmt: skip
METHODS = {
    "isin", "join", "save", "plot", "fillna", "assign", "sort_values", "drop_duplicates", "duplicated",
    "isna", "fromisoformat", "zip",
}  # fmt: skip

hostile = st.one_of(
    st.sampled_from([
        PAYLOAD, f"a={PAYLOAD}, b", f"'+{PAYLOAD}+'", f'"+{PAYLOAD}+"', f"\\'+{PAYLOAD}#", f"x\n{PAYLOAD}\n",
        f"{{{PAYLOAD}}}", "{frame}", "{ids}", "\u202e", "\ud800", "\0", "#", "'''", '"""', "\\",
        f"Bearer abcdefgh12345678'); {PAYLOAD} #", f'-----END PRIVATE KEY-----"); {PAYLOAD} #',
    ]),
    st.text(max_size=12),
)  # fmt: skip
sendable = hostile.filter(
    lambda text: text.isascii() and "\0" not in text and text != ""
)


def check(code: str, *, variables: AbstractSet[str] = VARIABLES) -> None:
    """Raise unless code calls public functions with literals and documented variables only."""
    tree = ast.parse(code)
    assigned = {node.id for node in ast.walk(tree) if isinstance(node, ast.Name)}
    imported = {
        alias.name
        for node in ast.walk(tree)
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
    }
    assert assigned <= variables | imported, assigned - variables
    for node in ast.walk(tree):
        if isinstance(node, ast.Call):
            public = (*tk.__all__, *tk.analysis.__all__, *tk.plots.__all__, *METHODS)
            assert called(node.func) in public, ast.dump(node.func)
            assert all(word.arg for word in node.keywords)
        elif isinstance(node, ast.ImportFrom):
            assert node.module in ("toolkit.analysis", "datetime")
        elif isinstance(node, ast.Import):
            assert [alias.name for alias in node.names] == ["toolkit"]
        assert not isinstance(
            node, ast.JoinedStr | ast.While | ast.For | ast.FunctionDef | ast.NamedExpr
        )


def called(function: ast.expr) -> str:
    """The name of what is called; a method of a literal can only be ``join``."""
    if isinstance(function, ast.Name):
        return function.id
    assert isinstance(function, ast.Attribute)
    if isinstance(function.value, ast.Constant):
        assert function.attr == "join"
    return function.attr


def calls(module: Any) -> Iterator[PublicCall]:
    """The calls that a module can write."""
    return (value for value in vars(module).values() if isinstance(value, PublicCall))


def test_every_call_that_is_written_is_public_and_has_these_parameters() -> None:
    """Names of functions and parameters in code are those of the package, in all of its modules."""
    modules = (failure, query, redrive_plan, explained_sections, failure_report, findings, index_report,
               failure_filter, failure_grouping, failure_rows)  # fmt: skip
    found = [call for module in modules for call in calls(module)]
    assert len(found) >= len(modules)
    for call in found:
        module, _, name = call.function.rpartition(".")
        home = getattr(tk, module) if module else tk
        assert name in home.__all__
        known = inspect.signature(getattr(home, name)).parameters
        assert set(call.parameters) <= set(known), call


values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | hostile,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(hostile, inner, max_size=3)
    | st.tuples(inner) | st.tuples(inner, inner),
    max_leaves=8,
)  # fmt: skip


@settings(max_examples=50, deadline=None)
@given(value=values)
def test_a_literal_is_the_value_again(value: object) -> None:
    """Alone, in a call and in a template; a text that looks like a place of the template is a text."""
    assert ast.literal_eval(literal(value)) == value
    call = ast.parse(
        PublicCall("plan_redrive", ("actions",)).write(actions=value)
    ).body[0]
    assert isinstance(call, ast.Expr)
    assert isinstance(call.value, ast.Call)
    assert ast.literal_eval(call.value.keywords[0].value) == value
    assert ast.literal_eval(fill("[{ids}, {frame}]", ids=value, frame="x")) == [
        value,
        "x",
    ]
    assert ast.literal_eval(listed([value, value])) == [value, value]


class Disguised(str):
    """A text whose own repr is code."""

    __slots__ = ()

    def __repr__(self) -> str:
        return PAYLOAD


@pytest.mark.parametrize(
    "value", [float("nan"), float("-inf"), np.nan, pd.NA, pd.NaT, b"x", {1}, object()]
)
def test_what_no_literal_has_is_refused(value: object) -> None:
    """NaN, infinity, and objects whose repr is a call or a name; too many levels, too."""
    with pytest.raises(InputError, match="as code"):
        literal([value])
    deep: list[Any] = []
    for _ in range(100):
        deep = [deep]
    with pytest.raises(InputError, match="levels"):
        literal(deep)
    with pytest.raises(InputError, match="digits"):
        literal(10**5_000)


def test_names_come_from_fixed_lists_only() -> None:
    """An unknown parameter, a variable that is none, plain text among code; a type's own repr is not used."""
    call = PublicCall("plan_redrive", ("wave",))
    with pytest.raises(InputError, match="wave"):
        call.write(**{f"wave={PAYLOAD}, rate": 1})
    for name in ("", "a b", "lambda", "tk", PAYLOAD, "a\n", 7):
        with pytest.raises(InputError, match="variable"):
            variable(name)
    with pytest.raises(InputError, match="piece of code"):
        joined([fill("x"), PAYLOAD])  # type: ignore[list-item]
    assert not isinstance(fill("a") + "b", Code)
    assert (
        literal([Disguised("a"), np.str_("b"), np.int64(3), np.float64(0.5)])
        == "['a', 'b', 3, 0.5]"
    )


@settings(max_examples=30, deadline=None)
@given(urls=st.lists(sendable, min_size=1, max_size=3), error=sendable)
def test_filters_queries_and_views(urls: list[str], error: str) -> None:
    """The code of each value is one call with literals, which makes the value again, masked as well."""
    chosen = tk.FailureFilter(workflow_url=urls, error=[error])
    query = tk.VectorQuery(
        data=error, namespace=error, filter=f"x = {error!r}", top_k=3
    )
    view = tk.FailureView(search=error, selected=urls, groups=[error])
    for value in (chosen, query, view):
        (statement,) = ast.parse(value.to_code()).body
        assert isinstance(statement, ast.Expr)
        assert isinstance(statement.value, ast.Call)
        for word in statement.value.keywords:
            ast.literal_eval(word.value)
        assert eval(value.to_code(), {"tk": tk}) == value  # noqa: S307 - checked above
        check(Redactor().code(value.to_code()))


def failures_of(texts: list[str]) -> pd.DataFrame:
    """Failures whose ids, addresses and responses are these texts."""
    return pd.DataFrame({
        "dlq_id": pd.Series([f"{text}{number}" for number, text in enumerate(texts)], dtype="str"),
        "workflow_run_id": pd.Series(texts, dtype="str"),
        "workflow_url": pd.Series(texts, dtype="str"),
        "created_at": pd.Timestamp("2026-11-20", tz="UTC"),
        "failed_at": pd.Timestamp("2026-11-20", tz="UTC"),
        "response_status": pd.Series([500] * len(texts), dtype="Int64"),
        "response_body": pd.Series(texts, dtype="str"),
        "labels": pd.Series([json.dumps([text]) for text in texts], dtype="str"),
        "caller_ip": pd.Series(texts, dtype="str"),
        "flow_control_key": pd.Series(texts, dtype="str"),
        "body": pd.Series(texts, dtype="str"),
        "response_body_base64": pd.Series([None] * len(texts), dtype="str"),
        "failure_function_state": pd.Series([None] * len(texts), dtype="str"),
    })  # fmt: skip


few = settings(
    max_examples=6, deadline=None, suppress_health_check=[HealthCheck.too_slow]
)


@few
@given(texts=st.lists(sendable, min_size=1, max_size=3))
def test_plans_panels_and_browsers(texts: list[str]) -> None:
    """Ids, addresses, selections, groups and rules of a hostile frame stay literals, shown masked as well."""
    frame = failures_of(texts)
    plan = tk.plan_redrive(frame, changed=frame["workflow_url"].tolist(), history=None)
    check(plan.to_code(texts[0]))
    check(tk.RedrivePanel(None, frame, value=plan, ledger="no-such.sqlite").to_code())
    browser = tk.FailurePanel(
        frame, value=tk.FailureView(selected=frame["dlq_id"].tolist())
    )
    check(browser.selection_code())
    check(browser._grouping.code())
    check(Redactor().code(browser.selection_code()))
    browser._grouping.path = texts[0]
    check(browser._grouping.code())


@few
@given(texts=st.lists(sendable, min_size=3, max_size=3, unique=True))
def test_maps_and_metadata_filters(texts: list[str]) -> None:
    """Namespaces, ids and filters of a hostile frame of vectors stay literals."""
    frame = pd.DataFrame({
        "namespace": texts, "id": texts, "vector": [[0.0, 1.0], [1.0, 0.0], [0.5, 0.5]],
        "metadata": [json.dumps({"x": text}) for text in texts],
    })  # fmt: skip
    panel = tk.VectorMapPanel(frame, value=texts)
    check(panel.to_code())
    panel.value = ()
    check(panel.to_code())
    panel.select("x = 1 OR x != 1")
    check(panel.to_code())
    chosen = tk.MetadataFilterPanel(
        frame, value=f"x = '{texts[0].replace(chr(39), '')}'"
    )
    assert ast.literal_eval(chosen.to_code()) == chosen.value


def test_a_variable_of_the_notebook_is_an_identifier(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Another name under which the frame is in the notebook's namespace is never written."""
    frame = failures_of(["a"])
    names = {
        f"x; {PAYLOAD}": frame,
        PAYLOAD: frame,
        "lambda": frame,
        "kept_rows": frame,
    }
    monkeypatch.setattr(
        "toolkit.widgets.shown_code.get_ipython", lambda: SimpleNamespace(user_ns=names)
    )
    browser = tk.FailurePanel(frame, value=tk.FailureView(selected=["a0"]))
    check(browser.selection_code(), variables=VARIABLES | {"kept_rows"})
    assert "kept_rows[" in browser.selection_code()


def test_reports() -> None:
    """Code in the sections of both reports, of hostile frames, calls public functions only."""
    texts = [f"'+{PAYLOAD}+'", f'"); {PAYLOAD} #', f"x\n{PAYLOAD}", "{ids}"]
    frame = failures_of(texts * 10)
    frame["failed_at"] = pd.Timestamp("2026-11-20", tz="UTC") - pd.to_timedelta(
        np.arange(40) % 5, unit="h"
    )
    report = tk.report_failures(
        frame, frame.iloc[:20], now=pd.Timestamp("2026-11-20T01:00", tz="UTC")
    )
    vectors = pd.DataFrame(
        {"namespace": texts, "id": list("abcd"), "vector": [[0.0, 1.0], [1.0, 0.0]] * 2}
    )
    index = tk.report_index(vectors, previous=vectors)
    parts = [
        part
        for made in (report, index)
        for section in made.sections
        for part in section.parts
    ]
    pieces = [part.code for part in parts if isinstance(part, ReportCode)]
    assert len(pieces) > 10
    for piece in pieces:
        check(piece)


class _Posing(str):
    """A text that poses as another one when it is written."""

    __slots__ = ()

    def __str__(self) -> str:
        return "__import__('os')"

    __repr__ = __str__


def test_a_text_with_methods_of_its_own_is_written_as_what_it_is() -> None:
    """As a variable and as a literal."""
    assert str.__str__(variable(_Posing("failures"))) == "failures"
    assert literal(_Posing("failures")) == "'failures'"
