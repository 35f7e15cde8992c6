"""A host of panels as strict as those of editors and notebooks in a browser: a sandboxed frame with a policy.

The frame has an origin of its own, imports the module of a panel from a blob, and may neither call `eval`
nor send requests. Messages go by `postMessage` to the page around it, and from there to the panel in this
process.
"""

from __future__ import annotations

import base64
import html
import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import axe_playwright_python
from playwright.sync_api import Browser, FrameLocator, Page

from toolkit.widgets.page_panel import PagePanel

POLICY = (
    "default-src 'none'; script-src 'nonce-host' blob:; style-src 'unsafe-inline'; "
    "img-src data: blob:; font-src data:; connect-src 'none'; form-action 'none'; base-uri 'none'"
)
AXE = Path(axe_playwright_python.__file__).parent / "axe.min.js"
# The frame: a model as in the specification of anywidget, and nothing else.
_FRAME = """<!doctype html><html lang="en" data-jp-theme-light="true" class="light">
<head><meta charset="utf-8">META
<title>A panel</title><style>
body { background: #fff; margin: 8px }
.dark body { background: #15181c }
</style></head>
<body class="vscode-light"><main></main>
<script nonce="host">
const report = (kind, value) => parent.postMessage({ kind, value }, "*");
addEventListener("securitypolicyviolation", (event) => report("wrong", event.violatedDirective));
addEventListener("error", (event) => report("wrong", event.message));
addEventListener("unhandledrejection", (event) => report("wrong", String(event.reason)));
const listeners = new Map();
let state = {};
const fire = (name, ...values) => [...(listeners.get(name) ?? [])].forEach((call) => call(...values));
const model = {
  get: (name) => state[name],
  set: (name, value) => { state[name] = value; },
  save_changes: () => report("save", state),
  on: (name, call) => listeners.set(name, [...(listeners.get(name) ?? []), call]),
  off: (name, call) => listeners.set(name, (listeners.get(name) ?? []).filter((known) => known !== call)),
  send: (content) => report("send", content),
};
const binary = (value) => {
  if (!value?.base64) return value;
  return new DataView(Uint8Array.from(atob(value.base64), (letter) => letter.charCodeAt(0)).buffer);
};
const update = (next) => {
  const same = (name) => JSON.stringify(next[name]) === JSON.stringify(state[`raw ${name}`]);
  const changed = Object.keys(next).filter((name) => !same(name));
  for (const name of changed) {
    state[name] = binary(next[name]);
    state[`raw ${name}`] = next[name];
  }
  for (const name of changed) fire(`change:${name}`);
};
addEventListener("message", async ({ data }) => {
  if (data.kind === "state") update(data.state);
  if (data.kind === "custom") fire("msg:custom", data.content, []);
  if (data.kind !== "begin") return;
  const before = new Set(Object.keys(window));
  update(data.state);
  const style = document.createElement("style");
  style.textContent = data.css;
  document.head.append(style);
  const url = URL.createObjectURL(new Blob([data.esm], { type: "text/javascript" }));
  const panel = (await import(url)).default;
  URL.revokeObjectURL(url);
  const el = document.createElement("div");
  el.className = "tk-panel";
  document.querySelector("main").append(el);
  await panel.initialize?.({ model });
  await panel.render({ model, el });
  report("globals", Object.keys(window).filter((name) => !before.has(name)));
});
report("ready");
</script></body></html>"""
_PAGE = """<!doctype html><html lang="en"><head><title>Host</title><style>
html, body, iframe { border: 0; height: 100%; margin: 0; width: 100% }</style></head><body>
<iframe title="panel" sandbox="allow-scripts" srcdoc="FRAME"></iframe><script>
const frame = document.querySelector("iframe");
window.toFrame = (message) => frame.contentWindow.postMessage(message, "*");
addEventListener("message", ({ data }) => window.fromFrame(data.kind, JSON.stringify(data.value ?? null)));
</script></body></html>"""
# What JupyterLab, VS Code and Colab change in the page when a user chooses another theme.
_SWITCH_THEME = """(scheme) => {
  document.documentElement.className = scheme;
  document.documentElement.dataset.jpThemeLight = String(scheme === "light");
  document.body.className = `vscode-${scheme}`;
}"""
SCHEMES = ("light", "dark")
_NO_STATE = {"layout", "tabbable", "tooltip"}


@dataclass
class StrictHost:
    """A panel that is shown in a strict frame, and what the frame reported."""

    page: Page
    panel: PagePanel
    wrong: list[str] = field(default_factory=list)
    globals: list[str] | None = None
    requested: list[str] = field(default_factory=list)
    sent: int = 0

    @property
    def frame(self) -> FrameLocator:
        """The frame with the panel."""
        return self.page.frame_locator("iframe")

    def received(self, kind: str, value: str) -> None:
        """Process what the frame reports."""
        content = json.loads(value)
        if kind == "ready":
            begin = {"esm": str(self.panel._esm), "css": str(self.panel._css)}
            self._post({"kind": "begin", "state": self.state(), **begin})
        elif kind == "globals":
            self.globals = content
        elif kind == "send":
            self.sent += 1
            self.panel.receive(content)
            self.refresh()
        else:
            self.wrong.append(f"{kind}: {content}")

    def state(self) -> dict[str, Any]:
        """The traits of the panel that its page draws."""
        return {
            name: _as_json(value)
            for name, value in self.panel.get_state().items()
            if not name.startswith("_") and name not in _NO_STATE
        }

    def refresh(self) -> None:
        """Send the traits again, of which threads of the panel may have changed some."""
        self._post({"kind": "state", "state": self.state()})

    def custom(self, content: Any, buffers: Any = None) -> None:
        """Send a message of the panel."""
        assert not buffers
        self._post({"kind": "custom", "content": content})

    def _post(self, message: dict[str, Any]) -> None:
        # without a result: this is called while the page waits for this process
        self.page.evaluate("(message) => { window.toFrame(message) }", message)

    def switch_theme(self, scheme: str) -> None:
        """Change the theme of the host to `light` or `dark`."""
        self.page.emulate_media(color_scheme=scheme)
        self.page.frames[1].evaluate(_SWITCH_THEME, scheme)

    def violations(self) -> list[tuple[str, str]]:
        """What axe-core finds wrong in the panel: each rule with its first element. axe needs `eval`."""
        frame = self.page.frames[1]
        if frame.evaluate("typeof axe") == "undefined":
            frame.evaluate(AXE.read_text(encoding="utf-8"))
        found = frame.evaluate("axe.run('.tk-panel', {resultTypes: ['violations']})")
        assert found["passes"], "axe found nothing to look at"
        return [(one["id"], one["nodes"][0]["html"]) for one in found["violations"]]


def _as_json(value: Any) -> Any:
    if isinstance(value, bytes | bytearray | memoryview):
        return {"base64": base64.b64encode(bytes(value)).decode()}
    return value


@contextmanager
def strict_host(
    browser: Browser,
    panel: PagePanel,
    *,
    policy: str | None = POLICY,
    **options: Any,
) -> Iterator[StrictHost]:
    """Show a panel in a sandboxed frame, in a light theme. `policy` is None for tools that call `eval`."""
    context = browser.new_context(
        color_scheme="light", viewport={"width": 1100, "height": 1400}, **options
    )
    page = context.new_page()
    shown = StrictHost(page, panel)
    context.on("request", lambda request: shown.requested.append(request.url))
    page.on("pageerror", lambda error: shown.wrong.append(str(error)))
    page.expose_function("fromFrame", shown.received)
    meta = ""
    if policy is not None:
        meta = f'<meta http-equiv="Content-Security-Policy" content="{policy}">'
    inner = _FRAME.replace("META", meta)
    object.__setattr__(panel, "send", shown.custom)
    page.set_content(_PAGE.replace("FRAME", html.escape(inner, quote=True)))
    try:
        yield shown
    finally:
        context.close()
