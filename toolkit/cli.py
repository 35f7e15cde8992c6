"""The command ``toolkit``: the same functions from a shell.

Addresses and tokens come from the environment alone (`toolkit.connect`): every user of a machine can read
command lines. Exit status:

====  ==========================================================================
0     done
1     an error, or a name that is not there, explained on standard error
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
import re
import sys
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Final, get_args

import toolkit as tk
from toolkit.analysis.wording import counted
from toolkit.cli_options import EXIT_HELP, add_command, add_filters, add_snapshot_options, filter_of
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
from toolkit.redrive.plan import ACTIONS, LEAVE
from toolkit.tables.text import json_value
from toolkit.version import __version__

DONE: Final = 0
FAILED: Final = 1
NOT_COMPLETE: Final = 3
NEW: Final = 4
WORSE: Final = 5
INTERRUPTED: Final = 130

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
        warnings.showwarning = lambda message, *_, **__: _complain(str(message))
        try:
            given = _parser(words[:1]).parse_args(words)
            return int(given.run(given))
        except IncompleteLoadError as error:
            if isinstance(error.__cause__, KeyboardInterrupt):
                _complain(f"interrupted; what was read ({_rows_of(error.partial)}) is not kept")
                return INTERRUPTED
            _complain(str(error))
            return NOT_COMPLETE
        except (ToolkitError, UnexpectedResultWarning) as error:
            _complain(str(error))
            return FAILED
        except KeyboardInterrupt:
            _complain("interrupted")
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
    add = add_command(commands, "demo", _demo, "run the main job end to end", "--out out --runs 200")
    add("--out", "where everything is written (out)", type=Path, default=Path("out"), metavar="DIR")
    add("--runs", "workflow runs to start (200)", type=int, default=200, metavar="N")
    add("--notebooks", "notebooks to execute (notebooks/, where that exists)", type=Path, metavar="DIR")

    add_command(commands, "serve", _serve, "run the embedded service", "--port 8080 --sample")
    if "serve" in first:
        from toolkit.local.startup import add_arguments  # noqa: PLC0415 - only for this command

        add_arguments(commands.choices["serve"])

    snapshot = commands.add_parser("snapshot", help="keep failures or vectors as Parquet")
    kinds = snapshot.add_subparsers(required=True, metavar="WHAT")
    summary, example = "bring a snapshot of the DLQ up to date", "snapshots/failures --every 1h"
    add = add_command(kinds, "failures", _snapshot_failures, summary, example)
    add_snapshot_options(add)
    what = "bring back what a damaged snapshot has lost: from its files, and from the queue"
    add("--repair", what, action="store_true")
    add_filters(kinds.choices["failures"])
    example = "snapshots/vectors --namespace runbooks --every 1d"
    add = add_command(kinds, "vectors", _snapshot_vectors, "export a vector index", example)
    add_snapshot_options(add)
    what = 'repeatable; "" is the default namespace (all namespaces)'
    add("--namespace", what, action="append", metavar="NAME")

    _add_report(commands)
    _add_redrive(commands)

    add = add_command(commands, "verify", _verify, "check every file of snapshots", "snapshots/failures")
    add("path", "folder of a snapshot", nargs="+")

    example = "'connection refused' --namespace runbooks --top-k 5 --filter \"city = 'Izmir'\""
    add = add_command(commands, "query", _query, "search a vector index by text", example)
    add("text", "what to look for")
    add("--top-k", "hits at most (10)", type=int, default=10, metavar="N")
    add("--namespace", "namespace to search (the default one)", default="", metavar="NAME")
    add("--filter", "metadata filter", default="", metavar="FILTER")
    add("--query-mode", "for hybrid indexes", choices=get_args(QueryMode))
    add("--json", "one JSON object a hit, with data and metadata", action="store_true")
    return parser


def _add_report(commands: Any) -> None:
    example = "--since 7d --output failure-report.html --output failure-report.md"
    add = add_command(commands, "report", _report, "report on failures, or on a vector index", example)
    what = "report on the vector index, or on a snapshot of one: health, recall, scores, changes"
    add("--vectors", what, action="store_true")
    what = ".html, .md, .json or .pdf; repeatable (failure-report.html, or index-report.html)"
    add("--output", what, action="append", metavar="FILE")
    add("--pdf", "the same for a .pdf; needs Chromium", action="append", dest="output", metavar="FILE")
    add("--snapshot", "report on a snapshot instead of asking the service", metavar="DIR")
    add("--previous", "a snapshot to compare with: what is new since then", metavar="DIR")
    add("--retention", "how long the service keeps failures (7d)", default="7d")
    add("--title", "title of the report")
    what = "end with 4 when a group was never seen before, 5 when the rate is higher than before; repeatable"
    add("--fail-on", what, action="append", default=[], choices=("new", "worse"))
    add("--limit", "read at most N failures, for a first look", type=int, metavar="N")
    add_filters(commands.choices["report"])


def _add_redrive(commands: Any) -> None:
    redrive = commands.add_parser("redrive", help="act on failures by a plan: plan, run, status")
    kinds = redrive.add_subparsers(required=True, metavar="WHAT")
    example = "--since 2d --workflow-url URL --output plan.json"
    summary = "plan what to do with failures; nothing is sent"
    add = add_command(kinds, "plan", _redrive_plan, summary, example)
    add("--output", "file of the plan (plan.json)", default="plan.json", metavar="FILE")
    add("--action", "for all (resume, or restart where --changed names it)", choices=(*ACTIONS, LEAVE))
    what = "workflow URL whose runs may be restarted though that repeats side effects; repeatable"
    add("--idempotent", what, action="append", default=[], metavar="URL")
    what = "workflow URL whose code changed before the step that failed; repeatable"
    add("--changed", what, action="append", default=[], metavar="URL")
    what = 'what is left otherwise, such as "poison input"; repeatable'
    add("--include", what, action="append", default=[], metavar="WHAT")
    add("--history", "ledger of earlier redrives: what came back is left", metavar="FILE")
    add("--canaries", "entries of each group that go first (1)", type=int, default=1, metavar="N")
    add("--wave", "entries of a group that go together after that (50)", type=int, default=50, metavar="N")
    what = "share of a group that may fail again before it is stopped (0.2)"
    add("--stop-above", what, type=float, default=0.2, metavar="SHARE")
    add("--deadline", "how long a wave is waited for (10m)", default="10m", metavar="DURATION")
    add("--rate", "deliveries a second, of all runs together", type=int, metavar="N")
    add("--parallelism", "concurrent deliveries, of all runs together", type=int, metavar="N")
    add_filters(kinds.choices["plan"])
    summary, example = "run a plan, or continue it after an interrupt", "plan.json --confirm 120-1a2b3c4d"
    add_run = add_command(kinds, "run", _redrive_run, summary, example)
    add_run("plan", "file of the plan")
    add_run("--confirm", "what the plan's preview ends with", required=True, metavar="COUNT-HASH")
    example = "--ledger redrive.sqlite"
    add_status = add_command(kinds, "status", _redrive_status, "how far a redrive is", example)
    add_status("--plan", "the start of a plan's hash (the latest)", metavar="HASH")
    what = "file that remembers every step (redrive.sqlite)"
    for add in (add_run, add_status):
        add("--ledger", what, default="redrive.sqlite", metavar="FILE")


def _status_of(receipt: tk.Receipt) -> int:
    """Say what a load did; returns the exit status."""
    _complain(str(receipt))
    return DONE if receipt.complete else NOT_COMPLETE


def _rows_of(partial: Any) -> str:
    return counted(0 if partial is None else len(partial), "row")


@contextmanager
def _mistakes_end(*, begin: str = "", then: str = "") -> Iterator[None]:
    """End the command where a warning that begins so says that a name is not there; `then` what follows."""
    with warnings.catch_warnings():
        warnings.filterwarnings("error", re.escape(begin), UnexpectedResultWarning)
        try:
            yield
        except UnexpectedResultWarning as warning:
            raise UnexpectedResultWarning(f"{warning}{then}") from None


def _say(text: str) -> None:
    print(text, flush=True)  # noqa: T201 - the result


def _complain(text: str) -> None:
    print(f"toolkit: {text}", file=sys.stderr)  # noqa: T201 - messages about it


@contextmanager
def _local_packages(doing: str) -> Iterator[None]:
    """Say how to install the extra [local] where an import of it fails."""
    try:
        yield
    except ImportError as error:
        raise LocalServiceError(
            doing,
            got=f"no module {error.name}",
            expected="the packages of the embedded service",
            next_step=f"Install them: pip install {LOCAL_PACKAGES}.",
        ) from None


def _demo(given: argparse.Namespace) -> int:
    with _local_packages("running the demo"):
        from toolkit_demo.run import run_demo  # noqa: PLC0415 - it needs the extra [local]
    notebooks = given.notebooks or Path("notebooks")
    done = run_demo(given.out, runs=given.runs, notebooks=notebooks if notebooks.is_dir() else None)
    for title, path in done.outputs():
        _say(f"{title:<10} {path}")
    for problem in done.problems:
        _complain(problem)
    return FAILED if done.problems else DONE


def _serve(given: argparse.Namespace) -> int:
    with _local_packages("running the embedded service"):
        from toolkit.local.serve import run  # noqa: PLC0415 - it needs the extra [local]
        from toolkit_demo.faults.middleware import Faults  # noqa: PLC0415 - only for this command
        from toolkit_demo.filling import fill  # noqa: PLC0415 - only for this command
    return run(given, fill=fill, interception=Faults.read(given.faults))


def _snapshot_failures(given: argparse.Namespace) -> int:
    chosen = filter_of(given)
    if given.every is not None and filter_of(given, now=datetime.now(UTC) - timedelta(hours=1)) != chosen:
        raise InputError(
            "syncing on a schedule",
            got="an age, which means different times at each run",
            expected="fixed times, or none",
            next_step="Sync everything, and choose when reading or reporting.",
        )

    options = {"filter": chosen, "kind": given.kind, "repair": given.repair}
    return _write_snapshot(given, tk.sync_failures, **options)


def _snapshot_vectors(given: argparse.Namespace) -> int:
    namespace = "all" if given.namespace is None else given.namespace
    with _mistakes_end():
        return _write_snapshot(given, tk.export_vectors, namespace=namespace)


def _write_snapshot(given: argparse.Namespace, write: Callable[..., Any], **options: Any) -> int:
    """Write once, or on a schedule. Errors that another run may not repeat are then reported and retried."""
    from toolkit.snapshots.resumable import repeat, sigterm_as_interrupt  # noqa: PLC0415 - heavy

    named = ("connections", "requests_per_second", "passes")
    options |= {name: getattr(given, name) for name in named if hasattr(given, name)}

    def run() -> tuple[str, tk.Receipt]:
        with tk.connect() as service:
            done = write(service, given.path, **options)
        return ("exported", done) if isinstance(done, tk.Receipt) else (done.verdict, done.receipt)

    def report() -> None:
        began = f"{datetime.now(UTC).isoformat(timespec='seconds')} {given.path}"
        try:
            verdict, receipt = run()
        except (SettingsError, InputError, SnapshotBindingError):
            raise
        except ToolkitError as error:
            _complain(f"{began}: {error}")
        else:
            _say(f"{began}: {verdict}; {receipt.verdict}")

    with sigterm_as_interrupt():
        if given.every is None:
            verdict, receipt = run()
            _say(f"{given.path}: {verdict}")
            return _status_of(receipt)
        try:
            repeat(report, every=given.every)
        except KeyboardInterrupt:
            _complain("stopped; the next run resumes an unfinished load")
            return DONE


def _report(given: argparse.Namespace) -> int:
    chosen = filter_of(given)
    selects = given.limit is not None or not chosen.is_empty or given.kind != "workflows"
    if given.vectors:
        return _report_vectors(given, selects=selects)
    if given.snapshot is not None:
        if selects:
            raise InputError(
                "reporting on a snapshot",
                got="filters, a kind or a limit together with --snapshot",
                expected="the snapshot alone",
                next_step="Leave them out, or report from the service without --snapshot.",
            )
        failures, redactor = tk.read_snapshot(given.snapshot), None
    else:
        nothing = " So --fail-on has nothing to judge, and no report is written."
        judging = _mistakes_end(then=nothing) if given.fail_on else nullcontext()
        with tk.connect() as service, judging:
            failures = tk.load_failures(service, chosen, kind=given.kind, limit=given.limit)
            redactor = service.redactor
    previous = None if given.previous is None else tk.read_snapshot(given.previous)
    report = tk.failure_report(
        failures, previous, retention=given.retention, title=given.title, redactor=redactor
    )
    _save(report, given.output or ["failure-report.html"])
    if "receipt" in failures.attrs:
        status = _status_of(tk.receipt(failures))
    else:  # a snapshot written from a frame that no loader made
        _complain("no receipt: whether these are all failures is not known")
        status = DONE
    return _judged(report.to_dict()["change"], given.fail_on) or status


def _report_vectors(given: argparse.Namespace, *, selects: bool) -> int:
    if selects or given.fail_on:
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
    _save(report, given.output or ["index-report.html"])
    return DONE if loaded is None else _status_of(tk.receipt(loaded))


def _save(report: Any, paths: Sequence[str]) -> None:
    saved = [report.save(path).resolve() for path in paths]  # all, before a reader of the output may leave
    for path in saved:
        _say(f"wrote {path}")
    _say(visible(report.verdict))


def _judged(change: Mapping[str, Any], fail_on: Sequence[str]) -> int:
    """The exit status of what is new or worse; 0 where neither is, or nothing earlier is known."""
    facts = {"new": change["new_groups"], "worse": change["worse"]}
    for name in fail_on:
        if facts[name] is None:
            _complain(f"--fail-on {name}: nothing earlier to compare with")

    def named(groups: Sequence[str]) -> str:
        return "; ".join(f"{change['titles'][group]} ({group})" for group in groups)

    status = DONE
    if "new" in fail_on and facts["new"]:
        _complain(visible(f"new since {change['since']}: {named(facts['new'])}"))
        status = NEW
    if "worse" in fail_on and facts["worse"]:
        expected = "" if change["expected"] is None else f", usually {change['expected']:,.0f} in such a time"
        grown = f"; grown: {named(change['grown_groups'])}" if change["grown_groups"] else ""
        _complain(visible(f"worse since {change['since']}: {change['failures']:,} failures{expected}{grown}"))
        status = status or WORSE
    return status


def _redrive_plan(given: argparse.Namespace) -> int:
    if given.kind != "workflows":
        raise InputError("planning a redrive", got=f"--kind {given.kind}", expected="workflow runs")
    with tk.connect() as service:
        failures = tk.load_failures(service, filter_of(given))
    options = ("idempotent", "changed", "include", "history", "canaries", "wave", "stop_above", "deadline")
    limits = {name: getattr(given, name) for name in (*options, "rate", "parallelism")}
    plan = tk.plan_redrive(failures, actions=given.action, **limits)
    saved = plan.save(given.output).resolve()  # before anything is printed, as the reader may leave early
    _say(visible(repr(plan)))
    _say(f"wrote {saved}")
    return _status_of(tk.receipt(failures))


def _redrive_run(given: argparse.Namespace) -> int:
    plan = tk.RedrivePlan.read(given.plan)
    with tk.connect() as service:
        result = tk.run_redrive(service, plan, ledger=given.ledger, confirm=given.confirm)
    _say(visible(repr(result)))
    left = result.frame["state"].isin(("succeeded", "called", "deleted", "left"))
    return DONE if left.all() else NOT_COMPLETE


def _redrive_status(given: argparse.Namespace) -> int:
    _say(visible(repr(tk.redrive_status(given.ledger, given.plan))))
    return DONE


def _verify(given: argparse.Namespace) -> int:
    for path in given.path:
        _say(f"{path}: {tk.verify_snapshot(path)}")
    return DONE


def _query(given: argparse.Namespace) -> int:
    named = ("top_k", "namespace", "filter", "query_mode")
    options = {name: getattr(given, name) for name in named}
    with tk.connect() as service, _mistakes_end(begin="The index has no namespace"):
        hits = tk.query_text(service, given.text, include_data=True, include_metadata=True, **options)
    if hits.empty:
        _complain("no hits")
    mask = service.redactor.text
    columns = (hits[name].tolist() for name in ("rank", "id", "score", "data", "metadata"))
    for rank, vector_id, score, text, metadata in zip(*columns, strict=True):
        data = mask(text) if isinstance(text, str) else None
        if given.json:
            parsed = json_value(metadata) if isinstance(metadata, str) else None
            masked = service.redactor.value(parsed)
            hit = {"rank": rank, "id": vector_id, "score": score, "data": data, "metadata": masked}
            _say(json.dumps(hit))
        else:
            _say(f"{rank:>3}  {score:.4f}  {visible(vector_id)}  {visible(' '.join((data or '').split()))}")
    return DONE
