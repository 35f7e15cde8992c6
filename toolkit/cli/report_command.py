"""Report on failures, or on a vector index: ``toolkit report``."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from typing import TYPE_CHECKING, Any, Final

import toolkit as tk
from toolkit.base.errors import InputError
from toolkit.base.time_zones import shown_in, time_zone
from toolkit.cli.data_age import MAX_AGE_HELP, complain_of_age, refuse_short_history
from toolkit.cli.exit_status import ExitStatus
from toolkit.cli.judging import FAILURES, VECTORS, judge_failures, judge_index
from toolkit.cli.last_judged import last_judged, note_judged
from toolkit.cli.output import (
    print_message,
    print_result,
    progress_lines,
    status_of,
    unknown_names_end,
    write,
)
from toolkit.cli.service_connection import add_token_file, connected
from toolkit.cli.shared_options import (
    add_command,
    add_filters,
    filter_of,
    unknown_values_end,
)
from toolkit.cli.terminal import say_wrapped
from toolkit.drawing.wording import counted
from toolkit.secrets.redaction import visible

if TYPE_CHECKING:
    import pandas as pd

    from toolkit.secrets.redaction import Redactor

_FORMS: Final[Mapping[str, Callable[[Any, argparse.Namespace], str | bytes]]] = {
    "html": lambda report, _: report.to_html(),
    "markdown": lambda report, _: report.to_markdown(),
    "json": lambda report, _: report.to_json(),
    "email": lambda report, given: bytes(
        report.to_email(to=given.to, sender=given.sender, link=given.link)
    ),
    "short": lambda report, given: report.to_short(link=given.link),
    "short-markdown": lambda report, given: report.to_short(
        markdown=True, link=given.link
    ),
}
"""Forms that can be written to standard output."""

_LINKED: Final = ("email", "short", "short-markdown")
"""Forms with a link to the whole report."""

_NO_REPORT: Final = " No report is written."


def add(commands: Any, summary: str) -> None:
    """Add the command."""
    example = "--since 7d --output failure-report.html --output failure-report.md"
    add_option = add_command(commands, "report", _report, summary, example)
    what = "report on the vector index, or on a snapshot of one: health, recall, scores, changes"
    add_option("--vectors", what, action="store_true")
    what = 'with --vectors: namespace to report on; repeatable, "" is the default one (all namespaces)'
    add_option("--namespace", what, action="append", metavar="NAME")
    what = ".html, .md, .json, .eml, .txt or .pdf; repeatable (failure-report.html, or index-report.html)"
    add_option("--output", what, action="append", metavar="FILE")
    add_option(
        "--pdf",
        "the same for a .pdf; needs Chromium",
        action="append",
        dest="output",
        metavar="FILE",
    )
    what = "write the report in this form to standard output, for a program that sends it; no file is made"
    add_option("--format", what, choices=tuple(_FORMS))
    add_option(
        "--link",
        "address of the whole report, for an email or a short form",
        metavar="URL",
    )
    what = "address that an email is for, in its header; repeatable"
    add_option("--to", what, action="append", default=[], metavar="ADDRESS")
    add_option(
        "--from", "address that an email is from", dest="sender", metavar="ADDRESS"
    )
    add_option(
        "--snapshot",
        "report on a snapshot instead of asking the service",
        metavar="DIR",
    )
    add_option(
        "--previous",
        "a snapshot to compare with: what is new since then",
        metavar="DIR",
    )
    what = "how long the service keeps failures (default: of the last sync, TOOLKIT_RETENTION, or 7d)"
    add_option("--retention", what)
    what = "with --vectors: file of pin-queries, to ask the queries again"
    add_option("--pinned", what, metavar="FILE")
    add_option("--title", "title of the report")
    what = "time zone in which times are shown and days are cut, such as Europe/Berlin (TOOLKIT_TZ, or UTC)"
    add_option("--tz", what, metavar="ZONE")
    what = (
        "end with 4 if a group was never seen before, 5 if the rate is higher than before, "
        "7 if the index of --vectors is not healthy; repeatable"
    )
    add_option(
        "--fail-on", what, action="append", default=[], choices=(*FAILURES, *VECTORS)
    )
    add_option("--max-age", MAX_AGE_HELP, metavar="DURATION")
    add_option(
        "--limit", "read at most N failures, for a first look", type=int, metavar="N"
    )
    add_token_file(add_option)
    add_filters(commands.choices["report"])


def _report(given: argparse.Namespace) -> ExitStatus:
    """Report on failures or vectors in the time zone of ``--tz``."""
    with shown_in(time_zone(given.tz)):
        return _report_in_zone(given)


def _report_in_zone(given: argparse.Namespace) -> ExitStatus:
    """Report on failures or vectors, after a check that the options fit together."""
    _check_form(given)
    chosen = filter_of(given)
    selects = (
        given.limit is not None or not chosen.is_empty or given.kind != "workflows"
    )
    if given.vectors:
        return _report_vectors(given, selects=selects)

    for option in ("namespace", "pinned"):
        if getattr(given, option) is not None:
            raise InputError(
                "reporting on failures",
                got=f"--{option} without --vectors",
                expected="both, or neither",
                next_step="Add --vectors to report on the vector index.",
            )

    return _report_failures(given, chosen, selects=selects)


def _check_form(given: argparse.Namespace) -> None:
    """Raise `InputError` if an option of a form is used with another form."""
    from toolkit.reports.link import web_link  # noqa: PLC0415 - heavy

    has_addresses = given.to or given.sender is not None
    if has_addresses and given.format != "email":
        raise InputError(
            "reporting",
            got="--to or --from without --format email",
            expected="both, or neither",
        )

    if given.link is not None and given.format not in _LINKED:
        expected = f"--format {', '.join(_LINKED)}"
        raise InputError("reporting", got="--link with another form", expected=expected)

    web_link(given.link)


def _load(
    given: argparse.Namespace, chosen: tk.FailureFilter, *, selects: bool
) -> tuple[pd.DataFrame, Redactor | None]:
    """Load the failures of a report, and return the redactor of the service if they come from there."""
    if given.snapshot is None:
        with (
            connected(given, "queue") as service,
            unknown_values_end(given, _NO_REPORT),
        ):
            failures = tk.load_failures(
                service,
                chosen,
                kind=given.kind,
                limit=given.limit,
                progress=progress_lines("failures"),
            )

        return failures, service.redactor

    if selects:
        raise InputError(
            "reporting on a snapshot",
            got="filters, a kind or a limit together with --snapshot",
            expected="the snapshot alone",
            next_step="Leave them out, or report from the service without --snapshot.",
        )

    return tk.read_snapshot(given.snapshot), None


def _report_failures(
    given: argparse.Namespace, chosen: tk.FailureFilter, *, selects: bool
) -> ExitStatus:
    if {*given.fail_on} & {*VECTORS}:
        raise InputError(
            "reporting on failures",
            got="--fail-on unhealthy without --vectors",
            expected="--fail-on new or worse",
            next_step="Add --vectors for a report on the vector index.",
        )

    if given.fail_on:
        refuse_short_history(chosen, has_previous=given.previous is not None)
    failures, redactor = _load(given, chosen, selects=selects)
    previous = None if given.previous is None else tk.read_snapshot(given.previous)
    new_since = _last_judged(given)
    report = tk.report_failures(
        failures,
        previous,
        retention=given.retention,
        max_age=given.max_age,
        new_since=new_since,
        title=given.title,
        redactor=redactor,
    )
    _show(report, given, "failure-report.html")
    status = _completeness(failures, is_snapshot=given.snapshot is not None)
    complain_of_age(report.to_dict())
    if not given.fail_on:
        return status

    values = report.to_dict()
    status = judge_failures(
        values, given.fail_on, status, new_since=new_since, tell=_teller(given)
    )
    # A report that could not judge leaves the old time, so that the next report also covers this period.
    is_judged = "new" in given.fail_on and values["change"]["new_groups"] is not None
    if given.snapshot is not None and is_judged:
        note_judged(given.snapshot, datetime.fromisoformat(values["recent"]["until"]))
    return status


def _last_judged(given: argparse.Namespace) -> datetime | None:
    """Return when ``--fail-on new`` last judged the snapshot; None if it is not asked for, or unknown."""
    if given.snapshot is None or "new" not in given.fail_on:
        return None
    return last_judged(given.snapshot)


def _completeness(failures: Any, *, is_snapshot: bool) -> ExitStatus:
    """Print whether the failures are complete. Return the exit status."""
    if "receipt" not in failures.attrs:
        # a snapshot written from a frame that no loader made
        print_message("no receipt: it is not known whether these are all failures")
        return ExitStatus.DONE

    receipt = tk.get_receipt(failures)
    if not is_snapshot:
        return status_of(receipt)

    # a snapshot has more rows than the last load, because it keeps entries that have left the queue
    what = f"the snapshot has {counted(len(failures), 'row')}; its last load was "
    return status_of(replace(receipt, frame_rows=None), what=what)


def _report_vectors(given: argparse.Namespace, *, selects: bool) -> ExitStatus:
    of_failures = given.retention is not None or given.max_age is not None
    if selects or of_failures or {*given.fail_on} & {*FAILURES}:
        raise InputError(
            "reporting on a vector index",
            got="options for failures together with --vectors",
            expected="--namespace, --snapshot, --previous, --title, --output, --format and --fail-on "
            "unhealthy alone",
            next_step="Leave them out.",
        )

    if given.namespace is not None and given.snapshot is not None:
        raise InputError(
            "reporting on a snapshot of vectors",
            got="--namespace together with --snapshot",
            expected="one of them",
            next_step="Export the namespace: toolkit snapshot vectors --namespace NAME.",
        )

    namespaces = "all" if given.namespace is None else given.namespace
    named = ("previous", "title", "pinned")
    options = {name: getattr(given, name) for name in named}

    if given.snapshot is not None:
        report = tk.report_index(given.snapshot, **options)
        _show(report, given, "index-report.html")
        status = ExitStatus.DONE
    else:
        with (
            connected(given, "vector") as service,
            unknown_names_end(begin="The index has no namespace"),
        ):
            loaded = tk.load_vectors(
                service, namespace=namespaces, progress=progress_lines("vectors")
            )
            report = tk.report_index(service, loaded, **options)

        _show(report, given, "index-report.html")
        status = status_of(tk.get_receipt(loaded))

    if given.fail_on:
        healthy = report.values["healthy"]  # noqa: PD011 - of a report, not of a frame
        return judge_index(healthy, report.verdict, status, tell=_teller(given))

    return status


def _show(report: Any, given: argparse.Namespace, default: str) -> None:
    """Save the report to files, or write it to standard output in the form of ``--format``."""
    if given.format is None:
        _save(report, given.output or [default], print_result)
        if report.headline:
            say_wrapped(visible(report.headline))
        say_wrapped(visible(report.verdict))
        return

    content = _FORMS[given.format](report, given)
    # all files are saved before a reader of the output may leave
    _save(report, given.output or [], print_message)
    if isinstance(content, str):
        content = content.encode()
    write(content)
    if report.headline:
        print_message(visible(report.headline))
    print_message(visible(report.verdict))


def _save(report: Any, paths: Sequence[str], tell: Callable[[str], None]) -> None:
    saved = [report.save(path).resolve() for path in paths]
    for path in saved:
        tell(f"wrote {path}")


def _teller(given: argparse.Namespace) -> Callable[[str], None]:
    """Return the function that prints results: to standard output, unless the report is written there."""
    return print_result if given.format is None else print_message
