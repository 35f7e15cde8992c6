"""Canaries: secrets planted in every field that a service can send, in every spelling.

What is planted is made by construction: kinds of secrets by fields by spellings. A new kind is one entry of
`KINDS`, a new field one of `FIELDS`, a new spelling one of `SPELLINGS`; the tests then plant it and look for
it everywhere.
"""

from __future__ import annotations

import base64
import hashlib
import html
import json
import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from dataclasses import field as dataclass_field
from functools import cache, partial
from html.entities import codepoint2name
from typing import Any
from urllib.parse import quote

from toolkit.tables.schemas import FAILURE_COLUMNS
from toolkit.tables.schemas import Kind as Holds

QUEUE_TOKEN = "Zq7/canary+9XtR=4vLm~2kHw.8-Jd_3"
VECTOR_TOKEN = "vT5\"k'Rn<Yb>8&Gs\\Qe{1}Lx|6$Pz^0(Uc)"
SIGNING_KEY = "sig_Hd82mNcQ0fLz7Bw3Kt6Vx1Ry9Pj4Ga5S"

_ESCAPES: dict[str, Callable[[str], str]] = {
    "percent, upper case": lambda letter: f"%{ord(letter):02X}",
    "percent, lower case": lambda letter: f"%{ord(letter):02x}",
    "percent, twice": lambda letter: f"%25{ord(letter):02X}",
    "percent, three times": lambda letter: f"%2525{ord(letter):02x}",
    "percent with u": lambda letter: f"%u{ord(letter):04x}",
    "JSON, lower case": lambda letter: f"\\u{ord(letter):04x}",
    "JSON, upper case": lambda letter: f"\\u{ord(letter):04X}",
    "JSON within JSON": lambda letter: f"\\\\u{ord(letter):04x}",
    "JavaScript, braces": lambda letter: f"\\u{{{ord(letter):x}}}",
    "backslash x": lambda letter: f"\\x{ord(letter):02x}",
    "entity, decimal": lambda letter: f"&#{ord(letter)};",
    "entity, zeros": lambda letter: f"&#{ord(letter):07};",
    "entity, hexadecimal": lambda letter: f"&#x{ord(letter):x};",
    "entity, upper case": lambda letter: f"&#X{ord(letter):X};",
    "entity, twice": lambda letter: f"&amp;#x{ord(letter):x};",
    "JSON as percent": lambda letter: f"%5Cu{ord(letter):04x}",
    "percent as JSON": lambda letter: f"\\u0025{ord(letter):02x}",
    "percent as entity": lambda letter: f"&#37;{ord(letter):02X}",
    "entity as percent": lambda letter: f"%26%23{ord(letter)}%3B",
    "entity as JSON": lambda letter: f"\\u0026#{ord(letter)};",
}
_WHICH: dict[str, Callable[[int, str], bool]] = {
    "each": lambda _, __: True,
    "signs": lambda _, letter: not letter.isalnum(),
    "every other": lambda index, _: index % 2 == 0,
    "the last but one": lambda index, _: index == 2,
}


def _escaped(
    secret: str, *, escape: Callable[[str], str], which: Callable[[int, str], bool]
) -> str:
    # places are counted from the end, so that "the last but one" is one
    last = len(secret) - 1
    return "".join(
        escape(letter) if which(last - index, letter) else letter
        for index, letter in enumerate(secret)
    )


def _named(secret: str) -> str:
    names = {number: name for number, name in codepoint2name.items() if number < 127} | {
        ord("/"): "sol", ord("+"): "plus", ord("="): "equals", ord("_"): "lowbar", ord("."): "period",
    }  # fmt: skip
    return "".join(
        f"&{names[ord(letter)]};" if ord(letter) in names else letter
        for letter in secret
    )


def _base64(
    secret: str, *, before: str, after: str, urlsafe: bool, padded: bool
) -> str:
    encode = base64.urlsafe_b64encode if urlsafe else base64.b64encode
    text = encode(f"{before}{secret}{after}".encode()).decode()
    return text if padded else text.rstrip("=")


SPELLINGS: dict[str, Callable[[str], str]] = {
    "plain": str,
    "in upper case": str.upper,
    "in lower case": str.lower,
    "URL": partial(quote, safe=""),
    "URL, lower case": lambda secret: re.sub(
        "%..", lambda found: found[0].lower(), quote(secret, safe="")
    ),
    "slashes": lambda secret: secret.replace("/", "\\/"),
    "JSON string": lambda secret: json.dumps(secret)[1:-1],
    "JSON string twice": lambda secret: json.dumps(json.dumps(secret))[3:-3],
    "HTML": html.escape,
    "named entities": _named,
    "hexadecimal": lambda secret: secret.encode().hex(),
    "hexadecimal, upper case": lambda secret: secret.encode().hex().upper(),
    "a line of a header": lambda secret: f"authorization: Bearer {secret}",
    "basic authorization": lambda secret: (
        f"Basic {base64.b64encode(f'user:{secret}'.encode()).decode()}"
    ),
    "base64, slashes": lambda secret: (
        base64.b64encode(secret.encode()).decode().replace("/", "\\/")
    ),
    "base64, percent": lambda secret: quote(
        base64.b64encode(secret.encode()).decode(), safe=""
    ),
    "a query": lambda secret: (
        f"https://app.example/?x=1&token={quote(secret, safe='')}&y=2"
    ),
    "user info": lambda secret: f"https://user:{quote(secret, safe='')}@app.example/",
    **{
        f"{name}, {which}": partial(_escaped, escape=escape, which=chosen)
        for name, escape in _ESCAPES.items()
        for which, chosen in _WHICH.items()
    },
    **{
        f"base64 after {len(before)} of {len(after)}{', URL' * urlsafe}{', padded' * padded}": partial(
            _base64, before=before, after=after, urlsafe=urlsafe, padded=padded
        )
        for before in ("", "a", "ab", "abc")
        for after in ("", "z")
        for urlsafe in (False, True)
        for padded in (False, True)
    },
}
"""From the name of a spelling to what writes it."""

WIRES: dict[str, Callable[[Any], bytes]] = {
    "as it is": lambda value: json.dumps(value, ensure_ascii=False).encode(),
    "each character escaped": lambda value: _wire(
        value, lambda letter: f"\\u{ord(letter):04x}"
    ).encode(),
    "slashes escaped": lambda value: json.dumps(value).replace("/", "\\/").encode(),
}
"""How a row's JSON is written on the wire. All but the first are for plain secrets only."""


def _wire(value: Any, escape: Callable[[str], str]) -> str:
    """JSON whose texts and names are written with escapes."""
    match value:
        case str():
            return f'"{"".join(map(escape, value))}"'
        case dict():
            return (
                "{"
                + ",".join(
                    f"{_wire(k, escape)}:{_wire(v, escape)}" for k, v in value.items()
                )
                + "}"
            )
        case list():
            return "[" + ",".join(_wire(item, escape) for item in value) + "]"
    return json.dumps(value)


@dataclass(frozen=True)
class Field:
    """A field of a row.

    Attributes
    ----------
    put : callable
        The members of a row that hold a text.
    pages : str
        Rows of different sorts come on different pages, as one that is not as specified has its whole page
        read in another way; so has one whose id or name holds a token.
    """

    name: str
    put: Callable[[str], dict[str, Any]]
    pages: str = "as specified"


def _one(name: str, form: str = "{}", pages: str = "as specified") -> Field:
    return Field(
        f"{name} {form}".strip("{} "),
        lambda text: {name: form.replace("{}", text)},
        pages,
    )


def _b64(text: str, rest: bytes = b"") -> str:
    return base64.b64encode(text.encode() + rest).decode()


def _anywhere(known: Iterable[str]) -> Iterator[Field]:
    """Fields that any JSON object has."""
    for name in known:
        yield Field(
            f"{name}, a list",
            lambda text, name=name: {name: [text, {"k": text}]},
            "odd",
        )
        yield Field(
            f"{name}, an object",
            lambda text, name=name: {name: {"k": {f"n {text}": [text]}}},
            "odd",
        )
    yield Field("an unknown field", lambda text: {"somethingNew": f"new {text}"})
    yield Field(
        "an unknown field, nested",
        lambda text: {"somethingNew": {"a": [{"b": f"deep {text}"}]}},
    )
    yield Field("an unknown name", lambda text: {f"name {text}": 1}, "names")
    yield Field(
        "an unknown name, nested",
        lambda text: {"somethingNew": {f"name {text}": {f"{text}": 2}}},
    )


def _fields(*kinds: Holds) -> list[str]:
    return [
        field
        for _, kind, field in FAILURE_COLUMNS
        if kind in kinds and field is not None
    ]


_URLS, _BODIES, _HEADERS = (
    _fields(Holds.URL),
    _fields(Holds.BODY),
    _fields(Holds.HEADERS),
)
_ENCODED = _fields(Holds.BASE64)
_TEXT_FIELDS = (*_fields(Holds.TEXT), *_URLS)
FAILURE_FIELDS = (
    Field("dlqId", lambda text: {"dlqId": f"id {text}"}, "ids"),
    *(_one(name) for name in _TEXT_FIELDS),
    *(_one(name, pages="odd") for name in _fields(Holds.NUMBER, Holds.TIME)),
    *(_one(name, "https://app.example/{}/x") for name in _URLS),
    *(_one(name, "https://app.example/?a={}&b=1") for name in _URLS),
    *(_one(plain) for plain in _BODIES),
    *(
        Field(f"{p} as JSON", lambda text, p=p: {p: json.dumps({"error": text})})
        for p in _BODIES
    ),
    *(
        Field(f"{p}, JSON name", lambda text, p=p: {p: json.dumps({text: 1})})
        for p in _BODIES
    ),
    *(
        Field(f"{p} as HTML", lambda text, p=p: {p: f"<p a='{text}'>{text}</p>"})
        for p in _BODIES
    ),
    *(Field(f"{e} of text", lambda text, e=e: {e: _b64(text)}) for e in _ENCODED),
    *(
        Field(f"{e} of bytes", lambda text, e=e: {e: _b64(text, b"\xff\x00")})
        for e in _ENCODED
    ),
    *(_one(encoded, pages="odd") for encoded in _ENCODED),
    *(
        Field(f"{h} value", lambda text, h=h: {h: {"X-Some": ["a", f"b {text}"]}})
        for h in _HEADERS
    ),
    *(
        Field(f"{h} name", lambda text, h=h: {h: {f"X-{text}": ["a"]}}, "names")
        for h in _HEADERS
    ),
    *(
        Field(f"{h} secret", lambda text, h=h: {h: {"Authorization": [text]}})
        for h in _HEADERS
    ),
    *(
        Field(f"{h} text", lambda text, h=h: {h: {"X-Some": text}}, "odd")
        for h in _HEADERS
    ),
    Field("labels", lambda text: {"labels": ["a", f"l {text}"]}),
    *_anywhere(("workflowUrl", "responseStatus", "responseBody", "header", "labels")),
)
RUN_FIELDS = (
    Field("workflowRunId", lambda text: {"workflowRunId": f"run {text}"}),
    *(
        _one(name)
        for name in ("workflowUrl", "workflowState", "dlqId", "workflowRunCreatedAt")
    ),
    Field("labels", lambda text: {"labels": ["a", f"l {text}"]}),
    *_anywhere(("workflowState", "labels")),
)
EVENT_FIELDS = (
    *(
        _one(name)
        for name in (
            "messageId", "state", "url", "error", "workflowRunId", "method", "topicName", "endpointName",
            "queueName", "scheduleId", "flowControlKey", "callback", "callerIP", "label", "responseBody",
            "responseStatus", "nextDeliveryTime", "body",
        )
    ),
    _one("url", "https://app.example/?a={}&b=1"),
    Field("body of text", lambda text: {"body": _b64(text)}),
    Field("body of bytes", lambda text: {"body": _b64(text, b"\xff\x00")}),
    *(Field(f"{h} value", lambda t, h=h: {h: {"X-A": [f"b {t}"]}}) for h in ("header", "responseHeaders")),
    *(Field(f"{h} name", lambda t, h=h: {h: {f"X-{t}": ["a"]}}) for h in ("header", "responseHeaders")),
    Field("labels", lambda text: {"labels": ["a", f"l {text}"]}),
    *_anywhere(("state", "labels", "header")),
)  # fmt: skip


def _payload(*items: dict[str, Any]) -> dict[str, Any]:
    """The body of a failed run with these items of its payload."""
    return {"body": json.dumps(items)}


def _in_step(name: str, form: str = "{}") -> Field:
    """A field of a step, whose JSON is base64 in the payload."""

    def put(text: str) -> dict[str, Any]:
        step = {
            "stepId": 1,
            "stepName": "a",
            "stepType": "Run",
            name: form.replace("{}", text),
        }
        return _payload(
            {"messageId": "m0", "body": "e30="}, {"body": _b64(json.dumps(step))}
        )

    return Field(f"step, {name} {form}".strip("{} "), put)


STEP_FIELDS = (
    *(
        _in_step(name)
        for name in (
            "stepName",
            "stepType",
            "out",
            "callUrl",
            "callMethod",
            "stepId",
            "other",
        )
    ),
    _in_step("out", '{"a": "{}"}'),
    _in_step("callUrl", "https://app.example/?a={}&b=1"),
    Field("payload", lambda text: _payload({"messageId": "m0", "body": _b64(text)})),
    Field(
        "payload of bytes",
        lambda text: _payload({"messageId": "m0", "body": _b64(text, b"\xff")}),
    ),
    Field(
        "messageId", lambda text: _payload({"messageId": f"m {text}", "body": "e30="})
    ),
    Field(
        "item",
        lambda text: _payload(
            {"messageId": "m0", "body": "e30=", "x": [text, {text: 1}]}
        ),
    ),
)
CALLBACK_FIELDS = (
    *(
        _one(name)
        for name in (
            "sourceMessageId", "dlqId", "topicName", "endpointName", "url", "method", "scheduleId",
            "callerIP", "status", "createdAt", "body",
        )
    ),
    *(Field(f"{name} of text", lambda text, n=name: {n: _b64(text)}) for name in ("body", "sourceBody")),
    *(Field(f"{h} value", lambda text, h=h: {h: {"X-A": [f"b {text}"]}}) for h in ("header", "sourceHeader")),
    *(Field(f"{h} name", lambda text, h=h: {h: {f"X-{text}": ["a"]}}) for h in ("header", "sourceHeader")),
    *_anywhere(("url", "status")),
)  # fmt: skip
VECTOR_FIELDS = (
    Field("id", lambda text: {"id": f"id {text}"}),
    Field("data", lambda text: {"data": f"data {text}"}),
    Field("metadata value", lambda text: {"metadata": {"a": f"m {text}"}}),
    Field("metadata name", lambda text: {"metadata": {f"m {text}": 1}}),
    Field("metadata, nested", lambda text: {"metadata": {"a": [{"b": {text: text}}]}}),
    Field("metadata, text", lambda text: {"metadata": text}),
    Field("vector", lambda text: {"vector": [text]}),
    Field(
        "sparse vector",
        lambda text: {"sparseVector": {"indices": [text], "values": [text]}},
    ),
    Field("an unknown name", lambda text: {f"name {text}": text}),
)
FIELDS = {
    "failures": FAILURE_FIELDS,
    "runs": RUN_FIELDS,
    "events": EVENT_FIELDS,
    "steps": STEP_FIELDS,
    "callbacks": CALLBACK_FIELDS,
    "vectors": VECTOR_FIELDS,
    "namespaces": (Field("namespace", lambda text: {"namespace": f"n {text}"}),),
}
"""From what is loaded to the places in its rows."""


@dataclass(frozen=True)
class Kind:
    """A kind of secret.

    Attributes
    ----------
    secret : callable
        The secret of the so-manieth canary of its kind; our own tokens are one.
    form : str
        The text of a field, with what identifies a secret; ``{}`` is replaced by the secret.
    spellings : tuple of str
        Names of `SPELLINGS` in which the promise holds.
    kept : callable
        Given what is loaded, the field and the sink: whether it stays readable there, by promise.
    """

    name: str
    secret: Callable[[int], str]
    form: str = "{}"
    spellings: tuple[str, ...] = tuple(SPELLINGS)
    kept: Callable[[str, str, str], bool] = lambda *_: False


_FILES = (
    "cells",
    "as csv",
    "as json",
    "pickle",
    "workbook",
    "as parquet",
    "snapshot",
    "taken apart",
    "metadata taken apart",
)
_EXACT = {
    "failures": ("body", "responseBody"),
    "events": ("body", "responseBody"),
    "steps": ("payload", "step, out"),
    "callbacks": ("body", "sourceBody"),
    "vectors": ("data", "metadata"),
    "hits": ("data", "metadata"),
}


def _drawn(kind: str, number: int) -> str:
    """A secret that no two canaries share twelve characters of."""
    return hashlib.sha256(f"{kind} {number}".encode()).hexdigest()[:24]


def _exact(what: str, field: str, sink: str) -> bool:
    """Ids and names are distinguished by what they are; what applications sent is exact where it is data.

    A row selected from a frame, and what pandas makes of values (``describe``), is data, too.
    """
    ids = {"dlqId", "workflowRunId", "sourceMessageId", "id", "namespace"}
    if field in ids or (field.endswith(" name") and "header" in field.lower()):
        return True
    return field.startswith(_EXACT.get(what, ())) and sink in (*_FILES, "repr")


_OPEN = 400  # rows that may get another canary
_FEWER = tuple(
    name
    for name in SPELLINGS
    if not name.endswith(("every other", "last but one", "URL, padded"))
)
KINDS = (
    Kind("the queue's token", lambda _: QUEUE_TOKEN),
    Kind("the index's token", lambda _: VECTOR_TOKEN, spellings=_FEWER),
    Kind("a signing key", lambda _: SIGNING_KEY, spellings=_FEWER),
)
LOOKS = tuple(
    Kind(name, partial(_drawn, name), form, ("plain", "JSON string"), _exact)
    for name, form in {
        "a scheme": "Bearer {}",
        "a scheme as JSON": "\\u0042earer {}",
        "a scheme as HTML": "Bearer&#32;{}",
        "a line of a scheme": 'Authorization: Digest username="ann", response="{}"',
        "a cookie": "Cookie: sid={}",
        "a setting": "password={}",
        "a sentence": "the api key: {} was refused",
        "an option": "login --password {} --verbose",
        "a member": '{"n": 1, "client_secret": "{}"}',
        "an object under a name": '{"credentials": {"user": "ann", "value": "{}"}}',
        "a header in a list": '[{"name": "X-Api-Key", "value": "{}"}]',
        "a field of a form": "user=ann&password={}&x=1",
        "a part of a form": '--x\r\nContent-Disposition: form-data; name="password"\r\n\r\n{}\r\n--x--',
        "an element": "<a><password>{}</password></a>",
        "an input": '<input name="csrf_token" value="{}">',
        "a connection string": "Server=db;Password={};Database=x",
        "a connection of libpq": "host=db user=ann password={} dbname=x",
        "a key of storage": "AccountName=a;AccountKey={}==;EndpointSuffix=x",
        "a query value": "https://app.example/?token={}",
        "a query alone": "?code={}",
        "a refresh": "0; url=https://app.example/?code={}",
        "a fragment": "https://app.example/#access_token={}",
        "a matrix parameter": "https://app.example/a;token={}/b",
        "a part of a path": "https://app.example/reset/{}/b",
        "a webhook": "https://hooks.slack.com/services/T0/B0/{}",
        "a user of an address": "amqps://ann:{}@app.example/x",
        "a user, slashes escaped": r"postgres:\/\/ann:{}@app.example/x",
        "a user, colon escaped": "redis&#58;//:{}@app.example/x",
        "a user, backslashes": r"https:\\ann:{}@app.example\x",
        "a JWT": "eyJhbGciOiJIUzI1NiJ9.{}.c2lnbmF0dXJl",
        "a PEM block": "-----BEGIN PRIVATE KEY-----\n{}\n-----END PRIVATE KEY-----",
        "an AWS key": "AKIAIOSFODNN7EXAMPLE 'wJalrXUtnFEMI/KZ{}'",
        **{
            f"a well-known token, {start}": f"{start}{{}}"
            for start in (
                "ghp_",
                "github_pat_",
                "glpat-",
                "xoxb-1-",
                "sk_live_",
                "whsec_",
                "hf_",
                "ya29.",
            )
        },
    }.items()
)
"""Kinds that are known by their looks and by the names beside them."""


@dataclass(frozen=True)
class Canary:
    """One secret, in one field, in one spelling."""

    kind: Kind
    field: Field
    spelling: str
    wire: str
    number: int

    @property
    def secret(self) -> str:
        """What must not show."""
        return self.kind.secret(self.number)

    @property
    def members(self) -> dict[str, Any]:
        """What it puts into a row."""
        return self.field.put(
            self.kind.form.replace("{}", SPELLINGS[self.spelling](self.secret))
        )

    def __str__(self) -> str:
        return f"{self.number}: {self.kind.name} in {self.field.name}, {self.spelling}, {self.wire}"


@cache
def planted(what: str, kinds: tuple[Kind, ...] = KINDS) -> tuple[Canary, ...]:
    """Every canary that the rows of something loaded hold."""
    found: list[Canary] = []
    for kind in kinds:
        for field in FIELDS[what]:
            for spelling in kind.spellings:
                for wire in WIRES if spelling == "plain" else ("as it is",):
                    found.append(Canary(kind, field, spelling, wire, len(found)))
    return tuple(found)


@dataclass
class _Rows:
    """Rows of one sort of page and one wire, each with the names that its canaries have taken."""

    members: list[dict[str, Any]] = dataclass_field(default_factory=list)
    taken: list[set[str]] = dataclass_field(default_factory=list)
    first_free: dict[frozenset[str], int] = dataclass_field(default_factory=dict)
    """From names to the first row that may have none of them: rows before it stay taken."""

    def add(self, members: dict[str, Any]) -> None:
        """Add members to the first of the open rows that has none of their names, or to a new row."""
        # a row has a body as text or as base64
        names = frozenset(name.removesuffix("Base64") for name in members)
        place = max(self.first_free.get(names, 0), len(self.members) - _OPEN)
        while place < len(self.members) and not self.taken[place].isdisjoint(names):
            place += 1
        self.first_free[names] = place
        if place == len(self.members):
            self.members.append({})
            self.taken.append(set())
        self.members[place].update(members)
        self.taken[place].update(names)


def rows(canaries: Iterable[Canary], identity: str) -> dict[str, list[bytes]]:
    """Rows on the wire, by the sort of page they come on: in each the canaries that have other members."""
    waiting: dict[tuple[str, str], _Rows] = {}
    for canary in canaries:
        waiting.setdefault((canary.field.pages, canary.wire), _Rows()).add(
            canary.members
        )
    found: dict[str, list[bytes]] = {}
    number = 0
    for (pages, wire), several in waiting.items():
        for row in several.members:
            number += 1
            # two spellings may come to the same text
            row[identity] = f"{row.get(identity, 'row')} {number}"
            found.setdefault(pages, []).append(WIRES[wire](row))
    return found


_ANY_ESCAPE = re.compile(
    r"&(?:#[xX][0-9a-fA-F]{1,8}|#[0-9]{1,8}|[a-zA-Z]{2,8});?|%u00[0-9a-fA-F]{2}|%[0-9a-fA-F]{2}"
    # each alternative begins with a character: re then looks for these characters first
    r"|\\\\*u00[0-9a-fA-F]{2}|\\\\*u\{[0-9a-fA-F]{1,4}\}|\\\\*x[0-9a-fA-F]{2}|\\\\*[\"'/\\]"
)
_WINDOW = 12  # characters of a secret that are too much of it


def readings(text: str) -> Iterator[str]:
    """The text as it is, and as it reads when its escapes are read, once and again."""
    yield text
    for _ in range(8):
        read = _ANY_ESCAPE.sub(lambda found: _read(found[0]), text)
        if read == text:
            return
        yield read
        text = read


@cache
def _read(escape: str) -> str:
    if escape[0] == "&":
        return html.unescape(escape)
    digits = re.search(r"(?:%u00|%|u00|u\{|x)([0-9a-fA-F]+)\}?\Z", escape)
    return chr(int(digits[1], 16)) if digits else escape[-1]


_SIGNS_OF_RUNS = frozenset(
    b"abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_+/-"
)
_SPACES_BETWEEN_RUNS = bytes(
    byte if byte in _SIGNS_OF_RUNS else 32 for byte in range(256)
)
"""For `bytes.translate`: the signs of base64 and hexadecimal digits stay, all others become spaces."""


def _encoded_runs(text: str) -> set[str]:
    """Return the runs of letters and signs that may be base64 or hexadecimal."""
    # This takes less than half of the time of `re.findall`, and outputs have many megabytes.
    words = set(
        text.encode("utf-8", "surrogatepass").translate(_SPACES_BETWEEN_RUNS).split()
    )
    return {word.decode("ascii") for word in words if len(word) >= 16}


def _decoded(runs: Iterable[str]) -> Iterator[str]:
    """Yield the text that runs stand for as base64 or as hexadecimal digits, from each possible start."""
    for run in runs:
        plain = run.replace("-", "+").replace("_", "/")
        for start in range(4):
            part = plain[start : start + (len(plain) - start) // 4 * 4]
            yield base64.b64decode(part).decode("latin-1")
    for digits in re.findall(r"[0-9a-fA-F]{24,}", "\n".join(runs)):
        for start in range(2):
            part = digits[start : start + (len(digits) - start) // 2 * 2]
            yield bytes.fromhex(part).decode("latin-1")


def shown(text: str, secrets: Iterable[str]) -> dict[str, str]:
    """The secrets that a text shows, whatever it writes them like, each with what stands around it."""
    wanted = {secret: _windows(secret) for secret in dict.fromkeys(secrets)}
    found: dict[str, str] = {}
    decoded_runs: set[str] = set()
    for reading in readings(text):
        # most runs have no escapes, and are the same in each reading
        new_runs = _encoded_runs(reading) - decoded_runs
        decoded_runs |= new_runs
        for part in (reading, "\n".join(_decoded(new_runs))):
            lower = part.lower()
            for secret, windows in wanted.items():
                for window in windows:
                    if secret not in found and (index := lower.find(window)) >= 0:
                        found[secret] = part[max(0, index - 100) : index + 100]
    return found


def _windows(secret: str) -> list[str]:
    lower = secret.lower()
    return [
        lower[index : index + _WINDOW]
        for index in range(0, len(lower) - _WINDOW + 1, 4)
    ] + [lower[-_WINDOW:]]
