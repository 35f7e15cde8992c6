"""Files written as a whole or not at all, for this user alone."""

from __future__ import annotations

import os
import secrets
from pathlib import Path

from toolkit.errors import ToolkitError


def write_private(path: Path, content: bytes) -> None:
    """Put the content into a new file beside the path, then in its place: mode 0600, links not followed.

    Raises
    ------
    ToolkitError
        When it cannot be written. What was at the path is as it was.
    """
    draft = path.with_name(f".{path.name[:80]}.{secrets.token_hex(4)}.part")
    try:
        handle = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)  # which follows no link
        try:
            with os.fdopen(handle, "wb") as file:
                file.write(content)
                file.flush()
                os.fsync(file.fileno())
            draft.replace(path)
        except OSError:
            draft.unlink(missing_ok=True)
            raise
        _sync_folder(path.parent)
    except OSError as error:
        raise ToolkitError(
            f"writing {path.name!r}",
            got=f"{type(error).__name__}: {error.strerror}",
            expected="a folder that exists, with room",
            next_step="Make the folder, or choose another.",
        ) from None


def _sync_folder(folder: Path) -> None:
    """Make the new name durable, where the system can."""
    if not hasattr(os, "O_DIRECTORY"):
        return  # Windows opens no folders
    handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
