"""Rules by which users name, merge, split and pin groups of failures, as a small text file."""

from __future__ import annotations

import re
import shlex
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, Literal

import msgspec
import pyarrow as pa

from toolkit.arguments import file_path, mapping, nearest, shown, text, wrong
from toolkit.drawing.wording import counted, value_text
from toolkit.errors import InputError
from toolkit.private_files import changing, not_written, read_file, write_file
from toolkit.redaction import Redactor
from toolkit.signatures.signing import RULES_VERSION, Learned, signature_id
from toolkit.tables.frames import label_lists

SPLIT_COLUMNS: Final = (
    "workflow_url",
    "response_status",
    "label",
    "flow_control_key",
    "caller_ip",
    "url",
    "method",
    "failure_function_state",
)
LABEL: Final = "label"
LABELS: Final = "labels"
_BODY: Final = "body", "response_body"  # two names of the response's body
_ID: Final = re.compile(r"s\d{1,4}-[0-9a-f]{12}")
_LINE_END: Final = "\n"
_HIDDEN_LINE_END: Final = re.compile(r"[\v\f\x1c-\x1e\x85\u2028\u2029]")
"""Characters that end a line for Python, while most editors show one line."""

_LEARNED: Final = "learned "
_LONGEST_LINE: Final = 16_384  # characters of a rule: the time that shlex takes grows with the square of them
_FORMS: Final = (
    'name ID "TITLE", merge ID into ID, split ID where COLUMN = "VALUE",'
    ' split ID where response_body contains "TEXT", or pin ID'
)


@dataclass(frozen=True)
class Rule:
    """One line of a rules file."""

    action: Literal["name", "merge", "split", "pin"]
    group: str
    value: str = ""  # a title, the group merged into, what a split compares with
    column: str = ""  # of a split; "body" for what the body of the response contains

    @property
    def condition(self) -> str:
        """What those have that are split off."""
        contains = f'response_body contains "{self.value}"'
        return contains if self.column == "body" else f"{self.column} = {self.value}"


@dataclass(frozen=True, repr=False)
class GroupRules:
    """Rules for groups of failures, and what was learned from earlier failures.

    One rule a line, applied in the order of the lines: ``name ID "TITLE"``, ``merge ID into ID``,
    ``split ID where COLUMN = "VALUE"`` (of ``label``, any of a failure's labels),
    ``split ID where response_body contains "TEXT"`` (or ``body``, which means the same here), and ``pin ID``,
    which lists a group before all others. What follows a ``#`` is a comment. Rules for groups that do not
    occur are kept. A last line ``learned {…}``, which `save` writes, holds what was learned.

    Parameters
    ----------
    text : str
        The lines. What looks like a secret is masked in them.
    learned : mapping, optional
        What `FailureGroups.learned` gave. Default: the line ``learned`` of the text, if any.

    Raises
    ------
    InputError
        When a line cannot be read (the message says which), or `learned` is none or of another version of the
        toolkit's rules.

    Examples
    --------
    >>> rules = GroupRules('name s1-5f0c9a3b12de "Payment gateway down"  # seen in March')
    >>> rules
    GroupRules(1 rule, nothing learned)
    """

    text: str = ""
    learned: Mapping[str, Any] | None = None
    rules: tuple[Rule, ...] = field(init=False, compare=False, default=())
    _learned: Learned = field(init=False, compare=False, default_factory=Learned)

    def __post_init__(self) -> None:
        content = text("text", self.text)
        if hidden := _HIDDEN_LINE_END.search(content):
            raise InputError(
                f"reading rules, line {content.count(_LINE_END, 0, hidden.start()) + 1} of the text",
                got=f"the invisible character {hidden[0]!a}, after which a rule could be hidden",
                expected="lines that end with a line feed",
            )
        lines = Redactor().text(content).splitlines()
        learned = self.learned
        if lines and lines[-1].startswith(_LEARNED):
            last = lines.pop()
            if learned is None:
                learned = _json(last.removeprefix(_LEARNED), len(lines) + 1)
        rules = [_rule(line, number) for number, line in enumerate(lines, 1)]
        known = Learned() if learned is None else _learned(learned)
        object.__setattr__(self, "text", "".join(f"{line}\n" for line in lines))
        object.__setattr__(self, "learned", learned)
        object.__setattr__(self, "rules", tuple(rule for rule in rules if rule))
        object.__setattr__(self, "_learned", known)

    def __repr__(self) -> str:
        templates = len(self._learned.templates)
        learned = counted(templates, "template") if templates else "nothing"
        return f"GroupRules({counted(len(self.rules), 'rule')}, {learned} learned)"

    @classmethod
    def read(cls, path: str | Path) -> GroupRules:
        """Read a rules file; InputError when it cannot be read, or a line of it."""
        if not isinstance(path, str | Path):
            raise wrong("rules", path, "the path of a rules file, or GroupRules")
        try:
            return cls(read_file(Path(path)).decode())
        except InputError:
            raise
        except (OSError, ValueError) as error:
            raise wrong("rules", str(path), f"the path of a rules file ({type(error).__name__})") from None

    def save(self, path: str | Path) -> None:
        """Write a rules file: the text, then what was learned on one line; InputError when that fails.

        A file that is there is replaced as a whole and keeps its mode; a new one is for this user alone.
        Lines that somebody else wrote since `read` are gone then: a `FailureBrowser` with ``rules=`` keeps
        them.
        """
        target = file_path("path", path)
        try:
            with changing(target):
                write_rules(self, target)
        except InputError:
            raise
        except (OSError, ValueError) as error:
            raise not_written(target, error) from None


def write_rules(rules: GroupRules, path: Path) -> None:
    """Replace a rules file that the caller holds; see `changing`."""
    learned = f"{_LEARNED}{json_text(rules.learned)}\n" if rules.learned is not None else ""
    content = (rules.text + learned).encode()
    write_file(path, lambda file: file.write(content), shared=True)


def json_text(value: object) -> str:
    """A value as JSON on one line."""
    return msgspec.json.encode(value).decode()


def known_of(rules: GroupRules) -> Learned:
    """What the rules bring of earlier failures."""
    return rules._learned  # noqa: SLF001 - of this module


def split_off(rule: Rule) -> str:
    """The id of the group that a rule splits off."""
    return signature_id("split", (rule.group, rule.column), (rule.value,))


def idle_splits(rules: Sequence[Rule], there: Collection[str]) -> list[str]:
    """Say which rules split nothing off a group that is there."""
    splits = [rule for rule in rules if rule.action == "split" and rule.group in there]
    moved = {rule.group for rule in rules if rule.action in ("merge", "split")}
    return [
        f"The rule that splits {rule.group} changes nothing: no failure of it has {rule.condition}."
        for rule in splits
        if split_off(rule) not in {*there, *moved}
    ]


def split_values(table: pa.Table, column: str) -> list[list[str]]:
    """What a split compares of each row: its value, or each of its labels, as text; "" where it has none."""
    values = [[] if value is None else [value_text(value)] for value in table[column].to_pylist()]
    if column == LABEL and LABELS in table.column_names:
        lists = label_lists(table[LABELS]).to_pylist()
        values = [[*own, *(several or [])] for own, several in zip(values, lists, strict=True)]
    return [own or [""] for own in values]


def _json(value: str, line: int) -> Mapping[str, Any]:
    try:
        parsed: Any = msgspec.json.decode(value)
    except msgspec.DecodeError:
        parsed = None
    if not isinstance(parsed, dict):
        raise _unreadable(line, value, "the JSON that `GroupRules` saved") from None
    return parsed


def _learned(value: object) -> Learned:
    try:
        known = msgspec.convert(mapping("learned", value), Learned)
    except InputError:
        raise
    except (msgspec.ValidationError, TypeError, ValueError):
        raise wrong("learned", value, "what groups have learned") from None
    if known.rules_version != RULES_VERSION:
        raise InputError(
            "reading learned",
            got=f"what was learned with version {known.rules_version} of the toolkit's rules",
            expected=f"version {RULES_VERSION}",
            next_step="Leave it out once, and save what is learned then.",
        )
    return known


def _rule(line: str, number: int) -> Rule | None:
    if line.lstrip().startswith("#"):
        return None
    if len(line) > _LONGEST_LINE:
        raise _unreadable(number, line, f"a rule of at most {_LONGEST_LINE:,} characters, or a comment")
    try:
        words = shlex.split(line, comments=True)
    except ValueError as error:
        raise _unreadable(number, line, f"a rule ({str(error).lower()})") from None
    match words:
        case []:
            return None
        case ["name", group, title] if title.strip():
            rule = Rule("name", group, " ".join(title.split()))
        case ["merge", group, "into", target] if group != target:
            _check_id(target, number)
            rule = Rule("merge", group, target)
        case ["split", group, "where", column, "contains", part] if column in _BODY and part:
            rule = Rule("split", group, part, "body")  # of which the id of what is split off is made
        case ["split", group, "where", column, "=", value]:
            column = LABEL if column == LABELS else column
            if column not in SPLIT_COLUMNS:
                raise _unreadable(number, column, "a column", nearest(column, SPLIT_COLUMNS))
            rule = Rule("split", group, value, column)
        case ["pin", group]:
            rule = Rule("pin", group)
        case _:
            raise _unreadable(number, line, _FORMS)
    _check_id(rule.group, number)
    return rule


def _check_id(group: str, number: int) -> None:
    if not _ID.fullmatch(group):
        raise _unreadable(number, group, f"the id of a group, such as s{RULES_VERSION}-5f0c9a3b12de")


def _unreadable(number: int, got: str, expected: str, next_step: str | None = None) -> InputError:
    return InputError(
        f"reading rules, line {number:,} of the text", got=shown(got), expected=expected, next_step=next_step
    )
