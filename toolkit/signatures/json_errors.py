"""Read errors in JSON: codes, types, messages, causes and the fields that a validation refused.

There is no standard for errors in JSON. The tables below name the keys that frameworks, platforms and
public services use, in lower case and with underscores. For example, the error
`{"error": {"code": 17, "message": "no stock"}}` has the fact "17" and the message "no stock".
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Final, NamedTuple

import msgspec

from toolkit.signatures.document import STATUS_PHRASES, Document, shortened
from toolkit.signatures.frame_names import file_stem

_MESSAGE_KEYS: Final = tuple(
    """
    exceptionmessage message error_description detail error_message errormessage msg description title reason
    faultstring summary text diagnostics
    """.split()  # noqa: SIM905 - a list of words
)
"""Keys of messages, the best first. ASP.NET has a general `Message` next to an `ExceptionMessage`."""
_FACT_KEYS: Final = tuple(
    """
    type name exception exceptiontype errortype error_type error_class errorclass class __type
    exception_class kind code error_code errorcode errno faultcode sqlstate decline_code reason_code
    sub_code subcode result_code status_code statuscode status
    field param property selector pointer
    """.split()  # noqa: SIM905 - a list of words
)
"""Keys of types, codes, and the names of fields that a validation refused."""
_PATH_KEYS: Final = ("path", "loc", "expression")
"""Keys of the place in an input, if the value is a list. A string is usually the path of the request."""
_CAUSE_KEYS: Final = tuple(
    """
    error err errors cause causes caused_by causedby innererror inner_error innerexception detail details
    exception root_cause fault failure previous body response data issue issues source
    applicationfailureinfo extensions modelstate
    """.split()  # noqa: SIM905 - a list of words
)
_FIELDS_KEYS: Final = frozenset(
    {"error", "errors", "detail", "details", "failure", "failures", "modelstate"}
)
"""Keys that may contain an object from the fields of an input to the errors of each."""
_NO_CAUSE_AS_TEXT: Final = frozenset(
    {"detail", "details", "body", "response", "data", "source"}
)
"""Keys whose value is no cause if it is a string next to a message."""
_STACK_KEYS: Final = (
    "stack",
    "stacktrace",
    "stack_trace",
    "trace",
    "traceback",
    "backtrace",
)


_TYPE_NAME: Final = re.compile(r"[A-Za-z_][\w.:\\$\-]{1,80}")
"""One word: a type or code, for example "TypeError" or "invalid_grant"."""
_INSPECTED: Final = re.compile(r"#<([A-Z][\w:]{0,100})(?:: (.*))?>", re.DOTALL)
"""An exception as Ruby prints it: "#<Timeout::Error: no answer>"."""

_JSON_SIGN: Final = re.compile(r'"(?>(?:[^"\\]++|\\.)*)("?)|[{}\[\],]', re.DOTALL)
"""A string, with the closing quote unless it is cut off, or a bracket or comma between strings."""


@dataclass(frozen=True)
class JsonLimits:
    """How much of a body is read. Errors stand near the top of a body, and hostile bodies must stay cheap."""

    depth: int = 6
    """Levels of causes within causes."""
    nested: int = 3
    """Levels of objects at unknown keys that are searched for an error."""
    open_brackets: int = 50
    """Open brackets of JSON that was cut off. Each later sign copies them."""
    items: int = 3
    """Elements of a list of errors: further ones repeat the error for other fields."""
    fields: int = 20
    """Names of refused fields, and names of a path."""
    fact: int = 200
    """Characters of a code or type. Longer values are messages."""
    members: int = 100
    """Members of an object."""
    keys: int = 20
    """Keys that identify JSON without an error."""


LIMITS: Final = JsonLimits()


def read_json(text: str, read: Callable[[str], Document]) -> Document | None:
    """Return the error of a JSON body, or None if the body is not JSON. `read` reads bodies in fields of it.

    >>> from toolkit.signatures.reading import read_document
    >>> read_json('{"amount": ["This field is required."]}', read_document)
    Document(kind='json', facts=('amount',), messages=('This field is required.',))
    >>> read_json('{"error": {"message": "refused", "code": "DOC"}, "document": "xxxxx', read_document)
    Document(kind='json', facts=('DOC',), messages=('refused',))
    """
    try:
        value = decode_json(text)
    except (ValueError, RecursionError):
        return None

    if isinstance(value, str):
        return _read_string(value, read)

    found = _find(value, read)
    if not found.messages and text[-1] not in _ENDS_OF_VALUES:
        found = _find_cut_message(text, read) or found

    return _document(value, found)


def document_of_json(value: object, read: Callable[[str], Document]) -> Document:
    """Return the error of a decoded value. `read` reads bodies in fields of it."""
    return _document(value, _find(value, read))


def _document(value: object, found: _Findings) -> Document:
    if found.is_empty:
        return Document("json", ("keys", *_keys_of(value)))

    facts = tuple(dict.fromkeys(found.facts))
    messages = tuple(dict.fromkeys(found.messages))
    return Document("json", facts, messages)


_ENDS_OF_VALUES: Final = '}]"'
"""Last signs of JSON that was not cut off."""


def _read_string(value: str, read: Callable[[str], Document]) -> Document:
    """Return the error of a body that is a string in JSON."""
    inner = read(value)
    if inner.kind == "empty":
        return inner

    return Document("json", inner.facts, inner.messages)


def _keys_of(value: Any) -> list[str]:
    """Return the first keys of an object in the order of their names; none for other values."""
    if not isinstance(value, dict):
        return []
    return sorted(value)[: LIMITS.keys]


def _find(value: Any, read: Callable[[str], Document]) -> _Findings:
    """Return the error of a decoded body. Three ways are tried, the surest first.

    1. Known keys, for example `{"error": {"message": "no stock"}}`.
    2. Names of refused fields, for example `{"email": ["Enter an address."]}`.
    3. Known keys in an object at an unknown key, for example `{"result": {"message": "no stock"}}`.
    """
    found = _Findings(read)
    found.add(value, LIMITS.depth)
    if found.is_empty:
        found.add_fields(value)
    if found.is_empty:
        return _find_nested(value, read, LIMITS.nested) or found

    return found


def _find_nested(
    value: Any, read: Callable[[str], Document], depth: int
) -> _Findings | None:
    """Return the first error with a message below keys that are not in the tables, or None."""
    if not depth or not isinstance(value, dict):
        return None

    for item in list(value.values())[: LIMITS.keys]:
        if isinstance(item, dict):
            found = _Findings(read)
            found.add(item, depth)
            if found.messages:
                return found
            if nested := _find_nested(item, read, depth - 1):
                return nested

    return None


def _find_cut_message(text: str, read: Callable[[str], Document]) -> _Findings | None:
    """Return the error of JSON that was cut off within the message, or None if it lacks a message otherwise.

    For example, `{"status": 500, "message": "no sto` has the message "no sto".
    """
    try:
        value = msgspec.json.decode(_completed(text, keeps_text=True))
    except (msgspec.DecodeError, ValueError, RecursionError):
        return None

    found = _find(value, read)
    if not found.messages:
        return None

    return found


def decode_json(text: str) -> Any:
    """Return the value of JSON, or of the readable start if it is cut off.

    Raises
    ------
    ValueError, RecursionError
        If it is not JSON, or nested too deeply.
    """
    try:
        return _DECODE(text)
    except (msgspec.DecodeError, ValueError):
        pass

    try:
        return json.loads(text)  # reads NaN and lone surrogates, which msgspec refuses
    except ValueError:
        return _DECODE(_completed(text))


_DECODE: Final = msgspec.json.Decoder().decode


def _completed(text: str, *, keeps_text: bool = False) -> str:
    """Return JSON that was cut off, with the last incomplete member removed and all brackets closed.

    For example, `{"a": {"b": 1, "c": "xx` becomes `{"a": {"b": 1}}`: the part up to the last comma or
    bracket that can end a value, and the brackets that are open there. With `keeps_text`, a string at the end
    is closed instead: `{"a": {"b": 1, "c": "xx"}}`.
    """
    brackets = _OpenBrackets()
    for sign in _JSON_SIGN.finditer(text):
        brackets.read(sign)
        if brackets.is_complete:
            break

    end = brackets.end
    if brackets.is_closed and "{" not in text[:end]:
        raise ValueError("a message that begins with a number in brackets")
    if keeps_text and brackets.is_in_string:
        unfinished = text.rstrip("\\")
        return f'{unfinished}"{brackets.closing_now()}'

    return text[:end] + brackets.closing_at_end


class _OpenBrackets:
    """The brackets that are open while the signs of JSON are read.

    For example, the signs of `{"a": {"b": 1, "c": "xx`, with the brackets to close after each, and the end of
    the readable part:

        sign     {    "a"   {    "b"   ,    "c"   "xx
        close    }    }     }}   }}    }}   }}    }}
        end      1    1     7    7     13   13    13       text[:13] is {"a": {"b": 1
    """

    def __init__(self) -> None:
        self._open: list[str] = []
        self.end = 0
        """The end of the part that can be read."""
        self.closing_at_end = ""
        """The brackets that close this part."""
        self.is_in_string = False
        self.is_complete = False
        """True if other text follows the value, or if too many brackets are open."""

    @property
    def is_closed(self) -> bool:
        """True if signs were read, and no bracket is open."""
        return self.end > 0 and not self._open

    def closing_now(self) -> str:
        """Return the brackets that close what is open."""
        return "".join(reversed(self._open))

    def read(self, found: re.Match[str]) -> None:
        """Read a string, a bracket or a comma."""
        sign = found[0][0]
        if sign == '"':
            self.is_in_string = not found[1]
        elif sign == ",":
            self._mark(found.start())
        elif sign in _CLOSING_BRACKETS:
            self._open.append(_CLOSING_BRACKETS[sign])
            self._mark(found.end())
            self.is_complete = len(self._open) > LIMITS.open_brackets
        elif self._open:
            self._open.pop()
            self._mark(found.end())
            self.is_complete = not self._open

    def _mark(self, end: int) -> None:
        self.end = end
        self.closing_at_end = self.closing_now()


_CLOSING_BRACKETS: Final = {"{": "}", "[": "]"}


class _Shape(NamedTuple):
    """The keys of an object that may state an error, as they are spelled there, the best first."""

    facts: tuple[str, ...]
    paths: tuple[str, ...]
    stacks: tuple[str, ...]
    messages: tuple[str, ...]
    causes: tuple[tuple[str, bool, bool], ...]
    """Each key; whether the value can be an object of fields; whether a string is no cause."""
    title: str | None
    detail: str | None
    error: str | None
    file: str | None


@lru_cache(maxsize=1 << 12)
def _shape_of(keys: tuple[str, ...]) -> _Shape:
    """Return the roles of the keys of an object. Bodies of one service have the same keys.

    >>> shape = _shape_of(("Status-Code", "message", "id"))
    >>> shape.facts, shape.messages
    (('Status-Code',), ('message',))
    """
    spelled = {key.lower().replace("-", "_"): key for key in keys}

    def present(table: Iterable[str]) -> tuple[str, ...]:
        return tuple(spelled[key] for key in table if key in spelled)

    causes = tuple(
        (spelled[key], key in _FIELDS_KEYS, key in _NO_CAUSE_AS_TEXT)
        for key in _CAUSE_KEYS
        if key in spelled
    )
    file = None
    if "line" in spelled:
        # otherwise, a file is an input rather than the place of an error
        file = spelled.get("file")

    return _Shape(
        present(_FACT_KEYS),
        present(_PATH_KEYS),
        present(_STACK_KEYS),
        present(_MESSAGE_KEYS),
        causes,
        title=spelled.get("title"),
        detail=spelled.get("detail"),
        error=spelled.get("error"),
        file=file,
    )


def _problem_type(address: str) -> str:
    """Return the name of a type of problem details: the last part of the address.

    For example, "out-of-credit" for "https://shop.example.com/errors/out-of-credit". The section of an RFC
    states the status only, and gives "rfc".
    """
    name = address.rstrip("/").rpartition("/")[2]
    if name.lower().startswith("rfc"):
        return "rfc"

    return name


class _Findings:
    """Facts and messages of an error object, the first one found first."""

    def __init__(self, read: Callable[[str], Document]) -> None:
        self._read = read
        self.facts: list[str] = []
        self.messages: list[str] = []

    @property
    def is_empty(self) -> bool:
        """True if neither facts nor messages were found."""
        return not self.facts and not self.messages

    def add(self, value: Any, depth: int, *, is_by_field: bool = False) -> None:
        """Add the codes, types, messages and causes of a value."""
        if not depth:
            return

        if isinstance(value, str):
            self._add_text(value)
        elif isinstance(value, list):
            for item in value[: LIMITS.items]:
                self.add(item, depth - 1)
        elif isinstance(value, dict):
            self._add_object(value, depth, is_by_field=is_by_field)

    def _add_object(
        self, value: dict[str, Any], depth: int, *, is_by_field: bool
    ) -> None:
        """Add the parts of an object by key: facts, the stack, the message, then the causes."""
        shape = _shape_of(tuple(value)[: LIMITS.members])
        self._add_facts(value, shape)
        if shape.stacks:
            self._add_stack([value[key] for key in shape.stacks])
        message = self._add_message(value, shape)
        type_name = None
        if message is not None and shape.error is not None:
            type_name = self._add_type(value[shape.error])
        count_before = len(self.facts) + len(self.messages)

        for key, has_fields, is_no_text in shape.causes:
            cause = value[key]
            if cause is None or cause is message or cause is type_name:
                continue
            if is_no_text and message is not None and isinstance(cause, str):
                continue  # a description, such as the details of an error
            self.add(cause, depth - 1, is_by_field=has_fields)

        has_cause = len(self.facts) + len(self.messages) > count_before
        if is_by_field and message is None and not has_cause:
            self.add_fields(value)

    def _add_facts(self, value: dict[str, Any], shape: _Shape) -> None:
        """Add codes, types, the place in an input and the file, for example "E11000" and "in Checkout"."""
        for key in shape.facts:
            fact = _fact(value[key])
            if fact is not None:
                self.facts.append(fact)

        if shape.paths:
            places = (_place_in_input(value[key]) for key in shape.paths)
            self.facts += filter(None, places)

        if shape.file is not None and isinstance(value[shape.file], str):
            # the place of a PHP error, without the folder of the installation and the line
            self.facts.append(f"in {file_stem(value[shape.file])}")

    def _add_type(self, name: object) -> str | None:
        """Add the type of an error with a message next to it, as `{"error": "TypeError", …}`. Return it."""
        if not isinstance(name, str) or name in STATUS_PHRASES:
            return None
        if _TYPE_NAME.fullmatch(name) is None:
            return None

        self.facts.append(name)
        return name

    def _add_stack(self, stacks: list[Any]) -> None:
        """Add the facts of the first stack trace, which can be a list of lines."""
        stack = next(filter(None, stacks), None)
        if isinstance(stack, list):
            stack = "\n".join(map(str, stack))
        if not isinstance(stack, str):
            return

        if len(stack) > _LONGEST_STACK:
            self.facts += _facts_of_stack(stack, self._read)
        else:
            self.facts += _known_facts_of_stack(stack, self._read)

    def _add_message(self, value: dict[str, Any], shape: _Shape) -> object:
        """Add the message of an object, and return it. A validation can have a list of them."""
        if shape.title is not None and shape.detail is not None:
            title, detail = value[shape.title], value[shape.detail]
            if _are_problem_details(title, detail):
                self._add_text(title)
                self._add_text(detail)
                return detail

        for key in shape.messages:
            message = value[key]
            sentences = _sentences_of(message)
            if sentences:
                for sentence in sentences:
                    self._add_text(sentence)
                return message

        return None

    def add_fields(self, value: Any) -> None:
        """Add the names of refused fields and their errors, as in `{"email": ["Enter an address."]}`."""
        if not isinstance(value, dict):
            return

        for name in sorted(value)[: LIMITS.fields]:
            errors = _nonempty_strings(value[name])
            if errors and len(name) < LIMITS.fact:
                self.facts.append(name)
                for error in errors:
                    self._add_text(error)

    def _add_text(self, text: str) -> None:
        """Add a message, which can be a stack trace, markup or JSON again."""
        inspected = None
        if text.startswith("#<"):
            inspected = _INSPECTED.fullmatch(text)
        if inspected is not None:
            self.facts.append(inspected[1])
            text = inspected[2] or ""

        if _BEGINS_OTHER_FORM.match(text) is None and "\n" not in text:
            self.messages.append(shortened(text))
            return

        inner = self._read(text)
        self.facts += inner.facts
        self.messages += inner.messages


def _facts_of_stack(stack: str, read: Callable[[str], Document]) -> tuple[str, ...]:
    """Return the facts of a stack trace; none of another text."""
    trace = read(stack)
    if trace.kind != "trace":
        return ()
    return trace.facts


_LONGEST_STACK: Final = 2_000
"""Characters of a stack whose facts are remembered."""
_known_facts_of_stack: Final = lru_cache(maxsize=1 << 11)(_facts_of_stack)
"""Facts of stacks. The same stack often stands next to messages that differ."""


_BEGINS_OTHER_FORM: Final = re.compile(r"\s*[{\[<]", re.ASCII)
"""The start of JSON and markup."""


def _are_problem_details(title: object, detail: object) -> bool:
    """Return whether an object has problem details (RFC 9457).

    The title names the kind of error, and the detail describes this occurrence. A title that only repeats
    the status, such as "Bad Request", adds nothing.
    """
    if not isinstance(title, str) or not isinstance(detail, str):
        return False
    return title.strip() != "" and title not in STATUS_PHRASES


def _sentences_of(message: object) -> list[str]:
    """Return the first sentences of a message, which can be a string or a list of strings; else none."""
    if isinstance(message, str):
        if message.isspace() or not message:
            return []
        return [message]

    if isinstance(message, list) and all(isinstance(item, str) for item in message):
        return message[: LIMITS.items]

    return []


def _fact(value: object) -> str | None:
    """Return a code or type as a fact, or None if the value is neither."""
    if isinstance(value, int) and not isinstance(value, bool):
        return str(value)
    if not isinstance(value, str) or not 0 < len(value) < LIMITS.fact:
        return None
    if value.startswith("#<"):
        return None  # an exception with a message, which is read as a message
    if "://" in value:
        return _problem_type(value)

    return value


def _place_in_input(path: object) -> str | None:
    """Return the names of a path, for example "body.items.price"; None for other values.

    Numbers are left out: they are positions in a list.
    """
    if not isinstance(path, list):
        return None

    names = [name for name in path if isinstance(name, str)]
    if len(names) > LIMITS.fields:
        return None

    return ".".join(names)[: LIMITS.fact]


def _nonempty_strings(value: object) -> list[str]:
    """Return the first strings of a list that are not blank."""
    if not isinstance(value, list):
        return []

    return [
        item for item in value[: LIMITS.items] if isinstance(item, str) and item.strip()
    ]
