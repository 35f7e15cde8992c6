"""The findings as Markdown, for a chat or an issue. Text from data stays text."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any, Final

from toolkit.analysis.wording import counted, percent, time_text
from toolkit.redaction import visible
from toolkit.reports.headline import change_in_words, read_time

_SIGNS: Final = re.compile(r"([`*_{}\[\]|~#!])")
# what would begin a list or underline a heading; not the sign in a number or date
_LIST: Final = re.compile(r"^(\d*)([-+=](?!\d)|(?<=\d)[.)])")
_PLAIN_ID: Final = re.compile(r"[A-Za-z0-9_.:-]+")
_ENTITIES: Final = {ord("&"): "&amp;", ord("<"): "&lt;", ord(">"): "&gt;"}


def escape_markdown(value: object) -> str:
    r"""A text for a paragraph or table cell of Markdown: on one line, every character literal.

    A text that holds ``$`` or a backslash is written as code: pages typeset TeX in everything else, also
    where Markdown has these signs escaped.

    >>> print(escape_markdown("a|b `c` <script>"))
    a\|b \`c\` &lt;script&gt;
    >>> print(escape_markdown("for $5|$6"))
    `for $5`\|`$6`
    """
    line = " ".join(visible("" if value is None else str(value)).split())
    if "$" in line or "\\" in line:
        # outside of code, because tables and paragraphs do not agree on what a pipe in code is
        return r"\|".join(map(_as_code, line.split("|")))
    return _LIST.sub(r"\1\\\2", _SIGNS.sub(r"\\\1", line.translate(_ENTITIES)))


def _as_code(text: str) -> str:
    if not text.strip():
        return text
    fence = "`" * (1 + max((len(run) for run in re.findall("`+", text)), default=0))
    # the renderer strips one space at both ends, which separates backticks from the fence
    pad = " " if text[0] in "` " or text[-1] in "` " else ""
    return f"{fence}{pad}{text}{pad}{fence}"


class _Code(str):
    """A finished cell: an id in backticks, to be copied whole."""

    __slots__ = ()


def _code(identity: str) -> str:
    """An id that can be copied from the rendered page and from the source."""
    return _Code(f"`{identity}`") if _PLAIN_ID.fullmatch(identity) else _Code(escape_markdown(identity))


def render_markdown(found: Mapping[str, Any]) -> str:
    """The report as Markdown."""
    completeness, comparison = found["completeness"], found["comparison"]
    parts = [
        f"# {escape_markdown(found['title'])}",
        f"**{escape_markdown(found['verdict'])}**",
        escape_markdown(completeness["sentence"]),
    ]
    if comparison and comparison["caution"]:
        parts.append(escape_markdown(comparison["caution"]))
    parts.append("\n".join(_number(number) for number in found["numbers"]))
    if found["overview"]["count"]:
        parts += _body(found)
    if comparison and comparison["new"]:
        parts += _new(comparison)
    parts += ["## Scope and completeness", *_scope(completeness)]
    # an indented block, so that no value in the code can end it
    parts += ["## The code", "\n".join(f"    {line}" for line in visible(found["code"]).split("\n"))]
    parts.append(f"Made {time_text(read_time(found['generated_at']))}; secrets are masked.")
    return "\n\n".join(parts) + "\n"


def _body(found: Mapping[str, Any]) -> list[str]:
    expiry, texts, workflows, labels = (
        found[name] for name in ("expiry", "error_texts", "by_workflow", "by_label")
    )
    worst = found["worst_workflows"]
    return [
        "## Worst workflows",
        _table(
            ("workflow", "failures", f"last {found['recent']['hours']} h", "before", "share"),
            (
                (
                    row["workflow_url"] or "(none)",
                    f"{row['count']:,}",
                    f"{row['recent']:,}",
                    "?" if row["before"] is None else f"{row['before']:,}",
                    percent(row["share"]),
                )
                for row in worst["rows"]
            ),
            worst["left_out"],
        ),
        "## Where it fails",
        _table(
            ("workflow", "status", "failures", "share"),
            (
                (
                    row["workflow_url"] or "(none)",
                    _none(row["response_status"]),
                    f"{row['count']:,}",
                    percent(row["share"]),
                )
                for row in workflows["rows"]
            ),
            workflows["left_out"],
        ),
        "## What it says",
        _table(
            ("error text", "failures", "share", "example"),
            (
                (
                    f"{'(new) ' if row['new'] else ''}{row['text']}",
                    f"{row['count']:,}",
                    percent(row["share"]),
                    _code(row["dlq_id"]),
                )
                for row in texts["rows"]
            ),
            texts["left_out"],
        ),
        "## Failure functions",
        _table(
            ("state", "failures", "meaning"),
            ((row["state"] or "(none)", f"{row['count']:,}", row["meaning"]) for row in found["callbacks"]),
            found["callbacks_left_out"],
        ),
        f"## What expires (kept {escape_markdown(expiry['retention'])})",
        _table(
            ("when", "failures"),
            ((row["when"], f"{row['count']:,}") for row in expiry["summary"] if row["count"]),
        ),
        "## Labels",
        _table(
            ("label", "failures", "share"),
            ((_none(row["label"]), f"{row['count']:,}", percent(row["share"])) for row in labels["rows"]),
            labels["left_out"],
        ),
    ]


def _number(number: Mapping[str, Any]) -> str:
    change = change_in_words(number)
    words = ", ".join(text for text in (change, number["note"]) if text)
    return f"- **{number['value']:,}** {escape_markdown(number['name'])}: {escape_markdown(words)}"


def _new(comparison: Mapping[str, Any]) -> list[str]:
    lines = [f"- {_code(name)}" for name in comparison["ids"]]
    if comparison["ids_left_out"]:
        lines.append(f"- and {comparison['ids_left_out']:,} more")
    return [f"## New compared with the earlier failures ({comparison['new']:,})", "\n".join(lines)]


def _scope(completeness: Mapping[str, Any]) -> list[str]:
    if completeness["state"] == "unknown":
        return ["The frame has no receipt, so its source is not known."]
    lines = [f"- source: {escape_markdown(completeness['source'])}"]
    lines += [
        f"- {escape_markdown(name)}: {escape_markdown(value)}"
        for name, value in completeness["scope"].items()
    ]
    lines.append(
        f"- read at {escape_markdown(completeness['read_at'])}, {counted(completeness['pages'], 'page')}"
    )
    lines += [f"- assumes: {escape_markdown(text)}" for text in completeness["assumptions"]]
    return ["\n".join(lines)]


def _table(names: tuple[str, ...], rows: Iterable[tuple[object, ...]], left_out: int = 0) -> str:
    lines = [f"| {' | '.join(names)} |", f"|{' --- |' * len(names)}"]
    lines += [f"| {' | '.join(_cell(value) for value in row)} |" for row in rows]
    more = f"\n\nand {left_out:,} more rows" if left_out else ""
    return "\n".join(lines) + more


def _cell(value: object) -> str:
    return value if isinstance(value, _Code) else escape_markdown(value)


def _none(value: object) -> object:
    return "(none)" if value is None or value == "" else value
