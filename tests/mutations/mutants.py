"""Mutants: plausible bugs as exact replacements in the source, each with the tests that must fail."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Mutant:
    """One bug that can be put into a copy of the toolkit.

    Attributes
    ----------
    name : str
    file : str
        Relative to the package `toolkit`.
    old, new : str
        Text that occurs exactly once in the file, and its replacement.
    tests : tuple of str
        Test files, relative to the root.
    """

    name: str
    file: str
    old: str
    new: str
    tests: tuple[str, ...]

    def problem(self, root: Path) -> str:
        """Why the mutant cannot be applied; "" when it can."""
        path = root / self.file
        if not path.is_file():
            return f"no file {self.file}"
        times = path.read_text().count(self.old)
        return "" if times == 1 else f"{times} times in {self.file}: {self.old!r}"

    @contextmanager
    def applied_to(self, copy: Path) -> Iterator[None]:
        """Apply the mutant, and restore the file on exit."""
        path = copy / self.file
        original = path.read_text()
        path.write_text(original.replace(self.old, self.new))
        try:
            yield
        finally:
            path.write_text(original)


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
_TRANSPORT = (
    "tests/service/test_transport.py",
    "tests/service/test_broken_responses.py",
)

MUTANTS: tuple[Mutant, ...] = (
    Mutant(
        "duplicate rows are kept",
        "toolkit/loading/identities.py",
        "            is_first = not is_known and identity not in new_here\n",
        "            is_first = True\n",
        _LOADING,
    ),
    Mutant(
        "a window ends a millisecond before the next one begins",
        "toolkit/loading/windows.py",
        "[window.first, *(cut + 1 for cut in cuts)]",
        "[window.first, *(cut + 2 for cut in cuts)]",
        _LOADING,
    ),
    Mutant(
        "a resumed load skips a millisecond",
        "toolkit/loading/windows.py",
        "start = max(start, last + 1)",
        "start = max(start, last + 2)",
        ("toolkit/loading/windows.py", "tests/loading/test_windows.py"),
    ),
    Mutant(
        "an empty page counts as the end",
        "toolkit/loading/windows.py",
        "        self.cursor = page.cursor\n",
        "        self.cursor = page.cursor if page.count else None\n",
        _LOADING,
    ),
    Mutant(
        "a repeated cursor counts as the end",
        "toolkit/loading/windows.py",
        "        self._cursors.follow(\n"
        '            self.cursor, page.cursor, what="a listing", page=self.pages\n'
        "        )\n"
        "        self.cursor = page.cursor\n",
        "        try:\n"
        "            self._cursors.follow(\n"
        '                self.cursor, page.cursor, what="a listing", page=self.pages\n'
        "            )\n"
        "            self.cursor = page.cursor\n"
        "        except Exception:\n"
        "            self.cursor = None\n",
        _LOADING,
    ),
    Mutant(
        "an unreadable page counts as empty",
        "toolkit/loading/window_reader.py",
        "            self._error = self._error or error\n",
        '            empty = Page(rows=b"[]", cursor=None, size=2, tries=1)\n'
        '            self._ready.append(FetchResult(window, "end", empty))\n',
        _LOADING,
    ),
    Mutant(
        "a window whose cursor expired is not read again",
        "toolkit/loading/window_reader.py",
        "        self._ready.append(FetchResult(window, outcome, error=refusal))\n",
        "        pass\n",
        _LOADING,
    ),
    Mutant(
        "rows of a split window are not looked for in its parts",
        "toolkit/loading/consistency.py",
        "            self.not_seen_again.update(window.rows)\n",
        "",
        _LOADING,
    ),
    Mutant(
        "the same row from two windows is not detected",
        "toolkit/loading/consistency.py",
        "        return not counts[Origin.OTHER_WINDOW]\n",
        "        return True\n",
        _LOADING,
    ),
    Mutant(
        "the fallback to a single cursor is silent",
        "toolkit/loading/consistency.py",
        '        self._state.notes.append(f"read with a single cursor, because {reason}")\n',
        "",
        ("tests/loading/test_window_reader.py",),
    ),
    Mutant(
        "a window that changed while it was read is neither read again nor reported",
        "toolkit/loading/windows.py",
        "        return self.repeated_rows > 0 or (self.state.compares and self.new_rows > 0)\n",
        "        return False\n",
        _LOADING,
    ),
    Mutant(
        "the second pass is omitted",
        "toolkit/loading/consistency.py",
        "        if self._pass >= self._passes:\n",
        "        if self._pass >= 1:\n",
        ("tests/loading/test_window_reader.py", "tests/loading/test_failures.py"),
    ),
    Mutant(
        "a resumed load has no identities",
        "toolkit/loading/load.py",
        "Identities(checkpoint.identities)",
        "Identities()",
        _LOADING,
    ),
    Mutant(
        "the limit is one too high",
        "toolkit/loading/load.py",
        "batch.first(limit - self._rows)",
        "batch.first(limit - self._rows + 1)",
        ("tests/loading/test_failures.py", "tests/loading/test_vectors.py"),
    ),
    Mutant(
        "the first version of a changed entry is kept",
        "toolkit/loading/load.py",
        "            chosen_rows[position] = candidate\n",
        "",
        _LOADING,
    ),
    Mutant(
        "a load that raised reports that it ended",
        "toolkit/loading/load.py",
        '            reasons.append("the load did not end")\n',
        "            pass\n",
        _LOADING,
    ),
    Mutant(
        "masking is omitted",
        "toolkit/loading/failures.py",
        "    if not reveal:\n        redactor = service.redactor\n",
        "",
        ("tests/loading/test_failures.py", "tests/test_main_job.py"),
    ),
    Mutant(
        "a value with a comma is sent",
        "toolkit/filters/failure.py",
        '        if name not in reasons and name not in ("since", "until"):\n',
        '        if FIELDS[name].parameter and name not in ("since", "until"):\n',
        _LOADING,
    ),
    Mutant(
        "a cursor read early is not checked",
        "toolkit/loading/ranges.py",
        "            if self._requested and self._requested[0].cursor != page.cursor:\n"
        "                self._drop()\n",
        "            if self._requested and self._requested[0].cursor != page.cursor:\n"
        "                import dataclasses\n"
        "                page = dataclasses.replace(page, cursor=self._requested[0].cursor)\n",
        _RANGES,
    ),
    Mutant(
        "duplicate vectors are not detected",
        "toolkit/loading/ranges.py",
        "        if reading.repeated:\n",
        "        if False:\n",
        _RANGES,
    ),
    Mutant(
        "a resumed range begins at its second page",
        "toolkit/loading/ranges.py",
        "        return cls(read, index, number, cursor, rows, repeated)\n",
        "        return cls(read, index, number, None, rows, repeated)\n",
        _RANGES,
    ),
    Mutant(
        "gzip without its trailer counts as complete",
        "toolkit/service/connections.py",
        "    if inside:\n",
        "    if False:\n",
        ("tests/service/test_connections.py", *_FAULTS),
    ),
    Mutant(
        "a response that ends with its connection never counts as truncated",
        "toolkit/base/members.py",
        "        return end_of(text, 0) >= len(text)\n    except ValueError:\n        return False\n",
        "        return end_of(text, 0) >= len(text)\n    except ValueError:\n        return True\n",
        (*_TRANSPORT, *_FAULTS),
    ),
    Mutant(
        "delays are measured by the local clock",
        "toolkit/service/responses.py",
        '    date = http_date_ms(headers.get("Date", ""))\n',
        "    date = None\n",
        ("tests/service/test_retry.py", "tests/service/test_transport.py"),
    ),
    Mutant(
        "redirects are followed",
        "toolkit/service/transport.py",
        "            retries=False,\n            redirect=False,\n",
        # and nothing else: tries and delays stay ours
        "            retries=urllib3.Retry(\n"
        "                connect=False, read=False, other=0, respect_retry_after_header=False\n"
        "            ),\n            redirect=True,\n",
        (
            "tests/service/test_transport.py::test_redirects_are_refused_and_nothing_is_forwarded",
        ),
    ),
    Mutant(
        "an unreadable response is not retried",
        "toolkit/base/errors.py",
        'or without required fields."""\n\n    retriable = True\n',
        'or without required fields."""\n\n    retriable = False\n',
        ("tests/service/test_malformed_responses.py", "tests/base/test_errors.py"),
    ),
    Mutant(
        "a 503 is retried without the delay it asks for",
        "toolkit/service/responses.py",
        "retry_after(headers) if status == 503 else None",
        "None",
        ("tests/service/test_transport.py",),
    ),
    Mutant(
        "a daily limit is retried",
        "toolkit/base/errors.py",
        'Waiting seconds does not help."""\n\n    retriable = False\n',
        'Waiting seconds does not help."""\n\n    retriable = True\n',
        ("tests/service/test_transport.py", "tests/base/test_errors.py"),
    ),
    Mutant(
        "base64 is not decoded",
        "toolkit/tables/base64_bodies.py",
        "    raw = base64_bytes(encoded)\n",
        "    raw = encoded.encode()\n",
        ("tests/tables/test_failures.py",),
    ),
    Mutant(
        "large integers become floats",
        "toolkit/tables/masking.py",
        '    json_object = masked_json({name: read_json(raw)}, redactor) or ""\n',
        '    json_object = masked_json({name: json.loads(raw, parse_int=float)}, redactor) or ""\n',
        ("tests/tables/test_failures.py", *_FAULTS),
    ),
    Mutant(
        "files are not fsynced",
        "toolkit/snapshots/store.py",
        "        os.fsync(self._file.fileno())\n",
        "",
        _STOPPED,
    ),
    Mutant(
        "folders are not fsynced",
        "toolkit/snapshots/store.py",
        "                    os.fsync(inside.handle)\n",
        "                    pass\n",
        _STOPPED,
    ),
    Mutant(
        "the manifest is written before its files have their names",
        "toolkit/snapshots/transaction.py",
        "        self._naming = True\n        for draft, name in renamed:\n",
        "        self._naming = True\n"
        "        write_manifest(self.store, manifest)\n"
        "        for draft, name in renamed:\n",
        _STOPPED,
    ),
    Mutant(
        "superseded files are removed before the commit",
        "toolkit/snapshots/transaction.py",
        "        content = write_manifest(self.store, manifest)\n",
        "        _clear(self.store, manifest)\n        content = write_manifest(self.store, manifest)\n",
        _STOPPED,
    ),
    Mutant(
        "a sync does not notice a missing file",
        "toolkit/snapshots/transaction.py",
        '            damages.append(Damage(file, "missing", present=False))\n',
        "            continue\n",
        (
            "tests/snapshots/test_repair.py::test_a_sync_over_a_lost_file_raises_each_time",
        ),
    ),
    Mutant(
        "a repair accepts a row that replaced another",
        "toolkit/snapshots/repairing.py",
        '        is_stored &= wanted.entries["content"][positions] == entries["content"]\n',
        "",
        (
            "tests/snapshots/test_repair.py::test_rows_that_were_put_there_instead_are_not_recovered",
        ),
    ),
    Mutant(
        "the lock is not acquired",
        "toolkit/base/private_files.py",
        "        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)\n",
        "        pass\n",
        _STOPPED,
    ),
    Mutant(
        "written files are not verified",
        "toolkit/snapshots/data_files.py",
        "        if checksum == sha256 and (\n",
        "        if checksum or (\n",
        _STOPPED,
    ),
    Mutant(
        "the index is not updated",
        "toolkit/snapshots/day_files.py",
        "kept_indexes = self._unchanged_indexes()\n",
        "kept_indexes = self.before.index_files if self.before else ()\n",
        _SYNCING,
    ),
    Mutant(
        "an incomplete load marks entries as gone",
        "toolkit/snapshots/merging.py",
        ' & ~self._index.entries["gone"] & receipt.complete\n',
        ' & ~self._index.entries["gone"]\n',
        _SYNCING,
    ),
    Mutant(
        "entries older than the last sync count as known",
        "toolkit/snapshots/merging.py",
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
    Mutant(
        "a checkpoint does not list the pending rows",
        "toolkit/snapshots/merging.py",
        '            "files": self._first.spool.save(),\n',
        '            "files": (),\n',
        _CHECKPOINTS,
    ),
    Mutant(
        "a checkpoint omits the rows seen",
        "toolkit/snapshots/merging.py",
        "            self._seen = np.unpackbits(bits, count=len(self._index)).astype(bool)\n",
        "            self._seen = np.unpackbits(bits, count=len(self._index)).astype(bool) & False\n",
        _CHECKPOINTS,
    ),
    Mutant(
        "a checkpoint is ahead of the rows added",
        "toolkit/snapshots/resumable.py",
        "                        self._flush(sink)\n"
        "                        self._save(sink)\n\n                raise\n",
        "                        sink.rows += join_batches(self._waiting).table.num_rows\n"
        "                        self._save(sink)\n\n                raise\n",
        _CHECKPOINTS,
    ),
    Mutant(
        "a batch that was not added counts as added",
        "toolkit/snapshots/resumable.py",
        "self._added == self._load.batches_yielded\n            and ",
        "",
        _CHECKPOINTS,
    ),
    Mutant(
        "a resumed sync has no identities",
        "toolkit/snapshots/resumable.py",
        'identities=b"".join(\n'
        "                    read_checked(transaction.store, file) for file in self._identities\n"
        "                ),\n",
        'identities=b"",\n',
        _CHECKPOINTS,
    ),
    Mutant(
        "rows without headers are left out",
        "toolkit/tables/header_maps.py",
        "gap.count(_ROW_END)",
        "int(_ROW_END in gap)",
        ("tests/tables/test_header_maps.py",),
    ),
    Mutant(
        "a repeated header is kept twice",
        "toolkit/tables/header_maps.py",
        "    if _has_repeated_name(column.rows, column.names):\n",
        "    if False:\n",
        ("tests/tables/test_header_maps.py",),
    ),
    Mutant(
        "a quote after two backslashes does not end a string",
        "toolkit/tables/header_maps.py",
        "[run_lengths % 2 == 1]",
        "[run_lengths > 0]",
        ("tests/tables/test_header_maps.py",),
    ),
    Mutant(
        "a stored id is found by its prefix alone",
        "toolkit/snapshots/row_index.py",
        '            here = self.entries["id"][positions] == ids\n',
        "            here = positions >= 0\n",
        ("tests/snapshots/test_syncing.py",),
    ),
    Mutant(
        "entries marked gone are recognised",
        "toolkit/snapshots/merging.py",
        ' & ~before["gone"]\n',
        "\n",
        _RECOGNITION,
    ),
    Mutant(
        "recognised entries do not count as seen",
        "toolkit/snapshots/merging.py",
        "        self._seen[seen] = True\n",
        "        self._seen[positions[known]] = True\n",
        _RECOGNITION,
    ),
    Mutant(
        "entries are recognised by their prefix",
        "toolkit/loading/identities.py",
        "digest.update(raw)",
        "digest.update(bytes(raw)[:40])",
        _RECOGNITION,
    ),
    Mutant(
        "entries are recognised although masking changed",
        "toolkit/secrets/redaction.py",
        "_framed([purpose.encode(), *tokens])",
        "_framed([purpose.encode()])",
        _RECOGNITION,
    ),
    Mutant(
        "digests are stored for the wrong rows",
        "toolkit/loading/identities.py",
        "digests=list(compress(entries.digests, is_new)),",
        "digests=entries.digests[: sum(is_new)],",
        _RECOGNITION,
    ),
    Mutant(
        "a later version is recognised instead of decoded",
        "toolkit/loading/window_reader.py",
        " and not rows.are_new(recognized.identities):\n",
        " and not recognized.ids:\n",
        _RECOGNITION,
    ),
    Mutant(
        "idle connections are not closed for new ones",
        "toolkit/base/serving.py",
        "            oldest.drop()\n",
        "            pass\n",
        (
            "tests/toolkit_service/test_idle_connections.py::test_idle_connections_are_closed_for_new_ones",
        ),
    ),
    Mutant(
        "a filter continues after its caller has stopped",
        "toolkit_service/vectors/rows.py",
        "        if self._ended or not self._wanted():\n",
        "        if False:\n",
        ("tests/toolkit_service/vectors/test_filter_budget.py",),
    ),
    Mutant(
        "a delivery whose outcome cannot be recorded does not count as an attempt",
        "toolkit_service/queue/scheduler.py",
        "            await self._count_as_failed(message, sent, retried, type(error).__name__)\n",
        "            await asyncio.sleep(1)\n",
        ("tests/toolkit_service/queue/test_hostile_destinations.py",),
    ),
    Mutant(
        "bodies are read before their signature is checked",
        "toolkit/loading/receiver.py",
        "                self._check_signature(headers, now)\n",
        "                pass\n",
        (
            "tests/loading/test_receiver_limits.py::test_unsigned_bodies_are_refused_unread",
        ),
    ),
)
