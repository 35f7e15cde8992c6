"""A receiver in a process of its own: prints its address, and for each line of its input what it uses."""

from __future__ import annotations

import json
import sys
import threading
import time
from pathlib import Path

import toolkit as tk


def main(*keys: str) -> None:
    """Receive until standard input ends."""
    known = (
        dict(zip(("current_signing_key", "next_signing_key"), keys, strict=True))
        if keys
        else {}
    )
    service = tk.connect(
        queue_url="http://127.0.0.1:1", queue_token="a-token-of-the-test", **known
    )
    with tk.CallbackReceiver(service) as receiver:
        print(receiver.url, flush=True)  # noqa: T201 - for the test that started it
        for line in sys.stdin:
            if line == "clear\n":
                receiver.clear()
            status = Path("/proc/self/status").read_text()
            used = {
                "threads": threading.active_count(),
                "files": len([*Path("/proc/self/fd").iterdir()]),
                "peak": int(status.partition("VmHWM:")[2].split()[0]) * 1024,
                "cpu": time.process_time(),
                "received": len(receiver),
                "refused": receiver.refused,
                "turned away": receiver.turned_away,
            }
            print(json.dumps(used), flush=True)  # noqa: T201


if __name__ == "__main__":
    main(*sys.argv[1:])
