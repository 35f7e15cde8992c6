"""Classify failures by their responses: throttled, a bug, a dependency that is down, and so on.

Each piece of evidence (a status, an error code, an exception type, words of the message) supports one class
with a weight. The score of a class is the weight of the best evidence plus a little for each further piece:

1. Collect the evidence from the status and the message. If it is weak, also search the first lines of the
   body.
2. Rank the classes by score. If the best score is too low, the class is unknown. If the second score is close
   to the best, the evidence is contradictory and the class is unknown as well.

For example, status 500 is no evidence, but "TypeError" in the body is evidence of a bug.
"""

from __future__ import annotations

import math
import re
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Final, NamedTuple

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc

from toolkit.drawing.result_tables import Plotted, frame_table
from toolkit.drawing.wording import counted, percent, shorten
from toolkit.failures.class_rules import NAMES, STATUSES, WORDS
from toolkit.failures.refusals import refusal_in_body, refused_by_headers
from toolkit.failures.selection import opened, select, tallied
from toolkit.failures.sources import AnyFrame
from toolkit.secrets.redaction import Redactor, visible
from toolkit.signatures.details import Details, read_details
from toolkit.signatures.document import Document, ends_of
from toolkit.signatures.readable_bodies import readable_body
from toolkit.tables.frames import plain_frame

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from toolkit.drawing.style import Theme

UNKNOWN: Final = "unknown"
REFUSED: Final = "refused"
_PASSING: Final = "transient"
_DOWN: Final = "dependency down"
CLASSES: Final = (
    REFUSED,
    "transient", "throttled", "poison input", "contract drift", "authentication", "configuration",
    "resource exhaustion", "dependency down", "bug", UNKNOWN,
)  # fmt: skip
"""Every class that a failure can have."""


@dataclass(frozen=True)
class ClassTuning:
    """Constants of the decision between classes, with their reasons."""

    enough: float = 0.5
    """Evidence weaker than this names no class."""
    clear: float = 0.1
    """The best class must be this much ahead of the second."""
    further: float = 0.04
    """Added for each further piece of evidence, at most twice."""
    wrapped: float = 0.8
    """Weight of an exception that only wraps another one."""
    doubt: float = 0.3
    """Share of the second score that is subtracted from the confidence."""
    stated: float = 0.99
    """Confidence of a marker, which is a statement rather than evidence."""
    most_read: int = 4_000
    """Searched characters of a message."""
    most_tokens: int = 120
    """Names per message that are looked up."""
    batch: int = 20_000
    """Bodies per batch, so that the memory does not depend on the frame."""
    longest_negation: int = 25
    """Characters before a word that are searched for a negation."""


_TUNING: Final = ClassTuning()
_SHOWN: Final = 80  # characters of one piece of evidence
_TYPES: Final = {
    "class": pa.string(),
    "evidence": pa.string(),
    "confidence": pa.float64(),
}


def _either(lines: str, around: str = "") -> str:
    """Return one regular expression for alternatives on several lines."""
    return f"{around}(?:{'|'.join(line.strip() for line in lines.splitlines() if line.strip())}){around}"


def _name_pattern(names: str, parts: str) -> re.Pattern[str]:
    """Compile whole names and parts of names into one pattern."""
    pattern = _either(names)
    if parts:
        pattern = f"{pattern}|{_either(parts, '.*')}"
    return re.compile(pattern)


_NAME_RULES: Final = tuple(
    (found, weight, _name_pattern(names, parts))
    for found, weight, names, parts in NAMES
)
_WORD_RULES: Final = tuple(
    (found, weight, re.compile(_either(lines), re.IGNORECASE))
    for found, weight, lines in WORDS
)
_INNER_STATUS: Final = re.compile(
    r"(?i:\bHTTP(?:/\d(?:\.\d)?)?|\bstatus(?:[ _]?code)?|\berror code|\bresponded with|\breturned(?: an?)?)"
    r"\W{1,3}([45]\d\d)\b|^([45]\d\d) [A-Z]|\b([45]\d\d) (?:Client|Server) Error"
)
_TOKEN: Final = re.compile(r"[A-Za-z0-9_][\w.:\\#$/\-]*")
_IDENTIFIER: Final = re.compile(
    r"[a-z][A-Z]|_|^[A-Z][A-Z0-9]{2,}$|^(?=.*\d)(?=.*[A-Za-z])"
)
_ELEMENT: Final = re.compile(
    r"</?[A-Za-z][\w:.\-]{0,60}(?:\s[^<>=]{0,60}=[^<>]{0,300})?\s?/?>"
)
"""Markup within a message. `<class 'decimal.ConversionSyntax'>` has no attribute, and is a name of Python."""
_ADDRESS: Final = re.compile(r"(?<=://)\S+|\bxmlns(?::\w+)?=\S+")
"""Addresses of the web and of namespaces, whose words name places, for example "http://schemas.example.com"."""
_OF_EVERY_PAGE: Final = re.compile(
    r"We can't connect to the server for this app or website at this time\."
    r"(?:\s+There might be too much traffic or a\s+configuration error\.)?"
    r"(?:\s+Try again later, or contact the app or website owner\.)?"
)
"""Sentences that CloudFront adds to the page of every error, also of a request that it has blocked."""
_NEGATED: Final = re.compile(
    r"\b(?:not|never|without|(?:is|was|are|were|did|does|has)n['\u2019]t)\s+"
    r"(?:(?:a|an|any|been|caused by|due to) )?$",
    re.IGNORECASE,
)
"""A negation right before a word: "this is not a timeout"."""
_ANSWER: Final = re.compile(r"(?i:(?:HTTP )?(?:response|reply|answer)) (?:was |is )?$")
"""The answer of another program is malformed, not the input: "the HTTP response was malformed"."""
_FRAME: Final = re.compile(
    r"\s+(?:at |from |File |\.\.\. |\d+: )|#\d|goroutine |\w+\.\w+\("
)
_CONTROL: Final = re.compile(r"[\x00-\x08\x0b\x0e-\x1f]")
_SEPARATORS: Final = re.compile(r"[.:\\#$/]")


_Pair = tuple[float | None, str | None]  # a status and a body
_Verdict = tuple[str, str, float]  # a class, the evidence, and the confidence (0 to 1)


_BY_HEADER: Final[_Verdict] = (
    REFUSED,
    "response header NonRetryable-Error",
    _TUNING.stated,
)


class _Hit(NamedTuple):
    found: str
    weight: float
    evidence: str


@dataclass(frozen=True, eq=False, repr=False)
class FailureClasses(Plotted):
    """The class of each failure; made by `classify_failures`. `plot` draws one bar per class.

    Attributes
    ----------
    frame : pandas.DataFrame
        One row per failure, with the index of the failures: `class` (str), `evidence` (str: the deciding
        status, codes, exception types and words, masked), `confidence` (float64, 0 to 1; 0 if unknown).
    counts : pandas.DataFrame
        `class` (str), `count` (Int64), `share` (float64), the largest count first and equal ones by class.

    Examples
    --------
    >>> frame = pd.DataFrame({"response_status": [429, 500], "response_body": ["", "connection refused"],
    ...     "response_body_base64": None})
    >>> classify_failures(frame)
    2 failures: 1 dependency down (50 %), 1 throttled (50 %)
    """

    frame: pd.DataFrame
    counts: pd.DataFrame

    @property
    def verdict(self) -> str:
        """Return one sentence with the number of failures per class."""
        rows = self.counts.itertuples(index=False)
        parts = [f"{count:,} {name} ({percent(share)})" for name, count, share in rows]
        if not parts:
            return "0 failures"

        return f"{counted(len(self.frame), 'failure')}: {', '.join(parts)}"

    def __repr__(self) -> str:
        return self.verdict

    def _repr_html_(self) -> str:
        counts = self.counts.assign(share=self.counts["share"].map(percent))
        return frame_table(f"Classes of {counted(len(self.frame), 'failure')}", counts)

    def _draw(self, ax: Axes, theme: Theme) -> Axes:
        from toolkit.drawing.result_bars import draw_classes  # noqa: PLC0415 - matplotlib is slow to import

        return draw_classes(self.counts, ax, theme, unknown=UNKNOWN)


def classify_failures(failures: AnyFrame) -> FailureClasses:
    """Classify failures by status, error codes, exception types and words of the response.

    The classes are refused (the application asked not to retry), transient, throttled, poison input, contract
    drift, authentication, configuration, resource exhaustion, dependency down, bug, and unknown if the
    response contains too little evidence or contradicts itself. A class is no proof of a cause: only the
    response is read, so a misleading message leads to a wrong class.

    Parameters
    ----------
    failures : frame
        With the columns `response_status`, `response_body`, `response_body_base64`, and `response_headers` if
        there are headers. The first and last 50,000 characters of a body are read.

    Returns
    -------
    FailureClasses
        `frame` has one row per failure, `counts` one row per class.

    Raises
    ------
    InputError
        If `failures` is no frame, or a column is missing.

    Examples
    --------
    >>> bodies = ["TypeError: total is not a function", '{"error": "Something went wrong"}']
    >>> frame = pd.DataFrame({"response_status": [500, 500], "response_body": bodies,
    ...     "response_body_base64": [None, None]})
    >>> classify_failures(frame).frame[["class", "confidence"]]
         class  confidence
    0      bug        0.89
    1  unknown        0.00
    """
    doing = "classifying failures"
    columns = ["response_status", "response_body", "response_body_base64"]
    if "response_headers" in opened(failures, doing=doing).names:
        columns.append("response_headers")
    frame = plain_frame(
        select(failures, columns, doing=doing).then(_classified).table()
    )
    counts = tallied(frame["class"])
    if isinstance(failures, pd.DataFrame):
        frame.index = failures.index
    return FailureClasses(frame, counts)


def _classified(table: pa.Table) -> pa.Table:
    """Return the class, the evidence and the confidence of each failure of a batch."""
    bodies = map(
        readable_body,
        table["response_body"].to_pylist(),
        table["response_body_base64"].to_pylist(),
    )
    pairs = list(zip(table["response_status"].to_pylist(), bodies, strict=True))
    verdicts = _verdicts(pairs, Redactor().text)
    rows = [verdicts[pair] for pair in pairs]

    if "response_headers" in table.column_names:
        for row, is_refused in enumerate(refused_by_headers(table["response_headers"])):
            if is_refused:
                rows[row] = _BY_HEADER

    columns = {
        name: pa.array([row[position] for row in rows], kind)
        for position, (name, kind) in enumerate(_TYPES.items())
    }
    return pa.table(columns)


def _verdicts(pairs: list[_Pair], clean: Callable[[str], str]) -> dict[_Pair, _Verdict]:
    """Return the verdict of each pair of a status and a body. Each body is searched only once."""
    # most bodies repeat, so they are searched once; dicts instead of sets keep the order
    statuses: dict[str | None, dict[float | None, None]] = defaultdict(dict)
    for status, body in pairs:
        statuses[body][status] = None

    verdicts = {}
    listed = list(statuses)
    for start in range(0, len(listed), _TUNING.batch):
        bodies = listed[start : start + _TUNING.batch]
        parts = [_read(body, clean) for body in bodies]
        documents = [
            document for details, head in parts for document in (details.document, head)
        ]

        read = list(zip(documents, _words(documents), strict=True))
        for body, (details, _), whole, head in zip(
            bodies, parts, read[::2], read[1::2], strict=True
        ):
            # an application that asks not to retry decides, whatever the other evidence is
            marker = refusal_in_body(details)
            for status in statuses[body]:
                if marker is None:
                    verdicts[status, body] = _verdict(status, whole, head, clean)
                else:
                    verdicts[status, body] = (
                        REFUSED,
                        visible(clean(marker)),
                        _TUNING.stated,
                    )

    return verdicts


def _read(body: str | None, clean: Callable[[str], str]) -> tuple[Details, Document]:
    """Return the details of a masked body, and the first lines in case the body has no message."""
    details = read_details(clean(ends_of(body)) if body else "")
    lines = [line for line in details.prose.splitlines() if not _FRAME.match(line)]
    return details, Document("message", (), ("\n".join(lines),))


def _words(documents: list[Document]) -> list[list[_Hit]]:
    """Return the evidence in the words of each document.

    Arrow searches all documents a hundred times faster than Python. Python then searches only documents with
    a match, and documents that the two libraries may read differently (not ASCII).
    """
    texts = [_text(document) for document in documents]
    plain = np.array(
        [text.isascii() and not _CONTROL.search(text) for text in texts], dtype=bool
    )
    # an empty string stands for a document that Arrow may read differently; Python searches it anyway
    column = pa.array(
        [text if known else "" for text, known in zip(texts, plain, strict=True)],
        pa.string(),
    )
    hits: list[list[_Hit]] = [[] for _ in texts]

    for found, weight, pattern in _WORD_RULES:
        likely = pc.match_substring_regex(column, pattern.pattern, ignore_case=True)
        for number in np.flatnonzero(likely.to_numpy(zero_copy_only=False) | ~plain):
            if match := _affirmed(pattern, texts[number]):
                hits[number].append(_Hit(found, weight, f'"{match[0]}"'))

    return hits


def _affirmed(pattern: re.Pattern[str], text: str) -> re.Match[str] | None:
    """Return the first match of words that are not negated and that are about this failure."""
    for match in pattern.finditer(text):
        before = text[max(0, match.start() - _TUNING.longest_negation) : match.start()]
        is_about_answer = match[0].lower() == "malformed" and _ANSWER.search(before)
        if not is_about_answer and not _NEGATED.search(before):
            return match

    return None


def _text(document: Document) -> str:
    """Return the messages of a document without markup, addresses and sentences that say nothing."""
    text = "\n".join(document.messages)
    if "<" in text:
        text = _ELEMENT.sub(" ", text)
    if "://" in text or "xmlns" in text:
        text = _ADDRESS.sub("", text)
    if "this app or website" in text:
        text = _OF_EVERY_PAGE.sub(" ", text)
    return text[: _TUNING.most_read]


def _verdict(
    status: float | None,
    whole: tuple[Document, list[_Hit]],
    head: tuple[Document, list[_Hit]],
    clean: Callable[[str], str],
) -> _Verdict:
    """Return the best class, or unknown if the evidence is weak or another class has as much."""
    hits = [*_hits(status, whole[0]), *whole[1]]
    by_class, best, score, second = _weighed(hits)
    if score < _TUNING.enough:
        # the first lines of a body are less reliable than a message, so their evidence counts less
        weaker = (
            hit._replace(weight=hit.weight * _TUNING.wrapped)
            for hit in [*_hits(None, head[0]), *head[1]]
        )
        by_class, best, score, second = _weighed([*hits, *weaker])

    if score < _TUNING.enough:
        return UNKNOWN, "", 0.0

    shown = {
        name: "; ".join(
            visible(clean(shorten(hit.evidence, _SHOWN))) for hit in hits[:3]
        )
        for name, hits in by_class.items()
    }
    # two classes with about the same evidence contradict each other, for example "timeout" and "TypeError"
    if score - second < _TUNING.clear:
        both = " or ".join(f"{name} ({text})" for name, text in list(shown.items())[:2])
        return UNKNOWN, f"contradictory: {both}", 0.0

    return best, shown[best], round(score - _TUNING.doubt * second, 2)


def _weighed(hits: Iterable[_Hit]) -> tuple[dict[str, list[_Hit]], str, float, float]:
    """Return the evidence by class (the best first), the best class, and the two best scores."""
    by_class: dict[str, list[_Hit]] = defaultdict(list)
    for hit in sorted({*hits}, key=lambda hit: (-hit.weight, hit.evidence)):
        by_class[hit.found].append(hit)
    scores = {
        name: min(listed[0].weight + _TUNING.further * min(len(listed) - 1, 2), 0.99)
        for name, listed in by_class.items()
    }
    # a dependency that is down also causes timeouts, which are no contradiction of it: status 503 with
    # "connect ETIMEDOUT" is one cause
    both = scores.get(_DOWN, 0.0), scores.get(_PASSING, 0.0)
    if min(both) and abs(both[0] - both[1]) < _TUNING.clear:
        by_class[_DOWN] += by_class.pop(_PASSING)
        scores[_DOWN] = max(scores[_DOWN], scores.pop(_PASSING))
    ranked = sorted(scores, key=lambda name: (-scores[name], name))
    best, second = [*(scores[name] for name in ranked[:2]), 0.0, 0.0][:2]

    return (
        {name: by_class[name] for name in ranked},
        (ranked or [UNKNOWN])[0],
        best,
        second,
    )


def _hits(status: float | None, document: Document) -> Iterator[_Hit]:
    """Yield all evidence in a response except the words."""
    text = _text(document)
    facts = _named_facts(document)
    yield from _status_hits(status, text, facts)
    yield from _fact_hits(document, facts)
    # in prose, only tokens that look like identifiers are names, for example "RateLimitError" or "ECONNRESET"
    for token in _TOKEN.findall(text)[: _TUNING.most_tokens]:
        if _IDENTIFIER.search(_last_part(token)):
            yield from _named(token)


def _named_facts(document: Document) -> list[str]:
    """Return the facts that name a failure. Keys of an object and frames of a trace name the program."""
    if document.facts[:1] == ("keys",):
        return []
    return [fact for fact in document.facts if not fact.startswith("at ")]


def _status_hits(status: float | None, text: str, facts: list[str]) -> Iterator[_Hit]:
    """Yield the evidence of the status of a response, and of statuses in the message."""
    # a status in the message, for example "upstream responded with 503", is closer to the cause
    mentioned = [next(filter(None, groups)) for groups in _INNER_STATUS.findall(text)]
    inner = {int(word) for word in [*mentioned, *facts] if _STATUS.fullmatch(word)}
    outer = set()
    if status is not None and math.isfinite(status):
        outer.add(int(status))
    for number in inner | outer:
        name, weight = STATUSES.get(number, (UNKNOWN, 0.0))
        # a status that the body contradicts counts half
        if inner and number not in inner:
            weight /= 2
        if weight:
            yield _Hit(name, weight, f"status {number}")


def _fact_hits(document: Document, facts: list[str]) -> Iterator[_Hit]:
    """Yield the evidence of the names of exceptions and codes."""
    for position, fact in enumerate(facts):
        # the last exception of a chain is the cause; the others only wrap it
        factor = 1.0
        if document.kind == "trace" and position < len(facts) - 1:
            factor = _TUNING.wrapped
        for token in _TOKEN.findall(fact)[: _TUNING.most_tokens]:
            for hit in _named(token):
                yield hit._replace(weight=hit.weight * factor)


def _last_part(token: str) -> str:
    """Return the name at the end of a token, for example "KeyError" of "builtins.KeyError:"."""
    return _SEPARATORS.split(token.rstrip(".:"))[-1]


_STATUS: Final = re.compile("[45][0-9][0-9]")
_NOT_RETRYABLE: Final = re.compile("(?:non|not|un)retr(?:y|i)able")


@lru_cache(maxsize=1 << 14)
def _named(token: str) -> tuple[_Hit, ...]:
    """Return the evidence in the name of an exception or an error code."""
    plain = re.sub(r"[^a-z0-9]", "", _last_part(token).lower())[:_SHOWN]
    if _NOT_RETRYABLE.search(plain):
        # "NonRetryableError" asks not to retry, although the word looks like evidence of a transient error
        return ()

    return tuple(
        _Hit(name, weight, token.rstrip(".:"))
        for name, weight, rule in _NAME_RULES
        if rule.fullmatch(plain)
    )
