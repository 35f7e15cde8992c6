"""Seeded stack traces of failures that reached the same fault by other ways, and of new failures."""

from __future__ import annotations

import random

_CLASSES = 90
_ERRORS = [
    f"{name}Exception"
    for name in ("NullPointer", "IllegalState", "ClassCast", "Timeout", "IO")
]


def duplicates(
    kinds: int, *, seed: int = 0
) -> tuple[list[str], list[str], list[int | None]]:
    """Queries and a history of Java traces; the row of each query in the history, None for a new one."""
    rng = random.Random(seed)
    methods = [
        f"com.acme.p{rng.randrange(12)}.C{number}.m{rng.randrange(7)}"
        for number in range(_CLASSES)
        for _ in range(6)
    ]
    libraries = [f"java.util.L{number}.call{number % 5}" for number in range(25)]
    entries = [
        [rng.choice(methods) for _ in range(rng.randrange(6, 20))]
        + rng.sample(libraries, 4)
        for _ in range(25)
    ]
    faults = []
    for _ in range(2 * kinds):
        near = [rng.choice(methods) for _ in range(rng.randrange(2, 6))]
        if rng.random() < 0.5:
            near.insert(0, rng.choice(libraries))
        if faults and rng.random() < 0.4:  # faults share code
            near[-1] = rng.choice(faults)[0][0]
        message = rng.choice(
            [
                "",
                "",
                "state %d is closed",
                "index %d out of range",
                "no value for key k%d",
            ]
        )
        faults.append((near, rng.choice(_ERRORS), message))

    def trace(fault: tuple[list[str], str, str]) -> str:
        near, error, message = fault
        kept = [
            name
            for number, name in enumerate(near)
            if number == 0 or rng.random() < 0.85
        ]
        if rng.random() < 0.3:
            kept.insert(rng.randrange(1, len(kept) + 1), rng.choice(methods))
        frames = kept + rng.choice(entries)[rng.randrange(4) :]
        said = (
            f": {message % rng.randrange(1000) if '%d' in message else message}"
            if message
            else ""
        )
        lines = "\n".join(
            f"\tat {name}({name.split('.')[-2]}.java:{rng.randrange(900)})"
            for name in frames
        )
        return f"java.lang.{error}{said}\n{lines}"

    history = [trace(fault) for fault in faults[:kinds]]
    texts = [trace(fault) for fault in faults]
    return texts, history, [*range(kinds), *([None] * kinds)]
