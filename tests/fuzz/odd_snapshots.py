"""Snapshots that were edited: manifests, data files and indexes, with the old hashes or right ones."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any

import pandas as pd
import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq
from odd_frames import odd_frame
from odd_json import TOKEN, VECTOR_TOKEN, spoilt, spoilt_bytes, text, tree
from odd_services import Responding, command, quick_retries
from outcome import outcome

import toolkit as tk

STORED = Path(__file__).parent.parent / "data" / "snapshots"
MANIFEST = "_manifest.json"


class Snapshots:
    """The class of cases: something opens, verifies, syncs or replaces a snapshot that is not as it was."""

    name = "snapshots"

    def __init__(self, scratch: Path) -> None:
        self.scratch = scratch
        quick_retries()
        self.responding = Responding()
        self.service = tk.connect(
            queue_url=self.responding.url,
            queue_token=TOKEN,
            vector_url=self.responding.url,
            vector_token=VECTOR_TOKEN,
            environ={},
        )
        made = scratch / "made"
        options: dict[str, Any] = {"progress": False, "connections": 2}
        tk.sync_failures(self.service, made / "failures", **options)
        tk.export_vectors(self.service, made / "vectors", namespace="all", **options)
        self.frame = tk.load_failures(self.service, **options)
        tk.write_snapshot(self.frame, made / "frame")
        stored = [path.parent for path in STORED.glob(f"version-*/*/{MANIFEST}")]
        # most cases are about what today's toolkit wrote
        self.sources = [
            *[made / name for name in ("failures", "vectors", "frame")] * 8,
            *sorted(stored),
        ]

    def case(self, random: Random) -> tuple[str, str, str | None]:
        """One call: its name, what it came to, and what was wrong."""
        folder = self.scratch / "snapshot"
        clear(folder)
        shutil.copytree(random.choice(self.sources), folder)
        for _ in range(random.choice([1, 1, 1, 2])):
            self._spoil(random, folder)
        calls = self._calls(random, folder)
        name = random.choices(list(calls), [calls[name][2] for name in calls])[0]
        call, expected, _ = calls[name]
        word, wrong = outcome(call, expected, look=random.random() < 0.3)
        return name, word, wrong

    def _calls(
        self, random: Random, folder: Path
    ) -> dict[str, tuple[Callable[[], Any], Any, int]]:
        options: dict[str, Any] = {"progress": False, "connections": 2}
        return {
            "read_snapshot": (lambda: tk.read_snapshot(folder), pd.DataFrame, 8),
            "open_snapshot": (
                lambda: tk.open_snapshot(folder).to_arrow(),
                ds.Dataset,
                5,
            ),
            "verify_snapshot": (
                lambda: tk.verify_snapshot(folder),
                tk.results.Verification,
                5,
            ),
            "sync_failures": (
                lambda: tk.sync_failures(self.service, folder, **options).added,
                pd.DataFrame,
                4,
            ),
            "export_vectors": (
                lambda: tk.export_vectors(
                    self.service, folder, namespace="all", **options
                ),
                tk.results.Receipt,
                3,
            ),
            "write_snapshot": (
                lambda: tk.write_snapshot(self.frame, folder),
                type(None),
                3,
            ),
            "toolkit verify": (lambda: command(["verify", str(folder)], {}), int, 2),
            "report_failures": (lambda: self._reported(folder), str, 1),
            "toolkit report": (
                lambda: command(
                    [
                        "report",
                        "--snapshot",
                        str(folder),
                        "--output",
                        str(self.scratch / "report.json"),
                    ],
                    {},
                ),
                int,
                1,
            ),
        }

    def _reported(self, folder: Path) -> str:
        """A report of a snapshot: the code it prints is code that reads a snapshot, and nothing else."""
        report = tk.report_failures(tk.read_snapshot(folder))
        path = report.save(self.scratch / "report.md")
        return path.read_text()

    def _spoil(self, random: Random, folder: Path) -> None:
        files = sorted(
            path
            for path in folder.rglob("*")
            if path.is_file() and not path.is_symlink()
        )
        manifest = folder / MANIFEST
        data = [path for path in files if path.suffix in {".parquet", ".bin"}]
        action = random.randrange(10)
        if manifest not in files:
            return
        if action < 3 or not data:
            self._edit_manifest(random, manifest)
        elif action == 3:
            manifest.write_bytes(spoilt_bytes(random, manifest.read_bytes()))
        elif action == 4:
            path = random.choice(data)
            path.write_bytes(spoilt_bytes(random, path.read_bytes()))
        elif action < 7:
            path = random.choice(data)
            path.write_bytes(spoilt_bytes(random, path.read_bytes()))
            self._relist(random, manifest, path)
        elif action < 9:
            path = random.choice(
                [one for one in data if one.suffix == ".parquet"] or data
            )
            self._other_columns(random, path)
            self._relist(random, manifest, path)
        else:
            self._replace(random, random.choice(files))

    def _edit_manifest(self, random: Random, path: Path) -> None:
        """Other values, with the hash that fits them."""
        try:
            content = tree(json.loads(path.read_bytes())["manifest"])
            _write_manifest(
                path, text(spoilt(random, content, random.choice([1, 1, 2, 3])))
            )
        except (ValueError, KeyError, TypeError, RecursionError):
            return  # what the change before this one made can no longer be read

    def _other_columns(self, random: Random, path: Path) -> None:
        """A data file with the rows of another frame."""
        content = path.read_bytes()
        try:
            table = pq.read_table(path, partitioning=None)
            frame = odd_frame(random, table.to_pandas(types_mapper=pd.ArrowDtype))
            changed = pa.Table.from_pandas(frame)
            pq.write_table(
                changed,
                path,
                version=random.choice(["1.0", "2.6"]),
                write_page_checksum=True,
            )
        except Exception:  # noqa: BLE001 - not everything that is drawn can be written
            path.write_bytes(spoilt_bytes(random, content))

    def _relist(self, random: Random, manifest: Path, path: Path) -> None:
        """List a file as it is now, so that no hash tells."""
        try:
            content = json.loads(manifest.read_bytes())["manifest"]
            listed = [
                *content["files"],
                *([content["index"]] if content.get("index") else []),
            ]
            name = path.relative_to(manifest.parent).as_posix()
            entry = next(file for file in listed if file["path"] == name)
        except (
            ValueError,
            KeyError,
            TypeError,
            StopIteration,
            AttributeError,
            RecursionError,
        ):
            return
        data = path.read_bytes()
        entry["bytes"], entry["sha256"] = len(data), hashlib.sha256(data).hexdigest()
        try:
            entry["rows"] = pq.read_metadata(path).num_rows
        except Exception:  # noqa: BLE001 - no longer a Parquet file
            entry["rows"] = random.choice([entry.get("rows"), len(data) // 57])
        _write_manifest(manifest, json.dumps(content).encode())

    def _replace(self, random: Random, path: Path) -> None:
        """Something else where a file was."""
        path.unlink()
        way = random.randrange(6)
        if way == 1:
            path.mkdir()
        elif way == 2:
            path.symlink_to("nowhere")
        elif way == 3:
            path.symlink_to(path)
        elif way == 4:
            os.mkfifo(path)
        elif way == 5:
            path.touch()


def _write_manifest(path: Path, content: bytes) -> None:
    digest = hashlib.sha256(content).hexdigest().encode()
    path.write_bytes(b'{"sha256":"' + digest + b'","manifest":' + content + b"}\n")


def clear(folder: Path) -> None:
    """Remove a folder with its content."""
    shutil.rmtree(folder, ignore_errors=True)
