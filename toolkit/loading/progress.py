"""Progress of a load: a bar in a terminal or notebook after the first second, silence in scripts.

The bar says how many, how many a second, what is left where that is known, and retries. Ctrl-C or the
notebook's own stop button cancels a load, and what was read is kept. Panels have a button of their own.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from types import TracebackType
from typing import Any, Final, Self

ProgressOption = bool | Callable[[int, int | None], None] | None
"""None shows a bar where someone can see it, True always, False never; a callable gets (done, total)."""

_DELAY: Final = 1.0  # seconds before a bar appears: quick loads stay quiet


class Progress:
    """Counts what has been read, and shows it.

    Parameters
    ----------
    option : bool, callable or None
        See `ProgressOption`.
    title : str
        What is being read.
    unit : str
    total : int, optional
        How many are expected, where that is known.
    """

    def __init__(self, option: ProgressOption, *, title: str, unit: str, total: int | None = None) -> None:
        self._report = option if callable(option) else None
        self._done = 0
        self._total = total
        shown = self._report is None and (option is True or (option is None and _someone_looks()))
        self._bar = _bar(title, unit, total) if shown else None

    def add(self, count: int, *, retries: int = 0) -> None:
        """Count more of what was read, and say how often something had to be asked for again so far."""
        self._done += count
        if self._bar is not None:
            if retries:
                self._bar.set_postfix_str(
                    "1 retry" if retries == 1 else f"{retries:,} retries", refresh=False
                )
            self._bar.update(count)
        if self._report is not None:
            self._report(self._done, self._total)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._bar is not None:
            self._bar.close()


def _bar(title: str, unit: str, total: int | None) -> Any:
    from tqdm.auto import tqdm  # noqa: PLC0415 - costs a tenth of a second, and is mostly not needed

    return tqdm(desc=title, unit=f" {unit}", total=total, delay=_DELAY, leave=False, dynamic_ncols=True)


def _someone_looks() -> bool:
    """Whether this is a notebook's kernel (JupyterLab, VS Code) or a terminal."""
    return "ipykernel" in sys.modules or sys.stderr.isatty()
