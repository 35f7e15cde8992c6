"""A progress bar of a notebook that leaves no widget behind when it ends.

tqdm closes the widget of a bar, but the output of the cell still refers to it. A saved notebook then contains
the text that the bar had when it appeared, for example "redrive: 24%" above the result of a finished redrive.
If the notebook is opened again, JupyterLab shows "Error displaying widget: model not found" there.
"""

from __future__ import annotations

import sys
from typing import Any


def is_notebook_bar(bar_class: type) -> bool:
    """Return whether a class of tqdm draws widgets, as it does in the kernel of a notebook."""
    notebook = sys.modules.get("tqdm.notebook")
    return notebook is not None and issubclass(bar_class, notebook.tqdm)


def without_traces(bar_class: Any) -> Any:
    """Return a class of bars whose output is empty after the end, or text if the work has failed.

    `bar_class` is the class of tqdm for notebooks, which takes a tenth of a second to import.
    """

    class NotebookBar(bar_class):  # type: ignore[misc]
        """A bar that replaces its output when it ends."""

        def __init__(self, *args: Any, **options: Any) -> None:
            self._output: Any = None
            super().__init__(*args, display=False, **options)

        def display(self, *args: Any, check_delay: bool = True, **options: Any) -> None:
            """Draw the bar. tqdm passes False before the first count and at the end."""
            from IPython.display import display  # noqa: PLC0415 - only in a notebook

            super().display(*args, check_delay=False, **options)
            if check_delay and self._output is None:
                self._output = display(  # type: ignore[no-untyped-call]
                    self.container, display_id=True
                )

        def close(self) -> None:
            """Replace the output of the bar."""
            super().close()
            if self._output is None:
                return

            has_failed = bool(self.total) and self.n < self.total
            left = repr(self.container) if has_failed else ""
            self._output.update({"text/plain": left}, raw=True)
            self._output = None

    return NotebookBar
