"""Two tiers of tests: `make test` takes minutes, `make test-all` runs everything.

The second tier contains, marked `exhaustive` when tests are collected:

1. Tests that are marked `slow` or `browser`, unless they are also marked `tour`. If all tests of a module are
   slow, the first one stays in the first tier, so that every module is tested there. Modules that drive a
   browser have a test marked `tour` if they show a panel or a report.
2. Of a test with more than `MOST_CASES` cases, all cases but that number of evenly spaced ones, and of a slow
   test all but `MOST_SLOW_CASES`. For example, of 477 combinations of an audit and a hostile frame, the first
   tier runs every 120th.
3. Of the modules that `dear_modules.txt` lists, two of three functions: their tests make a report, start
   processes or write snapshots, and took half of the time of the first tier.
4. The functions that `slowest_functions.txt` lists, because a case took four seconds or more.

This module also decides which tests share a worker, for example if they use a fixture of their module, which
is then built once and not once per worker.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]

MOST_CASES = 4
"""Cases of one test function in the first tier."""

MOST_SLOW_CASES = 2
"""Cases of a slow test in the first tier, if it is the one that stays there for its module."""


def _listed(name: str) -> frozenset[str]:
    """Return the lines of a list in this folder."""
    lines = (Path(__file__).parent / name).read_text().splitlines()
    return frozenset(line for line in lines if not line.startswith("#"))


DEAR_MODULES = _listed("dear_modules.txt")
"""Modules with expensive tests, as paths from the project's folder."""

DEAR_STEP = 3
"""Of a dear module, the first tier runs the first function, and then every function after this many."""

SLOWEST_FUNCTIONS = _listed("slowest_functions.txt")
"""Slow functions and doctests, as ``path::name`` without the cases."""

MOST_IN_A_GROUP = 60
"""Tests of a module that share a worker. More would leave the other workers idle at the end."""

FEW_IN_A_GROUP = 8
"""Tests of a module that share a worker although they share no fixture of it."""

SHARED_ACROSS_MODULES = frozenset({"planted_service"})
"""Session fixtures that take so long to build that all their users share a worker."""


def mark_tiers(items: list[pytest.Item]) -> None:
    """Mark the tests of the second tier as `exhaustive`."""
    _mark_slow_tests(items)
    _mark_most_cases(items)
    _mark_dear_modules(items)
    _mark_slowest_functions(items)


def _mark_slow_tests(items: list[pytest.Item]) -> None:
    by_module: defaultdict[Path, list[pytest.Item]] = defaultdict(list)
    for item in items:
        by_module[item.path].append(item)
    for tests in by_module.values():
        slow = [test for test in tests if _is_slow(test)]
        if len(slow) == len(tests) and not _stays_in_second_tier(tests[0]):
            slow = [test for test in slow if _function(test) != _function(tests[0])]
        for test in slow:
            test.add_marker("exhaustive")


def _stays_in_second_tier(test: pytest.Item) -> bool:
    """Return whether a slow test is left to the second tier even if it is the first of its module."""
    marks = {mark.name for mark in test.iter_markers()}
    return not marks.isdisjoint({"exhaustive", "browser"})


def _function(test: pytest.Item) -> str:
    """Return the name of the function of a test, which all cases of it share."""
    return getattr(test, "originalname", test.name)


def _is_slow(item: pytest.Item) -> bool:
    marks = {mark.name for mark in item.iter_markers()}
    return "tour" not in marks and not marks.isdisjoint({"slow", "browser"})


def _mark_most_cases(items: Iterable[pytest.Item]) -> None:
    by_function: defaultdict[tuple[Path, str], list[pytest.Function]] = defaultdict(
        list
    )
    for item in items:
        if isinstance(item, pytest.Function) and hasattr(item, "callspec"):
            by_function[item.path, item.originalname].append(item)
    for cases in by_function.values():
        few = _is_slow(cases[0]) or _is_dear(cases[0])
        most = MOST_SLOW_CASES if few else MOST_CASES
        step = max(1.0, len(cases) / most)
        chosen = {int(number * step) for number in range(most)}
        for number, case in enumerate(cases):
            if number not in chosen:
                case.add_marker("exhaustive")


def _is_dear(item: pytest.Item) -> bool:
    return item.path.relative_to(ROOT).as_posix() in DEAR_MODULES


def _mark_dear_modules(items: Iterable[pytest.Item]) -> None:
    """Leave every third function of a dear module in the first tier, the first one among them."""
    functions: defaultdict[Path, dict[str, int]] = defaultdict(dict)
    for item in items:
        if not _is_dear(item) or item.get_closest_marker("exhaustive"):
            continue
        numbers = functions[item.path]
        number = numbers.setdefault(_function(item), len(numbers))
        if number % DEAR_STEP:
            item.add_marker("exhaustive")


def _mark_slowest_functions(items: Iterable[pytest.Item]) -> None:
    """Leave slow functions to the second tier, also if they are the only ones of their module."""
    for item in items:
        path = item.path.relative_to(ROOT).as_posix()
        if f"{path}::{_function(item)}" in SLOWEST_FUNCTIONS:
            item.add_marker("exhaustive")


def group_tests(items: list[pytest.Item]) -> None:
    """Divide the tests into groups (an `xdist_group` each). A worker runs a whole group.

    Tests that share an expensive fixture also share a worker. All others are grouped because pytest-xdist
    visits all groups of a worker after each test: 16,000 empty tests took 87 CPU seconds with a group per
    test, and take 62 in groups.
    """
    counts: defaultdict[str, int] = defaultdict(int)
    for item in items:
        if item.get_closest_marker("browser"):
            # tests of a page run in their order, on one worker
            item.add_marker(pytest.mark.xdist_group(item.path.stem))
            continue
        group, most = _group(item)
        chunk = counts[group] // most
        counts[group] += 1
        item.add_marker(pytest.mark.xdist_group(f"{group} {chunk}"))


def _group(item: pytest.Item) -> tuple[str, int]:
    """Return the name of the group of a test, and how many tests of the group may share a worker."""
    others = f"others of {item.path.stem}"
    if not isinstance(item, pytest.Function):
        return others, FEW_IN_A_GROUP

    definitions = item._fixtureinfo.name2fixturedefs
    shared = SHARED_ACROSS_MODULES & definitions.keys()
    if shared:
        return min(shared), MOST_IN_A_GROUP

    scopes = {found[-1].scope for found in definitions.values() if found}
    if "module" in scopes:
        return item.path.stem, MOST_IN_A_GROUP
    return others, FEW_IN_A_GROUP
