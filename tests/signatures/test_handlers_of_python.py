"""An exception that occurs while another one is handled: which of the two is the root cause."""

# ruff: noqa: E501 - a frame is easier to read in one line

from __future__ import annotations

import pytest

from toolkit.analysis import error_text
from toolkit.signatures.reading import read_document

DURING = "\n\nDuring handling of the above exception, another exception occurred:\n\n"
BECAUSE = "\n\nThe above exception was the direct cause of the following exception:\n\n"
SITE = "/usr/lib/python3.11/site-packages"


def trace(error: str, *frames: tuple[str, str, str]) -> str:
    """A trace of frames, each with a file, a function and the line of code ("" for none)."""
    lines = ["Traceback (most recent call last):"]
    for path, function, code in frames:
        lines.append(f'  File "{path}", line 7, in {function}')
        lines += [f"    {code}"] * bool(code)
    return "\n".join([*lines, error])


MISS = ("/app/prices.py", "get", "return self.known[sku]")
LOAD = ("/app/prices.py", "get", "return self.load(sku)")
MAIN = ("/app/main.py", "run", "total(order)")
QUERY = ("/app/database.py", "load", "rows = self.pool.query(QUERY)")
CONNECT = (f"{SITE}/pg/pool.py", "connect", "raise OperationalError(message)")
FULL = "pg.OperationalError: too many connections"


@pytest.mark.parametrize(
    ("first", "second"),
    [
        # a cache, a dictionary of defaults, a row, an optional module, and a file that can be missing
        (trace("KeyError: 'a-17'", MISS), trace(FULL, MAIN, LOAD, QUERY, CONNECT)),
        (trace("KeyError: 'a-17'", MISS), trace(FULL, MAIN, (*LOAD[:2], ""), QUERY, CONNECT)),
        (
            trace("shop.Price.DoesNotExist: no price", MISS, (f"{SITE}/orm/query.py", "get", "raise self.missing()")),
            trace(FULL, MAIN, LOAD, QUERY, CONNECT),
        ),
        (
            trace("ModuleNotFoundError: No module named 'fast'", ("/app/prices.py", "get", "import fast")),
            trace(FULL, LOAD, QUERY, CONNECT),
        ),
        # a value that the handler makes by a call: the call fails, not the `raise`
        (
            trace("KeyError: 'a-17'", MISS),
            trace(FULL, (*LOAD[:2], "raise PriceError(self.load(sku))"), QUERY, CONNECT),
        ),
    ],
)  # fmt: skip
def test_a_failed_substitute_of_a_missing_value_is_the_root_cause(first, second):
    """The missing value was expected. Without it, the failure is the same as without a cache."""
    document = read_document(first + DURING + second)
    alone = read_document(second)
    assert (
        document.facts
        == alone.facts
        == ("python", "pg.OperationalError", "at database.load")
    )
    assert error_text(first + DURING + second).text == FULL


def test_a_wrapper_of_that_failure_stays_in_the_chain():
    """`raise … from` after it: the failure of the substitute is still the root cause."""
    text = (
        trace("KeyError: 'a-17'", MISS)
        + DURING
        + trace(FULL, LOAD, QUERY, CONNECT)
        + BECAUSE
        + trace("shop.PriceError: no price", MAIN)
    )
    facts = ("python", "shop.PriceError", "pg.OperationalError", "at database.load")
    assert read_document(text).facts == facts


ROUTE = ("/app/main.py", "route", "charge(order)")
CHARGE = ("/app/charges.py", "charge", "tax = order['tax']")
DEEP = trace("KeyError: 'tax'", ROUTE, CHARGE)


@pytest.mark.parametrize(
    ("first", "second"),
    [
        # translated, with and without a line of code, by a function, and by a framework
        (trace("KeyError: 'a-17'", MISS), trace("shop.PriceError: x", MAIN, (*MISS[:2], "raise PriceError(sku)"))),
        (trace("KeyError: 'a-17'", MISS), trace("shop.PriceError: x", MAIN, (*MISS[:2], ""))),
        (
            trace("KeyError: 'a-17'", MISS),
            trace("shop.PriceError: x", LOAD, ("/app/prices.py", "raise_missing", "raise PriceError(sku)")),
        ),
        (
            trace("KeyError: 'a-17'", MISS),
            trace("werkzeug.NotFound: 404", LOAD, (f"{SITE}/werkzeug/exceptions.py", "abort", "raise self.mapping[code]")),
        ),
        # the failure of a whole function is reported or cleaned up, which fails, too
        (DEEP, trace("ConnectionError: no chat", (*ROUTE[:2], "notify(error)"), ("/app/chat.py", "notify", "send()"))),
        (
            trace("pg.OperationalError: the server closed the connection", ROUTE, CHARGE),
            trace("pg.InterfaceError: closed", (*ROUTE[:2], "connection.rollback()"), CONNECT),
        ),
        # an error of a library that it translates itself
        (
            trace("ConnectionRefusedError: [Errno 111] Connection refused", (f"{SITE}/http/connection.py", "new", "connect()")),
            trace("http.NewConnectionError: refused", (f"{SITE}/http/connection.py", "new", "raise NewConnectionError()")),
        ),
        # another function caught it
        (trace("KeyError: 'a-17'", MISS), trace(FULL, MAIN, QUERY, CONNECT)),
    ],
)  # fmt: skip
def test_a_translated_or_reported_error_is_the_root_cause(first, second):
    """As it is with `raise … from`."""
    during, because = (
        read_document(first + link + second) for link in (DURING, BECAUSE)
    )
    assert during == because
    first_type = first.splitlines()[-1].partition(":")[0]
    assert during.facts[-2] == first_type


def test_several_missing_values_lead_to_the_last_failure():
    """Two caches, for example."""
    text = (
        trace("KeyError: 'a-17'", MISS)
        + DURING
        + trace("FileNotFoundError: a-17", (*LOAD[:2], "return self.read(sku)"))
        + DURING
        + trace(FULL, LOAD, QUERY, CONNECT)
    )
    assert read_document(text).facts[-2] == "pg.OperationalError"
