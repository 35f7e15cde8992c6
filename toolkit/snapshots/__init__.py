"""Snapshots: stored Parquet that is written whole or not at all, and that any reader opens.

`writing` and `syncing` make snapshots, `reading` opens and verifies them. Beneath: `merging` compares a load
with the stored rows by their `row_index` and writes what changed, `repair` restores lost files, `resumable`
runs a load with checkpoints, `transaction` makes a change atomic, `data_files` writes and reads Parquet,
`manifest` says what a snapshot is, and `store` and `object_store` hold its files.
"""

from toolkit.snapshots.reading import Verification, read_snapshot, scan_snapshot, verify_snapshot
from toolkit.snapshots.syncing import Changes, sync_failures
from toolkit.snapshots.writing import export_vectors, write_snapshot

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
