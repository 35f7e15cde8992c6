"""A few unattended nights; `tests/soak/unattended.py` runs 60 with all faults."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.soak.unattended import Fault, World, nights
from toolkit.cli.exit_status import ExitStatus


@pytest.mark.slow
def test_a_new_error_of_a_stop_does_not_pass_unseen(tmp_path: Path) -> None:
    """While no sync runs, nights end with 6; the first one after it names the error; quiet nights pass."""
    text = "no space left on device"
    world = World(tmp_path / "kept", 5, 1, {2: Fault.STOP}, {2: text})
    found = list(nights(world, every=8))
    assert [night.problem for night in found] == [""] * 5
    statuses = [night.status for night in found]
    assert statuses[:2] == [ExitStatus.DONE, ExitStatus.DONE]
    assert statuses[3:] == [ExitStatus.TOO_OLD, ExitStatus.NEW]
    assert found[4].named == {text}
