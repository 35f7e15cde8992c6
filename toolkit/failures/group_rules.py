"""Read and write rules that name, merge, split and pin groups of failures, in a small text file.

For example, ``name s5-5f0c9a3b12de "Payment gateway down"`` gives a group a title.
"""

from __future__ import annotations

import re
import shlex
import warnings
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final, Literal

import msgspec
import pyarrow as pa

from toolkit.base.arguments import file_path, mapping, nearest, shown, text, wrong
from toolkit.base.errors import InputError, UnexpectedResultWarning
from toolkit.base.private_files import changing, not_written, read_file, write_file
from toolkit.drawing.wording import counted, value_text
from toolkit.secrets.redaction import Redactor
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
    value: str = ""  # the title, the group to merge into, or the value to split by
    column: str = ""  # of a split; "body" if the response body has to contain the value
    earlier_group: str = (
        ""  # the id in the line, if a sync has joined the group with others since
    )

    @property
    def condition(self) -> str:
        """Return the condition of a split in words, for example "label = nightly"."""
        if self.column == "body":
            return f'response_body contains "{self.value}"'
        return f"{self.column} = {self.value}"


@dataclass(frozen=True, repr=False)
class GroupRules:
    """Rules for groups of failures, and rules that were learned from earlier failures.

    Each line has one rule, and rules are applied in their order: ``name ID "TITLE"``, ``merge ID into ID``,
    ``split ID where COLUMN = "VALUE"`` (of ``label``, any of the labels of a failure),
    ``split ID where response_body contains "TEXT"`` (or ``body``, with the same meaning), and ``pin ID``,
    which lists a group before all others. A ``#`` begins a comment. Rules for unknown groups are kept. The
    last line ``learned {…}``, which `save` writes, contains the learned rules.

    Parameters
    ----------
    text : str
        The lines. Values that look like secrets are masked.
    learned : mapping, optional
        A value of `FailureGroups.learned`. If omitted, the line ``learned`` of the text is read, if it has
        one.

    Raises
    ------
    InputError
        If a line cannot be read (the message names the line), or `learned` is invalid or of another version
        of the rules.

    Warns
    -----
    UnexpectedResultWarning
        If an older version of the rules learned the line ``learned`` of the text. It is left out.

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
            last_line = lines.pop()
            if learned is None:
                stored = _json(last_line.removeprefix(_LEARNED), len(lines) + 1)
                learned = _unless_older(stored)

        rules = [_rule(line, number) for number, line in enumerate(lines, 1)]
        known = _learned(learned)
        object.__setattr__(self, "text", "".join(f"{line}\n" for line in lines))
        object.__setattr__(self, "learned", learned)
        present = [_of_present_group(rule, known.renamed) for rule in rules if rule]
        object.__setattr__(self, "rules", tuple(present))
        object.__setattr__(self, "_learned", known)

    def __repr__(self) -> str:
        rules = counted(len(self.rules), "rule")
        templates = len(self._learned.templates)
        if not templates:
            return f"GroupRules({rules}, nothing learned)"

        return f"GroupRules({rules}, {counted(templates, 'template')} learned)"

    @classmethod
    def read(cls, path: str | Path) -> GroupRules:
        """Read a rules file. Raise InputError if the file or a line cannot be read."""
        if not isinstance(path, str | Path):
            raise wrong("rules", path, "the path of a rules file, or GroupRules")

        try:
            return cls(read_file(Path(path)).decode())
        except InputError:
            raise
        except (OSError, ValueError) as error:
            raise wrong(
                "rules", str(path), f"the path of a rules file ({type(error).__name__})"
            ) from None

    def save(self, path: str | Path) -> None:
        """Write a rules file: the text, then one line with the learned rules.

        An existing file is replaced and keeps its mode; only this user can read a new file. If somebody else
        has added lines since `read`, they are lost: use a `FailurePanel` with ``rules=``, which keeps them.

        Raises
        ------
        InputError
            If the file cannot be written.
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
    """Replace a rules file that the caller has locked; see `changing`."""
    content = rules.text
    if rules.learned is not None:
        content += f"{_LEARNED}{json_text(rules.learned)}\n"
    encoded = content.encode()
    write_file(path, lambda file: file.write(encoded), shared=True)


def json_text(value: object) -> str:
    """Return a value as JSON on one line."""
    return msgspec.json.encode(value).decode()


def known_of(rules: GroupRules) -> Learned:
    """Return the rules that were learned from earlier failures."""
    return rules._learned  # noqa: SLF001 - of this module


def split_off(rule: Rule) -> str:
    """Return the id of the group that a rule splits off.

    It depends on the id in the line, so it stays when a sync joins that group with others, and when a version
    of the rules gives that group another id.
    """
    group = rule.earlier_group or rule.group
    version, _, _ = group.partition("-")
    own_id = signature_id("split", (group, rule.column), (rule.value,))
    _, _, digest = own_id.partition("-")

    return f"{version}-{digest}"


def idle_splits(rules: Sequence[Rule], groups: Collection[str]) -> list[str]:
    """Return a warning for each rule that splits no failures off an existing group."""
    moved = {rule.group for rule in rules if rule.action in ("merge", "split")}
    known = {*groups, *moved}
    idle = [
        rule
        for rule in rules
        if rule.action == "split"
        and rule.group in groups
        and split_off(rule) not in known
    ]

    return [
        f"The rule that splits {rule.group} changes nothing: none of the failures has {rule.condition}."
        for rule in idle
    ]


def split_values(table: pa.Table, column: str) -> list[list[str]]:
    """Return the values of each row that a split compares: the value, or all labels; "" if missing."""
    values = [
        "" if value is None else value_text(value)
        for value in table[column].to_pylist()
    ]
    if column != LABEL or LABELS not in table.column_names:
        return [[value] for value in values]

    all_labels = [labels or [] for labels in label_lists(table[LABELS]).to_pylist()]
    split = []
    for label, labels in zip(values, all_labels, strict=True):
        # a row without any label has the value ""
        if label or not labels:
            split.append([label, *labels])
        else:
            split.append(labels)

    return split


def _json(value: str, line: int) -> Mapping[str, Any]:
    try:
        parsed: Any = msgspec.json.decode(value)
    except msgspec.DecodeError:
        parsed = None

    if not isinstance(parsed, dict):
        raise _unreadable(line, value, "the JSON that `GroupRules` saved") from None

    return parsed


def _unless_older(stored: Mapping[str, Any]) -> Mapping[str, Any] | None:
    """Return what a file has learned; None, with a warning, if older rules learned it."""
    version = stored.get("rules_version")
    if not isinstance(version, int) or version >= RULES_VERSION:
        return stored

    warnings.warn(
        f"The line 'learned' is of version {version} of the rules and is left out, because the version is "
        f"{RULES_VERSION} now. Rules for earlier ids apply to snapshots that were synced since. Save the "
        "rules again.",
        UnexpectedResultWarning,
        stacklevel=4,
    )
    return None


def _learned(value: object) -> Learned:
    if value is None:
        return Learned()

    stored = mapping("learned", value)
    try:
        known = msgspec.convert(stored, Learned)
    except (msgspec.ValidationError, TypeError, ValueError):
        raise wrong("learned", value, "rules that groups have learned") from None

    if known.rules_version != RULES_VERSION:
        raise InputError(
            "reading learned",
            got=f"rules that version {known.rules_version} of the toolkit learned",
            expected=f"version {RULES_VERSION}",
            next_step="Leave them out once, and save the rules that are learned then.",
        )

    return known


def _of_present_group(rule: Rule, renamed: Mapping[str, str]) -> Rule:
    """Return a rule for the groups that the groups of its line have become."""
    if rule.action == "merge" and rule.value in renamed:
        rule = replace(rule, value=renamed[rule.value])
    if rule.group in renamed:
        rule = replace(rule, group=renamed[rule.group], earlier_group=rule.group)

    return rule


def _rule(line: str, number: int) -> Rule | None:
    """Return the rule of a line, or None for a comment or an empty line."""
    if line.lstrip().startswith("#"):
        return None

    if len(line) > _LONGEST_LINE:
        raise _unreadable(
            number,
            line,
            f"a rule of at most {_LONGEST_LINE:,} characters, or a comment",
        )

    try:
        words = shlex.split(line, comments=True)
    except ValueError as error:
        raise _unreadable(number, line, f"a rule ({str(error).lower()})") from None

    if not words:
        return None

    rule = _parsed(words, number)
    if rule is None:
        raise _unreadable(number, line, _FORMS)

    _check_id(rule.group, number)
    return rule


def _parsed(words: list[str], number: int) -> Rule | None:
    """Return the rule of the words of a line, or None if they have no known form."""
    match words:
        case ["name", group, title] if title.strip():
            return Rule("name", group, " ".join(title.split()))
        case ["merge", group, "into", target] if group != target:
            _check_id(target, number)
            return Rule("merge", group, target)
        case ["split", group, "where", "body" | "response_body", "contains", part] if (
            part
        ):
            # the id of the new group depends on this word
            return Rule("split", group, part, "body")
        case ["split", group, "where", column, "=", value]:
            column = LABEL if column == LABELS else column
            if column not in SPLIT_COLUMNS:
                raise _unreadable(
                    number, column, "a column", nearest(column, SPLIT_COLUMNS)
                )

            return Rule("split", group, value, column)
        case ["pin", group]:
            return Rule("pin", group)

    return None


def _check_id(group: str, number: int) -> None:
    if not _ID.fullmatch(group):
        raise _unreadable(
            number,
            group,
            f"the id of a group, for example s{RULES_VERSION}-5f0c9a3b12de",
        )


def _unreadable(
    number: int, got: str, expected: str, next_step: str | None = None
) -> InputError:
    return InputError(
        f"reading rules, line {number:,} of the text",
        got=shown(got),
        expected=expected,
        next_step=next_step,
    )
