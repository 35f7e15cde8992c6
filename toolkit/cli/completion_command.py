"""Print scripts that complete commands, options and values in bash, zsh and fish: ``toolkit completion``.

The scripts are generated from the parser and contain all words, so that completing starts no Python. For
example, ``toolkit sn<Tab>`` becomes ``toolkit snapshot``. This module writes the scripts itself, because
argcomplete imports the command at each press of Tab (two seconds), and shtab would be a dependency of this
command alone.
"""

from __future__ import annotations

import argparse
import shlex
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from toolkit.cli.exit_status import ExitStatus
from toolkit.cli.output import print_result
from toolkit.cli.shared_options import PATH_ARGUMENTS, add_command

_FILES: Final = frozenset({"FILE", "DIR"})
"""Metavars of arguments whose values are paths."""


@dataclass(frozen=True)
class _Option:
    """An option of a command. `values` are the possible values, if they are known."""

    name: str
    help: str
    takes_value: bool
    values: tuple[str, ...]
    is_path: bool


@dataclass(frozen=True)
class _Command:
    """A command: the words that choose it, such as ``snapshot failures``, and what can follow."""

    words: tuple[str, ...]
    commands: Mapping[str, str]
    options: tuple[_Option, ...]
    takes_path: bool


def add(commands: Any, summary: str) -> None:
    """Add the command."""
    add_option = add_command(
        commands, "completion", _completion, summary, "bash > ~/.toolkit-completion"
    )
    add_option("shell", "the shell that reads the script", choices=tuple(_SCRIPTS))


def _completion(given: argparse.Namespace) -> ExitStatus:
    # the module of the parser imports the modules of all commands
    from toolkit.cli.command_line import build_parser  # noqa: PLC0415 - in a circle

    print_result(_SCRIPTS[given.shell](list(_walk(build_parser()))).rstrip("\n"))
    return ExitStatus.DONE


def _walk(
    parser: argparse.ArgumentParser, words: tuple[str, ...] = ()
) -> Iterator[_Command]:
    """Yield the command of a parser and all commands below it, outermost first."""
    children: dict[str, argparse.ArgumentParser] = {}
    summaries: dict[str, str] = {}
    options = []
    positional = set()
    for action in parser._actions:  # noqa: SLF001 - argparse has no public list of its arguments
        if isinstance(action, argparse._SubParsersAction):  # noqa: SLF001
            children = dict(action.choices)
            summaries = {
                str(choice.dest): choice.help or ""
                for choice in action._choices_actions  # noqa: SLF001
            }
        elif action.option_strings:
            options.append(_option(action))
        else:
            positional.add(action.dest)
            summaries |= dict.fromkeys(map(str, action.choices or ()), "")

    yield _Command(
        words,
        summaries,
        tuple(options),
        takes_path=not positional.isdisjoint(PATH_ARGUMENTS),
    )
    for name, child in children.items():
        yield from _walk(child, (*words, name))


def _option(action: argparse.Action) -> _Option:
    values = tuple(map(str, action.choices or ()))
    is_path = action.metavar in _FILES
    # argparse gives flags without a value, such as --json, the nargs 0. The longest string of `-h, --help` is
    # the name.
    help_text = " ".join((action.help or "").split())

    return _Option(
        max(action.option_strings, key=len),
        help_text,
        action.nargs != 0,
        values,
        is_path,
    )


def _chosen(command: _Command) -> str:
    return " ".join(command.words)


def _bash(commands: Sequence[_Command]) -> str:
    """Return a function that finds the command on the line, then offers words for it."""
    # `cases` has the words after a command, `values` has the words after an option that takes a value. For
    # example, `vectors` can follow `snapshot`, and `messages` can follow `snapshot failures --kind`.
    cases, values = [], []
    for command in commands:
        names = [*command.commands, *(option.name for option in command.options)]
        files = "yes" if command.takes_path else ""
        words = shlex.quote(" ".join(names))
        cases.append(
            f"        {shlex.quote(_chosen(command))}) words={words}; files={files} ;;"
        )

        for option in command.options:
            if option.takes_value:
                case = shlex.quote(f"{_chosen(command)} {option.name}".strip())
                offered = shlex.quote(" ".join(option.values))
                files = "yes" if option.is_path else ""
                values.append(
                    f"        {case}) words={offered}; files={files}; value=yes ;;"
                )

    # The script reads the line from the left and keeps the longest command that it knows. Other words are
    # passed over: in `snapshot failures --every 1h`, the command is `snapshot failures`.
    known = " ".join(
        shlex.quote(_chosen(command)) for command in commands if command.words
    )
    return f"""\
# completion of toolkit for bash: source this file, for example from ~/.bashrc
_toolkit() {{
    local current="${{COMP_WORDS[COMP_CWORD]}}" previous="${{COMP_WORDS[COMP_CWORD-1]}}"
    local chosen="" words="" files="" value="" word known index
    for ((index = 1; index < COMP_CWORD; index++)); do
        word="${{chosen:+$chosen }}${{COMP_WORDS[index]}}"
        for known in {known}; do
            if [[ "$word" == "$known" ]]; then chosen="$word"; fi
        done
    done
    case "${{chosen:+$chosen }}$previous" in
{chr(10).join(values)}
    esac
    if [[ -z "$value" ]]; then
        case "$chosen" in
{chr(10).join(cases)}
        esac
    fi
    COMPREPLY=($(compgen -W "$words" -- "$current"))
    if [[ -n "$files" && "$current" != -* ]]; then
        COMPREPLY+=($(compgen -f -- "$current"))
        compopt -o filenames 2>/dev/null
    fi
}}
complete -F _toolkit toolkit
"""


def _zsh(commands: Sequence[_Command]) -> str:
    """Return the function for bash, which zsh can emulate."""
    return (
        "#compdef toolkit\n"
        "# completion of toolkit for zsh: source this file, for example from ~/.zshrc, after compinit\n"
        "autoload -U +X bashcompinit && bashcompinit\n"
        # without the first line, a comment about bash
        f"{_bash(commands).partition(chr(10))[2]}"
    )


def _fish(commands: Sequence[_Command]) -> str:
    """Return one line per word, with the condition under which fish offers it."""
    lines = [
        "# completion of toolkit for fish: save as ~/.config/fish/completions/toolkit.fish"
    ]
    lines.append("complete -c toolkit -f")
    for command in commands:
        # Options are offered as soon as the command is typed. The names of commands below it are offered only
        # until one of them is typed: after `snapshot failures`, nobody needs `vectors`.
        seen = " && ".join(
            f"__fish_seen_subcommand_from {word}" for word in command.words
        )
        seen_below = seen
        if not command.words:
            # fish: true until a command has been typed
            seen = seen_below = "__fish_use_subcommand"
        elif command.commands:
            seen_below = f"{seen} && not __fish_seen_subcommand_from {' '.join(command.commands)}"

        lines += [
            f"complete -c toolkit -n {_quoted(seen_below)} -a {name} -d {_quoted(summary)}"
            for name, summary in command.commands.items()
        ]
        lines += [
            f"complete -c toolkit -n {_quoted(seen)} {_fish_option(option)}"
            for option in command.options
        ]
        if command.takes_path:
            lines.append(f"complete -c toolkit -n {_quoted(seen)} -F")

    return "\n".join(lines) + "\n"


def _fish_option(option: _Option) -> str:
    flag = (
        f"-l {option.name.removeprefix('--')}"
        if option.name.startswith("--")
        else f"-o {option.name[1:]}"
    )
    parts = [flag, f"-d {_quoted(option.help)}"]
    if option.is_path:
        parts.append("-r -F")
    elif option.takes_value:
        parts.append("-x")

    if option.values:
        parts.append(f"-a {_quoted(' '.join(option.values))}")
    return " ".join(parts)


def _quoted(text: str) -> str:
    """Return a string as fish reads it: a backslash escapes a quote and a backslash."""
    escaped = text.replace("\\", "\\\\").replace("'", "\\'")
    return f"'{escaped}'"


_SCRIPTS: Final[Mapping[str, Callable[[Sequence[_Command]], str]]] = {
    "bash": _bash,
    "zsh": _zsh,
    "fish": _fish,
}
"""Functions that write the script of each shell."""
