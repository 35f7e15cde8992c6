"""Panels for notebooks: whatever is clicked is also a value and a line of code.

Every panel has

- ``value``: a frozen filter or query; readable, settable, observable (``panel.observe(f, "value")``);
- ``to_code()``: the Python that makes the value again;
- ``run()``: what the button does, waited for; ``frame()``: the last result, without the network;
  ``cancel()``;
- ``key=``: a name under which value and result are kept while the kernel lives. Running the cell again goes
  on where the panel was, unless the cell now gives another value, as papermill's parameters do: then that
  one wins;
- forms without a browser: ``text/plain`` and ``text/html`` beside the widget's view.

How one is made: subclass `toolkit.widgets.panel.Panel`. In ``__init__`` call ``super().__init__(title,
value=…, key=…, redactor=…)``, build the controls, and hand them to ``self._compose(…)``, which adds the
style, the status line and the keyboard guard. Say what a run is in ``_call(job, value)``: it is on a thread
of its own when a button started it, touches no control, calls ``job.step(done, total)`` between steps (or
``job.read(opened)``, which does that), and gives back a frame. ``_show(value)`` puts a value into the
controls; ``_changed_to(value)`` takes the one that a person made with them. ``_arrived(frame)`` shows a
result and gives a sentence about it. Other slow calls are started with ``self._start(call, then)``;
``self.say(text, "problem")`` fills the status line.

Controls are in `toolkit.widgets.controls`: ``TextField``, ``TimeField``, ``Choices`` (multi-select with
counts and search), ``Choosing`` (one of a few) and ``Actions`` (buttons, given ``self.hear``). Each takes
care of itself: ``value``, ``problem`` beside it, a ``view``. `toolkit.widgets.javascript` says how the
messages of the page keep their order, and why a panel has a guard.

Every text from data is masked by the panel's ``self._redactor`` and goes through
`toolkit.redaction.escape_html` before it becomes markup; descriptions, placeholders and field values of
ipywidgets are text already. Classes for `js/style.css`: ``tk-columns`` (a grid that fits narrow cells),
``tk-control``, ``tk-field``, ``tk-actions``, ``tk-note``, ``tk-problem``, ``tk-code``, ``tk-head``.
"""

from toolkit.widgets.failure_browser import FailureBrowser
from toolkit.widgets.failure_filter import FailureFilterWidget
from toolkit.widgets.failure_view import FailureView
from toolkit.widgets.metadata_filter import MetadataFilterWidget
from toolkit.widgets.similarity_query import SimilarityQueryWidget

__all__ = [
    "FailureBrowser",
    "FailureFilterWidget",
    "FailureView",
    "MetadataFilterWidget",
    "SimilarityQueryWidget",
]
