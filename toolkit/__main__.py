"""``python -m toolkit`` is the command ``toolkit``."""

from __future__ import annotations

import signal
import threading


def main() -> int:
    """Run the command; Ctrl-C or SIGTERM while it is imported ends it with its usual status."""
    try:
        if threading.current_thread() is threading.main_thread():
            signal.signal(signal.SIGTERM, signal.default_int_handler)
        from toolkit.cli import main as run  # noqa: PLC0415 - importing it takes a while
    except KeyboardInterrupt:
        return 130
    return run()


if __name__ == "__main__":
    raise SystemExit(main())
