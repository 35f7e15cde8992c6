"""Whether the failures of a group have stopped since a fix."""

from __future__ import annotations

import json
from datetime import timedelta
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
from matplotlib.figure import Figure

import toolkit as tk
from tests.accuracy.fixed_histories import fixed_episodes, outcomes
from toolkit.cli import main
from toolkit.errors import InputError
from toolkit.fixes.earlier_rate import DailyClock, daily_rate
from toolkit.fixes.sequential_test import PriorCounts, evidence_of, redrive_score

START = pd.Timestamp("2026-03-02", tz="UTC")
SECRET = "Bearer s3cr3t-k9Xw27QmZp41LdVb"


def failures(hours: list[float], body: str = "disk full") -> pd.DataFrame:
    """Return failures of one group at these hours after the start."""
    times = START + pd.to_timedelta(hours, unit="h")
    return pd.DataFrame({
        "dlq_id": [f"dlq_{number}" for number in range(len(hours))],
        "workflow_url": "https://shop.example/pay", "response_status": 500,
        "failed_at": times.as_unit("ms"), "created_at": times.as_unit("ms"),
        "response_body": body, "response_body_base64": None,
    })  # fmt: skip


def checked(
    hours: list[float], since: float, now: float, **options
) -> tk.results.FixCheck:
    """Check the only group of these failures."""
    frame = failures(hours)
    group = tk.group_failures(frame).frame["group"].iloc[0]
    return tk.check_fix(frame, group, _hour(since), now=_hour(now), **options)


def _hour(number: float) -> pd.Timestamp:
    return START + pd.Timedelta(hours=number)


HOURLY = [float(hour) for hour in range(100)]


def test_quiet_time_decides_when_it_is_long_enough():
    """A group with one failure per hour has stopped after some quiet hours, and not after one."""
    early = checked(HOURLY, 99.5, 100.5)
    assert (early.state, early.after, early.before) == ("not yet known", 0, 100)
    assert timedelta(hours=2) < early.wait < timedelta(hours=6)
    assert early.holds_since is None
    late = checked(HOURLY, 99.5, 100.5 + early.wait.total_seconds() / 3600)
    assert (late.state, late.wait) == ("stopped", None)
    assert late.holds_since == _hour(99.5)
    assert late.expected > early.expected


def test_failures_that_continue_are_found():
    """Failures at the earlier rate after the fix are "still failing", and later quiet does not change it."""
    assert checked(HOURLY, 50.5, 99).state == "still failing"
    assert checked(HOURLY, 50.5, 200).state == "still failing"


def test_failures_that_return_are_found():
    """Failures at the earlier rate after a long silence are "back again"."""
    returned = [*HOURLY, *(150.0 + hour for hour in range(8))]
    assert checked(returned, 99.5, 158).state == "back again"
    straggler = checked([*HOURLY, 150.0], 99.5, 170)
    assert (straggler.state, straggler.after) == ("stopped", 1)
    assert straggler.holds_since == _hour(150)


def test_a_rare_group_is_not_decided():
    """One earlier failure is no rate, so that no time of silence decides."""
    check = checked([1.0], 2, 4000)
    assert (check.state, check.wait) == ("not yet known", None)
    assert "1 failure" in check.reason


def test_an_incomplete_load_never_shows_that_failures_have_stopped():
    """With a receipt that is not complete, the state is not known, and the reason is given."""
    frame = failures(HOURLY)
    receipt = tk.results.Receipt(
        what="failures", source="http://127.0.0.1", scope={}, rows=100, complete=False,
        started_at="2026-03-20T00:00:00+00:00", ended_at="2026-03-20T00:00:01+00:00",
    )  # fmt: skip
    frame.attrs["receipt"] = receipt.to_dict()
    group = tk.group_failures(frame).frame["group"].iloc[0]
    check = tk.check_fix(frame, group, _hour(99.5), now=_hour(300))
    assert (check.state, check.wait) == ("not yet known", None)
    assert "not complete" in check.reason


def test_a_night_without_failures_is_no_evidence():
    """If a group fails only in the day, the quiet hours of a night are hardly expected to have failures."""
    days = [24 * day + hour for day in range(10) for hour in np.arange(9, 17, 0.5)]
    night = checked(days, 24 * 10 - 6, 24 * 10 + 7)
    assert night.state == "not yet known"
    assert night.expected < 0.6 * 16 * 13 / 24
    assert checked(days, 24 * 10 - 6, 24 * 10 + 13).state == "stopped"


def test_a_burst_is_one_piece_of_evidence():
    """Five bursts of 20 failures tell less about the rate than 100 single failures."""
    bursts = np.sort(np.add.outer(np.arange(5) * 20.0, np.arange(20) / 60).ravel())
    single = evidence_of(np.diff(np.arange(100.0)), 100)
    in_bursts = evidence_of(np.diff(bursts), 100)
    assert single.burst_share > 0.9
    assert in_bursts.burst_share < 0.1
    assert in_bursts.known * in_bursts.burst_share < 5
    assert checked(bursts.tolist(), 81, 100).state == "not yet known"


def test_failures_are_compared_per_run():
    """Without runs after the fix, quiet time is no evidence; with them it is."""
    ended = [START + pd.Timedelta(hours=hour / 4) for hour in range(400)]
    runs = pd.DataFrame(
        {"workflow_url": "https://shop.example/pay", "completed_at": ended}
    )
    idle = checked(HOURLY, 99.9, 300, runs=runs)
    assert idle.state == "not yet known"
    assert idle.expected < 0.5
    later = [_hour(100 + number / 10) for number in range(60)]
    more = pd.DataFrame(
        {"workflow_url": "https://shop.example/pay", "completed_at": ended + later}
    )
    busy = checked(HOURLY, 99.9, 300, runs=more)
    assert busy.state == "stopped"
    assert busy.expected == pytest.approx(15, abs=1)
    with pytest.raises(InputError, match="no ended run"):
        checked(HOURLY, 99.9, 300, runs=runs.assign(workflow_url="another"))


def test_a_redrive_adds_evidence_relative_to_earlier_redrives():
    """Successes after the fix count if redrives before it failed; alone they do not."""
    group = tk.group_failures(failures(HOURLY)).frame["group"].iloc[0]

    def redriven(states: list[str], hours: list[float]) -> SimpleNamespace:
        ended = [_hour(hour) for hour in hours]
        columns = {
            "group": group,
            "state": states,
            "ended_at": ended,
            "new_dlq_id": None,
        }
        return SimpleNamespace(frame=pd.DataFrame(columns))

    after = redriven(["succeeded"] * 6, [100.0] * 6)
    assert checked(HOURLY, 99.5, 100.6, redrive=after).state == "not yet known"
    both = redriven(["failed again"] * 6 + ["succeeded"] * 6, [90.0] * 6 + [100.0] * 6)
    assert checked(HOURLY, 99.5, 100.6, redrive=both).state == "stopped"
    assert redrive_score((0, 0), (0, 9)) == 0.0


def test_wrong_arguments_are_named():
    """An unknown group and a fix later than the data raise errors that tell what to do."""
    with pytest.raises(InputError, match="without a failure"):
        tk.check_fix(failures(HOURLY), "none", _hour(50), now=_hour(100))
    with pytest.raises(InputError, match="data until"):
        checked(HOURLY, 120, 100)


def test_secrets_of_failures_are_not_shown():
    """Neither the sentence, the table, the JSON nor the plot contains a secret of a body."""
    frame = failures(HOURLY, body=f"login refused: {SECRET}")
    frame["workflow_url"] = f"https://shop.example/pay?token={SECRET[7:]}"
    group = tk.group_failures(frame).frame["group"].iloc[0]
    check = tk.check_fix(frame, group, _hour(99.5), now=_hour(120))
    ax = check.plot(ax=Figure().add_subplot())
    shown = [
        repr(check),
        check._repr_html_(),
        json.dumps(check.to_dict()),
        ax.get_title(loc="left"),
    ]
    assert "login refused" in shown[0]
    assert all(SECRET[7:] not in text for text in shown)


def test_the_plot_shows_seen_and_expected_failures():
    """Both curves end at the counts of the result."""
    check = checked(HOURLY, 50.5, 99)
    seen, expected = check.plot(ax=Figure().add_subplot()).lines
    assert seen.get_ydata()[-1] == check.after
    assert expected.get_ydata()[-1] == pytest.approx(check.expected)


def test_gaps_of_a_snapshot_take_no_time():
    """Hours in which failures may be missing are no quiet time."""
    times = np.arange(100) / 24
    whole, with_gap = daily_rate(times, 5.0), daily_rate(times, 5.0, ((5.5, 6.5),))
    end = np.array([7.0])
    missing = whole.positions(end, 5.0) - with_gap.positions(end, 5.0)
    assert missing == pytest.approx(24 * with_gap.per_unit / 24, rel=0.01)


def test_a_clock_is_inverted():
    """The time after an amount of expected failures has that position."""
    clock = DailyClock(np.linspace(0.5, 1.5, 24))
    later = clock.ahead(3.3, 2.6)
    assert clock.at(np.array([later])) - clock.at(np.array([3.3])) == pytest.approx(2.6)


def test_a_decision_waits_longer_if_less_is_known():
    """The fewer failures are known, the more expected failures a decision needs."""
    points = [PriorCounts(known, 1.0).stopping_point(0) for known in (1000, 100, 10, 3)]
    assert points == sorted(points)


@pytest.mark.slow
def test_promised_error_rates_are_kept():
    """In 1,000 simulated histories, at most 5 % of each decision are wrong, and waits are short."""
    made = list(outcomes(1000, seed=1))
    assert np.mean([one.wrongly_stopped for one in made]) <= 0.05
    assert np.mean([one.wrongly_continuing for one in made]) <= 0.05
    episodes = fixed_episodes(made)
    fixed = np.median([one.fixed_wait(episodes) for one in made])
    assert np.median([one.wait for one in made]) <= 1.3 * fixed


def test_the_command_ends_with_the_state(tmp_path, capsys):
    """The status is 0 if failures have stopped, 8 if they continue, 9 if it is not yet known."""
    now = pd.Timestamp.now("UTC").floor("min")
    hours = [(now - START) / pd.Timedelta(hours=1) - ago for ago in range(120, 20, -1)]
    tk.write_snapshot(failures(hours), tmp_path / "kept")
    group = tk.group_failures(failures(hours)).frame["group"].iloc[0]
    command = ["check-fix", group[:12], "--snapshot", str(tmp_path / "kept"), "--json"]
    assert main([*command, "--since", "15h"]) == 0
    assert json.loads(capsys.readouterr().out)["state"] == "stopped"
    assert main([*command, "--since", "90h"]) == 8
    assert main([*command, "--since", "5m"]) == 9
    assert main(["check-fix", "none", *command[2:], "--since", "5h"]) == 1


def test_the_beginning_of_an_id_is_enough():
    """With or without the version of the rules in front, if only one group begins like this."""
    times = [*HOURLY, *HOURLY]
    frame = failures(times)
    frame["response_body"] = ["disk full"] * len(HOURLY) + ["no route"] * len(HOURLY)
    frame["dlq_id"] = [f"d{number}" for number in range(len(frame))]
    for group in tk.group_failures(frame).frame["group"]:
        version, _, rest = group.partition("-")
        for beginning in (group, group[:9], rest, rest[:6]):
            check = tk.check_fix(frame, beginning, _hour(50), now=_hour(100))
            assert check.group == group
    with pytest.raises(InputError, match="the beginning of 2 groups"):
        tk.check_fix(frame, version, _hour(50), now=_hour(100))
