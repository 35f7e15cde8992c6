"""Seeded incidents with known roots: counts of failures by attributes, before and after."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import pandas as pd


class Incident(NamedTuple):
    """Frames of counts, and the condition that was made to rise; None where nothing was."""

    after: pd.DataFrame
    before: pd.DataFrame
    root: dict[str, str] | None
    exposure: float


def incident(seed: int, *, quiet: bool = False) -> Incident:
    """Sparse counts over three to seven attributes; bursts of retries; attributes that name the same rows."""
    rng = np.random.default_rng(seed)
    names = [f"a{number}" for number in range(rng.integers(3, 8))]
    sizes = rng.integers(2, 25, len(names))
    shares = [rng.dirichlet(np.full(size, 0.7)) for size in sizes]
    exposure = float(rng.choice([1, 4, 24, 72]))
    # events of the time after
    rate = float(np.exp(rng.uniform(np.log(30), np.log(3000))))
    bursts = float(rng.choice([1, 1, 2, 4]))

    def rows(events: int) -> pd.DataFrame:
        if not events:
            return pd.DataFrame({name: pd.Series(dtype=object) for name in names})
        drawn = {
            name: rng.choice(size, events, p=share)
            for name, size, share in zip(names, sizes, shares, strict=True)
        }
        return pd.DataFrame(
            {
                name: [f"{name}v{value}" for value in values]
                for name, values in drawn.items()
            }
        )

    def counted(frame: pd.DataFrame) -> pd.DataFrame:
        repeats = rng.geometric(1 / bursts, len(frame))
        return (
            frame.assign(n=repeats).groupby(names, as_index=False)["n"].sum()
            if len(frame)
            else frame.assign(n=[])
        )

    before, after = (
        rows(rng.poisson(rate * exposure / bursts)),
        rows(rng.poisson(rate / bursts)),
    )
    root: dict[str, Any] | None = None
    if not quiet:
        depth = int(rng.choice([1, 1, 2, 2, 3]))
        some = before.iloc[int(rng.integers(len(before)))]
        root = {
            name: some[name]
            for name in rng.choice(names, min(depth, len(names)), replace=False)
        }
        inside = before[
            np.logical_and.reduce(
                [before[name] == value for name, value in root.items()]
            )
        ]
        factor = float(np.exp(rng.uniform(np.log(2), np.log(50))))
        added = rng.poisson(max(len(inside) / exposure, 4) * factor)
        after = pd.concat(
            [after, inside.sample(added, replace=True, random_state=seed)],
            ignore_index=True,
        )
    twin = str(rng.choice(names))
    before, after = counted(before), counted(after)
    if rng.random() < 0.5:  # another name for the same rows
        before, after = (
            frame.assign(twin=frame[twin].map(lambda value: f"alias of {value}"))
            for frame in (before, after)
        )
    return Incident(after, before, root, exposure)


def matches(
    found: dict[str, str], alternatives: list[dict[str, str]], root: dict[str, str]
) -> bool:
    """Whether a condition or one that describes the same rows is the root; a twin counts as what it names."""

    def plain(condition: dict[str, str]) -> dict[str, str]:
        renamed = {}
        for name, said in condition.items():
            value = said.removeprefix("alias of ")
            renamed[value.split("v")[0] if name == "twin" else name] = value
        return renamed

    return any(plain(one) == root for one in [found, *alternatives])
