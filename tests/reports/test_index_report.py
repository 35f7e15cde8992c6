"""The index report: what it says of an ill index, its figures and code, and its forms."""

from __future__ import annotations

import json
import re
from pathlib import Path

import jsonschema
import numpy as np
import pandas as pd
import pytest
from matplotlib.figure import Figure

import toolkit as tk
from tests.accuracy.ill_indexes import healthy_rows, ill_frame, to_frame
from toolkit.drawing.style import THEMES
from toolkit.errors import InputError
from toolkit.reports.sections import ReportCode, ReportFigure, ReportTable
from toolkit.secrets.redaction import Redactor
from toolkit_service.demo.local_service import LocalService

from .conftest import NOW

OPTIONS = {"now": NOW, "redactor": Redactor(key=b"example")}


@pytest.fixture(scope="module")
def states():
    """An ill index, and its rows before two texts were edited."""
    after, _ = ill_frame(
        400, seed=8, defects={"zero vector": 4, "duplicate": 10, "field missing": 3}
    )
    before = after.copy()
    before.loc[[5, 7], "data"] = "as it was"
    return before, after


@pytest.fixture(scope="module")
def report(states):
    """The report on it."""
    return tk.report_index(states[1], previous=states[0], **OPTIONS)


def parts(report, kind):
    """All parts of a kind, in order."""
    return [
        part
        for section in report.sections
        for part in section.parts
        if isinstance(part, kind)
    ]


def test_the_verdict_and_the_first_steps(report):
    """Errors come before texts that were edited, these before warnings; each step has its ids."""
    assert report.verdict.startswith(
        "Not healthy. 3 kinds of defect in 400 rows in 1 namespace: zero vector"
    )
    assert report.verdict.endswith(
        "First: Embed their texts again; look for empty texts."
    )
    (steps,) = parts(report, ReportTable)[:1]
    assert [(row[0].partition(";")[0], row[3]) for row in steps.rows] == [
        ("Embed their texts again", 4),
        ("Embed these texts again.", 2),
        ("Keep one of each", 10),
        ("Fill the field.", 3),
    ]
    assert steps.rows[1][4] == "doc-00005, doc-00007"
    assert [number["value"] for number in report.numbers] == [400, 3, 2]


def test_a_healthy_index_needs_nothing():
    """The verdict says so, and there is no step."""
    report = tk.report_index(to_frame(healthy_rows(400, seed=1)), **OPTIONS)
    assert report.verdict.startswith(
        "Healthy, as far as checked. Nothing wrong was found in 400 rows"
    )
    assert report.verdict.endswith("Not checked: recall.")
    assert report.to_dict()["not_checked"] == ["recall"]
    assert (
        report.sections[0].sentence
        == "Nothing: no defect was found in what was checked."
    )
    said = {section.name: section.sentence for section in report.sections}
    assert said["recall"] == "Recall was not measured: that takes a service to query."
    assert said["drift"] == "There is no earlier state to compare with."


@pytest.mark.slow
def test_every_code_runs_and_gives_the_numbers_shown(sample_service):
    """The code beside a figure draws it again, and returns the rows of the table there."""
    service = sample_service
    vectors = tk.load_vectors(service, namespace="runbooks", progress=False)
    changed = vectors.copy()
    changed.loc[changed.index[:3], "data"] = "as it was"
    report = tk.report_index(service, vectors, previous=changed, sample=40, **OPTIONS)
    share = next(
        one for one in report.numbers if one["name"] == "% of neighbours returned"
    )
    assert share["value"] == 100
    assert share["note"].startswith("of the 10 nearest; ")
    known = {"tk": tk, "service": service, "vectors": vectors, "previous": changed}
    frames = {}
    for part in parts(report, ReportCode)[:-1]:
        *lines, last = part.code.splitlines()
        for line in lines:
            if ".plot(" in line:
                line = f"drawn = {line.replace('plot(', 'plot(ax=ax, ').replace(', )', ')')}"  # noqa: PLW2901
            exec(line, known | {"ax": Figure().add_subplot()}, frames)  # noqa: S102 - users are meant to run it
        assert frames["drawn"].get_title(loc="left")
        if last.startswith("map.plot"):
            axes = known | {"ax": Figure().add_subplot()}
            drawn = eval(last.replace("plot(", "plot(ax=ax, "), axes, frames)  # noqa: S307
            assert drawn.get_title(loc="left").startswith("Map of vectors")
            continue
        frames[last] = eval(last, known, frames)  # noqa: S307
    wanted = ["health.frame", "recall.by", "scores.frame", "changes.counts"]
    assert [name for name in frames if "." in name] == wanted
    shown = {section.name: section.parts for section in report.sections}
    recall = next(part for part in shown["recall"] if isinstance(part, ReportTable))
    assert [row[4] for row in recall.rows] == pytest.approx(
        frames["recall.by"]["share"].tolist(), abs=1e-6
    )
    scores = shown["scores"][0].rows[0]
    assert scores[2] == frames["scores.frame"]["pairs"][0] == "stored rows"
    assert scores[3] == pytest.approx(frames["scores.frame"]["threshold"][0], abs=1e-6)
    assert [row[0] for row in shown["health"][0].rows] == frames["health.frame"][
        "finding"
    ].tolist()
    assert (
        [row[2] for row in shown["drift"][0].rows]
        == frames["changes.counts"]["rows"].tolist()
        == [3]
    )
    loading = parts(report, ReportCode)[-1].code.replace("tk.connect()", "service")
    again = known | {"service": service}
    exec(loading.replace("['runbooks']", "['runbooks'], progress=False"), again)  # noqa: S102
    assert again["vectors"]["id"].tolist() == vectors["id"].tolist()


def test_numbers_of_the_head_are_true_of_dimensions_too():
    """Dead dimensions are no rows: kinds of defect are told by how bad they are."""
    matrix = np.random.default_rng(0).normal(size=(400, 16)).astype("float32")
    matrix[:, 3] = 0
    matrix[5] = np.nan
    report = tk.report_index(matrix, **OPTIONS)
    head = {number["name"]: number["note"] for number in report.numbers}
    assert head["kinds of defect"] == "1 error, 1 warning"
    assert parts(report, ReportTable)[0].columns[3].name == "count"


@pytest.mark.slow
def test_code_loads_what_the_report_is_of(sample_service, tmp_path):
    """A path by its path, a load by its namespaces, and what has no source is said to be passed."""

    def loading(*given, **options):
        return parts(
            tk.report_index(*given, sample=10, **options, **OPTIONS), ReportCode
        )[-1].code

    path = str(tmp_path / "index")
    tk.export_vectors(sample_service, path, namespace="runbooks", progress=False)
    vectors = tk.load_vectors(sample_service, namespace="runbooks", progress=False)
    assert f"vectors = {path!r}\nprevious  # as it was passed" in loading(
        path, previous=vectors
    )
    assert f"service = tk.connect()\nvectors = {path!r}" in loading(
        sample_service, path
    )
    assert "load_vectors(service, namespace=['runbooks'])" in loading(
        sample_service, vectors
    )
    assert "vectors  # as it was passed" in loading(sample_service, vectors.head(300))


def test_markdown_tells_what_a_figure_shows(report):
    """In words instead of a picture: how many values, their range and their median."""
    markdown = report.to_markdown()
    assert re.search(
        r"nearest neighbours \(\d+\): [\d.]+ to [\d.]+, median [\d.]+", markdown
    )
    assert "396 points, by namespace" in markdown


def test_every_figure_has_its_numbers_and_its_code(report):
    """Behind a figure stands a table of its numbers, and the code; and it can be drawn in both themes."""
    for section in report.sections:
        for number, part in enumerate(section.parts):
            if isinstance(part, ReportFigure):
                kinds = [
                    type(other) for other in section.parts[number + 1 : number + 3]
                ]
                assert kinds == [ReportTable, ReportCode]
                for theme in THEMES.values():
                    ax = part.draw(
                        Figure(figsize=(9, part.height)).add_subplot(), theme
                    )
                    assert ax.patches or ax.collections or ax.lines


@pytest.mark.slow
def test_all_forms_say_the_same(report, tmp_path):
    """HTML without scripts, Markdown and JSON; the same bytes for the same input."""
    html, markdown, values = (
        report.to_html(),
        report.to_markdown(),
        json.loads(report.to_json()),
    )
    assert "<script" not in html
    assert "default-src 'none'" in html
    assert html.count("<svg") >= 4
    assert values["schema"] == "index-report/2"
    names = [section["name"] for section in values["sections"]]
    assert names == [
        "first",
        "index",
        "health",
        "map",
        "recall",
        "scores",
        "drift",
        "code",
    ]
    for text in ("zero vector", "What to do first", "doc-00005"):
        assert text in html
        assert text in markdown
        assert text in report.to_json()
    for name in ("index.html", "index.md", "index.json"):
        assert report.save(tmp_path / name).stat().st_size > 1000
    assert report.save(tmp_path / "index.pdf").read_bytes().startswith(b"%PDF")


@pytest.mark.slow
def test_the_same_input_gives_the_same_bytes(states):
    """Nothing depends on the order of sets or on the clock."""
    one, two = (
        tk.report_index(states[1], previous=states[0], **OPTIONS) for _ in range(2)
    )
    assert one.to_json() == two.to_json()
    assert one.to_html() == two.to_html()


@pytest.mark.slow
def test_the_json_form_follows_its_schema(report, states, sample_service):
    """It follows `docs/index-report.schema.json`: ill, healthy, empty, of several dimensions, queried."""
    schema = json.loads(
        (Path(__file__).parents[2] / "docs" / "index-report.schema.json").read_text()
    )
    jsonschema.Draft202012Validator.check_schema(schema)
    validator = jsonschema.Draft202012Validator(schema)
    mixed, _ = ill_frame(120, seed=3, defects={"several dimensions": 4})
    for made in (
        report,
        tk.report_index(to_frame(healthy_rows(400, seed=1)), **OPTIONS),
        tk.report_index(states[0].iloc[:0], **OPTIONS),
        tk.report_index(mixed, **OPTIONS),
        tk.report_index(sample_service, sample=10, **OPTIONS),
    ):
        assert [
            error.message for error in validator.iter_errors(json.loads(made.to_json()))
        ] == []
    said = "The load of the vectors was complete: 2,000 vectors."
    assert made.to_dict()["notices"] == [{"text": said, "good": True}]
    broken = report.to_dict() | {"verdict": 3, "surprise": 1}
    assert len(list(validator.iter_errors(broken))) == 2
    broken = report.to_dict()
    broken["sections"][3]["parts"][0] = {"figure": "without a description"}
    assert list(validator.iter_errors(broken))


@pytest.mark.slow
def test_the_map_is_a_section(states):
    """A picture of all namespaces by colour; vectors of several dimensions have none, and the reason."""
    two = pd.concat(
        [states[1], states[1].head(60).assign(namespace="other")], ignore_index=True
    )
    section = next(
        one for one in tk.report_index(two, **OPTIONS).sections if one.name == "map"
    )
    assert section.sentence.startswith(
        "456 vectors; 4 without a usable vector left out, by PCA"
    )
    figure, numbers, code = section.parts
    assert numbers.rows[0][:2] == ("", 396)
    assert numbers.rows[1][:2] == ("other", 60)
    assert code.code.endswith("map.plot(color='namespace')")
    ax = figure.draw(Figure(figsize=(9, 4)).add_subplot(), THEMES["dark"])
    legend = [text.get_text() for text in ax.get_legend().get_texts()]
    assert legend[1] == "other (60)"
    mixed, _ = ill_frame(120, seed=3, defects={"several dimensions": 4})
    section = next(
        one for one in tk.report_index(mixed, **OPTIONS).sections if one.name == "map"
    )
    assert (
        section.sentence
        == "There is no map: vectors of several dimensions: 4 of 32, 116 of 64."
    )
    assert not section.parts


SECRET = "Bearer abcdefghijklmnopqrstuvwxyz0123456789"
HOSTILE = "<img src=x onerror=alert(1)> $\\frac{1}{0}$"


@pytest.mark.slow
def test_secrets_and_markup_are_text(states):
    """In ids, namespaces and field names: masked and escaped in every form, drawings too."""
    rows = states[1].head(60).copy()
    rows["id"] = [f"{SECRET} {number % 30}{HOSTILE}" for number in range(60)]
    rows["namespace"] = np.where(np.arange(60) % 2, f"{SECRET}{HOSTILE}", "b")
    report = tk.report_index(
        rows, previous=rows.assign(data="other"), title=f"{SECRET}{HOSTILE}", **OPTIONS
    )
    for form in (
        report.to_html(),
        report.to_markdown(),
        report.to_json(),
        report._repr_html_(),
        repr(report),
    ):
        assert "abcdefghijkl" not in form
    assert "<img" not in report.to_html()


@pytest.mark.parametrize(
    "vectors",
    [
        np.zeros((3, 4)), np.ones((1, 3)), np.ones((8, 3)), np.full((4, 2), np.nan), np.zeros((0, 3)),
        pd.DataFrame({"id": ["a", "b"], "vector": [[1.0, 2.0], [1.0]], "metadata": ["[1]", "no json"]}),
    ],
    ids=["zero", "one", "equal", "nan", "none", "two dimensions"],
)  # fmt: skip
def test_hostile_vectors_are_reported_on(vectors):
    """An answer in every form, whatever they are."""
    report = tk.report_index(vectors, **OPTIONS)
    assert report.verdict
    assert "What to do first" in report.to_html()
    assert re.search(r"## Health", report.to_markdown())


def test_what_is_no_index_is_an_error():
    """Frames without vectors, and options that cannot be read."""
    with pytest.raises(InputError, match="vector"):
        tk.report_index(pd.DataFrame({"id": ["a"]}))
    with pytest.raises(InputError, match="title"):
        tk.report_index(np.ones((3, 3)), title=5)


def test_a_part_of_a_load_is_said(sample_service):
    """In the words of the summary: how many of the rows loaded, and that the load was complete."""
    vectors = tk.load_vectors(sample_service, namespace="runbooks", progress=False)
    made = tk.report_index(vectors.head(1), **OPTIONS).to_dict()
    said = "The vectors are 1 of the 1,000 rows of the load, which was complete."
    assert made["notices"] == [{"text": said, "good": False}]
    assert made["numbers"][0]["name"] == "vector"


def test_the_headline_names_what_no_row_has():
    """Without texts, metadata and ids, nothing is known about them; an ill index has the list, too."""
    matrix = np.random.default_rng(0).normal(size=(400, 16)).astype("float32")
    report = tk.report_index(matrix, **OPTIONS)
    assert report.to_dict()["not_checked"] == ["recall", "ids", "texts", "metadata"]
    assert "Healthy, as far as checked" in report.verdict
    matrix[3] = 0
    report = tk.report_index(matrix, **OPTIONS)
    assert "Not checked: recall, ids, texts, metadata. First: " in report.verdict


def test_recall_of_a_hybrid_index_is_measured():
    """By its dense vectors; the headline names the sparse vectors, which no query was sent for."""
    rng = np.random.default_rng(5)
    with LocalService(indexes=["both:hybrid:16:COSINE"]) as local:
        service = tk.connect(
            vector_url=local.vector_urls["both"], vector_token=local.token
        )
        rows = [
            {
                "id": f"v{number}",
                "vector": rng.normal(size=16).tolist(),
                "sparse": {
                    "indices": [number % 50, 60 + number % 7],
                    "values": [0.5, 1.0],
                },
                "data": f"text {number}",
                "metadata": {"n": number},
            }
            for number in range(400)
        ]
        tk.upsert_vectors(service, rows)
        report = tk.report_index(service, sample=200, **OPTIONS)
    assert "of the 10 nearest neighbours of 200 stored vectors" in report.verdict
    assert report.to_dict()["not_checked"] == ["search by sparse vectors"]
    assert report.verdict.startswith("Healthy, as far as checked.")


def test_without_vectors_nothing_is_called_healthy():
    """No rows, or rows whose vectors were not loaded: the verdict says that they were not judged."""
    frame = to_frame(healthy_rows(40, seed=1))
    empty = tk.report_index(frame.head(0), **OPTIONS)
    assert empty.verdict == "Not judged. There are no rows to judge."
    unloaded = tk.report_index(frame.assign(vector=None), **OPTIONS)
    assert unloaded.verdict.startswith(
        "Not judged. Nothing wrong was found in 40 rows in 1 namespace, by"
    )
    assert unloaded.sections[0].sentence == "Load dense vectors, to judge them."


def _two_states(rows: int = 120) -> tuple[pd.DataFrame, np.ndarray]:
    """Return an earlier state, in five close groups, and the vectors of its texts by another model."""
    rng = np.random.default_rng(5)
    groups = rng.normal(size=(5, 16))
    first = groups[np.arange(rows) % 5] + 0.2 * rng.normal(size=(rows, 16))
    second = first @ np.linalg.qr(rng.normal(size=(16, 16)))[0]
    before = pd.DataFrame(
        {
            "namespace": "docs",
            "id": [f"d/{number}" for number in range(rows)],
            "vector": list(first.astype(np.float32)),
            "data": [f"text {number}" for number in range(rows)],
        }
    )
    return before, second.astype(np.float32)


@pytest.mark.parametrize("column", ["data", "none"])
@pytest.mark.parametrize("share", [0.5, 1.0])
def test_an_index_whose_vectors_moved_is_not_healthy(share: float, column: str):
    """Half of the rows, or all, were embedded again with another model: with texts or without."""
    before, other = _two_states()
    moved = int(share * len(before))
    vectors = [*other[:moved], *before["vector"].iloc[moved:]]
    after = before.assign(vector=vectors)
    states = [state.rename(columns={"data": column}) for state in (before, after)]

    report = tk.report_index(states[1], previous=states[0], **OPTIONS).to_dict()

    assert report["healthy"] is False
    assert f"{moved} of 120 vectors changed" in report["verdict"]
    (step,) = [
        row
        for row in report["sections"][0]["parts"][0]["rows"]
        if "moved farther" in row[1]
    ]
    expected = "one model" if share < 1 else "Send queries of the model"
    assert expected in step[0]
    assert step[2:4] == ["docs", moved]


def test_numbers_of_another_batch_size_or_a_few_new_contents_are_healthy():
    """Rounded numbers are no change, and a row without text may have another content."""
    before, other = _two_states()
    rounded = [vector.astype(np.float16) for vector in before["vector"]]
    edited = [other[0], *before["vector"].iloc[1:]]
    for vectors in (rounded, edited):
        states = [
            state.drop(columns="data")
            for state in (before, before.assign(vector=vectors))
        ]
        report = tk.report_index(states[1], previous=states[0], **OPTIONS).to_dict()
        assert report["healthy"] is True


def test_new_documents_of_another_model_have_a_step():
    """A part of the index was written with another model: no query finds both parts."""
    rows = healthy_rows(400, seed=3)
    other = [row | {"vector": np.roll(row["vector"], 7).tolist()} for row in rows[300:]]
    before, after = to_frame(rows[:300]), to_frame(rows[:300] + other)
    report = tk.report_index(after, previous=before, groups=str, **OPTIONS).to_dict()
    assert report["healthy"] is False
    steps = report["sections"][0]["parts"][0]["rows"]
    (step,) = [row for row in steps if "another model had made them" in row[1]]
    assert step[3] == 100
    like = tk.report_index(to_frame(rows), previous=before, groups=str, **OPTIONS)
    assert "another model had made them" not in like.to_markdown()


def test_an_index_with_a_dot_product_is_not_healthy_if_long_vectors_are_near_all():
    """The similarity of the index decides how hubs are searched."""
    before = to_frame(healthy_rows(400, seed=3))
    matrix = tk.as_matrix(before).copy()
    matrix[:3] *= 20
    longer = before.assign(vector=list(matrix))
    reports = [
        tk.report_index(longer, similarity=similarity, **OPTIONS).to_markdown()
        for similarity in ("COSINE", "DOT_PRODUCT")
    ]
    assert ["hub by length" in text for text in reports] == [False, True]


def test_a_namespace_that_lost_most_of_its_rows_is_not_healthy():
    """A third is left; rows that have new ids, as after another chunking, are not lost."""
    before, _ = _two_states()
    report = tk.report_index(before.head(40), previous=before, **OPTIONS).to_dict()
    assert report["healthy"] is False
    assert "40 of 120 rows are left" in str(report["sections"][0])

    renamed = before.assign(id=before["id"] + "-new")
    report = tk.report_index(renamed, previous=before, **OPTIONS).to_dict()
    assert report["healthy"] is True


def test_only_the_loaded_namespaces_are_compared_with_the_earlier_state(sample_service):
    """The earlier state has all namespaces; those that the report did not load have not vanished."""
    vectors = tk.load_vectors(sample_service, progress=False)
    rows = int((vectors["namespace"] == "runbooks").sum())
    added = vectors.index[vectors["namespace"] == "runbooks"][0]
    report = tk.report_index(
        sample_service,
        namespace="runbooks",
        previous=vectors.drop(index=added),
        sample=40,
        **OPTIONS,
    )
    assert f"1 of {rows:,} vectors changed: 1 appeared" in report.verdict
    assert "compare_vectors(previous, vectors, namespace='runbooks'" in str(
        report.to_dict()
    )
