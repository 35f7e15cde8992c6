"""The report where notebooks are shown: in JupyterLab, VS Code and exported pages, whose styles differ."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import nbformat
import pytest
from nbconvert import HTMLExporter

from toolkit.reports.failure_report import report_failures
from toolkit.secrets.redaction import Redactor
from toolkit.tables.frames import frame_from_rows
from toolkit.tables.schemas import FAILURES

pytestmark = pytest.mark.browser

NOW = datetime(2026, 3, 10, 12, tzinfo=UTC)
PAPER = {"light": "rgb(255, 255, 255)", "dark": "rgb(21, 25, 29)"}
CELLS = [
    "import toolkit as tk\nfailures = tk.load_failures(tk.connect(), progress=False)",
    'report = tk.report_failures(failures, retention="30d")\nreport',
    "'the end'",
]
# what VS Code's page gives to outputs: https://code.visualstudio.com, "Notebook API", with names of its own
VSCODE = """
body { font: 13px system-ui; line-height: 22px; }
.vscode-dark { color: #ccc; background: #1e1e1e; }
.output_container table, .output_container thead, .output_container tr { border: none; text-align: right; }
.output_container th, .output_container td { text-align: right; padding: 0.5em; white-space: pre; }
.output_container dt { float: left; width: 20%; } .output_container dd { margin-left: 24%; }
.output_container a { color: red; } .output_container pre { background: yellow; white-space: pre; }
.output_container tr:nth-child(even) { background: orange; }
"""
LAYOUT = """() => {
  const root = document.querySelector('.tk-report'), wrong = [];
  const say = (what, item) => wrong.push(`${what}: ${item.innerText.slice(0, 60)}`);
  root.querySelectorAll('details').forEach((part) => { part.open = true; });
  for (const cell of root.querySelectorAll('th, td, caption')) {
    const style = getComputedStyle(cell), aligned = cell.matches('.number, .num') ? 'right' : 'left';
    if (style.textAlign !== aligned) say(style.textAlign, cell);
    if (parseFloat(style.borderLeftWidth) > 0) say('border', cell);
    if (style.backgroundColor !== 'rgba(0, 0, 0, 0)') say('background', cell);
  }
  for (const row of root.querySelectorAll('tr')) {
    if (getComputedStyle(row).backgroundColor !== 'rgba(0, 0, 0, 0)') say('stripe', row);
  }
  for (const label of root.querySelectorAll('dt')) {
    const high = parseFloat(getComputedStyle(label).lineHeight);
    if (label.getBoundingClientRect().height > 1.5 * high) say('label on several lines', label);
  }
  const texts = document.createTreeWalker(root, NodeFilter.SHOW_TEXT);
  for (let text; (text = texts.nextNode());) {
    if (text.parentElement.closest('svg, style')) continue;
    for (const word of text.data.matchAll(/[A-Za-z0-9]{2,20}/g)) {
      const range = document.createRange();
      range.setStart(text, word.index);
      range.setEnd(text, word.index + word[0].length);
      const tops = new Set([...range.getClientRects()].map((part) => Math.round(part.top)));
      if (tops.size > 1) say(`${word[0]} broken`, text.parentElement);
    }
  }
  const box = root.getBoundingClientRect();
  for (const part of root.querySelectorAll('section, .cards, figure, .parts')) {
    if (part.getBoundingClientRect().right > box.right + 1) say('wider than the report', part);
  }
  return wrong;
}"""


def look(page, theme):
    """Nothing is laid out by the rules of the page around it, and the colours are the theme's."""
    assert page.evaluate(LAYOUT) == []
    shown = page.evaluate(
        "getComputedStyle(document.querySelector('.tk-report')).backgroundColor"
    )
    assert shown == PAPER[theme]


@pytest.fixture(scope="module")
def markup():
    """A report as a notebook shows it."""
    rows = [
        {
            "dlq_id": f"1741608000000-{number}",
            "workflow_url": f"https://shop.example.com/flows/{('orders', 'payments')[number % 2]}/fulfil",
            "failed_at": NOW - timedelta(hours=number),
            "response_status": 500,
            "labels": '["production"]',
            "response_body": "upstream connect error: connection refused",
        }
        for number in range(60)
    ]
    frame = frame_from_rows(rows, FAILURES)
    return report_failures(frame, now=NOW, redactor=Redactor(key=b"k"))._repr_html_()


@pytest.mark.slow
@pytest.mark.parametrize("theme", ["light", "dark"])
def test_in_jupyterlab(chromium, lab, theme):
    """In JupyterLab, light and dark, cells, labels and words keep our layout, and are readable."""
    window = {"width": 1400, "height": 3_000}
    with lab.open(
        chromium, f"report-{theme}", CELLS, color_scheme=theme, viewport=window
    ) as notebook:
        for _ in CELLS:
            notebook.run_cell()
        shown = notebook.output(1).locator(".tk-report")
        shown.locator("footer").wait_for()
        shown.evaluate("report => report.scrollIntoView()")
        notebook.picture(
            notebook.page.locator(".jp-Notebook"), f"report-in-lab-{theme}"
        )
        look(notebook.page, theme)
        serious = [
            item
            for item in notebook.axe(".tk-report")
            if item["impact"] in {"serious", "critical"}
        ]
        assert [(item["id"], item["nodes"][0]["html"]) for item in serious] == []


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_in_vs_code(chromium, markup, theme):
    """In a page with styles like those of VS Code, whose theme is not the system's."""
    other = {"light": "dark", "dark": "light"}[theme]
    context = chromium.new_context(
        viewport={"width": 1000, "height": 800}, color_scheme=other
    )
    page = context.new_page()
    page.set_content(
        f"<style>{VSCODE}</style><body class='vscode-{theme}'><div class='output_container'>{markup}</div>"
    )
    look(page, theme)
    context.close()


@pytest.mark.parametrize(
    ("template", "theme"), [("lab", "light"), ("lab", "dark"), ("classic", "light")]
)
def test_in_an_exported_page(chromium, markup, template, theme):
    """In the page that nbconvert makes of a saved notebook, with either of its templates."""
    cell = nbformat.v4.new_code_cell("report", outputs=[
        nbformat.v4.new_output("execute_result", {"text/html": markup, "text/plain": ""}, execution_count=1)
    ])  # fmt: skip
    page_text, _ = HTMLExporter(template_name=template, theme=theme).from_notebook_node(
        nbformat.v4.new_notebook(cells=[cell])
    )
    context = chromium.new_context(
        viewport={"width": 1300, "height": 800}, color_scheme=theme
    )
    page = context.new_page()
    page.route("http**", lambda route: route.abort())
    page.set_content(page_text, wait_until="domcontentloaded")
    look(page, theme)
    context.close()
