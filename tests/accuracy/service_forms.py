"""Measure how bodies of services are read: groups, the column `error`, titles and plans.

The bodies of `service_bodies.py` are loaded from a queue on this machine, as failures are in production. Run
`python -m tests.accuracy.service_forms -v` to see each form that is read wrongly.
"""

import json
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from itertools import combinations

import toolkit as tk
from tests.accuracy.service_bodies import FORMS, Form
from toolkit.analysis import error_signatures


@dataclass(frozen=True)
class Case:
    """One body, the answers that are right, and the answers that were found."""

    form: str
    group: str
    error: tuple[str, ...]
    action: str
    found_group: str
    found_error: str
    found_title: str
    found_action: str


@dataclass(frozen=True)
class Score:
    """How many of the checks passed."""

    right: int
    checked: int

    def __str__(self) -> str:
        return f"{self.right} of {self.checked}"


def read_forms(forms: Sequence[Form]) -> list[Case]:
    """Load the bodies from a queue, and return one case per body."""
    asked = [
        (form, group, body)
        for form in forms
        for group, bodies in form.groups.items()
        for body in bodies
    ]
    entries = [
        _entry(number, form, body) for number, (form, _, body) in enumerate(asked, 1)
    ]
    with _queue(json.dumps({"messages": entries, "cursor": ""}).encode()) as address:
        service = tk.connect(queue_url=address, queue_token="t", environ={})
        frame = tk.load_failures(service, progress=False)
    frame = frame.set_index("dlq_id", drop=False).loc[
        [str(entry["dlqId"]) for entry in entries]
    ]
    groups = list(error_signatures(list(frame["response_body"])))
    plan = {
        entry["dlq_id"]: entry
        for entry in json.loads(tk.plan_redrive(frame).to_json())["entries"]
    }
    return [
        Case(
            form=form.name,
            group=group,
            error=_words(form.error.get(group, ())),
            action=form.action.get(group, ""),
            found_group=str(found_group),
            found_error=str(found_error),
            found_title=str(plan.get(dlq_id, {}).get("title")),
            found_action=str(plan.get(dlq_id, {}).get("action", "leave")),
        )
        for (form, group, _), dlq_id, found_group, found_error in zip(
            asked, frame["dlq_id"], groups, frame["error"], strict=True
        )
    ]


def wrong_groups(cases: Sequence[Case]) -> list[str]:
    """Return the pairs of groups of one form that are split or merged, for example `merged a/b`."""
    wrong = set()
    for one, other in combinations(cases, 2):
        is_one_error = one.group == other.group
        if is_one_error != (one.found_group == other.found_group):
            wrong.add(
                f"{'split' if is_one_error else 'merged'} {one.group}/{other.group}"
            )
    return sorted(wrong)


def names_error(case: Case, text: str) -> bool:
    """Whether the text contains one of the words that name the error."""
    return any(word.lower() in text.lower() for word in case.error)


def is_planned(case: Case) -> bool:
    """Whether the plan leaves or retries the failure as it should."""
    return (case.action == "leave") == (case.found_action == "leave")


def scores(cases: Sequence[Case]) -> dict[str, Score]:
    """Count the forms grouped rightly, and the bodies whose error, title and plan are right."""
    forms = list(dict.fromkeys(case.form for case in cases))
    grouped = [
        form
        for form in forms
        if not wrong_groups([case for case in cases if case.form == form])
    ]
    named = [case for case in cases if case.error]
    planned = [case for case in cases if case.action]
    return {
        "forms grouped rightly": Score(len(grouped), len(forms)),
        "column `error` right": Score(
            sum(names_error(case, case.found_error) for case in named), len(named)
        ),
        "titles right": Score(
            sum(names_error(case, case.found_title) for case in named), len(named)
        ),
        "plans right": Score(sum(is_planned(case) for case in planned), len(planned)),
    }


def faults(cases: Sequence[Case]) -> Iterator[str]:
    """Yield one line per form, error, title and plan that is wrong."""
    for form in dict.fromkeys(case.form for case in cases):
        yield from (
            f"{form}: {pair}"
            for pair in wrong_groups([case for case in cases if case.form == form])
        )
    for case in cases:
        if case.error and not names_error(case, case.found_error):
            yield f"{case.form}: error of {case.group}: {case.found_error[:90]!r}"
        if case.error and not names_error(case, case.found_title):
            yield f"{case.form}: title of {case.group}: {case.found_title[:90]!r}"
        if case.action and not is_planned(case):
            yield f"{case.form}: plan of {case.group}: {case.found_action}, not {case.action}"


def _words(words: str | tuple[str, ...]) -> tuple[str, ...]:
    return (words,) if isinstance(words, str) else words


def _entry(number: int, form: Form, body: str) -> dict[str, object]:
    failed_at = int(time.time() * 1000) - 9000 * number
    return {
        "dlqId": f"{number}-0",
        "workflowRunId": f"wfr_{number}",
        "workflowUrl": "https://app.example.com/parcels",
        "url": "https://app.example.com/parcels",
        "method": "POST",
        "header": {"Content-Type": ["application/json"]},
        "body": "{}",
        "maxRetries": 3,
        "callerIP": "10.0.0.1",
        "createdAt": failed_at,
        "workflowCreatedAt": failed_at,
        "responseStatus": form.status,
        "responseHeader": {"Content-Type": ["text/plain"], **form.headers},
        "responseBody": body,
    }


@contextmanager
def _queue(page: bytes) -> Iterator[str]:
    """Serve one page of a queue on this machine, and yield its address."""

    class Queue(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(page)))
            self.end_headers()
            self.wfile.write(page)

        def log_message(self, *arguments: object) -> None:
            """Write nothing to the terminal."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Queue)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def main(arguments: Sequence[str]) -> None:
    """Print the scores, and with `-v` each fault."""
    cases = read_forms(FORMS)
    for name, score in scores(cases).items():
        print(f"{name}: {score}")
    if "-v" in arguments:
        print(*faults(cases), sep="\n")


if __name__ == "__main__":
    main(sys.argv[1:])
