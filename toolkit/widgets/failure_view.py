"""How failures are looked at: a frozen value with the search, the order, and what is selected."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, fields
from typing import Any, Final

from toolkit.arguments import choice, flag, text, texts, wrong
from toolkit.errors import InputError

SORTABLE: Final = (
    "failed_at",
    "created_at",
    "workflow_url",
    "response_status",
    "failure_function_state",
    "label",
    "max_retries",
)
"""Columns that failures can be sorted by."""


@dataclass(frozen=True, init=False)
class FailureView:
    """How failures are looked at in a `FailureBrowser`.

    Parameters
    ----------
    search : str
        Found in ids, addresses, labels and bodies, whatever the case of its letters. Empty: everything.
    sort_by : str
        A column that is shown: ``"failed_at"``, ``"created_at"``, ``"workflow_url"``, ``"response_status"``,
        ``"failure_function_state"``, ``"label"`` or ``"max_retries"``.
    ascending : bool
        Missing values come last in both directions.
    selected : iterable of str
        `dlq_id` of the failures that are selected, in the order in which they were.

    Raises
    ------
    InputError
        For a column that cannot be sorted by, and values of other kinds.

    Examples
    --------
    >>> view = FailureView(search="timeout", selected=["dlq_1"])
    >>> print(view.to_code())
    tk.FailureView(search='timeout', selected=('dlq_1',))
    """

    search: str
    sort_by: str
    ascending: bool
    selected: tuple[str, ...]

    def __init__(
        self,
        *,
        search: str = "",
        sort_by: str = "failed_at",
        ascending: bool = False,
        selected: Iterable[str] = (),
    ) -> None:
        choice("sort_by", sort_by, SORTABLE)
        text("search", search)
        flag("ascending", ascending)
        if isinstance(selected, str):
            raise wrong("selected", selected, "several ids")
        ids = tuple(dict.fromkeys(texts("selected", selected, column="dlq_id", empty=True)))
        values: dict[str, Any] = {
            "search": search,
            "sort_by": sort_by,
            "ascending": ascending,
            "selected": ids,
        }
        for name, value in values.items():
            object.__setattr__(self, name, value)

    def replace(self, **parts: Any) -> FailureView:
        """The same view with some parts changed.

        >>> FailureView(search="a").replace(ascending=True).search
        'a'
        """
        whole = {item.name: getattr(self, item.name) for item in fields(self)}
        return FailureView(**{**whole, **parts})

    def to_code(self) -> str:
        """Python that makes the same view again, with the toolkit imported as ``tk``."""
        plain = {"search": "", "sort_by": "failed_at", "ascending": False, "selected": ()}
        chosen = {
            item.name: getattr(self, item.name)
            for item in fields(self)
            if getattr(self, item.name) != plain[item.name]
        }
        return f"tk.FailureView({', '.join(f'{name}={value!r}' for name, value in chosen.items())})"


def _refusal(got: str, expected: str) -> InputError:
    return InputError("making a view of failures", got=got, expected=expected)
