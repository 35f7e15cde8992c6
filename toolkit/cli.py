"""The command ``toolkit``: the same functions from a shell.

Addresses and tokens come from the environment alone (`toolkit.connect`): every user of a machine can read
command lines. Exit status:

====  ==========================================================================
0     done
1     an error, explained on standard error
2     the command line is not understood
3     done, but the load is not complete, or a redrive has left or brought back some; standard error says why
4     with ``--fail-on new``: a group of failures was never seen before
5     with ``--fail-on worse``: failures come at a higher rate than before
130   interrupted, by Ctrl-C or SIGTERM
====  ==========================================================================

With ``--every``, an interrupt is the way to end, so the status is 0.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import warnings
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Final, get_args

import toolkit as tk
from toolkit.command_line import (
    DONE,
    EXIT_HELP,
    FAILED,
    INTERRUPTED,
    NEW,
    NOT_COMPLETE,
    WORSE,
    add_command,
    add_filters,
    add_redrive,
    complain,
    filter_of,
    say,
    status_of,
)
from toolkit.errors import (
    IncompleteLoadError,
    IncompleteLoadWarning,
    InputError,
    LocalServiceError,
    SettingsError,
    SnapshotBindingError,
    ToolkitError,
    UnexpectedResultWarning,
)
from toolkit.filters.query import QueryMode
from toolkit.redaction import visible
from toolkit.tables.text import json_value
from toolkit.times import parse_duration
from toolkit.version import __version__

_SERVICE_HELP: Final = """\
The service is found through the environment: TOOLKIT_QUEUE_URL and TOOLKIT_QUEUE_TOKEN,
TOOLKIT_VECTOR_URL and TOOLKIT_VECTOR_TOKEN, or the public service's own QSTASH_TOKEN,
UPSTASH_VECTOR_REST_URL and UPSTASH_VECTOR_REST_TOKEN."""
LOCAL_PACKAGES: Final = "cronsim h11 httpx starlette uvicorn"
"""The packages of the extra [local], by name, which install from any source of the toolkit."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command.

    Parameters
    ----------
    arguments : sequence of str, optional
        Default: those of this process.

    Returns
    -------
    int
        The exit status; the module's docstring lists them.

    Examples
    --------
    >>> main(["verify", "no-such-snapshot"])
    1
    """
    words = list(sys.argv[1:] if arguments is None else arguments)
    with warnings.catch_warnings():
        # a load that is not complete ends with status 3 and its reasons; the warning would repeat them
        warnings.simplefilter("ignore", IncompleteLoadWarning)
        # a mistyped label or namespace is reported like an error, without the line of code that warned
        warnings.simplefilter("always", UnexpectedResultWarning)
        warnings.showwarning = lambda message, *_, **__: complain(str(message))
        try:
            given = _parser(words[:1]).parse_args(words)
            return int(given.run(given))
        except IncompleteLoadError as error:
            complain(str(error))
            return NOT_COMPLETE
        except ToolkitError as error:
            complain(str(error))
            return FAILED
        except KeyboardInterrupt:
            complain("interrupted")
            return INTERRUPTED
        except BrokenPipeError:
            # the reader of the output has ended; keep the interpreter from complaining about it on exit
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            return FAILED


def _parser(first: Sequence[str]) -> argparse.ArgumentParser:
    """The whole command line; the options of `serve` are only looked up for that command."""
    parser = argparse.ArgumentParser(
        prog="toolkit",
        description="Failed workflow runs and vector indexes: load, keep, report on, query.",
        epilog=f"{_SERVICE_HELP}\n\n{EXIT_HELP}",
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    parser.add_argument("--version", action="version", version=f"toolkit {__version__}")
    commands = parser.add_subparsers(required=True, metavar="COMMAND")
    add = add_command(
        commands, "demo", _demo, "run the main job end to end", "toolkit demo --out out --runs 200"
    )
    add("--out", "where everything is written (out)", type=Path, default=Path("out"), metavar="DIR")
    add("--runs", "workflow runs to start (200)", type=int, default=200, metavar="N")
    add("--notebooks", "notebooks to execute (notebooks/, where that exists)", type=Path, metavar="DIR")

    add = add_command(
        commands, "serve", _serve, "run the embedded service", "toolkit serve --port 8080 --sample"
    )
    if "serve" in first:
        from toolkit.local.startup import add_arguments  # noqa: PLC0415 - only for this command

        add_arguments(commands.choices["serve"])

    snapshot = commands.add_parser("snapshot", help="keep failures or vectors as Parquet")
    kinds = snapshot.add_subparsers(required=True, metavar="WHAT")
    example = "toolkit snapshot failures snapshots/failures --every 1h"
    add = add_command(
        kinds, "failures", _snapshot_failures, "bring a snapshot of the DLQ up to date", example
    )
    _add_snapshot_options(add)
    what = "bring back what a damaged snapshot has lost: from its files, and from the queue"
    add("--repair", what, action="store_true")
    add_filters(kinds.choices["failures"])
    example = "toolkit snapshot vectors snapshots/vectors --namespace runbooks --every 1d"
    add = add_command(kinds, "vectors", _snapshot_vectors, "export a vector index", example)
    _add_snapshot_options(add)
    what = 'repeatable; "" is the default namespace (all namespaces)'
    add("--namespace", what, action="append", metavar="NAME")

    _add_report(commands)
    add_redrive(commands)

    example = "toolkit verify snapshots/failures"
    add = add_command(commands, "verify", _verify, "check every file of snapshots", example)
    add("path", "folder of a snapshot", nargs="+")

    example = "toolkit query 'connection refused' --namespace runbooks --top-k 5 --filter \"city = 'Izmir'\""
    add = add_command(commands, "query", _query, "search a vector index by text", example)
    add("text", "what to look for")
    add("--top-k", "hits at most (10)", type=int, default=10, metavar="N")
    add("--namespace", "namespace to search (the default one)", default="", metavar="NAME")
    add("--filter", "metadata filter", default="", metavar="FILTER")
    add("--query-mode", "for hybrid indexes", choices=get_args(QueryMode))
    add("--json", "one JSON object a hit, with data and metadata", action="store_true")
    return parser


def _add_snapshot_options(add: Callable[..., object]) -> None:
    add("path", "folder of the snapshot, made when missing; or s3://bucket/prefix")
    what = "repeat until Ctrl-C or SIGTERM: every 30s, 15m, 1h or 1d. Without it, run once, as for cron"
    add("--every", what, type=_seconds, metavar="DURATION")
    what = "concurrent requests at most (16)"
    add("--connections", what, type=int, default=argparse.SUPPRESS, metavar="N")
    what = "requests a second, at most (as many as the service allows)"
    add("--requests-per-second", what, type=float, default=argparse.SUPPRESS, metavar="N")
    add("--passes", "2 reads everything twice and compares (1)", type=int, choices=(1, 2), default=1)


def _seconds(text: str) -> float:
    """Seconds of a duration such as 15m."""
    try:
        return parse_duration(text).total_seconds()
    except InputError as error:
        raise argparse.ArgumentTypeError(f"got {error.got}; expected {error.expected}") from None


def _add_report(commands: Any) -> None:
    example = "toolkit report --since 7d --output failure-report.html --output failure-report.md"
    add = add_command(commands, "report", _report, "report on failures, or on a vector index", example)
    what = "report on the vector index, or on a snapshot of one: health, recall, scores, changes"
    add("--vectors", what, action="store_true")
    what = ".html, .md, .json or .pdf; repeatable (failure-report.html, or index-report.html)"
    add("--output", what, action="append", metavar="FILE")
    what = "the same for a .pdf; needs Chromium"
    add("--pdf", what, action="append", dest="output", metavar="FILE")
    add("--snapshot", "report on a snapshot instead of asking the service", metavar="DIR")
    add("--previous", "a snapshot to compare with: what is new since then", metavar="DIR")
    add("--retention", "how long the service keeps failures (7d)", default="7d")
    add("--title", "title of the report")
    what = "end with 4 when a group was never seen before, 5 when the rate is higher than before; repeatable"
    add("--fail-on", what, action="append", default=[], choices=("new", "worse"))
    add("--limit", "read at most N failures, for a first look", type=int, metavar="N")
    add_filters(commands.choices["report"])


def _demo(given: argparse.Namespace) -> int:
    try:
        from toolkit_demo.run import run_demo  # noqa: PLC0415 - it needs the extra [local]
    except ImportError as error:
        raise _not_installed("running the demo", error) from None
    notebooks = given.notebooks or Path("notebooks")
    done = run_demo(given.out, runs=given.runs, notebooks=notebooks if notebooks.is_dir() else None)
    for title, path in done.outputs():
        say(f"{title:<10} {path}")
    for problem in done.problems:
        complain(problem)
    return FAILED if done.problems else DONE


def _serve(given: argparse.Namespace) -> int:
    try:
        from toolkit.local.serve import run  # noqa: PLC0415 - it needs the extra [local]
        from toolkit_demo.faults.middleware import Faults  # noqa: PLC0415 - only for this command
        from toolkit_demo.filling import fill  # noqa: PLC0415 - only for this command
    except ImportError as error:
        raise _not_installed("running the embedded service", error) from None
    return run(given, fill=fill, interception=Faults.read(given.faults))


def _not_installed(doing: str, error: ImportError) -> LocalServiceError:
    return LocalServiceError(
        doing,
        got=f"no module {error.name}",
        expected="the packages of the embedded service",
        next_step=f"Install them: pip install {LOCAL_PACKAGES}.",
    )


def _snapshot_failures(given: argparse.Namespace) -> int:
    chosen = filter_of(given)
    if given.every is not None and filter_of(given, now=datetime.now(UTC) - timedelta(hours=1)) != chosen:
        raise InputError(
            "syncing on a schedule",
            got="an age, which means different times at each run",
            expected="fixed times, or none",
            next_step="Sync everything, and choose when reading or reporting.",
        )

    def run() -> tuple[str, tk.Receipt]:
        with tk.connect() as service:
            changes = tk.sync_failures(
                service,
                given.path,
                filter=chosen,
                kind=given.kind,
                repair=given.repair,
                **_load_options(given),
            )
        return changes.verdict, changes.receipt

    return _run(given, run)


def _snapshot_vectors(given: argparse.Namespace) -> int:
    namespace = "all" if given.namespace is None else given.namespace

    def run() -> tuple[str, tk.Receipt]:
        with tk.connect() as service:
            receipt = tk.export_vectors(service, given.path, namespace=namespace, **_load_options(given))
        return "exported", receipt

    return _run(given, run)


def _load_options(given: argparse.Namespace) -> dict[str, Any]:
    named = ("connections", "requests_per_second", "passes")
    return {name: getattr(given, name) for name in named if hasattr(given, name)}


def _run(given: argparse.Namespace, run: Callable[[], tuple[str, tk.Receipt]]) -> int:
    """Run once, or on a schedule. Errors that another run may not repeat are then reported and retried."""
    from toolkit.snapshots.resumable import repeat, sigterm_as_interrupt  # noqa: PLC0415 - heavy

    def report() -> None:
        began = f"{datetime.now(UTC).isoformat(timespec='seconds')} {given.path}"
        try:
            verdict, receipt = run()
        except (SettingsError, InputError, SnapshotBindingError):
            raise
        except ToolkitError as error:
            complain(f"{began}: {error}")
        else:
            say(f"{began}: {verdict}; {receipt.verdict}")

    with sigterm_as_interrupt():
        if given.every is None:
            verdict, receipt = run()
            say(f"{given.path}: {verdict}")
            return status_of(receipt)
        try:
            repeat(report, every=given.every)
        except KeyboardInterrupt:
            complain("stopped; the next run resumes an unfinished load")
            return DONE


def _report(given: argparse.Namespace) -> int:
    chosen = filter_of(given)
    if given.vectors:
        return _report_vectors(given, chosen)
    if given.snapshot is not None:
        if given.limit is not None or not chosen.is_empty or given.kind != "workflows":
            raise InputError(
                "reporting on a snapshot",
                got="filters, a kind or a limit together with --snapshot",
                expected="the snapshot alone",
                next_step="Leave them out, or report from the service without --snapshot.",
            )
        failures, redactor = tk.read_snapshot(given.snapshot), None
    else:
        with tk.connect() as service:
            failures = tk.load_failures(service, chosen, kind=given.kind, limit=given.limit)
            redactor = service.redactor
    previous = None if given.previous is None else tk.read_snapshot(given.previous)
    report = tk.failure_report(
        failures, previous, retention=given.retention, title=given.title, redactor=redactor
    )
    for path in given.output or ["failure-report.html"]:
        say(f"wrote {report.save(path).resolve()}")
    say(visible(report.verdict))
    if "receipt" in failures.attrs:
        status = status_of(tk.receipt(failures))
    else:  # a snapshot written from a frame that no loader made
        complain("no receipt: whether these are all failures is not known")
        status = DONE
    return _judged(report.to_dict()["change"], given.fail_on) or status


def _judged(change: Mapping[str, Any], fail_on: Sequence[str]) -> int:
    """The exit status of what is new or worse; 0 where neither is, or nothing earlier is known."""
    facts = {"new": change["new_groups"], "worse": change["worse"]}
    for name in fail_on:
        if facts[name] is None:
            complain(f"--fail-on {name}: nothing earlier to compare with")

    def named(groups: Sequence[str]) -> str:
        return "; ".join(f"{change['titles'][group]} ({group})" for group in groups)

    if "new" in fail_on and facts["new"]:
        complain(visible(f"new since {change['since']}: {named(facts['new'])}"))
        return NEW
    if "worse" in fail_on and facts["worse"]:
        expected = "" if change["expected"] is None else f" instead of {change['expected']:,.0f}"
        grown = f"; grown: {named(change['grown_groups'])}" if change["grown_groups"] else ""
        complain(visible(f"worse since {change['since']}: {change['failures']:,} failures{expected}{grown}"))
        return WORSE
    return DONE


def _report_vectors(given: argparse.Namespace, chosen: tk.FailureFilter) -> int:
    if given.limit is not None or not chosen.is_empty or given.kind != "workflows" or given.fail_on:
        raise InputError(
            "reporting on a vector index",
            got="options for failures together with --vectors",
            expected="--snapshot, --previous, --title and --output alone",
            next_step="Leave them out.",
        )
    options = {"previous": given.previous, "title": given.title}
    loaded = None
    if given.snapshot is not None:
        report = tk.index_report(given.snapshot, **options)
    else:
        with tk.connect() as service:
            loaded = tk.load_vectors(service, namespace="all")
            report = tk.index_report(service, loaded, **options)
    for path in given.output or ["index-report.html"]:
        say(f"wrote {report.save(path).resolve()}")
    say(visible(report.verdict))
    return DONE if loaded is None else status_of(tk.receipt(loaded))


def _verify(given: argparse.Namespace) -> int:
    for path in given.path:
        say(f"{path}: {tk.verify_snapshot(path)}")
    return DONE


def _query(given: argparse.Namespace) -> int:
    with tk.connect() as service:
        hits = tk.query_text(
            service,
            given.text,
            top_k=given.top_k,
            namespace=given.namespace,
            filter=given.filter,
            query_mode=given.query_mode,
            include_data=True,
            include_metadata=True,
        )
    mask = service.redactor.text
    columns = (hits[name].tolist() for name in ("rank", "id", "score", "data", "metadata"))
    for rank, vector_id, score, text, metadata in zip(*columns, strict=True):
        data = mask(text) if isinstance(text, str) else None
        if given.json:
            parsed = json_value(metadata) if isinstance(metadata, str) else None
            masked = service.redactor.value(parsed)
            hit = {"rank": rank, "id": vector_id, "score": score, "data": data, "metadata": masked}
            say(json.dumps(hit))
        else:
            say(f"{rank:>3}  {score:.4f}  {visible(vector_id)}  {visible(' '.join((data or '').split()))}")
    return DONE
