"""Bugs that somebody could make: exact replacements in the source, and the tests that have to notice."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Bug:
    """One bug.

    Attributes
    ----------
    name : str
    file : str
        Below the folder of the toolkit.
    old, new : str
        What is there once, and what the bug makes of it.
    tests : tuple of str
        Files of tests, below the root.
    """

    name: str
    file: str
    old: str
    new: str
    tests: tuple[str, ...]

    def misfit(self, root: Path) -> str:
        """Why the bug cannot be put in; "" when it can."""
        path = root / "toolkit" / self.file
        if not path.is_file():
            return f"no file {self.file}"
        times = path.read_text().count(self.old)
        return "" if times == 1 else f"{times} times in {self.file}: {self.old!r}"

    @contextmanager
    def put_into(self, copy: Path) -> Iterator[None]:
        """The bug is there for as long as this lasts."""
        path = copy / "toolkit" / self.file
        right = path.read_text()
        path.write_text(right.replace(self.old, self.new))
        try:
            yield
        finally:
            path.write_text(right)


_FAULTS = ("tests/faults/test_fault_runs.py::test_loads_with_faults",)
_CRASHES = ("tests/faults/test_fault_runs.py::test_killed_writers",)
_LOADING = (
    "tests/loading/test_failures.py",
    "tests/loading/test_window_reader.py",
    "tests/loading/test_faults.py",
    *_FAULTS,
)
_RECOGNITION = ("tests/snapshots/test_recognition.py",)
_RANGES = ("tests/loading/test_read_ahead.py", "tests/loading/test_ranges.py", *_FAULTS)
_STOPPED = ("tests/snapshots/test_stopped_writers.py",)
_SYNCING = ("tests/snapshots/test_syncing.py", *_FAULTS)
_CHECKPOINTS = ("tests/snapshots/test_checkpoints.py", *_CRASHES)
_TRANSPORT = ("tests/client/test_transport.py", "tests/client/test_broken_responses.py")

BUGS: tuple[Bug, ...] = (
    Bug(
        "rows that come twice are kept twice",
        "loading/identities.py",
        "            fresh.append(not old and identity not in here)\n",
        "            fresh.append(True)\n",
        _LOADING,
    ),
    Bug(
        "a window ends a millisecond before the next one begins",
        "loading/windows.py",
        "[window.first, *(cut + 1 for cut in split.cuts)]",
        "[window.first, *(cut + 2 for cut in split.cuts)]",
        _LOADING,
    ),
    Bug(
        "a resumed load leaves a millisecond out",
        "loading/windows.py",
        "begin = max(begin, last + 1)",
        "begin = max(begin, last + 2)",
        ("toolkit/loading/windows.py", "tests/loading/test_windows.py"),
    ),
    Bug(
        "an empty page is taken for the end",
        "loading/windows.py",
        "        self.cursor = page.cursor\n",
        "        self.cursor = page.cursor if page.count else None\n",
        _LOADING,
    ),
    Bug(
        "a cursor that comes back is taken for the end",
        "loading/windows.py",
        '        self._cursors.follow(self.cursor, page.cursor, what="a listing", page=self.pages)\n'
        "        self.cursor = page.cursor\n",
        "        try:\n"
        '            self._cursors.follow(self.cursor, page.cursor, what="a listing", page=self.pages)\n'
        "            self.cursor = page.cursor\n"
        "        except Exception:\n"
        "            self.cursor = None\n",
        _LOADING,
    ),
    Bug(
        "a page that could not be read is taken for an empty one",
        "loading/window_reader.py",
        "            self._error = self._error or error\n",
        '            empty = Page(rows=b"[]", cursor=None, size=2, tries=1)\n'
        '            self._ready.append(FetchResult(window, "end", empty))\n',
        _LOADING,
    ),
    Bug(
        "a window that lost its cursor is not read again",
        "loading/window_reader.py",
        "            self._ready.append(FetchResult(window, outcome, error=error))\n",
        "            pass\n",
        _LOADING,
    ),
    Bug(
        "what a split window had shown is not awaited in its parts",
        "loading/consistency.py",
        "            self._awaited.update(reading.rows)\n",
        "",
        _LOADING,
    ),
    Bug(
        "the same row from two windows goes unnoticed",
        "loading/consistency.py",
        "                consistent = self._alone or self._resumes(window)\n",
        "                pass\n",
        _LOADING,
    ),
    Bug(
        "the fallback to a single cursor is silent",
        "loading/consistency.py",
        '        self._work.notes.append(f"read with a single cursor, because {reason}")\n',
        "",
        ("tests/loading/test_window_reader.py",),
    ),
    Bug(
        "a window that moved is not read again, and nobody is told",
        "loading/consistency.py",
        "        changed = reading.repeated or (window.compares and reading.new)\n",
        "        changed = 0\n",
        _LOADING,
    ),
    Bug(
        "a second pass is not made",
        "loading/consistency.py",
        "        if self._pass >= self._passes:\n",
        "        if self._pass >= 1:\n",
        ("tests/loading/test_window_reader.py", "tests/loading/test_failures.py"),
    ),
    Bug(
        "a resumed load knows no identities",
        "loading/load.py",
        "Identities(checkpoint.identities)",
        "Identities()",
        _LOADING,
    ),
    Bug(
        "the limit is one too many",
        "loading/load.py",
        "batch.first(limit - self._rows)",
        "batch.first(limit - self._rows + 1)",
        ("tests/loading/test_failures.py", "tests/loading/test_vectors.py"),
    ),
    Bug(
        "the first version of a changed entry is kept",
        "loading/load.py",
        "                order[position] = row\n",
        "",
        _LOADING,
    ),
    Bug(
        "an end that is none: a load that raised says that it ended",
        "loading/load.py",
        '            reasons.append("the load did not end")\n',
        "            pass\n",
        _LOADING,
    ),
    Bug(
        "masks are dropped",
        "loading/failures.py",
        "    redactor = None if reveal else service.redactor\n",
        "    redactor = None\n",
        ("tests/loading/test_failures.py", "tests/test_main_job.py"),
    ),
    Bug(
        "a filter with a comma is sent, and not compared here",
        "client/failures.py",
        " and field.name not in unsendable:\n",
        ":\n",
        _LOADING,
    ),
    Bug(
        "a cursor read early is believed",
        "loading/ranges.py",
        "            if self._requested and self._requested[0].cursor != page.cursor:\n"
        "                self._drop()\n",
        "            if self._requested and self._requested[0].cursor != page.cursor:\n"
        "                import dataclasses\n"
        "                page = dataclasses.replace(page, cursor=self._requested[0].cursor)\n",
        _RANGES,
    ),
    Bug(
        "vectors that come twice go unnoticed",
        "loading/ranges.py",
        "        if reading.repeated:\n",
        "        if False:\n",
        _RANGES,
    ),
    Bug(
        "a resumed range begins at its second page",
        "loading/ranges.py",
        "        return cls(one, index, number, cursor, rows, repeated)\n",
        "        return cls(one, index, number, None, rows, repeated)\n",
        _RANGES,
    ),
    Bug(
        "gzip without its trailer is taken for whole",
        "client/connections.py",
        "    if inside:\n",
        "    if False:\n",
        ("tests/client/test_connections.py", *_FAULTS),
    ),
    Bug(
        "a response that ends with its connection is never truncated",
        "client/members.py",
        "        except ValueError:\n            return True\n    return False\n",
        "        except ValueError:\n            return False\n    return False\n",
        (*_TRANSPORT, *_FAULTS),
    ),
    Bug(
        "delays are measured by the local clock",
        "client/retry.py",
        '    date = http_date_ms(headers.get("Date", ""))\n',
        "    date = None\n",
        ("tests/client/test_retry.py", "tests/client/test_transport.py"),
    ),
    Bug(
        "redirects are followed",
        "client/transport.py",
        "            retries=False,\n            redirect=False,\n",
        # and nothing else: tries and delays stay ours
        "            retries=urllib3.Retry(\n"
        "                connect=False, read=False, other=0, respect_retry_after_header=False\n"
        "            ),\n            redirect=True,\n",
        ("tests/client/test_transport.py::test_redirects_are_refused_and_nothing_is_forwarded",),
    ),
    Bug(
        "what cannot be read is not retried",
        "errors.py",
        'or without its fields."""\n\n    retriable = True\n',
        'or without its fields."""\n\n    retriable = False\n',
        ("tests/client/test_malformed_responses.py", "tests/test_errors.py"),
    ),
    Bug(
        "a 503 is retried without the delay it asks for",
        "client/retry.py",
        "retry_after(headers) if status == 503 else None",
        "None",
        ("tests/client/test_transport.py",),
    ),
    Bug(
        "a daily limit is waited for",
        "errors.py",
        'Waiting seconds does not help."""\n\n    retriable = False\n',
        'Waiting seconds does not help."""\n\n    retriable = True\n',
        ("tests/client/test_transport.py", "tests/test_errors.py"),
    ),
    Bug(
        "base64 is not decoded",
        "tables/text.py",
        "        raw = base64_bytes(encoded)\n",
        "        raw = encoded.encode()\n",
        ("tests/tables/test_failures.py",),
    ),
    Bug(
        "large integers become floats",
        "tables/masking.py",
        "            values = map(read, distinct.filter(pa.array(other)).to_pylist())\n",
        "            some = distinct.filter(pa.array(other)).to_pylist()\n"
        "            values = (json.loads(raw, parse_int=float) for raw in some)\n",
        ("tests/tables/test_failures.py", *_FAULTS),
    ),
    Bug(
        "files are not brought to the disk",
        "snapshots/store.py",
        "        os.fsync(self._file.fileno())\n",
        "",
        _STOPPED,
    ),
    Bug(
        "folders are not brought to the disk",
        "snapshots/store.py",
        "                    os.fsync(inside.handle)\n",
        "                    pass\n",
        _STOPPED,
    ),
    Bug(
        "the manifest is written before its files have their names",
        "snapshots/transaction.py",
        "        self._naming = True\n        for draft, name in named:\n",
        "        self._naming = True\n"
        "        write_manifest(self.store, manifest)\n"
        "        for draft, name in named:\n",
        _STOPPED,
    ),
    Bug(
        "superseded files go before the commit",
        "snapshots/transaction.py",
        "        content = write_manifest(self.store, manifest)\n",
        "        _clear(self.store, manifest)\n        content = write_manifest(self.store, manifest)\n",
        _STOPPED,
    ),
    Bug(
        "a sync does not miss a file that is gone",
        "snapshots/transaction.py",
        '            found.append(Damage(file, "missing", present=False))\n',
        "            continue\n",
        ("tests/snapshots/test_repair.py::test_a_sync_over_a_lost_file_raises_each_time",),
    ),
    Bug(
        "a repair takes what was put in the place of a row",
        "snapshots/repair.py",
        '                        picked &= wanted.entries["content"][positions] == entries["content"]\n',
        "",
        ("tests/snapshots/test_repair.py::test_rows_that_were_put_there_instead_are_not_recovered",),
    ),
    Bug(
        "the lock is not taken",
        "snapshots/store.py",
        "        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)\n",
        "        pass\n",
        _STOPPED,
    ),
    Bug(
        "what was written is not read again",
        "snapshots/data_files.py",
        "        if found == sha256 and (rows is None or",
        "        if found or (rows is None or",
        _STOPPED,
    ),
    Bug(
        "the index is not updated",
        "snapshots/merging.py",
        "            if before is not None and same\n",
        "            if before is not None\n",
        _SYNCING,
    ),
    Bug(
        "a load that is not complete marks entries gone",
        "snapshots/merging.py",
        ' & ~self._index.entries["gone"] & receipt.complete\n',
        ' & ~self._index.entries["gone"]\n',
        _SYNCING,
    ),
    Bug(
        "entries older than the last sync are taken for known",
        "snapshots/merging.py",
        "        different = ~known\n",
        "        if len(self._index):\n"
        '            latest = int(self._index.entries["first_seen"].max())\n'
        '            made = table["created_at"].to_pylist()\n'
        "            new = [at is None or at.timestamp() * 1000 > latest for at in made]\n"
        "            different = ~known & np.array(new, dtype=bool)\n"
        "        else:\n"
        "            different = ~known\n",
        _SYNCING,
    ),
    Bug(
        "a checkpoint does not list the rows that wait",
        "snapshots/merging.py",
        '        return {"files": self._first.spool.save(), ',
        '        return {"files": (), ',
        _CHECKPOINTS,
    ),
    Bug(
        "a checkpoint forgets what was seen",
        "snapshots/merging.py",
        "                self._seen = np.unpackbits(bits, count=len(index)).astype(bool)\n",
        "                self._seen = np.unpackbits(bits, count=len(index)).astype(bool) & False\n",
        _CHECKPOINTS,
    ),
    Bug(
        "a checkpoint runs ahead of the rows taken",
        "snapshots/resumable.py",
        "                        self._flush(sink)\n"
        "                        self._save(sink)\n                raise\n",
        "                        sink.rows += joined(self._waiting).table.num_rows\n"
        "                        self._save(sink)\n                raise\n",
        _CHECKPOINTS,
    ),
    Bug(
        "a batch that was lost on its way counts as added",
        "snapshots/resumable.py",
        "self._added == self._load.yielded and ",
        "",
        _CHECKPOINTS,
    ),
    Bug(
        "a resumed sync knows no identities",
        "snapshots/resumable.py",
        'identities=b"".join(read_checked(transaction.store, file) for file in self._identities),\n',
        'identities=b"",\n',
        _CHECKPOINTS,
    ),
    Bug(
        "the cursor is taken from anywhere near the end",
        "client/pages.py",
        r"""*)")\s*\}\s*\Z')""",
        r"""*)")\s*\}')""",
        ("tests/client/test_pages.py",),
    ),
    Bug(
        "rows without headers take no place",
        "tables/header_maps.py",
        "gap.count(_ROW)",
        "int(_ROW in gap)",
        ("tests/tables/test_header_maps.py",),
    ),
    Bug(
        "a header that comes twice is kept twice",
        "tables/header_maps.py",
        "    return None if _repeated(found.rows, found.names) else found\n",
        "    return found\n",
        ("tests/tables/test_header_maps.py",),
    ),
    Bug(
        "a quote behind two backslashes does not end a text",
        "tables/header_maps.py",
        "[lengths % 2 == 1]",
        "[lengths > 0]",
        ("tests/tables/test_header_maps.py",),
    ),
    Bug(
        "a stored id is found by its beginning alone",
        "snapshots/row_index.py",
        '            here = self.entries["id"][positions] == ids\n',
        "            here = positions >= 0\n",
        ("tests/snapshots/test_syncing.py",),
    ),
    Bug(
        "what was gone is recognised",
        "snapshots/merging.py",
        ' & ~before["gone"]\n',
        "\n",
        _RECOGNITION,
    ),
    Bug(
        "what is recognised was not seen",
        "snapshots/merging.py",
        "        self._seen[seen] = True\n",
        "        self._seen[positions[known]] = True\n",
        _RECOGNITION,
    ),
    Bug(
        "entries are recognised by their beginning",
        "loading/identities.py",
        "digest.update(raw)",
        "digest.update(bytes(raw)[:40])",
        _RECOGNITION,
    ),
    Bug(
        "entries are recognised whatever is masked by now",
        "redaction.py",
        "parts = (purpose.encode(), *sorted(secret.reveal().encode() for secret in self._own))",
        "parts = (purpose.encode(),)",
        _RECOGNITION,
    ),
    Bug(
        "digests are kept for other rows",
        "loading/identities.py",
        "digests=list(compress(one.digests, new)),",
        "digests=one.digests[: sum(new)],",
        _RECOGNITION,
    ),
    Bug(
        "a later version is recognised instead of decoded",
        "loading/window_reader.py",
        " and not rows.are_new(partly.identities):\n",
        " and not partly.ids:\n",
        _RECOGNITION,
    ),
    Bug(
        "idle connections do not give way",
        "serving.py",
        "            oldest.drop()\n",
        "            pass\n",
        ("tests/local/test_idle_connections.py::test_idle_connections_give_way",),
    ),
    Bug(
        "a filter goes on without its caller",
        "local/vectors/filtering.py",
        "        if self._ended or not self._wanted():\n",
        "        if False:\n",
        ("tests/local/vectors/test_filter_budget.py",),
    ),
    Bug(
        "a delivery whose outcome cannot be recorded is no attempt",
        "local/queue/scheduler.py",
        "            await self._count_as_failed(message, sent, retried, type(error).__name__)\n",
        "            await asyncio.sleep(1)\n",
        ("tests/local/queue/test_hostile_destinations.py",),
    ),
    Bug(
        "bodies are read before their signature is looked at",
        "loading/receiver.py",
        "                self._check_signature(headers, now)\n",
        "                pass\n",
        ("tests/loading/test_receiver_limits.py::test_unsigned_bodies_are_refused_unread",),
    ),
)
