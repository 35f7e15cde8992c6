"""Measure how plain the English of docstrings, comments, messages and docs is.

Run `python -m tests.plain.english [-v] [PATHS]` from the project's root. `-v` lists the places.

A phrase of `DIALECT` may occur at most so often per 10,000 words, a word of `MISSED` has to occur at least so
often. The limits are about four times the rates of ten well-known projects of the field, and half of them for
words that plain prose needs. For example, "if" occurs 106 times per 10,000 words in these projects.
"""

from __future__ import annotations

import ast
import io
import re
import sys
import tokenize
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

PER = 10_000
"""Rates are per so many words."""

UNITS = (
    "row|page|line|bar|column|point|request|item|file|call|query|list|dict|number"
    "|id|key|batch|byte|record"
)

AFTER_BARE_WHAT = "is|was|were|are|it|they|a|an|the|does|has|came|comes|stands|to|became|each|of|every|one"

DIALECT: dict[str, tuple[str, float]] = {
    "a, for per": (rf"\b(?:one|a) (?:{UNITS}) (?:a|an) \w+", 0.3),
    "says": (r"\b(?:says?|said|saying)\b", 2),
    "holds": (r"\b(?:holds?|held)\b", 4),
    "those that": (r"\bthose (?:that|of|with|in|who|which|without)\b", 2),
    "preposition + which": (
        r"\b(?:of|by|in|from|to|with|on|for|at|than|beyond) which\b",
        8,
    ),
    "there is none": (
        r"\bthere (?:is|are|was|were) (?:none|no)\b|\bwhere there (?:is|are)\b",
        4,
    ),
    "from … on": (
        r"\bfrom (?:which|that|then|it|now|here|there|its|a|the|\d+)[^.,;]{0,30} on\b",
        0.6,
    ),
    "so many": (r"\bso (?:many|much)\b(?! that)", 0.3),
    "bare what": (rf"\bwhat (?:{AFTER_BARE_WHAT})\b", 3),
    "a text": (r"\ba text\b|\btexts\b", 3),
    "beneath, beside, behind": (r"\b(?:beneath|beside|behind)\b", 1),
    "mend": (r"\bmend(?:s|ed|ing)?\b", 0),
    "as far as": (r"\bas far as\b", 0.3),
    "too, after a comma": (r", too\b", 1.5),
    "its": (r"\bits\b", 20),
    "where": (r"\bwhere\b", 20),
}

MISSED: dict[str, tuple[str, float]] = {
    "if": (r"\bif\b", 60),
    "for example": (r"\be\.g\.|\bfor example\b|\bfor instance\b", 10),
    "you": (r"\byour?\b", 6),
}

NOUN_FIRST = re.compile(
    r"(?:The|A|An|Whether|What|How|Which|Those|It|Its|One|All|Every|Each)\b"
)
MOST_NOUN_FIRST = 0.15
"""The largest share of functions whose docstring does not begin with a verb."""

WORD = re.compile(r"[A-Za-z']+")

MESSAGE_ARGUMENTS = frozenset({"got", "expected", "next_step", "help", "description"})
"""Keyword arguments that carry sentences for users: parts of errors, help of options."""


@dataclass(frozen=True)
class Passage:
    """A piece of prose, and the line on which it begins."""

    file: Path
    line: int
    prose: str
    is_function_docstring: bool = False


@dataclass(frozen=True)
class English:
    """Measures of some files. Rates are per 10,000 words."""

    words: int
    rates: dict[str, float]
    places: dict[str, list[Passage]]
    noun_first: float

    def broken_limits(self) -> dict[str, float]:
        """Return the phrases that occur too often, with their rates."""
        broken = {}
        for phrase, (_, limit) in DIALECT.items():
            # in a small file, a single occurrence is a high rate
            if self.rates[phrase] > limit and len(self.places[phrase]) > 1:
                broken[phrase] = self.rates[phrase]
        if self.noun_first > MOST_NOUN_FIRST:
            broken["docstrings that begin with a noun"] = self.noun_first
        return broken

    def broken_floors(self) -> dict[str, float]:
        """Return the words that occur too rarely, with their rates."""
        return {
            word: self.rates[word]
            for word, (_, floor) in MISSED.items()
            if self.rates[word] < floor
        }


def measure_english(paths: Iterable[Path]) -> English:
    """Measure the prose of Python and Markdown files, or of all such files below folders."""
    files = [_measured(file) for file in _files(paths)]
    passages = [passage for file in files for passage in file.passages]
    words = sum(file.words for file in files)
    places = {
        phrase: [passage for file in files for passage in file.places[phrase]]
        for phrase in DIALECT | MISSED
    }
    rates = {
        phrase: len(found) / max(words, 1) * PER for phrase, found in places.items()
    }
    docstrings = [passage for passage in passages if passage.is_function_docstring]
    noun_first = [passage for passage in docstrings if NOUN_FIRST.match(passage.prose)]
    places["docstrings that begin with a noun"] = noun_first
    return English(words, rates, places, len(noun_first) / max(len(docstrings), 1))


@dataclass(frozen=True)
class _Measured:
    """The prose of one file, and for each phrase the passages with it, once per occurrence."""

    passages: list[Passage]
    words: int
    places: dict[str, list[Passage]]


@cache
def _measured(file: Path) -> _Measured:
    """Measure a file once, because it is part of a folder and of all folders together."""
    passages = list(_passages(file))
    places = {
        phrase: [
            passage
            for passage in passages
            for _ in re.finditer(pattern, passage.prose, re.IGNORECASE)
        ]
        for phrase, (pattern, _) in (DIALECT | MISSED).items()
    }
    words = sum(len(WORD.findall(passage.prose)) for passage in passages)
    return _Measured(passages, words, places)


def _files(paths: Iterable[Path]) -> list[Path]:
    files: list[Path] = []
    for path in paths:
        if path.is_dir():
            files += [
                file
                for file in sorted(path.rglob("*"))
                if file.suffix in {".py", ".md"}
            ]
        else:
            files.append(path)
    return [file for file in files if "generated" not in file.parts]


def _passages(file: Path) -> Iterator[Passage]:
    source = file.read_text("utf-8")
    if file.suffix == ".md":
        yield from _markdown_passages(file, source)
        return
    for node in ast.walk(ast.parse(source)):
        yield from _docstring(file, node)
        if isinstance(node, ast.Call):
            yield from _messages(file, node)
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if (
            token.type == tokenize.COMMENT
            and "noqa" not in token.string
            and "type: ignore" not in token.string
        ):
            yield Passage(file, token.start[0], token.string.lstrip("# "))


def _markdown_passages(file: Path, source: str) -> Iterator[Passage]:
    """Yield lines outside of code blocks."""
    is_code = False
    for number, line in enumerate(source.splitlines(), 1):
        if line.lstrip().startswith("```"):
            is_code = not is_code
        elif line.strip() and not is_code:
            yield Passage(file, number, line)


def _docstring(file: Path, node: ast.AST) -> Iterator[Passage]:
    """Yield the docstring of a module, class or function without its examples, which are code."""
    if not isinstance(
        node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef
    ):
        return
    docstring = ast.get_docstring(node)
    if docstring:
        prose, _, _ = docstring.partition("Examples\n")
        is_function = not isinstance(node, ast.Module | ast.ClassDef)
        yield Passage(file, node.body[0].lineno, prose, is_function)


def _messages(file: Path, call: ast.Call) -> Iterator[Passage]:
    for keyword in call.keywords:
        if keyword.arg not in MESSAGE_ARGUMENTS:
            continue
        for part in ast.walk(keyword.value):
            if (
                isinstance(part, ast.Constant)
                and isinstance(part.value, str)
                and " " in part.value
            ):
                yield Passage(file, part.lineno, part.value)


def main() -> None:
    """Print the measures of the paths on the command line."""
    is_verbose = "-v" in sys.argv
    paths = [Path(argument) for argument in sys.argv[1:] if argument != "-v"]
    english = measure_english(
        paths
        or [Path("toolkit"), Path("toolkit_service"), Path("docs"), Path("README.md")]
    )
    broken = english.broken_limits() | english.broken_floors()
    print(f"{english.words:,} words; rates per {PER:,} words")
    for phrase, rate in english.rates.items():
        bound = DIALECT[phrase][1] if phrase in DIALECT else MISSED[phrase][1]
        mark = "x" if phrase in broken else " "
        print(
            f"  {mark} {phrase:26} {rate:7.1f}   {'at most' if phrase in DIALECT else 'at least'} {bound:g}"
        )
    print(
        f"docstrings that begin with a noun: {english.noun_first:.0%}, at most {MOST_NOUN_FIRST:.0%}"
    )
    if is_verbose:
        for phrase in broken:
            for passage in english.places[phrase]:
                print(
                    f"{passage.file}:{passage.line}: {phrase}: {' '.join(passage.prose.split())[:110]}"
                )
    sys.exit(bool(broken))


if __name__ == "__main__":
    main()
