"""Check the limits of a redrive: canaries, size of waves, share of failures, deadline and rate.

The same checks apply to arguments of `plan_redrive`, to options of the command line and to a plan that is
read from a file. For example, ``wave=0`` is an error in each of them.
"""

from __future__ import annotations

from typing import Final

import msgspec

from toolkit.base.arguments import plain, positive, whole, wrong
from toolkit.base.times import parse_duration

_MOST: Final = 1_000_000_000
_LONGEST: Final = parse_duration("36500d").total_seconds()


class Limits(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Limits that a run of a plan observes.

    Parameters
    ----------
    canaries, wave : int
        Entries of a group that go first, and together after that: 1 to 1,000,000,000.
    stop_above : float
        Share of the ended runs of a group that may fail again: above 0, at most 1.
    deadline : float
        Seconds to wait for a wave: above 0, at most 100 years.
    rate, parallelism : int, optional
        Deliveries per second, and concurrent ones: 1 to 1,000,000,000.

    Raises
    ------
    InputError
        If a value is out of range, or of another type.

    Examples
    --------
    >>> Limits(canaries=-1)
    Traceback (most recent call last):
    ...
    toolkit.errors.InputError: reading canaries: got -1; expected a whole number from 1 to 1,000,000,000
    """

    canaries: int = 1
    wave: int = 50
    stop_above: float = 0.2
    deadline: float = 600.0
    rate: int | None = None
    parallelism: int | None = None

    def __post_init__(self) -> None:
        checked: dict[str, object] = {
            "canaries": whole("canaries", self.canaries, most=_MOST),
            "wave": whole("wave", self.wave, most=_MOST),
            "stop_above": float(positive("stop_above", plain(self.stop_above))),
            "deadline": float(positive("deadline", plain(self.deadline))),
            "rate": whole("rate", self.rate, most=_MOST, optional="for the runs' own"),
            "parallelism": whole(
                "parallelism",
                self.parallelism,
                most=_MOST,
                optional="for the runs' own",
            ),
        }
        if self.stop_above > 1:
            raise wrong("stop_above", self.stop_above, "a share above 0, at most 1")
        if self.deadline > _LONGEST:
            raise wrong("deadline", self.deadline, f"at most {_LONGEST:,.0f} seconds")

        for name, value in checked.items():
            # as Python's own types, which JSON has
            msgspec.structs.force_setattr(self, name, value)
