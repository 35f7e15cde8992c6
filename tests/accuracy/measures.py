"""How well groups agree with labels."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Hashable, Sequence
from typing import NamedTuple


class Agreement(NamedTuple):
    """Of grouped texts.

    grouping : share of texts whose group holds exactly the texts of their label (GA).
    precision, recall : of pairs of texts that share a group, and of pairs that share a label.
    of_groups : F1 score of groups that hold exactly the texts of a label (FGA).
    """

    grouping: float
    precision: float
    recall: float
    groups: int
    labels: int
    of_groups: float


def agreement(groups: Sequence[Hashable], labels: Sequence[Hashable]) -> Agreement:
    """Compare groups with labels."""
    cells = Counter(zip(groups, labels, strict=True))
    sizes, truth = Counter(groups), Counter(labels)
    right = sum(
        n == sizes[group] == truth[label] for (group, label), n in cells.items()
    )
    exact = sum(
        n for (group, label), n in cells.items() if n == sizes[group] == truth[label]
    )

    def pairs(counts: Counter[Hashable]) -> int:
        return sum(n * (n - 1) // 2 for n in counts.values())

    both = sum(n * (n - 1) // 2 for n in cells.values())
    return Agreement(
        exact / len(labels),
        both / pairs(sizes) if pairs(sizes) else 1.0,
        both / pairs(truth) if pairs(truth) else 1.0,
        len(sizes),
        len(truth),
        2 * right / (len(sizes) + len(truth)),
    )


def differences(
    groups: Sequence[Hashable], labels: Sequence[Hashable], texts: Sequence[str]
) -> list[str]:
    """Labels that were split and groups that hold several labels, with examples."""
    by_label, by_group = defaultdict(dict), defaultdict(dict)
    for group, label, text in zip(groups, labels, texts, strict=True):
        by_label[label].setdefault(group, text)
        by_group[group].setdefault(label, text)
    split = [
        f"split {len(found)}: " + " | ".join(list(found.values())[:4])
        for found in by_label.values()
        if len(found) > 1
    ]
    merged = [
        f"MERGED {len(found)}: " + " | ".join(list(found.values())[:4])
        for found in by_group.values()
        if len(found) > 1
    ]
    return merged + split
