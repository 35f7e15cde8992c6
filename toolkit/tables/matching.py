"""A metadata filter asked of a frame: the service's own language, evaluated on this side."""

from __future__ import annotations

import json

import pandas as pd

from toolkit.errors import InputError
from toolkit.filters.metadata import MetadataFilter, parse


def match_metadata(frame: pd.DataFrame, filter: str | MetadataFilter) -> pd.Series[bool]:  # noqa: A002 - the service's own name
    """Which rows a metadata filter matches, without asking the service.

    Parameters
    ----------
    frame : pandas.DataFrame
        With a ``metadata`` column (JSON text), as `load_vectors` or `query` gives.
    filter : str or MetadataFilter
        In the service's language, such as ``"city = 'Izmir' AND year >= 2024"``.

    Returns
    -------
    pandas.Series
        bool, with the frame's index: True where the filter matches. A row without metadata has no field, so
        only ``HAS NOT FIELD`` can match it.

    Raises
    ------
    FilterSyntaxError
        When the filter does not parse; it says where.
    InputError
        When the frame has no metadata column.

    Notes
    -----
    The service filters with a budget, so that a very selective filter can find fewer rows there than here.

    Examples
    --------
    >>> frame = pd.DataFrame({"id": ["a", "b"], "metadata": ['{"city": "Izmir"}', None]})
    >>> frame[match_metadata(frame, "city = 'Izmir'")]["id"].tolist()
    ['a']
    """
    if "metadata" not in frame.columns:
        raise InputError(
            "matching metadata",
            got="a frame without a metadata column",
            expected="one loaded with metadata",
            next_step="Load with include_metadata=True.",
        )
    wanted = parse(filter) if isinstance(filter, str) else filter
    found = [
        wanted.matches(json.loads(text) if isinstance(text, str) else None) for text in frame["metadata"]
    ]
    return pd.Series(found, index=frame.index, dtype=bool)
