"""Find e-mail addresses, phone numbers and card numbers, for redactors that mask personal data.

Only the form counts, and other numbers can have the same form. For example, an order number of 16 digits is
masked like a card number if the check digit fits, as it does for one in ten.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

PERSONAL_HINT: Final = r"@|%40|[0-9][ ().\-]{0,2}[0-9][ ().\-]{0,2}[0-9]"
"""A quick test (RE2 syntax): text without a match contains nothing that `personal_spans` finds."""

# ann.example+orders@mail.example.org
_EMAIL: Final = re.compile(
    r"(?<![\w.+\-])[\w.+\-]{1,64}+@(?:[A-Za-z0-9\-]{1,63}\.){1,8}[A-Za-z]{2,24}"
)
# +49 30 1234567, +1 (555) 010-0199
_INTERNATIONAL: Final = re.compile(
    r"(?<![\w+])\+[1-9][0-9]{0,2}[ .\-]?(?:\(?[0-9]{1,5}\)?[ .\-]?){1,5}[0-9]{2,4}(?!\w)"
)
# (555) 010-0199, 555-010-0199, 030/1234567
_NATIONAL: Final = re.compile(
    r"(?<![\w.+\-/])(?:\([0-9]{3}\)[ ]?|[0-9]{3}[.\-])[0-9]{3}[.\-][0-9]{4}(?![\w\-])"
    r"|(?<![\w.+\-/])0[0-9]{2,4}[ /\-][0-9]{6,8}(?![\w\-])"
)
# 4111 1111 1111 1111, 4111-1111-1111-1111, 378282246310005
_CARD: Final = re.compile(r"(?<![\w.\-])[2-6](?:[ \-]?[0-9]){12,18}(?![\w\-])")
_FEWEST_DIGITS, _MOST_DIGITS = 7, 15  # of an international number, by ITU-T E.164
_DIGIT: Final = re.compile("[0-9]")
_DOUBLED: Final = (0, 2, 4, 6, 8, 1, 3, 5, 7, 9)
"""The sum of the digits of the double of each digit: 8 becomes 16, and 1 + 6 = 7."""


def personal_spans(text: str) -> Iterator[tuple[int, int]]:
    """Yield the spans of e-mail addresses, phone numbers and card numbers.

    >>> list(personal_spans("ann@mail.example, +49 30 1234567"))
    [(0, 16), (18, 32)]
    """
    if "@" in text:
        yield from map(re.Match.span, _EMAIL.finditer(text))
    cards = filter(_is_card, _CARD.finditer(text))
    numbers = filter(_has_length_of_number, _INTERNATIONAL.finditer(text))
    yield from map(re.Match.span, cards)
    yield from map(re.Match.span, numbers)
    yield from map(re.Match.span, _NATIONAL.finditer(text))


def _is_card(match: re.Match[str]) -> bool:
    return has_check_digit(match[0])


def _has_length_of_number(match: re.Match[str]) -> bool:
    digit_count = len(_DIGIT.findall(match[0]))
    return _FEWEST_DIGITS <= digit_count <= _MOST_DIGITS


def has_check_digit(number: str) -> bool:
    """Return whether the last digit of a number is the check digit of Luhn's algorithm (ISO/IEC 7812-1).

    From the right, every second digit is doubled, and the digits of all products are added: the sum of
    4111 1111 1111 1111 is 30. The number fits if the sum is a multiple of ten.

    >>> has_check_digit("4111 1111 1111 1111"), has_check_digit("4111 1111 1111 1112")
    (True, False)
    """
    digits = list(map(int, reversed(_DIGIT.findall(number))))
    doubled = map(_DOUBLED.__getitem__, digits[1::2])
    return (sum(digits[::2]) + sum(doubled)) % 10 == 0
