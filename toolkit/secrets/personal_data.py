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
_GREATEST_DIGIT: Final = 9


def personal_spans(text: str) -> Iterator[tuple[int, int]]:
    """Yield the spans of e-mail addresses, phone numbers and card numbers.

    >>> list(personal_spans("ann@mail.example, +49 30 1234567"))
    [(0, 16), (18, 32)]
    """
    if "@" in text:
        for match in _EMAIL.finditer(text):
            yield match.span()
    for match in _CARD.finditer(text):
        if has_check_digit(match[0]):
            yield match.span()
    for match in _INTERNATIONAL.finditer(text):
        if _FEWEST_DIGITS <= len(_DIGIT.findall(match[0])) <= _MOST_DIGITS:
            yield match.span()
    for match in _NATIONAL.finditer(text):
        yield match.span()


def has_check_digit(number: str) -> bool:
    """Return whether the last digit of a number is the check digit of Luhn's algorithm (ISO/IEC 7812-1).

    From the right, every second digit is doubled, and the digits of all products are added: the sum of
    4111 1111 1111 1111 is 30. The number fits if the sum is a multiple of ten.

    >>> has_check_digit("4111 1111 1111 1111"), has_check_digit("4111 1111 1111 1112")
    (True, False)
    """
    total = 0
    for position, digit in enumerate(reversed(_DIGIT.findall(number))):
        summand = int(digit)
        if position % 2:
            summand *= 2
        if (
            summand > _GREATEST_DIGIT
        ):  # 9 less is the sum of both digits: 16 becomes 1 + 6 = 7
            summand -= _GREATEST_DIGIT
        total += summand
    return total % 10 == 0
