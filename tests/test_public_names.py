"""The public surface: pinned, sorted, documented, and cheap to import."""

from __future__ import annotations

import ast
import builtins
import importlib
import inspect
import re
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pandas as pd
import pyarrow as pa
import pytest

import toolkit as tk
from toolkit.base.old_names import OLD_NAMES, OLD_NAMES_OF_ANALYSIS
from toolkit.tables import schemas

MODULES = (tk.analysis, tk.errors, tk.plots, tk.results)
PLOTS_PAGE = Path(__file__).parents[1] / "docs" / "plots.md"
NAMES = [
    "RunFilter",
    "Retries",
    "FlowControl",
    "EventFilter",
    "CallbackReceiver",
    "CallbackSettings",
    "FailureFilter",
    "FailureFilterPanel",
    "FailurePanel",
    "FailureView",
    "GroupRules",
    "HybridOptions",
    "MetadataFilterPanel",
    "QueryPanel",
    "RedrivePanel",
    "RedrivePlan",
    "ReplayGuard",
    "Service",
    "VectorMapPanel",
    "VectorQuery",
    "__version__",
    "analysis",
    "as_matrix",
    "audit_recall",
    "audit_vectors",
    "calibrate_threshold",
    "cancel_messages",
    "cancel_runs",
    "check_fix",
    "check_queries",
    "classify_failures",
    "collect_metadata",
    "compare_failures",
    "compare_fusion",
    "compare_hits",
    "compare_vectors",
    "connect",
    "delete_failures",
    "delete_namespace",
    "delete_vectors",
    "describe_index",
    "erase_failures",
    "errors",
    "explain_spike",
    "explode_headers",
    "explode_labels",
    "explode_metadata",
    "explode_steps",
    "export_csv",
    "export_excel",
    "export_vectors",
    "fetch_vectors",
    "filter_literal",
    "find_expiring",
    "find_retry_outcomes",
    "find_similar_failures",
    "flatten",
    "get_receipt",
    "group_failures",
    "group_hits",
    "index_failures",
    "iter_failures",
    "iter_query",
    "iter_vectors",
    "list_namespaces",
    "load_callbacks",
    "load_events",
    "load_failure",
    "load_failures",
    "load_runs",
    "load_vectors",
    "match_metadata",
    "parse_filter",
    "pin_queries",
    "plan_redrive",
    "plots",
    "project_vectors",
    "publish",
    "publish_batch",
    "query",
    "query_text",
    "open_snapshot",
    "read_redrive_history",
    "read_redrive_status",
    "read_snapshot",
    "rename_namespace",
    "replay_failure",
    "report_failures",
    "report_index",
    "reproduce",
    "rerun_failure_functions",
    "reset_namespace",
    "restart_failures",
    "restore_vectors",
    "results",
    "resume_failures",
    "run_redrive",
    "score_hits",
    "select_failures",
    "start_run",
    "suggest_runbooks",
    "summarize",
    "summarize_runs",
    "sync_failures",
    "update_vectors",
    "upsert_vectors",
    "verify_signature",
    "verify_snapshot",
    "watch_failures",
    "write_snapshot",
]

NO_VALUES = {"__version__", "analysis", "errors", "plots", "results"}
VALUES = [*sorted(set(NAMES) - NO_VALUES), *tk.plots.__all__, *tk.results.__all__]


def value_of(name):
    """Return the value of a public name."""
    home = next(home for home in (tk, *MODULES) if name in home.__all__)
    return getattr(home, name)


def test_the_public_names_are_these():
    """A name is added or removed on purpose only."""
    assert sorted(tk.__all__) == sorted(NAMES)
    offered = {name for name in dir(tk) if not name.startswith("__")}
    assert offered == {*NAMES} - {"__version__"}  # Tab offers no internal module


def test_every_public_name_is_in_one_place():
    """No name of `toolkit` is in one of its modules as well, and no name is in two of them."""
    places = Counter(name for module in (tk, *MODULES) for name in module.__all__)
    assert {name for name, count in places.items() if count > 1} == set()
    # about 90 of the first layout, and the functions that came after it
    assert len(tk.__all__) <= 110
    # the table of plots in the docs names every plot
    listed = re.findall(r"(?m)^\| `(plot_\w+)` \|", PLOTS_PAGE.read_text("utf-8"))
    assert sorted(listed) == sorted(tk.plots.__all__)


@pytest.mark.parametrize(
    ("module", "old_names"),
    [(tk, OLD_NAMES), (tk.analysis, OLD_NAMES_OF_ANALYSIS)],
    ids=["toolkit", "analysis"],
)
def test_earlier_names_work_and_warn(module, old_names):
    """Each earlier name returns the value of the new one; it is neither listed nor offered."""
    for old, new in old_names.items():
        home, _, name = new.rpartition(".")
        with pytest.warns(DeprecationWarning, match=rf"is now {re.escape(new)}$"):
            value = getattr(module, old)
        assert value is getattr(importlib.import_module(home), name)
    assert not old_names.keys() & {*module.__all__, *dir(module)}


@pytest.mark.parametrize("name", VALUES)
def test_every_public_name_loads_and_is_documented(name):
    """Each name is there and has a docstring; functions name their parameters and results."""
    value = value_of(name)
    text = inspect.getdoc(value)
    assert text
    if inspect.isfunction(value) and inspect.signature(value).parameters:
        assert "Parameters" in text


def test_an_unknown_name_is_an_attribute_error():
    """A misspelt name fails like any other module's, and the nearest name is said."""
    with pytest.raises(AttributeError, match="load_failurse") as caught:
        tk.load_failurse  # noqa: B018 - the access is the test
    assert str(caught.value).endswith("Did you mean 'load_failure'?")
    with pytest.raises(
        AttributeError, match=r"It is toolkit\.analysis\.find_incidents$"
    ):
        tk.find_incidents  # noqa: B018 - as above
    for name in (
        "InputError",
        "ToolkitError",
        "IncompleteLoadError",
        "UnexpectedResultWarning",
    ):
        with pytest.raises(AttributeError, match=rf"It is toolkit\.errors\.{name}$"):
            getattr(tk, name)
    with pytest.raises(AttributeError, match=r"has no attribute 'ClassVar'$"):
        # errors only import it
        tk.ClassVar  # noqa: B018 - as above


def test_importing_pulls_in_neither_plots_nor_widgets():
    """`import toolkit` and `connect` leave matplotlib, ipywidgets and requests alone."""
    code = (
        "import sys, toolkit\n"
        "toolkit.connect(queue_url='http://127.0.0.1:1', queue_token='t0ken-of-mine')\n"
        "print([name for name in ('matplotlib', 'ipywidgets', 'requests') if name in sys.modules])"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == "[]"


def documented():
    """The docstrings a user reads: of each public name, and of the public members of its class."""
    for name in VALUES:
        value = value_of(name)
        yield name, value, inspect.getdoc(value)
        if inspect.isclass(value):
            for member, function in vars(value).items():
                if not member.startswith("_") and (
                    inspect.isfunction(function) or isinstance(function, property)
                ):
                    yield f"{name}.{member}", function, inspect.getdoc(function) or ""


RETURNED = [
    inspect.signature(getattr(tk.analysis, name)).return_annotation
    for name in tk.analysis.__all__
]
OF_ANALYSES = {*re.findall(r"\w+", " ".join(RETURNED))} - {"Explanation"}
"""Classes that only analyses return: the example is the one of the function."""


@pytest.mark.parametrize("name", [name for name in VALUES if name not in OF_ANALYSES])
def test_every_public_name_has_an_example_and_names_its_errors(name):
    """Each function and class has an example; each that takes arguments says what it raises."""
    text = inspect.getdoc(value_of(name))
    assert re.search(r"^Examples\n-+\n(?:.*\n)*?>>> ", text, re.MULTILINE)
    if re.search(r"^Parameters$", text, re.MULTILINE):
        assert re.search(r"^Raises\n-+\n\w", text, re.MULTILINE)


@pytest.mark.parametrize("name", tk.analysis.__all__)
def test_every_analysis_says_what_it_takes_returns_and_raises(name):
    function = getattr(tk.analysis, name)
    if inspect.isfunction(function):
        text = inspect.getdoc(function)
        for heading in ("Parameters", "Returns", "Raises", "Examples"):
            assert re.search(rf"^{heading}\n-+\n", text, re.MULTILINE), heading


def _defined_in_the_package():
    """Names that modules define, and whether the embedded service or the sample alone does."""
    for path in Path(tk.__file__).parent.rglob("*.py"):
        tree = ast.parse(path.read_text(encoding="utf-8"))
        for node in tree.body:
            if isinstance(node, ast.FunctionDef | ast.ClassDef):
                yield node.name
            elif isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
                yield node.target.id


def _known():
    """What a user can write: public names and their members, Python's and pandas' own."""
    known = {
        *NAMES,
        *VALUES,
        *tk.analysis.__all__,
        *dir(builtins),
        *dir(pd),
        *dir(pd.DataFrame),
        *dir(pd.Series),
        *dir(tk.errors),
    }
    for name in VALUES:
        value = value_of(name)
        if inspect.isclass(value):
            known |= {*dir(value), *getattr(value, "__annotations__", {})}
    return known


SCHEMAS = [value for value in vars(schemas).values() if isinstance(value, pa.Schema)]
COLUMNS = {
    "difference",
    "recent",
    "when",
    "marks",
    *(column for schema in SCHEMAS for column in schema.names),
}
SIGNED = re.compile(r"(?<!`)`([A-Za-z_][\w.]*)(?:\([^`]*\))?`(?!`)|\b([a-z_]\w+)\(")


@pytest.mark.slow
def test_docstrings_name_only_what_is_public():
    """A name in backticks, or one that is called, is one that users can write."""
    known, private = (
        _known(),
        set(_defined_in_the_package())
        - {*NAMES, *VALUES, *tk.analysis.__all__}
        - COLUMNS,
    )
    wrong = set()
    for where, value, text in documented():
        own = set(inspect.signature(value).parameters) if callable(value) else set()
        prose = text.partition("Examples\n--")[0]
        for quoted, called in SIGNED.findall(prose):
            name = (quoted or called).removeprefix("tk.")
            first = name.partition(".")[0]
            if first in known | own:
                continue
            if called or first in private or first == "toolkit" or not first.islower():
                wrong.add((where, name))
    assert wrong == set()


@pytest.mark.slow
def test_messages_name_only_what_is_public():
    """What an error tells the user to do next can be done with public names."""
    known, private = (
        _known(),
        set(_defined_in_the_package())
        - {*NAMES, *VALUES, *tk.analysis.__all__}
        - COLUMNS,
    )
    wrong, seen = set(), 0
    for path in Path(tk.__file__).parent.rglob("*.py"):
        tree = ast.parse(path.read_text(encoding="utf-8"))
        advice = (
            node.value
            for node in ast.walk(tree)
            if isinstance(node, ast.keyword) and node.arg == "next_step"
        )
        for text in (part for value in advice for part in ast.walk(value)):
            if isinstance(text, ast.Constant) and isinstance(text.value, str):
                seen += 1
                words = re.findall(r"\b([a-z]\w*_\w+)|\b([a-z]\w+)\(", text.value)
                wrong |= {
                    (path.name, name or called)
                    for name, called in words
                    if (name in private or called) and (name or called) not in known
                }
    assert seen > 100
    assert wrong == set()


ROOT = Path(__file__).parents[1]
ROOTS = ("toolkit", "toolkit_service")
SCRIPTS = [  # no test runs these
    path
    for folder in (
        "tests/benchmarks",
        "tests/soak",
        "tests/accuracy",
        "tests/fuzz",
        "docs/pictures",
        "data",
    )
    for path in sorted((ROOT / folder).rglob("*.py"))
]


@pytest.mark.parametrize("path", SCRIPTS, ids=lambda path: str(path.relative_to(ROOT)))
def test_what_a_script_uses_of_the_toolkit_exists(path: Path) -> None:
    """Names of `toolkit` in the scripts that run only by hand, such as benchmarks."""
    tree = ast.parse(path.read_text("utf-8"))
    missing = []
    for node in ast.walk(tree):
        if (
            isinstance(node, ast.Attribute)
            and isinstance(node.value, ast.Name)
            and node.value.id == "tk"
        ):
            missing += [] if hasattr(tk, node.attr) else [f"tk.{node.attr}"]
        elif (
            isinstance(node, ast.ImportFrom)
            and (node.module or "").partition(".")[0] in ROOTS
        ):
            module = importlib.import_module(node.module or "")
            for alias in node.names:
                if not hasattr(module, alias.name):
                    try:
                        importlib.import_module(f"{node.module}.{alias.name}")
                    except ModuleNotFoundError:
                        missing.append(f"{node.module}.{alias.name}")
    assert not missing


def test_a_class_name_means_one_thing():
    """No two classes of the toolkit have the same name, so a name that you read is enough to find it."""
    places: dict[str, set[str]] = {}
    for path in Path(tk.__file__).parent.rglob("*.py"):
        if "languages" in path.parts:  # each language has a reader of its own
            continue
        for node in ast.parse(path.read_text("utf-8")).body:
            if isinstance(node, ast.ClassDef):
                places.setdefault(node.name, set()).add(path.name)
    assert {name: files for name, files in places.items() if len(files) > 1} == {}
