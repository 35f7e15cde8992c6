"""Signatures of failures: equal for one kind of failure, different for two."""

# ruff: noqa: E501 - traces are kept as they are printed

from __future__ import annotations

import json
import random
import time
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.accuracy.faulty_programs import javascript_traces, python_traces
from tests.accuracy.log_lines import log_lines
from tests.accuracy.measures import agreement
from tests.accuracy.system_logs import SYSTEMS, system_log
from tests.accuracy.written_traces import WRITTEN, written_traces
from toolkit.analysis import error_signatures
from toolkit.errors import InputError
from toolkit.signatures import known_templates
from toolkit.signatures.placeholders import with_placeholders
from toolkit.signatures.reading import read_document
from toolkit.signatures.signing import RULES_VERSION, Learned, document_of, sign
from toolkit.signatures.traces import stack_trace

_NAMES = ("amber", "birch", "cedar", "dune", "ember", "frost", "glade", "harbor")

TRACES = {
    "java": (
        (
            'Exception in thread "main" org.springframework.web.NestedServletException: Request processing failed\n'
            "\tat org.springframework.web.servlet.FrameworkServlet.processRequest(FrameworkServlet.java:1014)\n"
            "\tat java.base/java.lang.Thread.run(Thread.java:833)\n"
            "Caused by: java.sql.SQLException: Connection reset\n"
            "\tat com.mysql.cj.jdbc.Foo.bar(Foo.java:1)\n"
            "\tat com.acme.db.Pool$$EnhancerBySpringCGLIB$$1a2b.lambda$get$0(Pool.java:7)\n\t... 30 more"
        ),
        "com.acme.db.Pool.get",
    ),
    "go": (
        (
            "panic: runtime error: index out of range [5] with length 3\n\ngoroutine 1 [running]:\n"
            "main.(*Store).load(0xc000012345, {0x1, 0x2})\n\t/app/store.go:10 +0x1d\nmain.main()\n\t/app/main.go:3 +0x2"
        ),
        "main.Store.load",
    ),
    "ruby": (
        (
            "/app/lib/x.rb:10:in `load': undefined method `id' for nil:NilClass (NoMethodError)\n"
            "\tfrom /app/lib/y.rb:3:in `block in <main>'"
        ),
        "x.load",
    ),
    "dotnet": (
        (
            "System.InvalidOperationException: outer 17\n"
            " ---> System.NullReferenceException: Object reference not set to an instance of an object.\n"
            "   at Acme.Store.<>c__DisplayClass3_0.<Load>b__0(Int32 x) in C:\\src\\Store.cs:line 10\n"
            "   --- End of inner exception stack trace ---\n   at Acme.Program.Main(String[] args)"
        ),
        "Acme.Store.Load",
    ),
    "php": (
        (
            "PHP Fatal error:  Uncaught TypeError: Argument 1 must be int in /app/x.php:10\nStack trace:\n"
            "#0 /app/y.php(20): Foo->bar(Object(X), 'str')\n#1 {main}\n  thrown in /app/x.php on line 10"
        ),
        "Foo.bar",
    ),
    "rust": (
        (
            "thread 'main' panicked at src/main.rs:10:5:\nindex out of bounds: the len is 3 but the index is 5\n"
            "stack backtrace:\n   0: rust_begin_unwind\n             at /rustc/abc/library/std/src/panicking.rs:645:5\n"
            "   1: core::panicking::panic_fmt\n   2: app::orders::load::{{closure}}::h0123456789abcdef\n"
            "             at ./src/orders.rs:10:5"
        ),
        "app::orders::load",
    ),
}


@pytest.mark.parametrize("language", TRACES)
def test_the_first_application_frame_is_found(language: str) -> None:
    """Of each language, without generated names, and of the root cause."""
    text, frame = TRACES[language]
    found = stack_trace(text)
    assert found is not None
    assert (found.language, found.frame) == (language, frame)


@pytest.mark.parametrize("language", TRACES)
def test_line_numbers_and_paths_are_not_part_of_a_signature(language: str) -> None:
    """The same trace from another build and folder has the same signature; another function has another."""
    text, _ = TRACES[language]
    moved = (
        text.replace(":10", ":4711")
        .replace("line 10", "line 4711")
        .replace("/app/", "/srv/releases/17/app/")
    )
    other = (
        text.replace("load", "store")
        .replace("Load", "Save")
        .replace("bar(", "baz(")
        .replace("Pool", "Line")
    )
    first, second, third = error_signatures([text, moved, other])
    assert moved != text
    assert first == second != third


def test_traces_of_different_python_faults_get_different_signatures() -> None:
    """40 faulty programs in 15 variations each: nothing is merged, hardly anything is split."""
    texts, labels = python_traces(15, seed=11)
    found = agreement(error_signatures(texts), labels)
    assert found.precision == 1
    assert found.grouping >= 0.95


def test_traces_of_different_node_faults_get_different_signatures(
    tmp_path: Path,
) -> None:
    """40 faulty programs in 10 variations each, minified ones among them."""
    texts, labels = javascript_traces(10, tmp_path, seed=11)
    found = agreement(error_signatures(texts), labels)
    assert found.precision == 1
    assert found.grouping >= 0.95


def test_log_lines_are_grouped_by_their_template() -> None:
    """Lines of 166 templates: nothing is merged, and nearly all lines are in the group of their template."""
    texts, labels = log_lines(4000, seed=11)
    found = agreement(error_signatures(texts), labels)
    assert found.precision == 1
    assert found.grouping >= 0.95


@pytest.mark.slow
def test_system_logs_are_grouped_by_their_template() -> None:
    """Of 16 kinds of systems: hardly anything is merged, and most rare templates are whole, too."""
    logs = [system_log(name, 1000, seed=11) for name in SYSTEMS]
    found = [agreement(error_signatures(texts), labels) for texts, labels in logs]
    assert min(one.precision for one in found) >= 0.999
    assert sum(one.grouping for one in found) / len(found) >= 0.93
    assert sum(one.of_groups for one in found) / len(found) >= 0.82


@pytest.mark.parametrize(
    "texts",
    [
        [
            "sent to queue 17, 3 left",
            "sent to queue 0x1f, 40000000 left",
        ],  # kinds of values differ
        [
            f"no rows for [{names}] in the index"
            for names in ("north", "north, east", "a, b, c", "west, up")
        ],
        [
            f'task "{name}" has no owner yet'
            for name in ("write report", "plan", "call her back")
        ],
        ["closed after <1 sec", "closed after 00:12", "closed after 3 days, 01:02:03"],
        ["sent 12 bytes over tcp", "sent 123456 bytes (120.6 KB) over tcp"],
        ["drawn= true, moved = false", "drawn= false, moved = true"],
        [
            f"{one} does not respond to {two} since noon"
            for one in _NAMES
            for two in _NAMES
            if one < two
        ],
        [
            "closed by 10.0.0.5:51034",
            "closed by 10.0.0.5:6379",
            "closed by 10.0.0.5:9200",
        ],  # clients
        [f"upload returned error {number} to the caller" for number in range(100, 130)],
        ["refused: redis://10.0.0.5/0", "refused: rediss://:p@cache-7.internal:6380/1"],
        [
            "refused: postgresql+psycopg://a:b@c/d",
            "refused: postgres://e",
            "refused: jobs-pgsql.internal",
        ],
        [
            "GET http://a.example.com/1 failed",
            "GET https://b.example.org:8443/x?y=z failed",
        ],
        [
            f"asked to delete {' '.join(f'blk_-{10**digits + n}' for n in range(100))}"
            for digits in range(9, 20)
        ],  # more than is read: the last id is cut
    ],
)
def test_values_of_many_shapes_are_one_failure(texts: list[str]) -> None:
    """Values of other kinds, lists and phrases of any length, quantities in two units, names that vary."""
    assert len(set(error_signatures(texts))) == 1


def test_many_kinds_of_services_stay_apart() -> None:
    """However many there are, a kind of service is not taken for a name that varies."""
    schemes = (
        "redis",
        "postgres",
        "mysql",
        "amqp",
        "kafka",
        "mongodb",
        "nats",
        "s3",
        "ldap",
        "grpc",
        "mqtt",
        "sftp",
    )
    texts = [
        f"connection refused: {scheme}://10.0.0.{n}/{n}"
        for scheme in schemes
        for n in range(20)
    ]
    found = agreement(
        error_signatures(texts), [text.partition("//")[0] for text in texts]
    )
    assert found.precision == 1
    assert len(set(error_signatures(texts))) == len(schemes)


def test_signatures_stay_when_more_texts_come() -> None:
    """Without a saved value, from the texts alone, at least 95 % of the ids are the same."""
    texts, _ = log_lines(8000, seed=12)
    before, after = error_signatures(texts[:1000]), error_signatures(texts)[:1000]
    assert sum(one == two for one, two in zip(before, after, strict=True)) >= 950


@given(
    st.lists(st.one_of(st.none(), st.text(max_size=60)), max_size=12),
    st.randoms(use_true_random=False),
)
def test_the_order_of_texts_does_not_matter(
    texts: list[str | None], rng: random.Random
) -> None:
    """Every text gets one id, and the same one in any order."""
    found = dict(zip(texts, error_signatures(texts), strict=True))
    shuffled = list(texts)
    rng.shuffle(shuffled)
    assert error_signatures(shuffled) == [found[text] for text in shuffled]


@pytest.mark.parametrize(
    ("one", "two"),
    [
        ("Request failed with status code 500", "Request failed with status code 502"),
        ("exited with code 137", "exited with code 1"),
        (
            "ORA-00942: table or view does not exist",
            "ORA-01555: table or view does not exist",
        ),
        (
            '{"code": "no_user", "message": "not found"}',
            '{"code": "no_order", "message": "not found"}',
        ),
        ("KeyError: 'order'", "KeyError: 'user'"),
        ("connect ECONNREFUSED 10.0.0.1:80", "connect ETIMEDOUT 10.0.0.1:80"),
        (
            "<html><title>502 Bad Gateway</title></html>",
            "<html><title>504 Gateway Timeout</title></html>",
        ),
        (
            "connection refused: redis://10.0.0.5:6379/0",
            "connection refused: postgres://10.0.0.5:5432/shop",
        ),
        (
            "connection refused: redis://u:[masked len=8 tag=5d1c09ab]@h/0",
            "connection refused: amqp://h/0",
        ),
        ("connect ECONNREFUSED 10.0.0.5:6379", "connect ECONNREFUSED 10.0.0.5:5432"),
        ("connect ECONNREFUSED 127.0.0.1:6379", "connect ECONNREFUSED 127.0.0.1:8080"),
        (
            "dial tcp: lookup orders-postgres.internal: no such host",
            "dial tcp: lookup redis-2.internal: no such host",
        ),
        (
            "dial tcp 10.0.0.5:5432: connect: refused",
            "dial tcp 10.0.0.5:6379: connect: refused",
        ),
    ],
)
def test_codes_types_and_keys_make_two_failures(one: str, two: str) -> None:
    """Names of kinds of failures are not placeholders."""
    first, second = error_signatures([one, two])
    assert first != second


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("user 17 not found in 3 s", "user <num> not found in <duration>"),
        ("sent 512MB to 10.1.2.3:80", "sent <size> to <ip>"),
        ("GET https://a.example.com/x?y=1 failed", "GET <url> failed"),
        ("block blk_-17 at 2026-01-02 03:04:05,678", "block <id> at <time>"),
        ("uid=0 status=404 tty=ssh", "uid=<num> status=404 tty=<value>"),
        ("open /var/log/a.log: no such file", "open <path>: no such file"),
        ("[masked len=42 tag=5d1c09ab] was refused", "<secret> was refused"),
        ("ids [1, 2, 3] and [4, 5]", "ids [<num>] and [<num>]"),
        ("mail to ann@example.com bounced", "mail to <email> bounced"),
        ("ORA-00942 on host-3.example.net", "ORA-00942 on <host>"),
        (
            '"GET /orders?page=2&since=2026-01-02 HTTP/1.1" status: 200',
            '"GET <path> HTTP/1.1" status: 200',
        ),
        ("/login?error=access_denied", "<path>?error=access_denied"),
        ("is /srv/app there?", "is <path> there?"),
        ("jobId: nightly.import; skipped", "jobId: <id>; skipped"),
        ("gave up (task.id: send-mail.retry)", "gave up (task.id: <id>)"),
        ("errorId: card.expired; declined", "errorId: card.expired; declined"),
        ("invalid: user.name; try again", "invalid: user.name; try again"),
        ("orderId: required", "orderId: required"),
    ],
)
def test_values_become_placeholders(text: str, expected: str) -> None:
    """Each kind of value has its own."""
    assert with_placeholders(text) == expected


@pytest.mark.parametrize(
    "text",
    [None, "", float("nan"), "\ud800", "{" * 100_000, "[" * 5000 + "]" * 5000, "a/" * 500_000, "1:" * 500_000,
     "x" * 10_000_000, '{"a":' * 500 + "1" + "}" * 500, "\n    at " + "a" * 100_000],
)  # fmt: skip
def test_any_text_has_a_signature(text: Any) -> None:
    """Hostile texts are read in bounded time."""
    assert error_signatures([text])[0].startswith(f"s{RULES_VERSION}-")


@pytest.mark.parametrize("texts", ["one text", b"bytes", None, 17, [17], [["nested"]]])
def test_what_is_no_list_of_texts_is_refused(texts: Any) -> None:
    """With an error that names the argument."""
    with pytest.raises(InputError, match="texts"):
        error_signatures(texts)


def test_a_class_named_in_a_message_is_not_the_type() -> None:
    """Of a Java trace whose message ends in the name of a class."""
    found = stack_trace(
        "java.lang.ClassNotFoundException: com.mysql.cj.jdbc.Driver\n\tat com.acme.db.Pool.get(Pool.java:7)"
    )
    assert found is not None
    assert found.errors == (
        ("java.lang.ClassNotFoundException", "com.mysql.cj.jdbc.Driver"),
    )


@pytest.mark.parametrize("language", list(WRITTEN))
def test_written_traces_are_told_apart_by_fault(language: str) -> None:
    """Of each language: occurrences of a fault share an id, other faults have others."""
    texts, labels = written_traces(language, 8, seed=2)
    found = agreement(error_signatures(texts), labels)
    assert found.precision >= 0.97
    assert found.recall >= 0.9


def test_names_of_modules_and_phrases_of_statuses_stay_readable() -> None:
    """A digit in a module's name is not an id, a status with its phrase no number, a hash of digits no number."""
    read = {
        "sqlite3.OperationalError: database is locked": "sqlite3.OperationalError: database is locked",
        "502 Bad Gateway": "502 Bad Gateway",
        "upstream: 504 Gateway Time-out": "upstream: 504 Gateway Time-out",
        "502 rows read": "<num> rows read",
        "commit 0123456789012345 gone": "commit <hex> gone",
        "com.acme.Job17.run failed": "com.acme.<id>.run failed",
    }
    assert {text: with_placeholders(text) for text in read} == read


def test_errors_by_field_are_read() -> None:
    """What is wrong with each field identifies the failure; other objects of values do not."""
    one, same, other = (
        json.dumps({"errors": {field: [f"is not {said}"], "id": 7}})
        for field, said in (("email", "valid"), ("email", "valid"), ("name", "valid"))
    )
    assert (
        error_signatures([one])[0]
        == error_signatures([same])[0]
        != error_signatures([other])[0]
    )
    assert read_document(one).facts == ("email",)
    assert read_document(one).messages == ("is not valid",)


def test_only_the_frames_of_the_error_count_in_native_reports() -> None:
    """Where memory was allocated, in which thread, and the runtime's own functions do not."""
    report = (
        "==7==ERROR: AddressSanitizer: heap-use-after-free on address 0x61 at pc 0x4f bp 0x7f sp 0x7e\n"
        "READ of size 4 at 0x61 thread T0\n    #0 0x4f in __interceptor_memcpy asan.cpp:1:2\n"
        "    #1 0x4f in parse(char*, int) /src/parse.cc:45:12\n    #2 0x4f in main /src/main.cc:1:2\n\n"
        "freed by thread T1 here:\n    #0 0x4a in free\n    #1 0x4a in close_file /src/file.c:3:1\n"
    )
    trace = stack_trace(report)
    assert trace is not None
    assert (trace.language, trace.errors, trace.frame) == (
        "native",
        (("heap-use-after-free", ""),),
        "parse",
    )
    assert (
        stack_trace(
            "==7==ERROR: AddressSanitizer: SEGV on x\n"
            + "    #0 0x4f in f /a.c:1\n" * 100_000
        )
        is not None
    )
    assert stack_trace("==7== nothing\n==8==    at 0x1: f\n") is None


@pytest.mark.parametrize(
    "text",
    [
        "goroutine 1 [running]:\na" + ".a" * 40_000 + "!",
        "--- End of stack trace ---\n   at a(" + ") in " * 18_000,
        "Error: x\n    at f (/a.js:1:" + "1" * 90_000 + ")",
        "x" + "\n" * 90_000 + "at System.",
    ],
    ids=["names of Go", "files of .NET", "columns of JavaScript", "empty lines"],
)
def test_hostile_traces_are_read_in_time(text: str) -> None:
    """Patterns that try each way to read them would take minutes."""
    start = time.process_time()
    error_signatures([text])
    assert time.process_time() - start < 1


def test_an_exception_that_only_carries_another_does_not_count() -> None:
    """On some ways an executor wraps it, on others nothing does: one failure."""
    cause = "com.acme.RuleException: no rule 7\n\tat com.acme.Rules.find(Rules.java:12)"
    ways = [cause] + [
        f"{kind}: com.acme.RuleException: no rule 7\n\tat java.util.x.Y.get(Y.java:1)\nCaused by: {cause}"
        for kind in (
            "java.util.concurrent.CompletionException",
            "java.lang.RuntimeException",
        )
    ]
    assert len(set(error_signatures(ways))) == 1
    own = f"com.acme.OrderException: order 7\n\tat com.acme.Orders.add(Orders.java:1)\nCaused by: {cause}"
    assert len(set(error_signatures([cause, own]))) == 2


@pytest.mark.parametrize(
    ("word", "expected"),
    [
        ("order17", "<id>"),
        ("(order17),", "(<id>),"),
        # hashes are hexadecimal, if they are long
        ("abcdef12", "<hex>"),
        ("[0a1b2c3d4e]", "[<hex>]"),
        ("abc17", "<id>"),
        # technical words
        ("sha256", "sha256"),
        ("utf8,", "utf8,"),
        ("oauth2", "oauth2"),
        # words that may be codes, by the words around them
        ("E11000", "E11000"),
        ("42P01", "<id>"),
    ],
)
def test_words_of_usual_forms(word: str, expected: str) -> None:
    """Ids and hashes that are whole words have placeholders, and technical words stay."""
    assert (
        with_placeholders(f"no stock of {word} today")
        == f"no stock of {expected} today"
    )


def test_new_messages_are_compared_with_similar_templates_only(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A sync does not compare thousands of templates that no new message can join."""
    unlike = [" ".join([f"{name}{n:x}" for name in "ghijk"]) for n in range(2_000)]
    alike = ["no stock for apples today", "no stock for pears today"]
    learned = Learned().extended(sign([*unlike, *alike]).values())
    compared: list[str] = []
    learn = known_templates.learn

    def recorded(messages: list[str]) -> dict[str, str]:
        compared.extend(messages)
        return learn(messages)

    monkeypatch.setattr(known_templates, "learn", recorded)
    joined = learned.joined_by([document_of("no stock for plums today")]).joined
    assert joined == dict.fromkeys(alike, "no stock for <value> today")
    assert sorted(compared) == sorted([*alike, "no stock for plums today"])
