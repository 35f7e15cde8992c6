"""How often the analysis is right, on seeded data of our own: the tables of docs/accuracy.md."""

from __future__ import annotations

import argparse
import logging
import random
import re
import sys
import tempfile
import time
import warnings
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
import pandas as pd
from drain3 import TemplateMiner
from drain3.template_miner_config import TemplateMinerConfig

sys.path.insert(0, str(Path(__file__).parents[2]))

import toolkit as tk
from tests.accuracy.duplicates import duplicates
from tests.accuracy.failure_memory import failures_of, memory_table
from tests.accuracy.faulty_programs import javascript_traces, python_traces
from tests.accuracy.fixed_histories import fixed_episodes, outcomes
from tests.accuracy.fusions import COLLECTIONS, documents, hybrid_index, queries
from tests.accuracy.healthy_shapes import SHAPES, healthy_matrix
from tests.accuracy.held_out_bodies import FROZEN
from tests.accuracy.histories import END, history, names_the_root
from tests.accuracy.ill_indexes import DEFECTS, healthy_rows, ill_frame, to_frame
from tests.accuracy.incidents import Incident, incident, matches
from tests.accuracy.labelled_bodies import HELD_OUT, TUNED, labelled_bodies, macro_f1
from tests.accuracy.log_lines import log_lines
from tests.accuracy.measures import agreement
from tests.accuracy.public_data import (
    public_memory,
    public_tables,
    without_saturated,
)
from tests.accuracy.real_indexes import false_alarms, misplaced, mixtures, promises
from tests.accuracy.sentence_model import embedded as embedded_sentences
from tests.accuracy.system_logs import SYSTEMS, system_log
from tests.accuracy.written_runbooks import WITH_RUNBOOK, WITHOUT_RUNBOOK
from tests.accuracy.written_traces import WRITTEN, written_traces
from toolkit import classify_failures, compare_failures
from toolkit.analysis import (
    change_points,
    drift,
    error_signatures,
    explain_change,
    find_incidents,
    recall,
    similar_texts,
    threshold_for_precision,
)
from toolkit.reports.failure_report import report_failures
from toolkit.secrets.redaction import Redactor
from toolkit.tables.schemas import FAILURES
from toolkit.vectors.fusion import compare_fusion
from toolkit.vectors.health import audit_vectors
from toolkit.vectors.retrieval import paired_difference
from toolkit_service.demo.local_service import LocalService

HOURS = 90 * 24


def drained(texts: Sequence[str]) -> list[Any]:
    """Clusters of drain3 with its default settings, each line matched again after all are learned."""
    miner = TemplateMiner(config=TemplateMinerConfig())
    for text in texts:
        miner.add_log_message(text.replace("\n", " "))
    found = [miner.match(text.replace("\n", " ")) for text in texts]
    return [
        text if one is None else one.cluster_id
        for text, one in zip(texts, found, strict=True)
    ]


def traces(seed: int) -> dict[str, tuple[list[str], list[int]]]:
    """Sets of stack traces with their labels, by name."""
    with tempfile.TemporaryDirectory() as folder:
        sets = {
            "1,200 traces of Python": python_traces(30, seed=seed),
            "1,200 traces of Node": javascript_traces(30, Path(folder), seed=seed),
        }
    for language in WRITTEN:
        what = (
            "reports of sanitizers"
            if language == "sanitizers"
            else f"traces of {language}, written"
        )
        sets[f"900 {what}"] = written_traces(language, 30, seed=seed)
    return sets


def rate(texts: list[str]) -> float:
    """Distinct texts a second of processor time."""
    start = time.process_time()
    error_signatures(texts)
    return len(set(texts)) / (time.process_time() - start)


def trace_rates(seed: int) -> Iterator[str]:
    """How fast stack traces are signed, each set in a process that has seen no text before."""
    sets = {name: texts for name, (texts, _) in traces(seed).items()}
    sets["all, in one call"] = [text for texts in sets.values() for text in texts]
    yield "| texts | distinct texts a second of processor time, median of three processes |"
    yield "|---|---|"
    for name, texts in sets.items():
        with ProcessPoolExecutor(
            1, get_context("spawn"), max_tasks_per_child=1
        ) as processes:
            rates = list(processes.map(rate, [texts] * 3))
        yield f"| {name} | {median(rates):,.0f} |"


def signatures(seed: int) -> Iterator[str]:
    """Grouping of log lines and stack traces, beside drain3."""
    yield "| texts | labels | method | in the group of their label | precision of pairs | recall of pairs |"
    yield "|---|---|---|---|---|---|"
    sets = {
        "2,000 log lines": log_lines(2000, seed=seed),
        "20,000 log lines": log_lines(20_000, seed=seed),
        **traces(seed),
    }
    for name, (texts, labels) in sets.items():
        methods: dict[str, Callable[[Sequence[str]], list[Any]]] = {
            "signatures": error_signatures,
            "drain3": drained,
        }
        for method, group in methods.items():
            found = agreement(group(texts), labels)
            shares = " | ".join(f"{share:.3f}" for share in found[:3])
            yield f"| {name} | {found.labels} | {method} | {shares} |"
    texts, _ = log_lines(20_000, seed=seed)
    before, after = error_signatures(texts[:1000]), error_signatures(texts)[:1000]
    same = sum(one == two for one, two in zip(before, after, strict=True)) / 1000
    yield ""
    yield f"Ids of 1,000 lines that are the same with 19,000 more: {same:.3f}. "
    rng = random.Random(seed)
    letters = [
        " ".join(
            "".join(rng.choices("abcdefghijklmnopqrstuvwxyz", k=rng.randint(3, 9)))
            for _ in range(10)
        )
        for _ in range(20_000)
    ]
    yield f"{rate(texts):,.0f} distinct texts a second of processor time; {rate(letters):,.0f} where"
    yield "every word is random."


def systems(seed: int) -> Iterator[str]:
    """Grouping of 2,000 lines of each of 16 kinds of system logs, beside drain3."""
    yield "| 2,000 lines of | labels | GA | FGA | precision of pairs | GA of drain3 | FGA of drain3 |"
    yield "|---|---|---|---|---|---|---|"
    rows = []
    for name in SYSTEMS:
        texts, labels = system_log(name, seed=seed)
        ours, theirs = (
            agreement(group(texts), labels) for group in (error_signatures, drained)
        )
        rows.append(
            (
                ours.grouping,
                ours.of_groups,
                ours.precision,
                theirs.grouping,
                theirs.of_groups,
            )
        )
        yield (
            f"| {name} | {ours.labels} | "
            + " | ".join(f"{share:.3f}" for share in rows[-1])
            + " |"
        )
    yield (
        "| mean | | "
        + " | ".join(f"{share:.3f}" for share in np.mean(rows, axis=0))
        + " |"
    )


def changes(seed: int) -> Iterator[str]:
    """False changes in quiet days, and where a doubling is found."""
    yield "| 90 quiet days of hourly counts | changes found, mean of 50 |"
    yield "|---|---|"
    for name, made in _quiet().items():
        found = [
            len(change_points(made(np.random.default_rng([seed, run]))))
            for run in range(50)
        ]
        yield f"| {name} | {np.mean(found):.2f} |"
    placed = 0
    for run in range(300):
        rng = np.random.default_rng([seed, run])
        at = int(rng.integers(48, HOURS - 48))
        counts = rng.poisson(np.where(np.arange(HOURS) < at, 20, 40))
        placed += any(abs(one - at) <= 3 for one in change_points(counts)["at"])
    yield ""
    yield f"A doubling from 20 an hour is placed within 3 hours in {placed / 300:.3f} of 300 runs."


def _quiet() -> dict[str, Callable[[np.random.Generator], Any]]:
    def retries(rng: np.random.Generator) -> Any:
        counts = rng.poisson(12, HOURS)
        for start in rng.integers(0, HOURS, 180):
            for late in rng.exponential(1.5, rng.geometric(1 / 40)).astype(int):
                counts[min(start + late, HOURS - 1)] += 1
        return counts

    return {
        "Poisson, 20 an hour": lambda rng: rng.poisson(20, HOURS),
        "negative binomial, 20 an hour, dispersion 7.7": lambda rng: (
            rng.negative_binomial(3, 3 / 23, HOURS)
        ),
        "bursts of 40 retries, twice a day": retries,
        "a daily wave of 70 %": lambda rng: rng.poisson(
            20 * (1 + 0.7 * np.sin(np.arange(HOURS) * 2 * np.pi / 24))
        ),
    }


def explanations(seed: int) -> Iterator[str]:
    """Conditions of incidents with known roots, and quiet windows."""
    first = three = quiet = 0
    for run in range(135):
        case = incident(seed * 1000 + run)
        found = explain_change(
            case.before, case.after, weight="n", exposure=case.exposure
        ).frame
        right = [
            matches(row.condition, row.alternatives, case.root or {})
            for row in found.itertuples()
        ]
        first, three = first + (right[:1] == [True]), three + any(right[:3])
        calm = incident(500_000 + seed * 1000 + run, quiet=True)
        quiet += not explain_change(
            calm.before, calm.after, weight="n", exposure=calm.exposure
        ).stands_out
    yield f"First condition right {first / 135:.3f}, among three {three / 135:.3f}, of 135 incidents;"
    yield f"nothing stands out in {quiet / 135:.3f} of 135 quiet windows."


def few_columns(seed: int) -> Iterator[str]:
    """The same incidents and windows, by the columns of the root alone, and by as many of any."""
    for count in (1, 2):
        quiet, loud = [], []
        for run in range(135):
            calm, case = (
                incident(500_000 + seed * 1000 + run, quiet=True),
                incident(seed * 1000 + run),
            )
            columns = np.random.default_rng([seed, run]).choice(
                calm.before.columns.drop("n"), count, False
            )
            quiet.append(not _by(calm, list(columns)).stands_out)
            if case.root is not None and len(case.root) == count:
                loud.append(_by(case, list(case.root)).stands_out)
        yield f"By {count}: nothing stands out in {np.mean(quiet):.3f} of {len(quiet)} quiet windows,"
        yield f"a condition does in {np.mean(loud):.3f} of {len(loud)} incidents."


def _by(case: Incident, columns: list[str]) -> tk.results.Explanation:
    return explain_change(
        case.before, case.after, attributes=columns, weight="n", exposure=case.exposure
    )


def comparisons(seed: int) -> Iterator[str]:
    """Groups of two weeks: how often an unchanged rate looks changed, and a tripled one does."""
    wrong = seen = 0
    for run in range(40):
        rng = np.random.default_rng([seed, run])
        weeks = [
            _week(rng, start, rate) for start, rate in ((0, 60), (168, 60), (168, 180))
        ]
        changed = [
            compare_failures(weeks[0], week).frame["change"].item()
            for week in weeks[1:]
        ]
        wrong, seen = wrong + (changed[0] != "steady"), seen + (changed[1] == "growing")
    yield f"Of 40 pairs of weeks with bursts of 6 retries each, {wrong} look changed without a change, and"
    yield f"{seen} where three times as many failed."


def _week(rng: np.random.Generator, start: int, rate: int) -> pd.DataFrame:
    bursts = start + np.repeat(rng.uniform(0, 168, rng.poisson(rate)), 6)
    hours = np.minimum(bursts + rng.exponential(0.3, len(bursts)), start + 167.9)
    times = pd.Timestamp("2026-03-02", tz="UTC") + pd.to_timedelta(hours, unit="h")
    return pd.DataFrame(
        {"dlq_id": [f"{start} {number} {rate}" for number in range(len(hours))], "workflow_url": "u",
         "workflow_run_id": "w", "failed_at": times, "created_at": times, "response_status": 500,
         "response_body": "disk full", "response_body_base64": pd.Series([None] * len(hours), dtype="str")}
    )  # fmt: skip


def classes(seed: int) -> Iterator[str]:
    """Classes of labelled responses."""
    yield "| responses | number | macro-F1 | right | wrong class |"
    yield "|---|---|---|---|---|"
    frozen = [
        (label, status, body)
        for label, listed in FROZEN.items()
        for status, body in listed
    ]
    sets = {
        "the rules were written with": labelled_bodies(TUNED, seed),
        "the rules were generalised with": labelled_bodies(HELD_OUT, seed),
        "no rule has seen": frozen,
    }
    for name, rows in sets.items():
        labels = [label for label, *_ in rows]
        frame = pd.DataFrame(
            {"response_status": pd.array([status for _, status, _ in rows], dtype="Int64"),
             "response_body": [body for *_, body in rows],
             "response_body_base64": pd.Series([None] * len(rows), dtype="str")}
        )  # fmt: skip
        found = classify_failures(frame).frame["class"].tolist()
        pairs = list(zip(labels, found, strict=True))
        right = sum(one == two for one, two in pairs) / len(rows)
        wrong = sum(two not in (one, "unknown") for one, two in pairs) / len(rows)
        yield f"| {name} | {len(rows)} | {macro_f1(labels, found):.3f} | {right:.3f} | {wrong:.3f} |"


def incidents(seed: int) -> Iterator[str]:
    """Histories with one incident of a known root, and quiet ones, as reports see them."""
    first = placed = quiet = 0
    for run in range(60):
        case = history(1000 * (seed - 1) + run)
        found = find_incidents(case.failures)
        if len(found) and case.start is not None and case.stop is not None:
            row = found.iloc[0]
            right = names_the_root([row["condition"], *row["alternatives"]], case)
            near = max((case.stop - case.start) / 4, np.timedelta64(30, "m"))
            ends = (row["from_at"], case.start), (row["until_at"], case.stop)
            first, placed = (
                first + right,
                placed + (right and all(abs(a - b) <= near for a, b in ends)),
            )
        calm = find_incidents(
            history(500_000 + 1000 * (seed - 1) + run, quiet=True).failures
        )
        quiet += calm.empty
    yield f"First explanation right {first / 60:.3f}, and its time, too, {placed / 60:.3f}, of 60 incidents;"
    yield f"no incident in {quiet} of 60 quiet histories."


def reports(seed: int) -> Iterator[str]:
    """The same histories, as the pages of reports show them."""
    first = quiet = 0
    for run in range(60):
        case = history(1000 * (seed - 1) + run)
        sections = {one["name"]: one for one in _report(case.failures)["sections"]}
        if "why" in sections:
            shown = next(part for part in sections["why"]["parts"] if "table" in part)
            row = dict(zip(shown["columns"], shown["rows"][0], strict=True))
            texts = [row["condition:"], *(row["or:"] or "").split("; or ")]
            first += names_the_root([_condition(text) for text in texts if text], case)
        calm = _report(history(500_000 + 1000 * (seed - 1) + run, quiet=True).failures)
        quiet += (
            all(one["name"] != "why" for one in calm["sections"])
            and "explanation" not in calm["verdict"]
        )
    yield f"First explanation right {first / 60:.3f} of the pages of 60 incidents;"
    yield f"no explanation on those of {quiet} of 60 quiet histories."


def _report(failures: pd.DataFrame) -> dict[str, Any]:
    return report_failures(
        failures.reindex(columns=FAILURES.names), now=END.to_pydatetime()
    ).to_dict()


def _condition(text: str) -> dict[str, str]:
    """A condition as a page states it, with the names of columns."""
    # a title of an error may hold the words that divide conditions, and the last part counts those not shown
    parts = re.split(r" and (?=[\w\- ]+ = )", text)
    named = dict(part.split(" = ", 1) for part in parts if " = " in part)
    renamed = {"error": "signature", "caller ip": "caller_ip", "workflow url": "workflow_url",
               "flow control key": "flow_control_key", "response status": "response_status"}  # fmt: skip
    return {renamed.get(name, name): value for name, value in named.items()}


def similar(seed: int) -> Iterator[str]:
    """Stack traces that reach one fault by several ways, and new ones; beside a text query of an index."""
    texts, history, rows = duplicates(400, seed=seed)
    yield "| 400 traces seen before, 400 new | first right | mean reciprocal rank | AUC of seen or new |"
    yield "|---|---|---|---|"
    lexical = similar_texts(texts, history, k=20).rename(
        columns={"similarity": "score"}
    )
    yield _row("words and frames (`similar_texts`)", lexical, rows)
    heads = "the error and the 8 frames next to it"
    indexes = [
        "dense:dense:1024:COSINE:hashing",
        "hybrid:hybrid:1024:COSINE:hashing+bm25",
    ]
    mask = Redactor().text
    with LocalService(indexes=indexes) as local:
        for name in ("dense", "hybrid"):
            service = tk.connect(
                vector_url=local.vector_urls[name], vector_token=local.token
            )
            for what, lines in (("the whole trace", None), (heads, 9)):
                old, new = (
                    ["\n".join(mask(text).split("\n")[:lines]) for text in some]
                    for some in (history, texts)
                )
                namespace = what.split()[1]
                frame = pd.DataFrame(
                    {"id": [str(row) for row in range(len(old))], "data": old}
                )
                tk.upsert_vectors(service, frame, namespace=namespace, progress=False)
                strategy = None if name == "dense" else "IDF"
                hits = pd.concat(
                    tk.query_text(
                        service, new[first : first + 100], top_k=20, namespace=namespace,
                        hybrid=tk.HybridOptions(weighting_strategy=strategy),
                    ).assign(query=lambda found, first=first: found["query"] + first)
                    for first in range(0, len(new), 100)
                )  # fmt: skip
                model = "hashing" if name == "dense" else "hashing and BM25"
                yield _row(
                    f"index with {model}: {what}",
                    hits.assign(row=hits["id"].astype(int)),
                    rows,
                )


def _row(name: str, found: pd.DataFrame, rows: Sequence[int | None]) -> str:
    """How often the first of each query is its own, and how well its score tells seen from new."""
    best = found[found["rank"] == 1].set_index("query").reindex(range(len(rows)))
    known = [query for query, row in enumerate(rows) if row is not None]
    right = (
        found[found["query"] == found["row"]].set_index("query")["rank"].astype(float)
    )
    scores = best["score"].astype(float).fillna(0)
    old = scores[known].to_numpy()
    new = scores[[query for query, row in enumerate(rows) if row is None]].to_numpy()
    auc = ((old[:, None] > new) + 0.5 * (old[:, None] == new)).mean()
    first = np.mean([best.loc[one, "row"] == one for one in known])
    return (
        f"| {name} | {first:.3f} | {(1 / right).sum() / len(known):.3f} | {auc:.3f} |"
    )


def vectors(seed: int) -> Iterator[str]:
    """Coverage of intervals, and promises that hold."""
    yield "| | held |"
    yield "|---|---|"
    for quality in (0.6, 0.9, 0.99):
        held = 0
        for run in range(300):
            rng = np.random.default_rng([seed, run])
            right = rng.random((40, 10)) < rng.beta(
                quality * 4, (1 - quality) * 4, (40, 1)
            )
            found = [
                [n if ok else 100 + n for n, ok in enumerate(row)] for row in right
            ]
            told = recall(found, [list(range(10))] * 40, seed=run)
            held += told.low <= quality <= told.high
        yield f"| 95 % interval of a recall of {quality}, 40 queries, 300 times | {held / 300:.3f} |"
    kept = given = 0
    for run in range(300):
        rng = np.random.default_rng([seed, run])
        labels = rng.random(21_000) < 0.4
        scores = np.where(
            labels, rng.normal(0.7, 0.12, 21_000), rng.normal(0.4, 0.12, 21_000)
        )
        value = threshold_for_precision(
            scores[:1000], labels[:1000], precision=0.9, seed=run
        ).value
        if value is not None:
            given, kept = (
                given + 1,
                kept + bool(labels[1000:][scores[1000:] >= value].mean() >= 0.9),
            )
    yield f"| precision of 0.9 promised from 1,000 labels, {given} of 300 repetitions | {kept / given:.3f} |"
    false = 0
    for run in range(100):
        rng = np.random.default_rng([seed, run])
        false += (
            drift(rng.normal(size=(80, 8)), rng.normal(size=(80, 8)), seed=run).p_value
            < 0.05
        )
    yield f"| p of drift below 0.05 without drift, 100 repetitions | {false / 100:.3f} |"


def health(seed: int) -> Iterator[str]:
    """Planted defects that an audit of vectors finds, and false alarms on healthy indexes."""
    yield "| defect | rows planted | found | other rows named |"
    yield "|---|---|---|---|"
    planted, found, other = Counter[str](), Counter[str](), Counter[str]()
    for run in range(20):
        frame, rows = ill_frame(
            2000, seed=1000 * seed + run, defects=dict.fromkeys(DEFECTS, 6)
        )
        findings = audit_vectors(frame).frame
        named = dict(
            zip(
                findings["finding"],
                zip(findings["count"], findings["ids"], strict=True),
                strict=True,
            )
        )
        for defect, ids in rows.items():
            count, keys = named.pop(defect, (0, ()))
            right = (
                min(count, len(ids))
                if defect == "field missing"
                else len(ids & set(keys))
            )
            planted[defect] += len(ids)
            found[defect] += right
            other[defect] += count - right
        other.update({defect: count for defect, (count, _) in named.items()})
    for defect in sorted(planted | other):
        yield f"| {defect} | {planted[defect]} | {found[defect]} | {other[defect]} |"
    alarms = sum(
        len(audit_vectors(to_frame(healthy_rows(1500, seed=1000 * seed + run))).frame)
        for run in range(20)
    )
    yield f"| none, in 20 healthy indexes of 1,500 rows | | | {alarms} findings |"


def outliers(seed: int) -> Iterator[str]:
    """Outliers named in healthy indexes of several shapes, and those found of four planted ones."""
    yield "| healthy vectors | indexes | outliers named in | planted | found, 64 dimensions | found, 384 |"
    yield "|---|---|---|---|---|---|"
    every, wrong = 0, 0
    for shape in SHAPES:
        indexes = alarms = planted = 0
        found = Counter[int]()
        for rows, runs in ((300, 15), (600, 10), (1500, 5), (5000, 1)):
            for dimension in (8, 64, 384):
                for run in range(runs):
                    number = 1000 * seed + run
                    matrix = healthy_matrix(shape, rows, dimension, seed=number)
                    indexes, alarms = (
                        indexes + 1,
                        alarms + ("outlier" in _named(matrix)),
                    )
                    if dimension > 8 and run < 5:
                        matrix = healthy_matrix(
                            shape, rows, dimension, seed=number, outliers=4
                        )
                        last = {str(key) for key in range(rows - 4, rows)}
                        found[dimension] += len(
                            last & set(_named(matrix).get("outlier", ()))
                        )
                        planted += 4
        every, wrong = every + indexes, wrong + alarms
        half = planted // 2
        yield f"| {shape} | {indexes} | {alarms} | {half} + {half} | {found[64]} | {found[384]} |"
    yield ""
    yield f"Outliers are named in {wrong} of {every} healthy indexes ({wrong / every:.2%})."


def _named(matrix: Any) -> dict[str, tuple[str, ...]]:
    findings = audit_vectors(matrix).frame
    return dict(zip(findings["finding"], findings["ids"], strict=True))


def fusions(seed: int) -> Iterator[str]:
    """Whether "helps" and "harms" are said where they are true, how often intervals hold, and scores."""
    yield "| collection | fusion | nDCG@10 against the better leg | held | helps | no difference | harms |"
    yield "|---|---|---|---|---|---|---|"
    rows, topics = documents(seed)
    with hybrid_index(rows) as service:
        for name, noise in COLLECTIONS.items():
            asked, judged = queries(topics, noise, 600, seed)
            by = compare_fusion(service, asked, judged, depth=len(rows)).by
            leg = max(("dense", "sparse"), key=lambda one: by[f"ndcg_{one}"].mean())
            for fusion in ("RRF", "DBSF"):
                pair = by[[f"ndcg_{fusion}", f"ndcg_{leg}"]].to_numpy()
                true = float((pair[:, 0] - pair[:, 1]).mean())
                held = helps = harms = 0
                for run in range(300):
                    drawn = pair[
                        np.random.default_rng([seed, run]).integers(0, len(pair), 60)
                    ]
                    _, low, high = paired_difference(drawn[:, 0], drawn[:, 1], seed=run)
                    held, helps, harms = (
                        held + (low <= true <= high),
                        helps + (low > 0),
                        harms + (high < 0),
                    )
                said = (helps, 300 - helps - harms, harms)
                shares = " | ".join(f"{count / 300:.3f}" for count in said)
                yield f"| {name} | {fusion} | {true:+.3f} | {held / 300:.3f} | {shares} |"
    yield ""
    yield "| ranks from | fusion | scores recomputed | the same | largest difference | base inferred |"
    yield "|---|---|---|---|---|---|"
    for base in (0, 1):
        with hybrid_index(rows, rank_start=base) as service:
            for noise in COLLECTIONS.values():
                asked, _ = queries(topics, noise, 40, seed)
                scores = compare_fusion(service, asked, depth=len(rows)).scores
                for row in scores.itertuples():
                    inferred = "" if row.rank_base is pd.NA else row.rank_base
                    told = (
                        f"{row.hits} | {row.same:.3f} | {row.largest:.1e} | {inferred}"
                    )
                    yield f"| {base} | {row.fusion} | {told} |"


def fixes(seed: int) -> Iterator[str]:
    """How often the check of fixes is wrong, and how long it waits, on simulated histories."""
    yield "| time | seed | histories | wrongly stopped | failing | wait | of an oracle |"
    yield "|---|---|---|---|---|---|---|"
    for by_runs, name in ((False, "hours of the day"), (True, "runs")):
        for number in range(seed, seed + 3):
            made = list(outcomes(1000, number, by_runs=by_runs))
            wait = median(one.wait for one in made)
            episodes = fixed_episodes(made)
            fixed = wait / median(one.fixed_wait(episodes) for one in made)
            # runs carry further knowledge, so a reader of the rate alone is no comparison
            known = wait / median(one.oracle_wait for one in made)
            compared = "" if by_runs else f"{known:.2f}"
            shares = [
                sum(one.wrongly_stopped for one in made) / len(made),
                sum(one.wrongly_continuing for one in made) / len(made),
            ]
            wrong = " | ".join(f"{share:.3f}" for share in shares)
            yield f"| {name} | {number} | {len(made)} | {wrong} | {fixed:.2f} | {compared} |"


def runbooks(seed: int) -> Iterator[str]:
    """How often the right runbook is found, and its absence, with a model that runs offline."""
    yield "| errors | count | right one first | among three | called a match | no runbook matches |"
    yield "|---|---|---|---|---|---|"
    errors = [case.error for case in WITH_RUNBOOK] + list(WITHOUT_RUNBOOK)
    rows = [
        {"id": f"r{number}", "data": case.runbook}
        for number, case in enumerate(WITH_RUNBOOK)
    ]
    vectors = embedded_sentences([case.runbook for case in WITH_RUNBOOK])
    rows = [row | {"vector": vector} for row, vector in zip(rows, vectors, strict=True)]
    frame = failures_of(errors).assign(dlq_id=errors)
    frame = frame.sample(frac=1, random_state=seed)
    groups = tk.group_failures(frame)
    group_of = dict(
        zip(frame["dlq_id"], groups.assign(frame)["signature"], strict=True)
    )
    with LocalService(indexes=["runbooks:dense:384:COSINE"]) as running:
        service = tk.connect(
            vector_url=f"{running.url}/vector/runbooks",
            vector_token=running.token,
            environ={},
        )
        tk.upsert_vectors(service, rows, namespace="runbooks")
        found = tk.suggest_runbooks(groups, service, embed=embedded_sentences).frame
    by_group = dict(list(found.groupby("group")))
    ranks, matches = [], []
    for number, error in enumerate(errors):
        own = by_group[group_of[error]]
        right = own[own["runbook"] == f"r{number}"]
        ranks.append(int(right["rank"].iloc[0]) if len(right) else None)
        matches.append(bool(own["matches"].iloc[0]))
    count = len(WITH_RUNBOOK)
    first = sum(rank == 1 for rank in ranks[:count]) / count
    three = sum(rank is not None for rank in ranks[:count]) / count
    matching = sum(matches[:count]) / count
    yield f"| with a runbook | {count} | {first:.3f} | {three:.3f} | {matching:.3f} | |"
    for name, own in (("even", matches[count::2]), ("odd", matches[count + 1 :: 2])):
        none = 1 - sum(own) / len(own)
        yield f"| without, {name} positions | {len(own)} | | | | {none:.3f} |"


def memory(seed: int) -> Iterator[str]:
    """How often traces are wrongly never seen, by a frame and by the memory in a vector index."""
    texts, earlier, rows = duplicates(60, seed=seed)
    history = [(text, row) for row, text in enumerate(earlier)]
    new = [
        (text, row if row is not None else f"new {number}")
        for number, (text, row) in enumerate(zip(texts, rows, strict=True))
    ]
    yield from memory_table("own traces", history, new)


PARTS = {
    "Signatures": signatures,
    "Rates of stack traces": trace_rates,
    "Signatures of system logs": systems,
    "Change points": changes,
    "Explained changes": explanations,
    "Explained by few columns": few_columns,
    "Compared weeks": comparisons,
    "Classes": classes,
    "Incidents of histories": incidents,
    "Incidents of reports": reports,
    "Similar failures": similar,
    "Recall, thresholds and drift": vectors,
    "Health of indexes": health,
    "Outliers": outliers,
    "Fusions": fusions,
    "Fixes": fixes,
    "Runbooks": runbooks,
    "Memory": memory,
    "Real embeddings": false_alarms,
    "Two models in one index": mixtures,
    "Vectors of other rows": misplaced,
    "Promises of thresholds": promises,
}


def main() -> None:
    """Print all tables."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument(
        "--part",
        choices=PARTS,
        action="append",
        help="a table (default: all, or none with --public)",
    )
    parser.add_argument(
        "--public", type=Path, help="a folder of labelled data from elsewhere"
    )
    arguments = parser.parse_args()
    seed = arguments.seed
    logging.disable(logging.CRITICAL)
    warnings.simplefilter("ignore")
    without_part = PARTS if arguments.public is None else ()
    for title in arguments.part or without_part:
        print(f"## {title}\n")
        print("\n".join(map(without_saturated, PARTS[title](seed))), "\n", flush=True)
    if arguments.public is not None:
        print("## Public data\n")
        for tables in (public_tables, public_memory):
            lines = map(without_saturated, tables(arguments.public))
            print("\n".join(lines), "\n", flush=True)


if __name__ == "__main__":
    main()
