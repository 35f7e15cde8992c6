"""Any filter: of failures, and of metadata over given fields, values and patterns."""

from __future__ import annotations

from datetime import UTC, datetime

from hypothesis import strategies as st

from toolkit.filters.failure import FailureFilter
from toolkit.filters.failure_fields import FAILURE_STATES
from toolkit.filters.metadata import (
    And,
    Comparison,
    Contains,
    Glob,
    HasField,
    Membership,
    MetadataFilter,
    Or,
)

times = st.datetimes(
    min_value=datetime(1970, 1, 2),  # noqa: DTZ001 - hypothesis adds the zone
    max_value=datetime(9999, 1, 1),  # noqa: DTZ001 - hypothesis adds the zone
    timezones=st.just(UTC),
)
words = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=12)
several = st.lists(words, max_size=4).map(tuple)


@st.composite
def failure_filters(draw: st.DrawFn) -> FailureFilter:
    """Any filter of failures."""
    since, until = sorted([draw(times), draw(times)])
    return FailureFilter(
        since=draw(st.sampled_from([None, since])),
        until=draw(st.sampled_from([None, until])),
        workflow_url=draw(several),
        label=draw(several),
        failure_function_state=draw(
            st.lists(st.sampled_from(FAILURE_STATES) | words, max_size=3).map(tuple)
        ),
        caller_ip=draw(several),
        flow_control_key=draw(several),
        response_status=draw(st.lists(st.integers(100, 999), max_size=3).map(tuple)),
        error=draw(several),
        workflow_run_id=draw(st.none() | words),
        workflow_created_at=draw(st.none() | times),
    )


def metadata_conditions(
    fields: st.SearchStrategy[str],
    values: st.SearchStrategy[object],
    patterns: st.SearchStrategy[str],
) -> st.SearchStrategy[MetadataFilter]:
    """Any condition on these fields."""
    return st.one_of(
        st.builds(
            Comparison,
            fields,
            st.sampled_from(["=", "!=", "<", "<=", ">", ">="]),
            values,
        ),
        st.builds(
            Membership,
            fields,
            st.lists(values, min_size=1, max_size=4).map(tuple),
            st.booleans(),
        ),
        st.builds(Contains, fields, values, st.booleans()),
        st.builds(Glob, fields, patterns, st.booleans()),
        st.builds(HasField, fields, st.booleans()),
    )


def metadata_filters(
    conditions: st.SearchStrategy[MetadataFilter], *, most: int = 5
) -> st.SearchStrategy[MetadataFilter]:
    """Conditions, alone or in groups."""
    groups = lambda inner: st.builds(  # noqa: E731
        lambda kind, parts: kind(tuple(parts)),
        st.sampled_from([And, Or]),
        st.lists(inner, min_size=2, max_size=3),
    )
    return st.recursive(conditions, groups, max_leaves=most)
