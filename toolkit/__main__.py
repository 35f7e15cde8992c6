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


def _forget_interrupt() -> None:
    """Let Python end with the status of the command after an interrupt inside of `exec`.

    Python notes when KeyboardInterrupt leaves code that was compiled from a string, for example while
    `dataclasses` defines a class. Even if the interrupt is caught, ``python -m`` then ends by the signal,
    which a parent process sees as -2 instead of 130. The next `exec` clears the note.
    """
    exec("")  # noqa: S102 - the string is constant


if __name__ == "__main__":
    status = main()
    _forget_interrupt()
    raise SystemExit(status)
