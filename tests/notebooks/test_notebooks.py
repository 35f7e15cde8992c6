"""The notebooks run from top to bottom, show no secret, change nothing, and lie in git without outputs."""

from __future__ import annotations

import ast
import base64
import json
import re
import resource
import subprocess
import sys
from pathlib import Path
from urllib.parse import quote

import nbformat
import pandas as pd
import pytest

import toolkit as tk
from toolkit.service.connecting import start_local
from toolkit_service.demo.run import environment_for

from .conftest import plots_and_images

FOLDER = Path(__file__).parents[2] / "notebooks"
NOTEBOOKS = sorted(FOLDER.glob("*.ipynb"))
TEMPLATE = FOLDER / "templates" / "weekly_report.ipynb"
CHANGING = {
    "delete_failures",
    "publish",
    "restart_failures",
    "rerun_failure_functions",
    "start_run",
}
CHANGING |= {"resume_failures", "upsert_vectors"}

every_notebook = pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)


def code_of(path: Path) -> list[str]:
    """The sources of its code cells."""
    cells = nbformat.read(path, as_version=4).cells
    return [cell.source for cell in cells if cell.cell_type == "code"]


def calls_in(path: Path) -> list[tuple[str, set[str]]]:
    """Every call in its cells: the function's last name, and the names of the keywords given."""
    trees = [ast.parse(source) for source in code_of(path)]
    calls = [
        node for tree in trees for node in ast.walk(tree) if isinstance(node, ast.Call)
    ]
    return [
        (
            getattr(call.func, "attr", getattr(call.func, "id", "")),
            {word.arg for word in call.keywords},
        )
        for call in calls
    ]


def test_there_are_eight() -> None:
    """The story has eight chapters, in order."""
    assert [path.stem for path in NOTEBOOKS] == [
        "01_first_look",
        "02_failures",
        "03_callbacks",
        "04_vectors_and_scores",
        "05_snapshots_and_reports",
        "06_what_changed",
        "07_index_health",
        "08_error_to_fix",
    ]


@every_notebook
def test_in_git_it_is_valid_and_has_no_outputs(path: Path) -> None:
    """It is nbformat 4.5 with readable ids, no outputs, no counts, and nothing of its author's machine."""
    raw = json.loads(path.read_text(encoding="utf-8"))
    nbformat.validate(raw)
    assert (raw["nbformat"], raw["nbformat_minor"]) == (4, 5)
    assert set(raw["metadata"]) <= {"kernelspec", "language_info"}
    assert raw["metadata"]["kernelspec"]["name"] == "python3"
    ids = [cell["id"] for cell in raw["cells"]]
    assert len(set(ids)) == len(ids)
    assert all(re.fullmatch(r"[a-z][a-z-]{1,30}", found) for found in ids)
    for cell in raw["cells"]:
        assert cell["metadata"] == {}
        if cell["cell_type"] == "code":
            assert cell["outputs"] == []
            assert cell["execution_count"] is None


@every_notebook
def test_it_starts_with_a_question_and_ends_with_its_answer(path: Path) -> None:
    """A title and a question come first; the answer is the last chapter; opened resources are closed."""
    cells = nbformat.read(path, as_version=4).cells
    number = path.stem[:2].lstrip("0")
    assert re.match(rf"# {number}\. \w.*\n\n\*\*.+\?\*\*\n", cells[0].source)
    titles = [
        line
        for cell in cells
        for line in cell.source.splitlines()
        if line.startswith("## ")
    ]
    assert titles[-1] == "## The answer"
    assert sum(cell.source.startswith("**Exercise.** ") for cell in cells) == 1
    code = code_of(path)
    assert len(code) <= 16
    assert all(source.count("\n") <= 22 for source in code)
    assert "service = tk.connect()" in code[0]
    assert 'service = tk.connect("local")' in code[0]
    assert code[-1].endswith("service.close()")


@every_notebook
def test_it_changes_nothing_in_an_account(path: Path) -> None:
    """Only the callbacks' notebook publishes; no call that changes something carries a confirmation."""
    calls = calls_in(path)
    assert not any(
        "confirm" in words or None in words
        for name, words in calls
        if name in CHANGING - {"publish"}
    )
    # a redrive is practised on a service of the notebook's own, never on the reader's
    redrives = re.findall(r"run_redrive\((\w+)", "\n".join(code_of(path)))
    assert redrives == (["practice"] if path.stem[:2] in ("06", "08") else [])
    stored = re.findall(
        r"(?:upsert_vectors|index_failures)\((\S+)", "\n".join(code_of(path))
    )
    assert stored == (["practice,", "broken,"] if path.stem.startswith("08") else [])
    allowed = {
        "02_failures": {"resume_failures"},
        "03_callbacks": {"publish"},
        "08_error_to_fix": {"upsert_vectors"},
    }.get(path.stem, set())
    assert {name for name, _ in calls} & CHANGING == allowed


def test_the_check_for_changes_sees_a_confirmed_deletion(tmp_path: Path) -> None:
    """The patterns of the previous test match where they should."""
    notebook = nbformat.v4.new_notebook()
    notebook.cells = [
        nbformat.v4.new_code_cell("tk.delete_failures(service, ids, confirm=True)")
    ]
    nbformat.write(notebook, tmp_path / "bad.ipynb")
    assert calls_in(tmp_path / "bad.ipynb") == [("delete_failures", {"confirm"})]


def processor_seconds() -> float:
    """Return the processor time of all child processes that have ended, and of the children that they had."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


@pytest.mark.slow
@every_notebook
def test_it_runs_from_top_to_bottom(
    path: Path, kitchen, sample: tk.Service, tmp_path: Path
) -> None:
    """Each needs less than a minute of processor time, warns of nothing, and shows no secret of anybody."""
    out = tmp_path / "out"
    out.mkdir()
    begin = processor_seconds()
    executed = kitchen.execute(path, sample, TOOLKIT_OUT=str(out))
    assert processor_seconds() - begin < 60
    assert executed.streams["stderr"] == ""
    plotted = plots_and_images(executed.notebook)
    assert all(plots == images for plots, images in plotted.values())
    assert (
        len(plotted)
        == {"01": 2, "02": 1, "03": 0, "04": 2, "05": 1, "06": 3, "07": 3, "08": 1}[
            path.stem[:2]
        ]
    )
    shown = json.dumps(executed.notebook) + executed.log
    assert sample.queue is not None
    for secret in (sample.queue.token, *sample.queue.signing_keys):
        plain = secret.reveal()
        for form in (
            plain,
            quote(plain, safe=""),
            base64.b64encode(plain.encode()).decode(),
        ):
            assert form not in shown
    canaries = sample_secrets(sample)
    assert len(canaries) > 300
    assert not [canary for canary in canaries if canary in shown]
    kept = sorted(found.name for place in out.iterdir() for found in place.iterdir())
    wanted = ["failure-report.html", "failures", "labels", "vectors"]
    assert kept == (wanted if path.stem.startswith("05") else [])
    if path.stem.startswith("06"):
        redrive_on_this_machine(executed.notebook)
    if path.stem in FINDINGS:
        FINDINGS[path.stem](executed.streams["stdout"], sample)


def incident_of_the_last_day(said: str, sample: tk.Service) -> None:
    """Without being told, the sixth names the workflow that began to fail, since when, and its entries."""
    failures = tk.load_failures(sample, progress=False)
    own = failures[failures["workflow_url"].str.endswith("payments/capture")]
    when = own["failed_at"].fillna(own["created_at"])
    recent = when[when >= when.max() - pd.Timedelta(days=1)]
    assert "1 new" in said
    assert re.search(
        r"observed, \d+ expected: workflow_url = \S+/payments/capture (holds|rose)",
        said,
    )
    assert f"{len(recent):,} entries to resume, the first of {recent.min()}" in said


def redrive_on_this_machine(notebook: object) -> None:
    """The repaired workflow succeeds, the other one fails again and is stopped."""
    shown = json.dumps(notebook)
    assert re.search(r"Stopped: 150 succeeded, \d failed again, \d+ not sent", shown)
    assert "failed again (100 %)" in shown


def ills_of_the_index(said: str, _: tk.Service) -> None:
    """Without being told, the seventh finds each of the six ills, and says what to do first."""
    recall = float(
        re.search(r"1\. Search misses neighbours: it returns ([\d.]+) %", said)[1]
    )
    assert 20 < recall < 90
    assert "2. Embed 18 edited texts again" in said
    rows = {
        name: int(count)
        for name, count in re.findall(r"\d\. ([a-z ,]+), (\d+) rows:", said)
    }
    assert rows["same vector, other text"] >= 12
    assert rows["id almost equal"] == 30
    assert rows["field of several types"] == 25
    assert 15 <= rows["outlier"] <= 22


def from_an_error_to_the_fix(said: str, _: tk.Service) -> None:
    """The eighth finds the runbook, replays before and after the repair, and ends with "stopped"."""
    assert "runbook: Runbook: payments" in said
    assert "broken: same failure; repaired: succeeded" in said
    assert re.search(r"^Stopped: 0 failures since", said, re.MULTILINE)


FINDINGS = {
    "06_what_changed": incident_of_the_last_day,
    "07_index_health": ills_of_the_index,
    "08_error_to_fix": from_an_error_to_the_fix,
}


def sample_secrets(service: tk.Service) -> set[str]:
    """The made-up secrets that the sample's headers and addresses hold."""
    revealed = tk.load_failures(service, reveal=True, progress=False)
    values = [*revealed["url"], *tk.explode_headers(revealed)["value"]]
    values += [*tk.explode_headers(revealed, column="response_headers")["value"]]
    return {
        found
        for value in values
        for found in re.findall(r"sample[-_]?([0-9A-Za-z]{21})", str(value))
    }


@pytest.mark.slow
def test_nothing_is_published_to_another_machine(kitchen) -> None:
    """With a queue elsewhere an embedded service is used, and its callbacks arrive."""
    elsewhere = {
        "TOOLKIT_QUEUE_URL": "https://queue.invalid",
        "TOOLKIT_QUEUE_TOKEN": "t0ken-of-an-account",
    }
    executed = kitchen.execute(FOLDER / "03_callbacks.ipynb", **elsewhere)
    said = executed.streams["stdout"]
    assert "4 callbacks came, 4 of them verified." in said
    assert "401 - verifying a signature: got none" in said
    assert re.search(r"the queue has too: \S+\n", said)
    assert "queue.invalid" not in json.dumps(executed.notebook)


@pytest.mark.slow
def test_every_figure_of_a_kernel_is_shown(kitchen, tmp_path: Path) -> None:
    """Several plots, the user's own before and after them, and after one that fails: an image for each."""
    notebook = nbformat.v4.new_notebook()
    sources = (
        "import pandas as pd\nimport toolkit as tk",
        "when = pd.to_datetime(['2026-03-01 10:00', '2026-03-02 09:00'], utc=True)",
        "failures = pd.DataFrame({'failed_at': when, 'created_at': when, 'max_retries': [1, 2]})",
        "tk.plots.plot_failure_trend(failures);",
        "tk.plots.plot_retries_used(failures); tk.plots.plot_failure_calendar(failures);",
        "import matplotlib.pyplot as plt\nplt.plot([1, 2]);",
        "tk.plots.plot_time_to_failure(failures);",
        (
            "try:\n    tk.plots.plot_retries_used(failures[['failed_at']])\n"
            "except tk.errors.InputError:\n    pass"
        ),
        "with plt.style.context('dark_background'):\n    tk.plots.plot_retries_used(failures, theme='dark');",
        "plt.plot([2, 1]);",
    )
    notebook.cells = [nbformat.v4.new_code_cell(source) for source in sources]
    nbformat.write(notebook, tmp_path / "several.ipynb")
    executed = kitchen.execute(tmp_path / "several.ipynb")
    images = [
        sum("image/png" in output.get("data", {}) for output in cell.outputs)
        for cell in executed.notebook.cells
    ]
    assert images == [0, 0, 0, 1, 2, 1, 1, 0, 1, 1]


@pytest.mark.slow
def test_it_needs_no_variable_and_cleans_up(kitchen, tmp_path: Path) -> None:
    """With nothing configured an embedded service is used; it and the files are removed at the end."""
    notebook = nbformat.read(FOLDER / "05_snapshots_and_reports.ipynb", as_version=4)
    # the report has run above, and takes half of the time
    notebook.cells = [cell for cell in notebook.cells if cell.id != "report"]
    for cell in notebook.cells:
        cell.source = cell.source.replace("print(report.verdict)\n", "")
    nbformat.write(notebook, tmp_path / "without_report.ipynb")
    executed = kitchen.execute(tmp_path / "without_report.ipynb")
    assert "from local" in json.dumps(executed.notebook)
    assert "whole: 5,000 rows" in executed.streams["stdout"]
    assert list((tmp_path / "tmpdir").glob("toolkit-*")) == []


@pytest.mark.slow
def test_an_empty_account_is_a_story_too(kitchen, tmp_path: Path) -> None:
    """Without a single failure or vector, every cell about failures still runs, and warns of nothing."""
    merged = nbformat.v4.new_notebook()
    for path in NOTEBOOKS:
        if path.stem[:2] in {"01", "02", "05", "06"}:
            merged.cells += [
                nbformat.v4.new_code_cell(source) for source in code_of(path)
            ]
    nbformat.write(merged, tmp_path / "merged.ipynb")
    with start_local("--retention", "7d") as service:
        executed = kitchen.execute(tmp_path / "merged.ipynb", service)
    assert executed.streams["stderr"] == ""
    assert executed.streams["stdout"].count("No failures") == 2
    assert list(plots_and_images(executed.notebook).values()) == [(1, 1)] * 7


@pytest.mark.slow
def test_the_weekly_report_takes_parameters(
    kitchen, sample: tk.Service, tmp_path: Path
) -> None:
    """Papermill gives the template other parameters; the report and the snapshot are at these paths."""
    work = tmp_path / "weekly"
    work.mkdir()
    wanted = {
        "snapshot": str(work / "kept"),
        "output": str(work / "week.md"),
        "title": "Week 12",
        "span": "30d",
    }
    command = [
        sys.executable,
        "-m",
        "papermill",
        str(TEMPLATE),
        str(work / "done.ipynb"),
        "--no-progress-bar",
    ]
    for name, value in wanted.items():
        command += ["-p", name, str(value)]
    environment = {**kitchen.plain, **environment_for(sample)}
    done = subprocess.run(
        command, env=environment, cwd=work, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert (work / "week.md").read_text().startswith("# Week 12\n")
    assert len(tk.read_snapshot(work / "kept")) == 5000
    executed = nbformat.read(work / "done.ipynb", as_version=4)
    assert [
        cell.id
        for cell in executed.cells
        if "injected-parameters" in cell.metadata.get("tags", [])
    ]
    assert plots_and_images(executed) == {"trend": (1, 1), "expiry": (1, 1)}
    outputs = [output for cell in executed.cells for output in cell.get("outputs", ())]
    # a warning would be the first output
    assert [output.text for output in outputs if output.get("name") == "stderr"] == []


def test_the_template_in_git_has_no_outputs() -> None:
    """It is valid, has one cell of parameters, no outputs, and reads only."""
    raw = json.loads(TEMPLATE.read_text(encoding="utf-8"))
    nbformat.validate(raw)
    tagged = [
        cell["id"]
        for cell in raw["cells"]
        if "parameters" in cell["metadata"].get("tags", ())
    ]
    assert tagged == ["parameters"]
    assert all(not cell.get("outputs") for cell in raw["cells"])
    assert {name for name, _ in calls_in(TEMPLATE)} & CHANGING == set()
