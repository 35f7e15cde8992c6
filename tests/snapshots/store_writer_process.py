"""A writer to an object store, which the tests kill: run as a program.

``PORT`` is the server's. For each path read from standard input, a fork made before Arrow starts a thread
syncs there; its id is printed, then how it ended.
"""

from __future__ import annotations

import os
import sys
from datetime import timedelta

from pyarrow.fs import AwsStandardS3RetryStrategy, S3FileSystem

from conftest import START, Clock, entries, entry, load_of
from toolkit.snapshots.object_store import open_store
from toolkit.snapshots.syncing import sync_load


def sync(port: int, path: str) -> None:
    """A sync that adds d, changes b, misses a, and finds c as it was."""
    filesystem = S3FileSystem(
        endpoint_override=f"127.0.0.1:{port}",
        scheme="http",
        access_key="key-of-the-test",
        secret_key="secret-of-the-test",
        region="us-east-1",
        retry_strategy=AwsStandardS3RetryStrategy(max_attempts=1),
        request_timeout=60,
        allow_delayed_open=True,  # small objects in one request
    )
    pages = ([entry("b", body="new"), *entries("c")], entries("d"))
    clock = Clock(START + timedelta(days=1))
    sync_load(load_of(*pages), open_store(path, filesystem), clock=clock, batch_bytes=1)


def attempt(port: int, path: str) -> int:
    """The exit status of a process of its own that syncs; negative for a signal."""
    child = os.fork()
    if child == 0:
        status = 70
        try:
            sync(port, path)
            status = 0
        finally:
            os._exit(status)
    say(child)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def say(number: int) -> None:
    """Print, at once."""
    sys.stdout.write(f"{number}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    for line in sys.stdin:
        say(attempt(int(sys.argv[1]), line.strip()))
