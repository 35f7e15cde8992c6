"""The command ``toolkit``: the same functions from a shell.

Where the service is, and with which tokens, comes from the environment alone (`toolkit.connect`): every
user of a machine can read command lines. Exit status:

====  ==========================================================================
0     done
1     an error, explained on standard error
2     the command line is not understood
3     done as far as possible, but the load is not complete; standard error says why
130   interrupted, by Ctrl-C or SIGTERM
====  ==========================================================================

With ``--every``, being interrupted is the way to end, so the status is 0.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import warnings
from collections.abc import Callable, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Final

import toolkit as tk
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
from toolkit.filters.failure import FIELDS
from toolkit.redaction import visible
from toolkit.tables.text import json_value
from toolkit.times import parse_duration
from toolkit.version import __version__

DONE: Final = 0
FAILED: Final = 1
NOT_COMPLETE: Final = 3
INTERRUPTED: Final = 130

_SERVICE_HELP: Final = """\
The service is found through the environment: TOOLKIT_QUEUE_URL and TOOLKIT_QUEUE_TOKEN,
TOOLKIT_VECTOR_URL and TOOLKIT_VECTOR_TOKEN, or the public service's own QSTASH_TOKEN,
UPSTASH_VECTOR_REST_URL and UPSTASH_VECTOR_REST_TOKEN."""
_EXIT_HELP: Final = """\
exit status: 0 done, 1 error, 2 command line not understood, 3 load not complete, 130 interrupted"""

LOCAL_PACKAGES: Final = "h11 httpx starlette uvicorn"
"""What the extra [local] installs, by name: a command that works wherever the toolkit itself came from."""


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
        # a load that is not complete ends with status 3 and its reasons; the warning would say them twice
        warnings.simplefilter("ignore", IncompleteLoadWarning)
        # a mistyped label or namespace is said as errors are, without the line of code that warned
        warnings.simplefilter("always", UnexpectedResultWarning)
        warnings.showwarning = lambda message, *_, **__: _complain(str(message))
        try:
            given = _parser(words[:1]).parse_args(words)
            return int(given.run(given))
        except IncompleteLoadError as error:
            _complain(str(error))
            return NOT_COMPLETE
        except ToolkitError as error:
            _complain(str(error))
            return FAILED
        except KeyboardInterrupt:
            _complain("interrupted")
            return INTERRUPTED
        except BrokenPipeError:
            # whoever read the output has left; keep the interpreter from complaining about it at its end
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            return FAILED


def _parser(first: Sequence[str]) -> argparse.ArgumentParser:
    """The whole command line; `serve`'s own options are only looked up when it is asked for."""
    parser = argparse.ArgumentParser(
        prog="toolkit",
        description="Failed workflow runs and vector indexes: load, keep, report on, query.",
        epilog=f"{_SERVICE_HELP}\n\n{_EXIT_HELP}",
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    parser.add_argument("--version", action="version", version=f"toolkit {__version__}")
    commands = parser.add_subparsers(required=True, metavar="COMMAND")

    demo = _command(
        commands, "demo", _demo, "run the main job end to end", "toolkit demo --out out --runs 200"
    )
    demo.add_argument(
        "--out", type=Path, default=Path("out"), metavar="DIR", help="where everything is written (out)"
    )
    demo.add_argument("--runs", type=int, default=200, metavar="N", help="workflow runs to start (200)")
    demo.add_argument(
        "--notebooks", type=Path, metavar="DIR", help="notebooks to execute (notebooks/, where that exists)"
    )

    serve = _command(
        commands, "serve", _serve, "run the embedded service", "toolkit serve --port 8080 --sample"
    )
    if "serve" in first:
        from toolkit.local.options import add_arguments  # noqa: PLC0415 - only for this command

        add_arguments(serve)

    snapshot = commands.add_parser("snapshot", help="keep failures or vectors as Parquet").add_subparsers(
        required=True, metavar="WHAT"
    )
    failures = _command(
        snapshot,
        "failures",
        _snapshot_failures,
        "bring a snapshot of the DLQ up to date",
        "toolkit snapshot failures snapshots/failures --every 1h",
    )
    _add_snapshot_arguments(failures)
    failures.add_argument(
        "--repair",
        action="store_true",
        help="bring back what a damaged snapshot has lost: from its files, and from the queue",
    )
    _add_filters(failures)
    vectors = _command(
        snapshot,
        "vectors",
        _snapshot_vectors,
        "export a vector index",
        "toolkit snapshot vectors snapshots/vectors --namespace runbooks --every 1d",
    )
    _add_snapshot_arguments(vectors)
    vectors.add_argument(
        "--namespace",
        action="append",
        metavar="NAME",
        help='repeatable; "" is the default namespace (all namespaces)',
    )

    report = _command(
        commands,
        "report",
        _report,
        "report on failures",
        "toolkit report --since 7d --output failure-report.html --output failure-report.md",
    )
    report.add_argument(
        "--output",
        action="append",
        metavar="FILE",
        help=".html, .md, .json or .pdf; repeatable (failure-report.html)",
    )
    report.add_argument(
        "--pdf", action="append", dest="output", metavar="FILE", help="the same for a .pdf; needs Chromium"
    )
    report.add_argument(
        "--snapshot", metavar="DIR", help="report on a snapshot instead of asking the service"
    )
    report.add_argument(
        "--previous", metavar="DIR", help="a snapshot to compare with: what is new since then"
    )
    report.add_argument("--retention", default="7d", help="how long the service keeps failures (7d)")
    report.add_argument("--title", help="title of the report")
    report.add_argument("--limit", type=int, metavar="N", help="read at most N failures, for a first look")
    _add_filters(report)

    verify = _command(
        commands, "verify", _verify, "check every file of snapshots", "toolkit verify snapshots/failures"
    )
    verify.add_argument("path", nargs="+", help="folder of a snapshot")

    query = _command(
        commands,
        "query",
        _query,
        "search a vector index by text",
        "toolkit query 'connection refused' --namespace runbooks --top-k 5 --filter \"city = 'Izmir'\"",
    )
    query.add_argument("text", help="what to look for")
    query.add_argument("--top-k", type=int, default=10, metavar="N", help="hits at most (10)")
    query.add_argument(
        "--namespace", default="", metavar="NAME", help="namespace to search (the default one)"
    )
    query.add_argument("--filter", default="", metavar="FILTER", help="metadata filter")
    query.add_argument("--query-mode", choices=("HYBRID", "DENSE", "SPARSE"), help="for hybrid indexes")
    query.add_argument("--json", action="store_true", help="one JSON object a hit, with data and metadata")
    return parser


def _command(
    commands: Any, name: str, run: Callable[[argparse.Namespace], int], summary: str, example: str
) -> argparse.ArgumentParser:
    command: argparse.ArgumentParser = commands.add_parser(
        name,
        help=summary,
        description=f"{summary[0].upper()}{summary[1:]}.",
        epilog=f"example:\n  {example}\n\n{_EXIT_HELP}",
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    command.set_defaults(run=run)
    return command


def _add_snapshot_arguments(command: argparse.ArgumentParser) -> None:
    command.add_argument("path", help="folder of the snapshot, made when missing; or s3://bucket/prefix")
    command.add_argument(
        "--every",
        type=_seconds,
        metavar="DURATION",
        help="again and again, until Ctrl-C or SIGTERM: 30s, 15m, 1h, 1d. Without it, once, as cron wants it",
    )
    command.add_argument(
        "--connections", type=int, default=argparse.SUPPRESS, metavar="N", help="most requests at once (16)"
    )
    command.add_argument(
        "--requests-per-second",
        type=float,
        default=argparse.SUPPRESS,
        metavar="N",
        help="requests a second, at most (as many as the service allows)",
    )
    command.add_argument(
        "--passes", type=int, choices=(1, 2), default=1, help="2 reads everything twice and compares (1)"
    )


def _seconds(text: str) -> float:
    """Seconds of a duration such as 15m."""
    try:
        return parse_duration(text).total_seconds()
    except InputError as error:
        raise argparse.ArgumentTypeError(f"got {error.got}; expected {error.expected}") from None


def _add_filters(command: argparse.ArgumentParser) -> None:
    group = command.add_argument_group(
        "which failures", "Different filters combine with AND, repeated ones with OR."
    )
    for field in FIELDS.values():
        if field.option:
            several: dict[str, Any] = {"action": "append", "default": []} if field.many else {}
            read = int if field.kind == "status" else str
            group.add_argument(
                field.option, dest=field.name, metavar=field.metavar, help=field.help, type=read, **several
            )
    group.add_argument(
        "--kind",
        choices=("workflows", "messages"),
        default="workflows",
        help="failed workflow runs, or failed plain messages (workflows)",
    )


def _filter(given: argparse.Namespace, *, now: datetime | None = None) -> tk.FailureFilter:
    chosen = {field.name: getattr(given, field.name) for field in FIELDS.values() if field.option}
    return tk.FailureFilter(now=now, **chosen)


def _demo(given: argparse.Namespace) -> int:
    try:
        from toolkit_demo.run import run_demo  # noqa: PLC0415 - it needs the extra [local]
    except ImportError as error:
        raise _not_installed("running the demo", error) from None
    notebooks = given.notebooks or Path("notebooks")
    done = run_demo(given.out, runs=given.runs, notebooks=notebooks if notebooks.is_dir() else None)
    for title, path in done.places():
        _say(f"{title:<10} {path}")
    for problem in done.problems:
        _complain(problem)
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
    chosen = _filter(given)
    if given.every is not None and _filter(given, now=datetime.now(UTC) - timedelta(hours=1)) != chosen:
        raise InputError(
            "syncing on a schedule",
            got="an age, which means other times at each run",
            expected="times that stay, or none",
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
    """Run once, or on a schedule. What another run may heal is then said and tried again."""
    from toolkit.snapshots.resumable import repeat, sigterm_as_interrupt  # noqa: PLC0415 - heavy

    def said() -> None:
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
            return _status(receipt)
        try:
            repeat(said, every=given.every)
        except KeyboardInterrupt:
            _complain("stopped; the next run resumes an unfinished load")
            return DONE


def _report(given: argparse.Namespace) -> int:
    chosen = _filter(given)
    if given.snapshot is not None:
        if given.limit is not None or not chosen.is_empty or given.kind != "workflows":
            raise InputError(
                "reporting on a snapshot",
                got="filters, a kind or a limit beside --snapshot",
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
        _say(f"wrote {report.save(path).resolve()}")
    _say(visible(report.verdict))
    return _status(tk.receipt(failures))


def _verify(given: argparse.Namespace) -> int:
    for path in given.path:
        _say(f"{path}: {tk.verify_snapshot(path)}")
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
    for rank, found, score, text, metadata in zip(*columns, strict=True):
        data = mask(text) if isinstance(text, str) else None
        if given.json:
            parsed = json_value(metadata) if isinstance(metadata, str) else None
            masked = service.redactor.value(parsed)
            hit = {"rank": rank, "id": found, "score": score, "data": data, "metadata": masked}
            _say(json.dumps(hit))
        else:
            _say(f"{rank:>3}  {score:.4f}  {visible(found)}  {visible(' '.join((data or '').split()))}")
    return DONE


def _status(receipt: tk.Receipt) -> int:
    _complain(str(receipt))
    return DONE if receipt.complete else NOT_COMPLETE


def _say(text: str) -> None:
    print(text, flush=True)  # noqa: T201 - what was asked for


def _complain(text: str) -> None:
    print(f"toolkit: {text}", file=sys.stderr)  # noqa: T201 - and what is said about it
