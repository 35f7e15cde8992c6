"""Parquet at rest: written whole or not at all, bound to where it came from, readable by anything.

``writing.py``, ``syncing.py`` and ``exporting.py`` make snapshots, ``reading.py`` opens and verifies them.
Beneath: ``commit.py`` is one change from lock to clean-up, ``manifest.py`` what a snapshot is, ``folder.py``
and ``hashing.py`` its files on the disk, ``datafiles.py`` one Parquet file, ``columns.py`` which columns
rest. ``comparing.py``, ``fingerprints.py`` and ``index.py`` tell a changed row; ``changes.py`` is what a
sync found.
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
