"""The error tree: what a message says, what can be caught as what, and that errors survive a process."""

from __future__ import annotations

import copy
import inspect
import pickle
import re

import pytest

from toolkit import errors
from toolkit.errors import (
    AuthenticationError,
    DailyLimitError,
    DeadlineError,
    FilterSyntaxError,
    IncompleteLoadError,
    InputError,
    MalformedResponseError,
    NotFoundError,
    ProtocolError,
    RateLimitError,
    ResponseError,
    ServerError,
    ServiceError,
    ToolkitError,
    TransportError,
)

CLASSES = [
    kind
    for _, kind in inspect.getmembers(errors, inspect.isclass)
    if issubclass(kind, ToolkitError)
]


@pytest.mark.parametrize(
    ("parts", "message"),
    [
        ({}, "reading a"),
        ({"got": "b"}, "reading a: got b"),
        ({"expected": "c"}, "reading a: expected c"),
        ({"got": "b", "expected": "c"}, "reading a: got b; expected c"),
        ({"got": "b", "next_step": "Do d."}, "reading a: got b. Do d."),
        ({"got": "b.", "next_step": "Do d."}, "reading a: got b. Do d."),
        ({"next_step": "Do d."}, "reading a. Do d."),
        ({"got": "", "expected": ""}, "reading a"),
    ],
)
def test_a_message_has_action_got_expected_and_next_step(parts, message):
    """Whichever parts there are, they make one readable sentence or two."""
    error = ToolkitError("reading a", **parts)
    assert str(error) == message
    assert (error.doing, error.got, error.next_step) == (
        "reading a",
        parts.get("got"),
        parts.get("next_step"),
    )


def test_a_service_error_names_its_request_and_a_response_error_its_status():
    """Method and address in the sentence; status and message also as attributes."""
    error = NotFoundError(
        "getting x",
        status=404,
        message="no such entry",
        request="GET https://q.example/x",
    )
    assert str(error) == "getting x (GET https://q.example/x): got 404 'no such entry'"
    assert (error.status, error.message, error.request) == (
        404,
        "no such entry",
        "GET https://q.example/x",
    )


def test_a_filter_error_has_its_position():
    """Text and position are attributes, the position is in the sentence."""
    error = FilterSyntaxError(
        "reading a filter", text="a = ", position=4, got="the end", expected="a value"
    )
    assert (error.text, error.position) == ("a = ", 4)
    assert "at position 4: got the end; expected a value" in str(error)


def test_whether_to_try_again_is_a_property_of_the_class():
    """What passes by itself is retriable; what does not is not, the daily limit included."""
    retriable = {kind for kind in CLASSES if kind.retriable}
    assert retriable == {
        TransportError,
        DeadlineError,
        RateLimitError,
        ServerError,
        MalformedResponseError,
    }
    assert not DailyLimitError.retriable


def test_errors_can_be_caught_by_their_class():
    """Every error is a ToolkitError; bad arguments are ValueErrors too."""
    assert issubclass(InputError, ValueError)
    assert issubclass(FilterSyntaxError, InputError)
    assert issubclass(DailyLimitError, RateLimitError)
    assert issubclass(DeadlineError, TransportError)
    assert issubclass(AuthenticationError, ResponseError)
    assert issubclass(ProtocolError, ServiceError)
    assert issubclass(errors.IncompleteLoadWarning, UserWarning)


def test_the_drawn_tree_is_the_real_one():
    """Each class is in the module's drawing, below its parent, and nothing else is."""
    stack: list[tuple[int, str]] = []
    drawn = {}
    for line in errors.__doc__.splitlines():
        match = re.match(r"^( {4}[│ ├└─]*)([A-Z]\w+(?:Error))\b", line)
        if match:
            depth = len(match[1])
            stack = [item for item in stack if item[0] < depth]
            drawn[match[2]] = stack[-1][1] if stack else "Exception"
            stack.append((depth, match[2]))
    assert drawn == {kind.__name__: kind.__bases__[0].__name__ for kind in CLASSES}


@pytest.mark.parametrize(
    "error",
    [
        ToolkitError("a", got="b", expected="c", next_step="D."),
        InputError("a", got="b"),
        FilterSyntaxError("a", text="x", position=1, got="b", expected="c"),
        RateLimitError(
            "a", status=429, message="slow down", request="GET /x", wait=1.5
        ),
        DailyLimitError("a", status=429, message="tomorrow"),
        IncompleteLoadError("a", partial=[1, 2], got="b"),
        ServiceError("a", request="GET /x", got="b"),
    ],
)
def test_errors_survive_pickle_and_copy_with_all_they_know(error):
    """From a worker process comes the same error, with attributes and notes."""
    error.add_note("a note")
    for again in (
        pickle.loads(pickle.dumps(error)),  # noqa: S301 - ours
        copy.copy(error),
        copy.deepcopy(error),
    ):
        assert type(again) is type(error)
        assert str(again) == str(error)
        assert vars(again) == vars(error)
