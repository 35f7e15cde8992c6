"""A few unattended nights of real commands; `tests/soak/unattended.py` runs 60 with all faults."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

_SOAK = Path(__file__).parents[1] / "soak"
sys.path.insert(0, str(_SOAK))

from unattended import Fault, Night  # noqa: E402 - a script, next to the modules that it imports

from tests.covering import ALL_CASES  # noqa: E402 - see above
from toolkit.cli.exit_status import ExitStatus  # noqa: E402 - see above

_ERROR = frozenset({"no space left on device"})


@pytest.mark.parametrize(
    ("status", "named", "waiting", "fault", "is_wrong"),
    [
        (ExitStatus.DONE, frozenset(), frozenset(), None, False),
        (ExitStatus.DONE, frozenset(), _ERROR, None, True),
        (ExitStatus.WORSE, frozenset(), _ERROR, Fault.STOP, True),
        (ExitStatus.NEW, _ERROR, _ERROR, None, False),
        (ExitStatus.TOO_OLD, frozenset(), _ERROR, Fault.STOP, False),
        (ExitStatus.TOO_OLD, frozenset(), frozenset(), None, True),
        (ExitStatus.WORSE, frozenset(), frozenset(), None, True),
        (ExitStatus.FAILED, frozenset(), frozenset(), Fault.DISK, True),
    ],
)
def test_a_night_is_wrong_if_an_error_passes_or_a_quiet_day_alarms(
    status: ExitStatus,
    named: frozenset[str],
    waiting: frozenset[str],
    fault: Fault | None,
    *,
    is_wrong: bool,
) -> None:
    """The harness tells a missed alarm and a false one."""
    night = Night(
        day=1, status=status, named=named, waiting=waiting, fault=fault, has_new=False
    )
    assert bool(night.problem) is is_wrong


def test_status_and_verify_have_to_agree_with_the_report() -> None:
    """If the report knows that the data are old, a `status` of 0 is wrong."""
    known = {
        "named": frozenset(),
        "waiting": frozenset(),
        "fault": Fault.STOP,
        "has_new": False,
    }
    for others, is_wrong in (
        ((6, 6), False),
        ((1, 6), False),
        ((0, 6), True),
        ((6, 0), True),
        ((6, 1), True),
    ):
        night = Night(
            day=1, status=ExitStatus.TOO_OLD, data_state="old", others=others, **known
        )
        assert bool(night.problem) is is_wrong


FAULTS = [Fault.STOP, Fault.TOKEN]
if ALL_CASES:
    FAULTS += [Fault.ACCOUNT, Fault.AHEAD]


@pytest.mark.slow
@pytest.mark.parametrize("fault", FAULTS)
def test_nights_around_a_fault_name_the_new_error(fault: Fault) -> None:
    """While nothing can be known, nights end with 6; the first one after that names the error."""
    words = [
        "--days",
        "10",
        "--seeds",
        "1",
        "--every",
        "6",
        "--faults",
        fault.name.lower(),
    ]
    ran = subprocess.run(
        [sys.executable, str(_SOAK / "unattended.py"), *words],
        capture_output=True, text=True, check=False, timeout=900,
    )  # fmt: skip
    assert ran.returncode == 0, ran.stdout[-3_000:] + ran.stderr[-3_000:]
    (row,) = re.findall(
        rf"^\| {re.escape(fault.title)} \| (.*) \| (.*) \| 0 \|$",
        ran.stdout,
        re.MULTILINE,
    )
    nights = dict(re.findall(r"(\d+): (\d+)", row[1]))
    assert {"4", "6"} <= nights.keys()
    assert "processes (" in ran.stdout
