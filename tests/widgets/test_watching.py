"""Watching a queue that changes: counts, marks, notices, and restarts."""

from __future__ import annotations

import json
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from datetime import UTC, datetime, timedelta
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import SimpleNamespace

import pytest

import toolkit as tk
from tests.soak.simulated_queue import Failure, SimulatedQueue, listening
from tests.soak.watching import watched
from toolkit.cli import main
from toolkit.errors import InputError, ServiceError
from toolkit.failures.group_counts import GroupCount
from toolkit.failures.notices import sender_of
from toolkit.failures.watching import Look, Watch
from toolkit.snapshots.manifest import WATCHED
from toolkit.snapshots.store import SnapshotStore
from toolkit.widgets.watch_panel import WatchPanel

NOW = datetime.now(UTC).replace(minute=30, second=0, microsecond=0)
TOKEN = "token-of-the-watched-queue"
SECRET = "sk_live_4eC39HqLyjWDarjtT1zdp7dc"


def failures(count: int, text: str, hours: float, first: int = 0) -> list[Failure]:
    """Return failures, one per minute from some hours ago on."""
    begin = NOW - timedelta(hours=hours)
    return [
        Failure(first + number, begin + timedelta(minutes=number), text)
        for number in range(count)
    ]


@pytest.fixture
def queue() -> Iterator[SimulatedQueue]:
    """Serve a queue with one known group."""
    queue = SimulatedQueue(failures(50, "disk full", 40), time=NOW, token=TOKEN)
    with listening(queue):
        yield queue


@pytest.fixture
def service(queue) -> tk.Service:
    """Connect to the queue, without waiting for retries."""
    return tk.connect(queue_url=queue.url, queue_token=TOKEN)


@contextmanager
def receiving(
    statuses: Sequence[int] = (302,), arrived: Callable[[], object] = str, port: int = 0
) -> Iterator[tuple[str, list[str]]]:
    """Run a webhook on this machine: the address, and the texts that arrived.

    It responds with these statuses, and with the last of them from then on.
    """
    texts: list[str] = []

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            length = int(self.headers["Content-Length"])
            texts.append(json.loads(self.rfile.read(length))["text"])
            arrived()
            self.send_response(statuses[min(len(texts), len(statuses)) - 1])
            self.send_header("Location", "http://127.0.0.1:9/other")
            self.end_headers()

        def log_message(self, *_: object) -> None:
            """Print nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", port), Handler)
    thread = threading.Thread(target=server.serve_forever, args=(0.02,))
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}/hook", texts
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


@pytest.fixture
def webhook() -> Iterator[tuple[str, list[str]]]:
    """Run a webhook that redirects."""
    with receiving() as address_and_texts:
        yield address_and_texts


def test_new_groups_are_marked_and_reported_once(service, queue, tmp_path, webhook):
    """A group that appears is on top with a mark; one notice is sent, also after a restart of the watch."""
    url, texts = webhook
    path = tmp_path / "kept"
    watch = Watch(service, path, send=sender_of(url, None), clock=lambda: NOW)
    first = watch.look()
    assert (first.added, first.rows, first.new) == (50, 50, ())
    queue.failures = [*queue.failures, *failures(3, f"refused: {SECRET}", 1, first=50)]
    second = watch.look()
    assert (second.added, second.rows, len(second.new)) == (3, 53, 1)
    # a redirect is no success, and is not followed
    assert "status 302" in second.problem
    board = watch.board()
    assert [(row["marked"], row["state"], row["count"]) for row in board] == [
        (True, "new", 3),
        (False, "ended", 50),
    ]
    assert sum(board[0]["bars"]) == 3
    assert len(texts) == 1
    assert "refused" in texts[0]
    assert SECRET not in texts[0] + json.dumps(board)
    again = Watch(service, path, send=sender_of(url, None), clock=lambda: NOW)
    assert again.look().new == ()
    assert len(texts) == 1
    watch.seen()
    assert not any(row["marked"] for row in watch.board())


def test_groups_that_are_joined_are_not_reported_again(service, queue, tmp_path):
    """Two groups become one when a third failure shows that a word is a value. It is not new, but marked."""
    watch = Watch(service, tmp_path / "kept", clock=lambda: NOW)
    watch.look()
    for number, fruit in enumerate(("apples", "pears", "plums", "figs")):
        text = f"no stock for {fruit} today"
        queue.failures = [*queue.failures, *failures(1, text, 1, first=50 + number)]
        look = watch.look()
        assert len(look.new) == (1 if number < 2 else 0)
    board = [(row["marked"], row["state"], row["count"]) for row in watch.board()]
    assert board == [(True, "new", 4), (False, "ended", 50)]
    assert Watch(service, tmp_path / "kept", clock=lambda: NOW).look().new == ()


def test_groups_that_another_sync_joins_are_not_reported_again(
    service, queue, tmp_path
):
    """A job may sync the same folder, or a watch may end between the join and its notes."""
    path = tmp_path / "kept"
    live = Watch(service, path, clock=lambda: NOW)
    live.look()
    for number, fruit in enumerate(("apples", "pears", "plums")):
        text = f"no stock for {fruit} today"
        queue.failures = [*queue.failures, *failures(1, text, 1, first=50 + number)]
        if number < 2:
            assert len(live.look().new) == 1
    assert len(tk.sync_failures(service, path, progress=False).joined) == 2
    assert Watch(service, path, clock=lambda: NOW).look().new == ()
    assert live.look().new == ()
    assert [row["count"] for row in live.board()] == [3, 50]
    assert live.board()[0]["marked"]


def test_failures_that_another_sync_stores_are_counted(service, queue, tmp_path):
    """A job syncs the same folder between two looks. Its new group is reported, and its rows are counted."""
    path = tmp_path / "kept"
    watch = Watch(service, path, clock=lambda: NOW)
    watch.look()
    queue.failures = [*queue.failures, *failures(9, "quota exhausted", 1, first=50)]
    assert tk.sync_failures(service, path, progress=False).counts["added"] == 9
    assert len(watch.look().new) == 1
    queue.failures = [*queue.failures, *failures(1, "disk full", 1, first=59)]
    tk.sync_failures(service, path, progress=False)
    queue.failures = [*queue.failures, *failures(1, "disk full", 1, first=60)]
    assert watch.look().new == ()
    assert sorted(row["count"] for row in watch.board()) == [9, 52]


def test_a_group_that_appears_while_nobody_watches_is_reported(
    service, queue, tmp_path
):
    """A watch that continues a snapshot marks groups that are not in the notes of the earlier one."""
    Watch(service, tmp_path / "kept", clock=lambda: NOW).look()
    queue.failures = [*queue.failures, *failures(3, "quota exhausted", 1, first=50)]
    found = Watch(service, tmp_path / "kept", clock=lambda: NOW).look()
    assert len(found.new) == 1


def test_the_first_look_reports_errors_that_began_lately(service, queue, tmp_path):
    """An error of the last hour is new in the first look, once; an older one is only counted."""
    queue.failures = [*queue.failures, *failures(3, "quota exhausted", 1, first=50)]
    path = tmp_path / "kept"
    found = Watch(service, path, clock=lambda: NOW).look()
    assert (found.added, len(found.new), found.worse) == (53, 1, ())
    assert Watch(service, path, clock=lambda: NOW).look().new == ()


def test_a_state_that_returns_is_reported_again(service, queue, tmp_path):
    """Each return after a silence of days is reported once, and an old error that grows later as well."""
    path, start = tmp_path / "kept", NOW - timedelta(days=20)

    def looked(day: int, count: int) -> tuple[int, int]:
        """Add failures of a day, and return how many groups are new or worse in two looks of a job."""
        first = len(queue.failures)
        queue.time = start + timedelta(days=day)
        added = [
            Failure(first + number, queue.time - timedelta(minutes=5), "disk full")
            for number in range(count)
        ]
        queue.failures = [*queue.failures, *added]
        looks = [Watch(service, path, clock=lambda: queue.time) for _ in range(2)]
        found = [watch.look() for watch in looks]
        return len(found[0].new + found[0].worse), len(found[1].new + found[1].worse)

    queue.failures = []
    assert looked(0, 3) == (1, 0)  # new
    assert looked(6, 3) == (1, 0)  # back again
    assert looked(7, 3) == (0, 0)
    assert looked(12, 3) == (1, 0)  # back again, the second time
    assert looked(13, 3) == (0, 0)
    assert looked(14, 90) == (1, 0)  # growing


def test_a_group_that_began_and_ended_between_two_looks_is_new(
    service, queue, tmp_path
):
    """After a weekend without a look, an error of Saturday is reported although it is over."""
    path = tmp_path / "kept"
    before = NOW - timedelta(days=3)
    Watch(service, path, clock=lambda: before).look()
    queue.failures = [*queue.failures, *failures(3, "quota exhausted", 30, first=50)]
    found = Watch(service, path, clock=lambda: NOW).look()
    assert len(found.new) == 1
    assert Watch(service, path, clock=lambda: NOW).look().new == ()


def test_notes_of_an_earlier_version_are_read(service, queue, tmp_path):
    """They count all groups of the first look as reported in all states: only the present state stays."""
    path = tmp_path / "kept"
    queue.failures = [*queue.failures, *failures(3, "quota exhausted", 1, first=50)]
    Watch(service, path, clock=lambda: NOW).look()
    groups = json.loads((path / WATCHED).read_bytes())["groups"]
    marked = {group: ["new", "back again", "growing"] for group in groups}
    (path / WATCHED).write_text(json.dumps({"groups": marked, "format": 1}), "utf-8")
    assert Watch(service, path, clock=lambda: NOW).look().new == ()
    content = json.loads((path / WATCHED).read_bytes())
    assert content["format"] == 2
    assert [list(states) for states in content["groups"].values()] == [["new"]]


@pytest.mark.parametrize(
    "content", [b"", b"{", b"[]", b'{"groups": {"a": 1}}', b"\xff"]
)
def test_damaged_notes_are_reported_and_hide_no_group(
    service, queue, tmp_path, content
):
    """If the notes cannot be read, a group that has appeared meanwhile is reported, and the look says so."""
    path = tmp_path / "kept"
    Watch(service, path, clock=lambda: NOW).look()
    queue.failures = [*queue.failures, *failures(3, "quota exhausted", 1, first=50)]
    (path / WATCHED).write_bytes(content)
    sent: list[str] = []

    def send(notice: str) -> None:
        sent.append(notice)

    found = Watch(service, path, send=send, clock=lambda: NOW).look()
    assert len(found.new) == 1
    assert WATCHED in found.problem
    assert "quota exhausted" in "".join(sent)
    # repaired: the next watch reads the notes
    again = Watch(service, path, send=send, clock=lambda: NOW).look()
    assert (again.new, again.problem, len(sent)) == ((), "", 1)


def test_no_entry_is_missed_if_the_service_restarts(service, queue, tmp_path):
    """A look while the token is refused raises an error; the next one has all entries of the meantime."""
    watch = Watch(service, tmp_path / "kept", clock=lambda: NOW)
    watch.look()
    queue.token = "another"
    queue.failures = [*queue.failures, *failures(7, "disk full", 1, first=50)]
    with pytest.raises(ServiceError):
        watch.look()
    queue.token = TOKEN
    assert (watch.look().added, watch.board()[0]["count"]) == (7, 57)
    verified = tk.verify_snapshot(tmp_path / "kept")
    assert (verified.rows, verified.unlisted) == (57, ())


def test_the_code_watches_the_service_of_the_panel(service, tmp_path, monkeypatch):
    """It names the variable of this very service, or tells that `service` stands for it."""
    names = {"service": object(), "practice": service}
    monkeypatch.setattr(
        "toolkit.widgets.shown_code.get_ipython", lambda: SimpleNamespace(user_ns=names)
    )
    panel = tk.watch_failures(service, tmp_path / "kept", every="1h")
    panel.stop()
    assert panel.to_code().startswith("panel = tk.watch_failures(practice, ")
    del names["practice"]
    comment, call = panel.to_code().split("\n")
    assert comment == "# service: the service this panel was made with"
    assert call.startswith("panel = tk.watch_failures(service, ")


def test_a_panel_shows_the_groups_and_stops(service, queue, tmp_path):
    """The panel looks on a thread, and after `stop` no more requests are sent."""
    panel = tk.watch_failures(service, tmp_path / "kept", every="1h")
    assert panel.running
    panel.stop()
    assert not panel.running
    queue.failures = [*queue.failures, *failures(3, "quota exhausted", 1, first=50)]
    panel.look()
    assert panel.frame()["count"].sum() == 53
    assert panel.state["counts"] == "53 failures in 2 groups"
    panel.receive({"kind": "press", "name": "Mark as seen"})
    assert not panel.frame()["marked"].any()
    assert "watch_failures" in panel.to_code()
    for message in ({}, {"kind": "press"}, {"kind": "press", "name": 7}, "text"):
        panel.receive(message)
    assert isinstance(panel, WatchPanel)


@pytest.mark.slow
def test_a_day_of_traffic_in_short():
    """In simulated hours with restarts, every failure is counted, and no notice is sent twice."""
    figures = watched(hours=5, every=1200, per_hour=20)
    assert figures["failures"] == figures["stored"] == figures["counted"]
    # the four errors of the beginning, and one that begins later
    assert figures["notices"] == 5
    assert figures["repeated notices"] == []


def test_notices_go_only_to_confirmed_hosts(service):
    """Another machine needs its name, and other addresses are refused before anything is sent."""
    for notify in (
        "https://chat.example/hook",
        "ftp://127.0.0.1/",
        "http://u:p@127.0.0.1/",
    ):
        with pytest.raises(InputError):
            tk.watch_failures(service, notify=notify)
    with pytest.raises(
        InputError, match=r"--confirm chat\.example on the command line"
    ):
        sender_of("https://chat.example/hook", None)
    assert sender_of("https://chat.example/hook", "chat.example") is not None
    failure = sender_of("http://127.0.0.1:9/x", None)("text")
    assert "did not respond" in failure.reason
    with pytest.raises(InputError, match="second"):
        tk.watch_failures(service, every=timedelta(milliseconds=10))


def test_memory_per_group_is_bounded():
    """A group keeps the counts of a week of hours, whatever the number of failures."""
    group = GroupCount("disk full")
    for hour in range(10_000):
        group.add([hour] * 3)
        group.forget(hour)
    assert len(group.hours) <= 24 * 7 + 1
    assert (group.count, group.state(9_999, 0).state) == (30_000, "steady")
    group.add([10_100] * 3)
    assert group.state(10_100, 0).state == "back again"
    assert group.state(10_200, 0).state == "ended"


def test_the_command_looks_once(service, queue, tmp_path, monkeypatch, capsys):
    """The status is 0 without news, and 4 if a group is new."""
    monkeypatch.setenv("TOOLKIT_QUEUE_URL", queue.url)
    monkeypatch.setenv("TOOLKIT_QUEUE_TOKEN", TOKEN)
    command = ["watch", str(tmp_path / "kept"), "--once"]
    assert main(command) == 0
    queue.failures = [*queue.failures, *failures(3, "quota exhausted", 1, first=50)]
    assert main(command) == 4
    assert "quota exhausted" in capsys.readouterr().out
    assert main(command) == 0


def test_the_command_ends_with_an_error_if_a_notice_is_not_sent(
    service, queue, tmp_path, monkeypatch, capsys
):
    """A job in the documentation is silent for the statuses 4 and 5."""
    monkeypatch.setenv("TOOLKIT_QUEUE_URL", queue.url)
    monkeypatch.setenv("TOOLKIT_QUEUE_TOKEN", TOKEN)
    command = ["watch", str(tmp_path / "kept"), "--once", "--notify"]
    with socket.create_server(("127.0.0.1", 0)) as closed:
        port = closed.getsockname()[1]
    assert main([*command, f"http://127.0.0.1:{port}/hook"]) == 0
    queue.failures = [*queue.failures, *failures(3, "quota exhausted", 1, first=50)]
    assert main([*command, f"http://127.0.0.1:{port}/hook"]) == 1
    shown = capsys.readouterr()
    assert "quota exhausted" in shown.out
    assert "did not respond" in shown.err


def test_a_notice_is_sent_again_if_nobody_listened(
    service, queue, tmp_path, monkeypatch, capsys
):
    """The next run of the job sends it once, with groups that are new by then."""
    monkeypatch.setenv("TOOLKIT_QUEUE_URL", queue.url)
    monkeypatch.setenv("TOOLKIT_QUEUE_TOKEN", TOKEN)
    with socket.create_server(("127.0.0.1", 0)) as closed:
        port = closed.getsockname()[1]
    command = ["watch", str(tmp_path / "kept"), "--once", "--notify"]
    command.append(f"http://127.0.0.1:{port}/hook")
    assert main(command) == 0
    queue.failures = [*queue.failures, *failures(3, "quota exhausted", 1, first=50)]
    assert main(command) == 1
    assert "next look sends the notice again" in capsys.readouterr().err
    queue.failures = [*queue.failures, *failures(3, "no route", 1, first=60)]
    with receiving([200], port=port) as (_, texts):
        assert main(command) == 4
        assert main(command) == 0
    (text,) = texts
    assert "quota exhausted" in text
    assert "no route" in text


@pytest.mark.parametrize(
    ("status", "is_sent_again"),
    [(404, True), (429, True), (500, True), (503, True), (302, False), (502, False), (504, False)],
)  # fmt: skip
def test_a_notice_that_may_have_arrived_is_not_sent_again(
    service, queue, tmp_path, status, is_sent_again
):
    """A refusal of the receiver is certain; a proxy does not know what became of the request."""
    with receiving([status, 200]) as (url, texts):
        watch = Watch(service, tmp_path / "kept", send=sender_of(url, None))
        watch.look()
        queue.failures = [*queue.failures, *failures(3, "quota exhausted", 1, first=50)]
        assert f"status {status}" in watch.look().unsent
        # also after a restart
        watch = Watch(service, tmp_path / "kept", send=sender_of(url, None))
        assert bool(watch.look().new) is is_sent_again
        assert watch.look().new == ()
        assert len(texts) == 1 + is_sent_again


@pytest.mark.parametrize("status", [4, 1])
def test_a_watch_that_was_killed_before_its_output_is_reported_by_the_next_one(
    queue, tmp_path, monkeypatch, capsys, status
):
    """The notice may have arrived, so it is not sent again; with a receiver, the look ends with an error."""
    monkeypatch.setenv("TOOLKIT_QUEUE_URL", queue.url)
    monkeypatch.setenv("TOOLKIT_QUEUE_TOKEN", TOKEN)
    command = ["watch", str(tmp_path / "kept"), "--once"]
    assert main(command) == 0
    queue.failures = [*queue.failures, *failures(3, "quota exhausted", 1, first=50)]
    processes: list[subprocess.Popen[bytes]] = []

    def kill() -> None:
        processes[0].kill()
        processes[0].wait()

    with receiving([200], kill) as (url, texts):
        words = [sys.executable, "-m", "toolkit", *command, "--notify", url]
        with subprocess.Popen(words, stdout=subprocess.PIPE) as process:
            processes.append(process)
            assert process.communicate()[0] == b""
        assert len(texts) == 1
        if status == 1:
            command += ["--notify", url]
        capsys.readouterr()
        assert main(command) == status
        assert "quota exhausted" in capsys.readouterr().out
        assert main(command) == 0
        assert len(texts) == 1


def test_of_two_watches_of_a_folder_one_sends_a_notice(
    service, queue, tmp_path, webhook
):
    """The other one waits until the result was shown, and its reader finds a mark."""
    url, texts = webhook
    first, second = (
        Watch(service, tmp_path / "kept", send=sender_of(url, None)) for _ in range(2)
    )
    for watch in (first, second):
        watch.look()
    queue.failures = [*queue.failures, *failures(3, "quota exhausted", 1, first=50)]
    looks: list[Look] = []
    with first.looking() as found:
        assert len(found.new) == 1
        thread = threading.Thread(target=lambda: looks.append(second.look()))
        thread.start()
        thread.join(1)
        assert thread.is_alive()
    thread.join(30)
    assert looks[0].new == ()
    assert second.board()[0]["marked"]
    assert len(texts) == 1


def test_a_webhook_that_answers_slowly_has_a_deadline(monkeypatch):
    """One byte per moment keeps no look waiting: the time is that of the whole response."""
    monkeypatch.setattr("toolkit.failures.notices._SECONDS", 1.0)
    with socket.create_server(("127.0.0.1", 0)) as server:
        ended = threading.Event()

        def answer() -> None:
            connection, _ = server.accept()
            with connection, suppress(OSError):
                while not ended.wait(0.1):
                    connection.sendall(b"H")

        thread = threading.Thread(target=answer)
        thread.start()
        try:
            send = sender_of(f"http://127.0.0.1:{server.getsockname()[1]}/hook", None)
            failure = send("new: a group (3)")
            assert "did not respond" in failure.reason
            # the receiver may have read the notice
            assert not failure.is_undelivered
        finally:
            ended.set()
            thread.join()


def test_a_notice_that_cannot_be_stored_is_not_sent(
    service, queue, tmp_path, webhook, monkeypatch
):
    """Otherwise it would be sent again after a restart. The result of the look tells why."""
    url, texts = webhook
    watch = Watch(
        service, tmp_path / "kept", send=sender_of(url, None), clock=lambda: NOW
    )
    watch.look()
    queue.failures = [*queue.failures, *failures(3, "quota exhausted", 1, first=50)]
    full = OSError(28, "No space left on device")
    replace = SnapshotStore.replace

    def fails(store: SnapshotStore, name: str, content: bytes) -> None:
        if name == WATCHED:
            raise full
        replace(store, name, content)

    monkeypatch.setattr(SnapshotStore, "replace", fails)
    found = watch.look()
    assert "could not be written" in found.problem
    assert found.unsent
    assert texts == []
    # the disk has space again: the group was not reported yet
    monkeypatch.setattr(SnapshotStore, "replace", replace)
    found = watch.look()
    assert len(found.new) == 1
    assert len(texts) == 1
    assert watch.look().new == ()
