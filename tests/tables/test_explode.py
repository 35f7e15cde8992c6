"""Header maps of many rows become one row a value."""

from __future__ import annotations

import json

from hypothesis import given
from hypothesis import strategies as st

from toolkit.tables.explode import explode_headers
from toolkit.tables.frames import frame_from_rows
from toolkit.tables.schemas import FAILURES

names = st.sampled_from(["Accept", "accept", "Date", "X-Ü"])
maps = st.none() | st.dictionaries(
    names, st.lists(st.text('aü"\\', max_size=2), max_size=3), max_size=3
)


@given(
    st.lists(maps, max_size=4).flatmap(
        lambda few: st.lists(st.sampled_from([*few, None]), max_size=9)
    )
)
def test_every_value_has_its_row_also_where_maps_come_again(headers):
    """Rows with equal, empty, different and no headers have the rows that nested loops give."""
    rows = [
        {"dlq_id": f"dlq_{n}", "headers": None if found is None else json.dumps(found)}
        for n, found in enumerate(headers)
    ]
    exploded = explode_headers(frame_from_rows(rows, FAILURES))
    assert list(exploded.itertuples(index=False, name=None)) == [
        (row["dlq_id"], name, value, position)
        for row, found in zip(rows, headers, strict=True)
        for name, values in (found or {}).items()
        for position, value in enumerate(values)
    ]
