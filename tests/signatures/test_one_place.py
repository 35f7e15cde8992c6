"""Values in messages that a key or a frame announces: two different ones are enough."""

from __future__ import annotations

import pytest

from toolkit.signatures.signing import error_signatures, sign
from toolkit.signatures.words import split_sentence


def java(kind: str, message: str, function: str = "shop.Options.choose") -> str:
    """A trace with one frame of the application."""
    return f"{kind}: {message}\n\tat {function}(Options.java:7)\n\tat java.lang.Thread.run(Thread.java:1)"


@pytest.mark.parametrize(
    ("kind", "messages"),
    [
        (
            "shop.ClashException",
            [
                f"the option '{one}' was given after the option '{other}'"
                for one, other in ("ab", "cd")
            ],
        ),
        (
            "java.lang.IllegalStateException",
            [f"{verb} 7 in the cart is no name of an item" for verb in ("PUT", "TAKE")],
        ),
        (
            "java.lang.ClassCastException",
            [
                f"com.example.shop.{name} cannot be cast to com.example.shop.Cart"
                for name in ("Item", "Order")
            ],
        ),
        (
            "java.nio.charset.IllegalCharsetNameException",
            ["utf8;", "latin~x", "'koi'", "win=ansi"],
        ),
    ],
)
def test_values_at_one_place_of_the_code_are_one_error(kind, messages):
    """Traces of one type and frame are one group although letters, constants or classes differ."""
    assert len(set(error_signatures([java(kind, text) for text in messages]))) == 1


@pytest.mark.parametrize(
    ("kind", "messages"),
    [
        (
            "shop.QueryException",
            [f'column "{name}" of the table carts is gone' for name in ("price", "total")],
        ),
        (
            "java.lang.NoSuchMethodError",
            [f"com.example.shop.{name} has no method of this name" for name in ("A", "B")],
        ),
        (
            "java.net.SocketException",
            [f"{code} while the cart was sent to the shop" for code in ("EPIPE", "EBADF")],
        ),
        (
            "shop.RpcException",
            [f"the call of the cart ended with code={code} today" for code in ("LOST", "GONE")],
        ),
        ("java.lang.IllegalArgumentException", ["price", "total", "tax"]),
    ],
)  # fmt: skip
def test_names_that_are_the_fault_stay_apart(kind, messages):
    """Columns, methods, codes of systems and the few parameters of a function are different errors."""
    texts = [java(kind, text) for text in messages]
    assert len(set(error_signatures(texts))) == len(texts)


def test_another_function_needs_more_evidence():
    """Two letters in quotes are two errors if they were thrown in different functions."""
    texts = [
        java("shop.ClashException", f"the option '{one}' was given twice today", where)
        for one, where in (("b", "shop.Options.choose"), ("c", "shop.Options.drop"))
    ]
    assert len(set(error_signatures(texts))) == 2


def test_a_cause_whose_frames_are_all_left_out_has_the_frames_above():
    """A cause with only "... 2 more" gets the last two frames of the exception above it."""
    text = (
        "shop.OrderException: no order\n\tat shop.Orders.open(Orders.java:3)\n"
        "\tat shop.Stock.take(Stock.java:9)\n\tat shop.Main.main(Main.java:1)\n"
        "Caused by: java.lang.IllegalStateException\n\t... 2 more"
    )
    assert sign([text])[text].facts[-1] == "at shop.Stock.take"


@pytest.mark.parametrize(
    "messages",
    [
        [f"letter was sent, sender: {name}-Mail-Desk" for name in ("Night", "Day")],
        [f"no row for the table :{name}." for name in ("orders", "sums", "SHOP_CARTS")],
        [f"start of job in dir: {name}." for name in ("NIGHTLY_SUM", "CLEANUP")],
        [f"result of job: kind: New, tag: {tag}, work: 7" for tag in ("", "Disk")],
        [f'event came: {{"orderId": "{name}"}}, {{"state": 7}}' for name in ("a", "7b9")],
    ],
)  # fmt: skip
def test_few_values_after_a_key_are_one_error(messages):
    """Two or three names after a key, also in capitals or left out, are values."""
    assert len(set(error_signatures(messages))) == 1


@pytest.mark.parametrize(
    "messages",
    [
        [f"the order was refused, reason: {why}, work: 7" for why in ("", "Limit")],
        [f'the shop answered with {{"errorId": "{name}"}}' for name in ("limit", "gone")],
        [f"the table {name} was lost" for name in ("ORDERS", "CARTS")],
    ],
)  # fmt: skip
def test_two_reasons_stay_apart(messages):
    """A reason that is left out, and ids of errors, are no values."""
    assert len(set(error_signatures(messages))) == 2


def test_a_value_that_is_left_out_is_an_empty_word():
    """A value between a key and a comma is empty, with the blank before it in the glue."""
    sentence = split_sentence("tag: , size: 7")
    assert sentence.words == ("tag:", "", "size:", "7")
    assert sentence.glue == split_sentence("tag: ab, size: 7").glue
    assert sentence.with_words(sentence.words) == "tag: , size: 7"
