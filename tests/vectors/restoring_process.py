"""Restores a snapshot in a process that is killed, as by the system, once so many rows are stored."""

from __future__ import annotations

import os
import signal
import sys

import toolkit as tk


def main(url: str, snapshot: str, checkpoint: str, most: int) -> None:
    """Restore; kill this process without any warning at `most` rows."""
    service = tk.connect(
        vector_url=url, vector_token=os.environ["RESTORING_TOKEN"], environ={}
    )

    def report(done: int, _: int | None) -> None:
        if done >= most:
            os.kill(os.getpid(), signal.SIGKILL)

    tk.restore_vectors(service, snapshot, checkpoint=checkpoint, progress=report)


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], sys.argv[3], int(sys.argv[4]))
