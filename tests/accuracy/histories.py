"""Seeded histories of failures, quiet ones and ones with an incident whose root is known."""

from __future__ import annotations

import json
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

END = pd.Timestamp("2026-03-10 12:00", tz="UTC")
_HOUR = 3600.0
_MESSAGES = (
    (500, "TypeError: Cannot read properties of undefined (reading 'total')"),
    (500, "order {n} was changed by someone else"),
    (502, "upstream closed the connection after {n} ms"),
    (504, "request timed out after {n} ms"),
    (422, "quantity must be positive, got {n}"),
    (409, "version {n} is older than the stored one"),
    (401, "the access token expired {n} seconds ago"),
    (500, "database is locked by session {n}"),
    (503, "no worker is free, {n} jobs are waiting"),
    (507, "no space left for file {n}"),
)
_NEW = (500, "unexpected field discount in message {n}")


class History(NamedTuple):
    """A frame of failures, and the incident in it, if there is one: its root, and from when until when."""

    failures: pd.DataFrame
    root: dict[str, str]
    start: pd.Timestamp | None
    stop: pd.Timestamp | None
    new_error: bool


def history(seed: int, *, quiet: bool = False) -> History:
    """Failures over 4 to 20 days with a wave by day, retries in bursts, and workflows of all sizes."""
    rng = np.random.default_rng(seed)
    seconds = float(rng.integers(4, 21)) * 24 * _HOUR
    workflows = int(rng.integers(3, 15))
    draws: dict[str, Any] = {
        "workflow_url": (
            [f"https://app.example/{n}" for n in range(workflows)],
            rng.dirichlet(np.ones(workflows)),
        ),
        "caller_ip": ([f"192.0.2.{n}" for n in range(1, 8)], rng.dirichlet(np.ones(7))),
        "flow_control_key": (
            [None, *(f"tenant-{n}" for n in range(6))],
            rng.dirichlet(np.ones(7)),
        ),
        "label": ([None, "eu", "us", "batch", "priority"], rng.dirichlet(np.ones(5))),
        "region": (["fra", "iad", "sin"], rng.dirichlet(np.ones(3))),
        "plan": (["free", "team", "company"], rng.dirichlet(np.ones(3))),
    }
    own = [
        rng.choice(len(_MESSAGES), int(rng.integers(1, 5)), replace=False)
        for _ in range(workflows)
    ]
    events = int(np.exp(rng.uniform(np.log(150), np.log(5000))))
    burst, wave = float(rng.choice([1, 1, 2, 5])), float(rng.choice([0, 0.4, 0.8]))
    number = max(int(events / burst), 3)
    at = rng.random(8 * number) * seconds
    at = at[
        rng.random(at.size) * (1 + wave)
        < 1 + wave * np.cos(at / (24 * _HOUR) * 2 * np.pi)
    ][:number]
    rows = pd.DataFrame(
        {name: np.array(values, dtype=object)[rng.choice(len(values), at.size, p=shares)]
         for name, (values, shares) in draws.items()}
    )  # fmt: skip
    codes = [int(url.rsplit("/", 1)[1]) for url in rows["workflow_url"]]
    rows = rows.assign(error=[int(rng.choice(own[code])) for code in codes], at=at)
    rows = rows.loc[
        np.repeat(rows.index, rng.geometric(1 / burst, len(rows)))
    ].reset_index(drop=True)
    rows["at"] = (rows["at"] + rng.exponential(300, len(rows)) * (burst > 1)).clip(
        0, seconds - 1
    )
    root: dict[str, str] = {}
    start = stop = None
    new = False
    if not quiet:
        some = rows.iloc[int(rng.integers(len(rows)))]
        named = [name for name in draws if isinstance(some[name], str)]
        depth = int(rng.choice([1, 1, 2, 2, 3]))
        root = {
            name: some[name]
            for name in rng.choice(named, min(depth, len(named)), replace=False)
        }
        inside = rows[
            np.logical_and.reduce([rows[name] == value for name, value in root.items()])
        ]
        length = float(np.exp(rng.uniform(np.log(_HOUR / 6), np.log(48 * _HOUR))))
        goes_on = bool(rng.random() < 0.4)
        begin = (
            seconds - length
            if goes_on
            else float(rng.uniform(0.1, 0.9)) * (seconds - length)
        )
        factor = float(np.exp(rng.uniform(np.log(2.5), np.log(50))))
        added = int(rng.poisson(max(len(inside) * length / seconds, 6) * factor))
        more = inside.sample(added, replace=True, random_state=seed).assign(
            at=begin + rng.random(added) * length
        )
        new = bool(rng.random() < 0.5)
        if new:
            more["error"] = -1
        rows = pd.concat([rows, more], ignore_index=True)
        start, stop = (
            END - pd.Timedelta(seconds=seconds - one) for one in (begin, begin + length)
        )
    return History(_failures(rows, seconds, rng), root, start, stop, new)


def _failures(
    rows: pd.DataFrame, seconds: float, rng: np.random.Generator
) -> pd.DataFrame:
    rows = rows.sort_values("at", kind="stable").reset_index(drop=True)
    errors = [_NEW if code < 0 else _MESSAGES[code] for code in rows["error"]]
    numbers = rng.integers(1, 10**6, len(rows)).tolist()
    when = (END - pd.to_timedelta(seconds - rows["at"], unit="s")).dt.as_unit("ms")
    return pd.DataFrame(
        {
            "dlq_id": [f"d{number}" for number in range(len(rows))],
            "failed_at": when,
            "created_at": when,
            **{
                name: rows[name].astype("str")
                for name in ("workflow_url", "caller_ip", "flow_control_key")
            },
            "labels": [
                json.dumps([one]) if isinstance(one, str) else None
                for one in rows["label"]
            ],
            "headers": [json.dumps({"X-Region": [one]}) for one in rows["region"]],
            "body": [
                json.dumps({"plan": plan, "order": n})
                for plan, n in zip(rows["plan"], numbers, strict=True)
            ],
            "response_status": pd.Series(
                [status for status, _ in errors], dtype="Int64"
            ),
            "response_body": [
                text.format(n=n) for (_, text), n in zip(errors, numbers, strict=True)
            ],
            "response_body_base64": pd.Series([None] * len(rows), dtype="str"),
        }
    )


_NAMES = {"header X-Region": "region", "body plan": "plan"}
_ERROR = ("signature", "response_status", "response body")


def names_the_root(conditions: list[dict[str, str]], found: History) -> bool:
    """Whether one of the conditions, which describe the same failures, is the root.

    Where the incident has an error of its own, that error alone or beside the root is right, too.
    """

    def right(condition: dict[str, str]) -> bool:
        plain = {_NAMES.get(name, name): value for name, value in condition.items()}
        error = {name for name in plain if name.startswith(_ERROR)}
        rest = {name: value for name, value in plain.items() if name not in error}
        if not found.new_error:
            return plain == found.root
        return rest.items() <= found.root.items() and (
            rest == found.root or "signature" in error
        )

    return any(map(right, conditions))
