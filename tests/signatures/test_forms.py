"""Bodies in the forms of frameworks, platforms and databases: equal errors are one group, others are not."""

# ruff: noqa: E501 - bodies are kept as they are sent

from __future__ import annotations

import json
from typing import Any

import pytest

from toolkit.analysis import error_signatures
from toolkit.signatures.reading import read_document


def text(**members: Any) -> str:
    """JSON as a framework writes it."""
    return json.dumps(members, ensure_ascii=False)


def express(error: str, function: str) -> str:
    """An error page of Express: the stack trace stands in a pre element."""
    return (
        f"<!DOCTYPE html><html><head><title>Error</title></head><body><pre>{error}<br> &nbsp; &nbsp;at "
        f"{function} (/srv/shop/src/{function}.js:7:11)<br> &nbsp; &nbsp;at Layer.handle "
        "(/srv/shop/node_modules/express/lib/router/layer.js:95:5)</pre></body></html>"
    )


def node(error: str, after: str = "") -> str:
    """An error as Node prints it."""
    return f"{error}\n    at refund (/srv/shop/src/refund.js:4:9)\n    at run (/srv/shop/src/run.js:8:2){after}"


def python(error: str) -> str:
    """An error as Python prints it."""
    return f'Traceback (most recent call last):\n  File "/srv/shop/refund.py", line 7, in refund\n    go()\n{error}'


def problem(kind: str, title: str, detail: str) -> str:
    """Problem details."""
    return text(
        type=f"https://shop.example.com/{kind}", title=title, status=409, detail=detail
    )


def soap(code: str, reason: str) -> str:
    """A fault of SOAP."""
    return (
        '<s:Envelope xmlns:s="http://schemas.xmlsoap.org/soap/envelope/"><s:Body><s:Fault>'
        f"<faultcode>{code}</faultcode><faultstring>{reason}</faultstring></s:Fault></s:Body></s:Envelope>"
    )


def php(file: str, line: int) -> str:
    """An exception of Laravel."""
    return text(
        message="Undefined variable $vat",
        exception="ErrorException",
        file=file,
        line=line,
    )


ZOD = '[\n  {{\n    "code": "too_small",\n    "path": [\n      "{}"\n    ],\n    "message": "{}"\n  }}\n]'

# form: (two bodies of one error, bodies of other errors, words of the error)
FORMS: dict[str, tuple[tuple[str, str], list[str], str]] = {
    "error page": (
        (express("Error: Cart 17 is closed", "close"), express("Error: Cart 40 is closed", "close")),
        [express("TypeError: cart is null", "close"), express("Error: Cart 17 is closed", "pay")],
        "is closed",
    ),
    "list of messages": (
        (text(message=["age must be a number"], statusCode=400), text(message=["age must be a number"], statusCode=400)),
        [text(message=["name is empty"], statusCode=400)],
        "age must be a number",
    ),
    "errors by field": (
        (text(vat=["Not a number."]), text(vat=["Not a number."])),
        [text(vat=["Too long."]), text(name=["Not a number."])],
        "Not a number",
    ),
    "general and exact message": (
        (
            text(Message="An error has occurred.", ExceptionMessage="Cart 4 is gone", ExceptionType="CartGone"),
            text(Message="An error has occurred.", ExceptionMessage="Cart 9 is gone", ExceptionType="CartGone"),
        ),
        [text(Message="An error has occurred.", ExceptionMessage="no tax", ExceptionType="TaxGone")],
        "is gone",
    ),
    "issues": (
        (text(issue=[{"code": "value", "diagnostics": "no unit"}]), text(issue=[{"code": "value", "diagnostics": "no unit"}])),
        [text(issue=[{"code": "value", "diagnostics": "no name"}])],
        "no unit",
    ),
    "problem details": (
        (problem("stock", "Out of stock.", "3 left, 5 wanted."), problem("stock", "Out of stock.", "1 left, 8 wanted.")),
        [problem("closed", "The shop is closed.", "Come back at 9.")],
        "Out of stock",
    ),
    "server-sent event": (
        ('event: error\ndata: {"error": {"code": "busy", "message": "model 4 is busy"}}\n\n',) * 2,
        ['event: error\ndata: {"error": {"code": "long", "message": "the prompt is long"}}\n\n'],
        "is busy",
    ),
    "validator in a trace": (
        (node("ZodError: " + ZOD.format("vat", "Too small")), node("ZodError: " + ZOD.format("vat", "Too small"))),
        [node("ZodError: " + ZOD.format("name", "Too small"))],
        "Too small",
    ),
    "property after the frames": (
        (node("DatabaseError: \nUpdate failed", " {\n  code: 'D1001'\n}"),) * 2,
        [node("DatabaseError: \nUpdate failed", " {\n  code: 'D1002'\n}")],
        "Update failed",
    ),
    "uncaught in Deno": (
        (node("error: Uncaught (in promise) Error: cart 3 is closed"), node("error: Uncaught (in promise) Error: cart 8 is closed")),
        [node("error: Uncaught (in promise) TypeError: cart is null")],
        "is closed",
    ),
    "key of PostgreSQL": (
        (
            python('shop.Conflict: violates unique "carts_no"\nDETAIL:  Key (no)=(R-101) already exists.'),
            python('shop.Conflict: violates unique "carts_no"\nDETAIL:  Key (no)=(7) already exists.'),
        ),
        [python('shop.Conflict: violates unique "users_no"\nDETAIL:  Key (no)=(7) already exists.')],
        "violates unique",
    ),
    "key of MySQL": (
        ("Duplicate entry 'ann' for key 'mail'", "Duplicate entry 'bob-2' for key 'mail'"),
        ["Duplicate entry 'ann' for key 'name'"],
        "Duplicate entry",
    ),
    "terminal colors": (
        ("\x1b[31mError: no printer\x1b[39m", "Error: no printer"),
        ["\x1b[31mError: no paper\x1b[39m"],
        "no printer",
    ),
    "JSON cut off": (
        (text(error={"code": "FULL", "message": "the shelf is full"}, cart="x" * 50),
         text(error={"code": "FULL", "message": "the shelf is full"}, cart="x" * 500)[:80]),
        [text(error={"code": "EMPTY", "message": "the shelf is empty"}, cart="x" * 500)[:90]],
        "the shelf is full",
    ),
    "place of an exception": (
        (php("/var/www/app/Tax.php", 4), php("/var/www/app/Tax.php", 9)),
        [php("/var/www/app/Cart.php", 4)],
        "Undefined variable",
    ),
    "code of one's own": (
        ("CART-1001 cart 4 refused", "CART-1001 cart 17 refused"),
        ["CART-1002 cart 4 refused"],
        "CART-1001",
    ),
    "fault of SOAP": (
        (soap("s:Client", "no customer 4"), soap("s:Client", "no customer 17")),
        [soap("s:Server", "timeout of the warehouse")],
        "no customer",
    ),
    "error of an object store": (
        ("<Error><Code>NoSuchKey</Code><Message>There is no such key.</Message><Key>a/1</Key></Error>",
         "<Error><Code>NoSuchKey</Code><Message>There is no such key.</Message><Key>b/2</Key></Error>"),
        ["<Error><Code>Denied</Code><Message>Not yours.</Message><Key>a/1</Key></Error>"],
        "no such key",
    ),
    "script without spaces": (
        ("购物车12已关闭", "购物车9031已关闭"),
        ["付款超时12秒"],
        "已关闭",
    ),
    "full-width digits": (
        ("カート\uff11\uff12は閉じています", "カート\uff19は閉じています"),
        ["カートがありません"],
        "は閉じています",
    ),
}  # fmt: skip


@pytest.mark.parametrize("form", FORMS)
def test_forms_are_grouped_by_their_error(form: str) -> None:
    """Two bodies of an error share an id, and no other error has it."""
    (first, second), others, _ = FORMS[form]
    own, again, *different = error_signatures([first, second, *others])
    assert own == again
    assert own not in different
    assert len(set(different)) == len(others)


@pytest.mark.parametrize("form", FORMS)
def test_forms_state_their_error(form: str) -> None:
    """The first facts and messages contain the words of the error."""
    (first, _), _, words = FORMS[form]
    document = read_document(first)
    assert words in " ".join([*document.facts, *document.messages[:2]])


@pytest.mark.parametrize("form", FORMS)
def test_forms_cut_nested_and_doubled_are_read(form: str) -> None:
    """A form that is cut at any position, is a string in JSON, or comes twice is read without an error."""
    body = FORMS[form][0][0]
    for length in range(len(body)):
        read_document(body[:length])
    assert read_document(json.dumps(body)).kind == "json"
    read_document(json.dumps({"error": json.dumps({"message": body})}))
    read_document(body * 2)
