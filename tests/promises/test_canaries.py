"""No secret is shown: canaries in every field, in every spelling, looked for in every sink.

Sinks are whatever a user sees, keeps or hands on. Each gets everything that was loaded; what a sink shows is
read as text, with its escapes and encodings read by nothing of the toolkit's.
"""

from __future__ import annotations

import contextlib
import io
import json
import pickle
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import pyarrow.parquet as pq
import pytest
import requests
from ipywidgets.embed import embed_data
from matplotlib.text import Text

import toolkit as tk
from tests.promises.canaries import KINDS, QUEUE_TOKEN, VECTOR_TOKEN, planted, shown
from tests.promises.conftest import Planted
from toolkit.cli import main
from toolkit.failures.watching import Watch
from toolkit.snapshots.manifest import WATCHED
from toolkit.widgets.failure_detail import detail_markup
from toolkit.widgets.runbook_notes import runbooks_markup
from toolkit.widgets.watch_panel import WatchPanel
from toolkit_service.demo.local_service import LocalService

pytestmark = pytest.mark.slow

FRAMES = (
    "failures",
    "runs",
    "events",
    "steps",
    "callbacks",
    "vectors",
    "namespaces",
    "hits",
)
SINKS: dict[str, tuple[tuple[str, ...], Callable[[Planted, pd.DataFrame], str]]] = {}
"""From the name of a sink to what is passed to it, and to the text that it makes of a frame."""


def sink(*given_to: str) -> Callable[[Callable[[Planted, pd.DataFrame], str]], Any]:
    """Add a sink for some of what is loaded."""

    def add(show: Callable[[Planted, pd.DataFrame], str]) -> Any:
        SINKS[show.__name__.strip("_").replace("_", " ")] = given_to, show
        return show

    return add


@sink(*FRAMES)
def _cells(_: Planted, frame: pd.DataFrame) -> str:
    return "\n".join(str(value) for name in frame for value in frame[name])


@sink(*FRAMES)
def _attributes(_: Planted, frame: pd.DataFrame) -> str:
    receipt = tk.get_receipt(frame) if "receipt" in frame.attrs else ""
    markup = getattr(receipt, "_repr_html_", str)()
    return f"{frame.attrs} {list(frame.columns)} {receipt!r} {receipt} {markup}"


@sink(*FRAMES)
def _repr(_: Planted, frame: pd.DataFrame) -> str:
    options = (
        "display.max_rows",
        None,
        "display.max_columns",
        None,
        "display.max_colwidth",
        None,
    )
    with pd.option_context(*options):
        return f"{frame!r}\n{frame.iloc[0]!r}\n{frame.describe()!r}"


@sink(*FRAMES)
def _page(_: Planted, frame: pd.DataFrame) -> str:
    options = (
        "display.max_rows",
        None,
        "display.max_columns",
        None,
        "display.max_colwidth",
        None,
    )
    with pd.option_context(*options):
        return str(frame._repr_html_())


@sink(*FRAMES)
def _as_csv(_: Planted, frame: pd.DataFrame) -> str:
    return str(frame.to_csv())


@sink(*FRAMES)
def _as_json(_: Planted, frame: pd.DataFrame) -> str:
    return str(frame.drop(columns="vector", errors="ignore").to_json(orient="records"))


@sink(*FRAMES)
def _pickle(_: Planted, frame: pd.DataFrame) -> str:
    return pickle.dumps(frame).decode("latin-1")


@sink("failures", "vectors", "hits")
def _workbook(given: Planted, frame: pd.DataFrame) -> str:
    path = given.folder / "frame.xlsx"
    tk.export_excel(frame, path)
    with zipfile.ZipFile(path) as book:
        return "\n".join(book.read(name).decode() for name in book.namelist())


@sink(*FRAMES)
def _as_parquet(given: Planted, frame: pd.DataFrame) -> str:
    path = given.folder / "frame.parquet"
    frame.to_parquet(path)
    table = pq.read_table(path)
    return f"{table.schema.metadata} {table.to_pylist()}"


@sink("failures", "vectors")
def _snapshot(given: Planted, frame: pd.DataFrame) -> str:
    path = given.folder / f"snapshot-{'failures' if 'dlq_id' in frame else 'vectors'}"
    if "dlq_id" in frame:
        changes = tk.sync_failures(given.service, path, progress=False)
        again = tk.sync_failures(given.service, path, progress=False)
        assert (len(again.added), len(again.changed), len(again.gone)) == (0, 0, 0)
        said = f"{changes!r} {changes._repr_html_()}"
    else:
        said = repr(
            tk.export_vectors(given.service, path, namespace="all", progress=False)
        )
    found = [
        repr(tk.verify_snapshot(path)),
        said,
        _cells(given, tk.read_snapshot(path)),
    ]
    for file in path.rglob("*"):
        found.append(file.name)
        if file.suffix == ".parquet":
            found.append(f"{pq.read_metadata(file).metadata}")
        elif file.is_file():
            found.append(file.read_bytes().decode("latin-1"))
    return "\n".join(found)


@sink("failures")
def _taken_apart(_: Planted, frame: pd.DataFrame) -> str:
    apart = (
        tk.explode_headers(frame),
        tk.explode_headers(frame, column="response_headers"),
        tk.explode_labels(frame),
        tk.flatten(frame),
    )
    return "\n".join(part.to_csv() for part in apart)


@sink("vectors", "hits")
def _metadata_taken_apart(_: Planted, frame: pd.DataFrame) -> str:
    return str(
        tk.explode_metadata(frame).drop(columns="vector", errors="ignore").to_csv()
    )


@sink("failures")
def _counts(_: Planted, frame: pd.DataFrame) -> str:
    counts = (
        tk.analysis.count_errors,
        tk.analysis.count_labels,
        tk.analysis.count_workflows,
        tk.analysis.count_states,
    )
    return "\n".join(pd.DataFrame(count(frame)).to_csv() for count in counts)


@sink("failures")
def _groups(given: Planted, frame: pd.DataFrame) -> str:
    groups = tk.group_failures(frame)
    groups.rules.save(given.folder / "groups.txt")
    again = tk.group_failures(frame, rules=given.folder / "groups.txt")
    shown = (
        groups.frame.to_csv(),
        again.frame.to_csv(),
        repr(groups),
        groups._repr_html_(),
    )
    return "\n".join((*shown, (given.folder / "groups.txt").read_text()))


@sink("failures")
def _analyses(given: Planted, frame: pd.DataFrame) -> str:
    half, attributes = (
        len(frame) // 2,
        ["workflow_url", "label", "caller_ip", "method", "response_body"],
    )
    results = (
        tk.classify_failures(frame),
        tk.compare_failures(frame[:half], frame[half:]),
        tk.find_similar_failures(frame[:half], frame[half:]),
        tk.analysis.explain_change(frame[half:], frame[:half], attributes=attributes),
        tk.explain_spike(frame),
    )
    frames = (result.frame.to_csv() for result in results)
    return "\n".join(
        (*frames, *(f"{result!r}\n{result._repr_html_()}" for result in results))
    )


@sink("failures")
def _written_snapshot(given: Planted, frame: pd.DataFrame) -> str:
    path = given.folder / "written"
    tk.write_snapshot(frame, path)
    groups = tk.group_failures(path)
    manifest = (path / "_manifest.json").read_text()
    return "\n".join((manifest, groups.frame.to_csv(), json.dumps(groups.learned)))


@sink("failures")
def _pictures_of_results(_: Planted, frame: pd.DataFrame) -> str:
    half = len(frame) // 2
    found = []
    for result in (
        tk.group_failures(frame),
        tk.classify_failures(frame),
        tk.compare_failures(frame[:half], frame[half:]),
        tk.analysis.explain_change(
            frame[half:], frame[:half], attributes=["workflow_url", "label"]
        ),
    ):
        axes = result.plot()
        found += [text.get_text() for text in axes.figure.findobj(Text)]
        plt.close(axes.figure)
    return "\n".join(found)


@sink(*FRAMES)
def _summary(_: Planted, frame: pd.DataFrame) -> str:
    summary = tk.summarize(frame)
    return f"{summary!r} {summary} {summary._repr_html_()}"


@sink("failures")
def _redrive(given: Planted, frame: pd.DataFrame) -> str:
    plan = tk.plan_redrive(frame, include=["masked body", "truncated body"])
    saved = plan.save(given.folder / "plan.json").read_text()
    return "\n".join((saved, repr(plan), plan._repr_html_(), plan.to_code()))


@sink("failures")
def _redrive_panel(given: Planted, frame: pd.DataFrame) -> str:
    return _state(
        tk.RedrivePanel(given.service, frame, ledger=given.folder / "panel.sqlite")
    )


@sink("failures")
def _report(given: Planted, frame: pd.DataFrame) -> str:
    report = tk.report_failures(frame)
    saved = [
        report.save(given.folder / f"report.{kind}").read_text()
        for kind in ("html", "md", "json")
    ]
    return "\n".join((*saved, report._repr_html_(), repr(report)))


@sink("failures")
def _browser(_: Planted, frame: pd.DataFrame) -> str:
    browser = tk.FailurePanel(frame)
    browser.select_found()
    rows = json.dumps(browser.page(0, len(frame)))
    found = [rows, browser.selection_code(), repr(browser), _state(browser)]
    for dlq_id in frame["dlq_id"].iloc[::50]:
        browser.show_failure(dlq_id)
        found.append(browser.detail)
    return "\n".join(found)


@sink("failures")
def _fix_check(_: Planted, frame: pd.DataFrame) -> str:
    found = []
    for group in tk.group_failures(frame).frame["group"].head(10):
        check = tk.check_fix(frame, group, "30d")
        axes = check.plot()
        found += [text.get_text() for text in axes.figure.findobj(Text)]
        plt.close(axes.figure)
        found += [repr(check), check._repr_html_(), json.dumps(check.to_dict())]
    return "\n".join(found)


@sink("failures")
def _memory_and_runbooks(given: Planted, frame: pd.DataFrame) -> str:
    """The strings that are embedded, the rows that are stored, and everything that is shown of them."""
    embedded: list[str] = []

    def embed(texts: list[str]) -> np.ndarray:
        embedded.extend(texts)
        lengths = np.array([[len(text)] for text in texts])
        return np.hstack([lengths % prime for prime in (7, 11, 13, 17)]) + 0.5

    with LocalService(indexes=["plain:dense:4:COSINE"]) as running:
        address = {"vector_url": f"{running.url}/vector/plain"}
        service = tk.connect(**address, vector_token=running.token, environ={})
        about = {"title": "Restart", "url": "https://wiki.example/restart"}
        row = {"id": "r1", "vector": [1.0, 2.0, 3.0, 4.0], "metadata": about}
        tk.upsert_vectors(service, [row], namespace="runbooks")
        assert tk.index_failures(frame, service, embed=embed)
        runbooks = tk.suggest_runbooks(frame, service, embed=embed, cut=-100.0)
        similar = tk.find_similar_failures(frame, service, embed=embed)
        stored = requests.post(
            f"{running.url}/vector/plain/range/failures",
            json={"cursor": "0", "limit": 1000, "includeMetadata": True, "includeData": True},
            headers={"Authorization": f"Bearer {running.token}"},
            timeout=60,
        )  # fmt: skip
        stored.raise_for_status()
        panel = tk.FailurePanel(frame, service=service)
        panel.runbooks = runbooks
        panel.status = runbooks_markup(runbooks)
    report = tk.report_failures(frame, runbooks=runbooks)
    tables = [runbooks.frame, similar.frame, tk.analysis.count_deliveries(frame)]
    found = [*embedded, stored.text, report.to_html(), report.to_json(), _state(panel)]
    found += [table.to_csv() for table in tables]
    assert "https://wiki.example/restart" in report.to_json()
    return "\n".join([*found, repr(runbooks), runbooks._repr_html_(), repr(similar)])


@sink("failures")
def _watch(given: Planted, frame: pd.DataFrame) -> str:
    del frame  # the panel reads the service itself
    notices: list[str] = []

    def send(notice: str) -> None:
        notices.append(notice)

    watch = Watch(given.service, given.folder / "watched", send=send)
    watch.look()
    every_group = {row["id"]: row["state"] for row in watch.board()}
    notices.append(watch._notice_text(every_group))
    panel = WatchPanel(watch, given.service, 3600.0)
    panel.look()
    noted = (given.folder / "watched" / WATCHED).read_text()
    return "\n".join([noted, *notices, repr(panel.last), _state(panel)])


@sink("failures")
def _details(given: Planted, frame: pd.DataFrame) -> str:
    return "\n".join(
        detail_markup(row, given.service.redactor) for row in frame.to_dict("records")
    )


@sink("failures")
def _filter_panel(given: Planted, frame: pd.DataFrame) -> str:
    return _state(tk.FailureFilterPanel(frame)) + _state(
        tk.FailureFilterPanel(given.service)
    )


@sink("vectors")
def _metadata_panel(given: Planted, frame: pd.DataFrame) -> str:
    return _state(tk.MetadataFilterPanel(frame)) + _state(
        tk.MetadataFilterPanel(given.service)
    )


@sink("vectors")
def _similarity_panel(given: Planted, frame: pd.DataFrame) -> str:
    return _state(tk.QueryPanel(given.service, frame=frame))


@sink("failures")
def _plots(_: Planted, frame: pd.DataFrame) -> str:
    plots: tuple[Callable[..., Any], ...] = (
        lambda found: tk.plots.plot_failure_trend(found, by="workflow_url"),
        lambda found: tk.plots.plot_failure_trend(found, by="label"),
        tk.plots.plot_failure_calendar,
        lambda found: tk.plots.plot_failure_matrix(
            found, rows="workflow_url", columns="label"
        ),
        lambda found: tk.plots.plot_expiry(found, retention="7d"),
    )
    found = []
    for plot in plots:
        axes = plot(frame)
        axes = axes if hasattr(axes, "figure") else axes[0]
        written = io.StringIO()
        axes.figure.savefig(written, format="svg")
        found += [
            written.getvalue(),
            *(text.get_text() for text in axes.figure.findobj(Text)),
        ]
        plt.close(axes.figure)
    return "\n".join(found)


@sink("runs")
def _run_log(_: Planted, frame: pd.DataFrame) -> str:
    summed = tk.summarize_runs(frame)
    drawn = (summed.plot(), tk.plots.plot_success_rates(frame, top=8))
    texts = [text.get_text() for axes in drawn for text in axes.figure.findobj(Text)]
    for axes in drawn:
        plt.close(axes.figure)
    frames = (
        summed.frame.to_csv(),
        tk.analysis.run_rates(frame, freq="7d").to_csv(),
        tk.explode_steps(frame).to_csv(),
    )
    return "\n".join((repr(summed), summed._repr_html_(), *frames, *texts))


@sink("events")
def _timeline(_: Planted, frame: pd.DataFrame) -> str:
    steps = pd.DataFrame(
        {"message_id": frame["message_id"], "step_name": frame["error"], "position": 0}
    )
    found = []
    for start in range(0, len(frame), 100):
        run = frame[start : start + 100].assign(
            workflow_run_id=frame["workflow_run_id"].iloc[start] or "w"
        )
        axes = tk.plots.plot_run_timeline(
            run.assign(time=pd.Timestamp(start, tz="UTC")),
            steps=steps.assign(workflow_run_id="w"),
        )
        found += [text.get_text() for text in axes.figure.findobj(Text)]
        plt.close(axes.figure)
    return "\n".join(found)


@sink("failures")
def _command_report(given: Planted, frame: pd.DataFrame) -> str:
    path = given.folder / "by-command.html"
    return _command(given, "report", "--output", str(path)) + path.read_text()


@sink("failures")
def _command_snapshot(given: Planted, frame: pd.DataFrame) -> str:
    return _command(given, "snapshot", "failures", str(given.folder / "by-command"))


@sink("vectors")
def _command_query(given: Planted, frame: pd.DataFrame) -> str:
    return _command(given, "query", "anything", "--top-k", "10000")


@sink("vectors")
def _command_query_as_as_json(given: Planted, frame: pd.DataFrame) -> str:
    return _command(given, "query", "anything", "--top-k", "10000", "--json")


@sink("namespaces")
def _names(given: Planted, frame: pd.DataFrame) -> str:
    return f"{tk.list_namespaces(given.service)} {tk.describe_index(given.service)}"


def _command(given: Planted, *words: str) -> str:
    said, complained = io.StringIO(), io.StringIO()
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TOOLKIT_QUEUE_URL", given.server.url)
        patch.setenv("TOOLKIT_QUEUE_TOKEN", QUEUE_TOKEN)
        patch.setenv("TOOLKIT_VECTOR_URL", given.server.url)
        patch.setenv("TOOLKIT_VECTOR_TOKEN", VECTOR_TOKEN)
        with contextlib.redirect_stdout(said), contextlib.redirect_stderr(complained):
            status = main(words)
    assert status == 0, complained.getvalue()
    return said.getvalue() + complained.getvalue()


def _state(panel: Any) -> str:
    """A panel as a saved notebook holds it: the state of all its parts, and its static form."""
    state = json.dumps(embed_data(views=[panel])["manager_state"])
    return f"{state} {panel!r} {panel._repr_mimebundle_()}"


PAIRS = [(name, what) for name, (given_to, _) in SINKS.items() for what in given_to]


@pytest.fixture(autouse=True)
def quiet(recwarn: pytest.WarningsRecorder) -> Iterator[None]:
    """What is warned is a sink like any other."""
    yield
    said = "\n".join(str(one.message) for one in recwarn.list)
    assert not shown(said, [kind.secret(0) for kind in KINDS])


@pytest.mark.parametrize(
    ("name", "what"), PAIRS, ids=[f"{name} of {what}" for name, what in PAIRS]
)
def test_no_canary_is_shown(
    planted_service: Planted,
    name: str,
    what: str,
    record_property: Callable[[str, object], None],
):
    """Whatever field a secret was in, and however it was written there, the sink does not show it."""
    frame = getattr(planted_service, what)
    text = SINKS[name][1](planted_service, frame)
    assert len(text) > 20
    canaries = planted("vectors" if what == "hits" else what)
    wanted = [one for one in canaries if not one.kind.kept(what, one.field.name, name)]
    record_property("tried", len(wanted))
    assert shown(text, {one.secret for one in wanted}) == {}


def test_every_canary_is_there_to_be_found(planted_service: Planted):
    """A load that reveals everything shows each of them, in as many rows: each is there to be found."""
    revealed, masked = planted_service.revealed, planted_service.failures
    assert len(revealed) == len(masked) > 1_000
    assert masked["dlq_id"].is_unique
    secrets = {one.secret for one in planted("failures")}
    assert shown(_cells(planted_service, revealed), secrets).keys() == secrets
    changed = [name for name in masked if not revealed[name].equals(masked[name])]
    assert {
        "dlq_id",
        "headers",
        "body",
        "response_body_base64",
        "labels",
        "extra",
        "method",
    } <= set(changed)


def test_a_masked_value_keeps_its_type_and_value(planted_service: Planted):
    """Columns of JSON hold JSON, those of base64 hold base64: masks break nothing."""
    for name in ("headers", "response_headers", "labels", "extra"):
        planted_service.failures[name].dropna().map(json.loads)
    planted_service.vectors["metadata"].dropna().map(json.loads)
    assert Path(planted_service.folder).is_dir()
