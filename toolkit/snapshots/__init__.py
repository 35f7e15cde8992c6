"""Parquet at rest: written whole or not at all, bound to where it came from, readable by anything.

``writing.py``, ``syncing.py`` and ``exporting.py`` make snapshots, ``reading.py`` opens and verifies them.
Beneath: ``commit.py`` is one change from lock to clean-up, ``manifest.py`` what a snapshot is, ``folder.py``
and ``hashing.py`` its files on the disk, ``object_store.py`` those elsewhere, ``datafiles.py`` and
``parts.py`` one file, ``decoding.py`` its rows in bounded memory, ``columns.py`` which columns are stored.
``damage.py`` finds lost files before a sync trusts them, ``repairing.py`` brings back what can be.
``intake.py`` reads a load and writes its ``checkpoint.py``; the rows of an export go to ``streaming.py``,
those of a sync to ``comparing.py`` (``fingerprints.py`` and ``index.py`` tell a changed row), wait in
``spool.py``, and are written day by day by ``merging.py``; ``changes.py`` is what a sync found.
``schedule.py`` does it again and again.
"""

from toolkit.snapshots.changes import Changes
from toolkit.snapshots.exporting import export_vectors
from toolkit.snapshots.reading import Verification, read_snapshot, scan_snapshot, verify_snapshot
from toolkit.snapshots.syncing import sync_failures
from toolkit.snapshots.writing import write_snapshot

__all__ = [
    "Changes",
    "Verification",
    "export_vectors",
    "read_snapshot",
    "scan_snapshot",
    "sync_failures",
    "verify_snapshot",
    "write_snapshot",
]
