"""Snapshots: stored Parquet that is written whole or not at all, and that any reader opens.

`writing` and `syncing` make snapshots, `reading` opens and verifies them. Beneath: `merging` compares a load
with the stored rows by their `row_index` and writes what changed, `repair` restores lost files, `resumable`
runs a load with checkpoints, `transaction` makes a change atomic, `data_files` writes and reads Parquet,
`manifest` says what a snapshot is, and `store` and `object_store` hold its files.
"""

from toolkit.lazy_names import lazy_names

__all__, __getattr__, __dir__ = lazy_names(__name__)
