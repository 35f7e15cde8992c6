"""Text from data stays text in a real JupyterLab, whose MathJax typesets whatever looks like TeX."""

from __future__ import annotations

import ast
import re

import nbformat
import pytest
from nbconvert import HTMLExporter

pytestmark = [pytest.mark.browser, pytest.mark.slow]

TEXTS = [
    r"a1 $\href{https://evil.example/x}{LINK}$ z1",
    r"a2 $$\color{white}{HIDDEN}$$ z2",
    r"a3 \(\href{https://evil.example/x}{LINK}\) z3",
    r"a4 \[\color{white}{HIDDEN}\] z4",
    r"a5 \begin{align}x &= y\end{align} z5",
    r"a6 costs \$5 or \\ 6 \ref{x} \eqref{y} z6",
    r"a7 `$c$` **bold** [l](https://evil.example/x) | pipe \| z7",
    "a8 $ alone z8",
    "a9 ``` ~~~ $x$ $`y`$ <b>$</b>x$ z9",
]
PREPARE = f"""
import tempfile
from datetime import UTC, datetime, timedelta
import IPython.display, pandas as pd
import toolkit as tk
from toolkit.analysis import explain_change
from toolkit.tables.receipt import Receipt
from toolkit.tables.frames import frame_from_rows
from toolkit.tables.schemas import FAILURES
TEXTS = {TEXTS!r}
now = datetime(2026, 3, 10, 12, tzinfo=UTC)
rows = [
    {{
        "dlq_id": f"{{number:02}} {{text}}", "workflow_url": f"https://shop.example/{{text}}", "label": text,
        "labels": __import__("json").dumps([text]), "failed_at": now - timedelta(hours=number),
        "created_at": now - timedelta(hours=number), "response_status": 500, "response_body": text,
        "failure_function_state": text, "body": text, "url": f"https://shop.example/{{text}}",
        "headers": __import__("json").dumps({{"User-Agent": [text], text: ["x"]}}), "flow_control_key": text,
        "extra": __import__("json").dumps({{text: text}}), "method": text, "workflow_run_id": text,
        "caller_ip": text,
    }}
    for number, text in enumerate([*TEXTS, *TEXTS])
]
failures = frame_from_rows(rows, FAILURES)
service = tk.connect("local")
metadata = {{"kind": "$x$", "note $y$": "b"}}
tk.upsert_vectors(service, [
    {{"id": f"{{number}} {{text}}", "data": text, "metadata": metadata | {{"text": text}}}}
    for number, text in enumerate(TEXTS)
], namespace=TEXTS[0])
vectors = tk.load_vectors(service, namespace=TEXTS[0], progress=False)
loaded = tk.load_failures(service, tk.FailureFilter(label=TEXTS), progress=False)
folder = tempfile.mkdtemp(suffix=" $x$ y$")
tk.write_snapshot(failures, folder + "/kept")
changes = tk.sync_failures(service, folder + "/synced", progress=False)
show = IPython.display.display
panels = [tk.FailurePanel(failures), tk.FailureFilterPanel(failures), tk.MetadataFilterPanel(vectors)]
panels[0].value = tk.FailureView(search=TEXTS[7])
panels[1].value = tk.FailureFilter(label=TEXTS)
panels[2].value = "text = 'a1 $x$ y$'"
report = tk.report_failures(failures, now=now, title=TEXTS[1] + TEXTS[0])
"""
CELLS = [
    PREPARE,
    "report",
    "for panel in panels:\n    show(IPython.display.HTML(panel._repr_mimebundle_()['text/html']))",
    "browser = tk.FailurePanel(failures)\nbrowser.announce(TEXTS[0], 'problem')\nbrowser",
    "filtering = tk.FailureFilterPanel(failures, value=tk.FailureFilter(label=TEXTS))\nfiltering",
    "choosing = tk.MetadataFilterPanel(vectors, value=\"text = 'a1 $x$ y$'\")\nchoosing",
    """
asked = tk.VectorQuery(data=TEXTS[0], namespace=TEXTS[0], include_data=True, filter="kind = '$x$'")
asking = tk.QueryPanel(service, frame=vectors, value=asked)
asking.run()
asking""",
    """
show(failures, failures[["dlq_id", "error"]], vectors, failures.groupby("error").size().reset_index())
counts = tk.analysis
show(counts.count_errors(failures), counts.count_by(failures, "label"))
show(counts.count_labels(failures), asking.frame())""",
    """
show(tk.get_receipt(vectors), tk.get_receipt(loaded), tk.summarize(failures), tk.summarize(vectors))
show(changes, tk.verify_snapshot(folder + "/kept"))
show(tk.group_failures(failures), tk.classify_failures(failures), tk.compare_failures(failures[:9], failures))
show(explain_change(failures[9:], failures[:2], attributes=["label"]))
show(explain_change(failures[9:], pd.concat([failures[:1]] * 200), attributes=["label", "url"]))""",
    "IPython.display.Markdown(report.to_markdown())",
    "scoped = tk.report_failures(loaded)\nshow(scoped, IPython.display.Markdown(scoped.to_markdown()))",
    "IPython.display.HTML('<p class=control>control $x$</p>')",
]
(
    REPORT,
    STATIC,
    BROWSER,
    FILTERING,
    CHOOSING,
    ASKING,
    FRAMES,
    RESULTS,
    MARKDOWN,
    SCOPED,
    CONTROL,
) = range(1, 12)
# output of a typesetter, or of Markdown, in the page; JupyterLab itself links addresses in plain text
TYPESET = """() => [...document.querySelectorAll(
    'mjx-container, .katex, .MathJax, a[href*="evil"]:not([href^="#"]), '
    + '.jp-RenderedMarkdown :is(b, strong b, strong a, em)'
)].filter((found) => !found.closest('.control, .jp-RenderedText')).map((found) => {
    const cell = [...document.querySelectorAll('.jp-Cell')].indexOf(found.closest('.jp-Cell'));
    return `cell ${cell}: ${found.parentElement.outerHTML.slice(0, 300)}`;
})"""
# texts in which a typesetter that leaves code alone, and what it is told to, could find a delimiter's partner
EXPOSED = """(outputs) => {
    const kept = 'pre, code, textarea, script, style, .tex2jax_ignore.mathjax_ignore, .control';
    const found = [];
    for (const output of document.querySelectorAll(outputs)) {
        const texts = document.createTreeWalker(output, NodeFilter.SHOW_TEXT);
        for (let text; (text = texts.nextNode());) {
            if (text.data.length > 1 && /[$\\\\]/.test(text.data) && !text.parentElement.closest(kept)) {
                found.push(text.parentElement.outerHTML.slice(0, 300));
            }
        }
    }
    return found;
}"""


def words(text):
    """A text on one line."""
    return " ".join(text.split())


@pytest.fixture(scope="module")
def notebook(chromium, lab):
    """A notebook in which everything that shows texts from data shows these, and all maths is typeset."""
    with lab.open(
        chromium, "maths", CELLS, viewport={"width": 1400, "height": 4_000}
    ) as opened:
        for _ in CELLS:
            opened.run_cell()
        opened.page.locator(
            ".control mjx-container"
        ).wait_for()  # outputs are typeset in their order
        opened.page.wait_for_timeout(1_000)
        # reports in a notebook are folded; the texts are read as after a click on each part
        opened.page.evaluate(
            "document.querySelectorAll('details').forEach((part) => { part.open = true; })"
        )
        yield opened


def test_nothing_from_data_is_typeset(notebook):
    """In 20 outputs of 11 cells there is no maths, no link of the data's and no emphasis of the data's."""
    assert notebook.page.locator(".jp-Notebook .jp-OutputArea-output").count() >= 20
    assert notebook.page.evaluate(TYPESET) == []


def test_no_typesetter_could_find_maths(notebook):
    """Each sign that begins maths is in an element of its own, in code, or in what typesetters pass over."""
    shown = ".jp-OutputArea-output:not([data-mime-type*=stderr], [data-mime-type='text/plain'])"
    assert notebook.page.evaluate(EXPOSED, shown) == []


@pytest.mark.parametrize("cell", [REPORT, STATIC, FILTERING, MARKDOWN])
def test_the_texts_can_be_read_and_copied(notebook, cell):
    """Each text is shown and copied unchanged."""
    cells = (
        notebook.page.locator(".jp-Notebook .jp-CodeCell")
        .nth(cell)
        .locator(".jp-OutputArea-output")
    )
    shown = words(" ".join(cells.all_inner_texts()))
    assert [text for text in TEXTS if text not in shown] == []
    copied = notebook.page.evaluate(
        "(area) => { getSelection().selectAllChildren(area); return getSelection().toString(); }",
        cells.first.element_handle(),
    )
    if cell in (
        REPORT,
        MARKDOWN,
    ):
        # the other outputs are several, or lines beside controls
        assert [text for text in TEXTS if text not in words(copied)] == []


# JupyterLab's Markdown shows \\( as \(
@pytest.mark.filterwarnings("ignore:.*invalid escape sequence")
def test_code_that_makes_the_report_again_stays_code(notebook):
    """The texts in the code that both forms print are those of the filter."""
    blocks = notebook.output(SCOPED).locator("pre").all_inner_texts()
    labels = [
        found[1]
        for block in blocks
        if (found := re.search(r"label=(\(.*?'\))\)", block))
    ]
    assert [ast.literal_eval(found) for found in labels] == [tuple(TEXTS)] * 2


@pytest.mark.parametrize("template", ["lab", "classic"])
def test_nothing_is_exposed_in_an_exported_page(notebook, chromium, template):
    """In the page that nbconvert makes of these outputs, whose MathJax reads the whole of it, likewise."""
    made = notebook.evaluate(
        "[panel._repr_mimebundle_()['text/html'] for panel in panels]"
        " + [found._repr_html_() for found in (report, tk.get_receipt(loaded), tk.summarize(vectors))]"
        " + [changes._repr_html_()]"
        " + [get_ipython().display_formatter.format(found)[0]['text/html'] for found in (failures, vectors)]"
    )
    outputs = [
        nbformat.v4.new_output("display_data", {"text/html": markup}) for markup in made
    ]
    cell = nbformat.v4.new_code_cell("report", outputs=outputs)
    page_text, _ = HTMLExporter(template_name=template).from_notebook_node(
        nbformat.v4.new_notebook(cells=[cell])
    )
    assert re.search("mathjax", page_text, re.IGNORECASE)
    page = chromium.new_page()
    page.route("http**", lambda route: route.abort())
    page.set_content(page_text, wait_until="domcontentloaded")
    assert page.locator("table").count() > 10
    assert page.evaluate(EXPOSED, "body") == []
    page.close()
