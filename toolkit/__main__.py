"""``python -m toolkit`` is the command ``toolkit``."""

from __future__ import annotations


def main() -> int:
    """Run the command; Ctrl-C while it is imported ends it with its usual status."""
    try:
        from toolkit.cli import main as run  # noqa: PLC0415 - importing it takes a while
    except KeyboardInterrupt:
        return 130
    return run()


if __name__ == "__main__":
    raise SystemExit(main())
