"""A DLQ to read, and how others read it: the loop a user would write, and the bare reading of the bytes."""

from __future__ import annotations

import base64
import json
from random import Random

import pandas as pd
import requests
from replay import Listing

from toolkit_service.demo.history import wire_entries

TOKEN = "token-of-the-benchmark"
PAGE = 100
DAY = 86_400_000
END = 1_767_225_600_000
_SECRET = (
    "auth",
    "token",
    "key",
    "secret",
    "cookie",
    "password",
    "session",
    "signature",
)


def listing(
    count: int,
    *,
    bursts: int = 0,
    deviation: int = 0,
    days: int = 7,
    seed: int = 920202,
) -> Listing:
    """The sample history, repeated under new ids: uniform over days, or in bursts.

    A burst lasts a minute, or has the shape of a normal distribution of this standard deviation, in
    milliseconds.
    """
    random, sample = Random(seed), wire_entries(END)
    starts = [END - random.randrange(days * DAY) for _ in range(bursts)]

    def timestamp() -> int:
        if not bursts:
            return END - random.randrange(days * DAY)
        around = random.choice(starts)
        return (
            int(random.gauss(around, deviation))
            if deviation
            else around + random.randrange(60_000)
        )

    timestamps = sorted((timestamp() for _ in range(count)), reverse=True)
    entries = [
        json.dumps(
            {
                **sample[number % len(sample)],
                "dlqId": f"dlq_{number:08d}",
                "createdAt": timestamp,
                "workflowCreatedAt": timestamp - 1000 - number % 5000,
            }
        ).encode()
        for number, timestamp in enumerate(timestamps)
    ]
    return Listing(timestamps, entries)


def bare(address: str) -> int:
    """Read the bytes and nothing else: the cursor is cut out of the end, without parsing."""
    found, cursor = [], ""
    with requests.Session() as session:
        session.headers["Authorization"] = f"Bearer {TOKEN}"
        while True:
            query = f"?count={PAGE}" + (f"&cursor={cursor}" if cursor else "")
            page = session.get(f"{address}/v2/workflows/dlq{query}", timeout=30).content
            found.append(page)
            cursor = page[-40:].split(b'"cursor": "')[1].split(b'"')[0].decode()
            if not cursor:
                return sum(page.count(b'"dlqId"') for page in found)


def loop(address: str) -> pd.DataFrame:
    """What a user would write: page by page, rows to a frame, bodies decoded, secret headers masked."""
    rows, cursor = [], None
    with requests.Session() as session:
        session.headers["Authorization"] = f"Bearer {TOKEN}"
        while True:
            page = session.get(
                f"{address}/v2/workflows/dlq",
                params={"count": PAGE, "cursor": cursor},
                timeout=30,
            ).json()
            rows += page["messages"]
            cursor = page.get("cursor")
            if not cursor:
                break
    frame = pd.DataFrame(rows)
    for column in ("body", "responseBody"):
        frame[column] = [
            base64.b64decode(coded) if isinstance(coded, str) and coded else text
            for text, coded in zip(frame[column], frame[f"{column}Base64"], strict=True)
        ]
    for column in ("header", "responseHeader"):
        frame[column] = frame[column].map(
            lambda headers: (
                {
                    name: ["***"]
                    if any(word in name.lower() for word in _SECRET)
                    else values
                    for name, values in headers.items()
                }
                if isinstance(headers, dict)
                else {}
            )
        )
    for column in ("createdAt", "workflowCreatedAt"):
        frame[column] = pd.to_datetime(frame[column], unit="ms", utc=True)
    return frame


def exploded(frame: pd.DataFrame) -> pd.DataFrame:
    """What a user would write for tables of headers and labels: nested loops, a frame of what they gather."""
    for column in ("header", "responseHeader"):
        pd.DataFrame(
            [
                (dlq_id, name, value, position)
                for dlq_id, headers in zip(frame["dlqId"], frame[column], strict=True)
                for name, values in headers.items()
                for position, value in enumerate(values)
            ],
            columns=["dlq_id", "name", "value", "position"],
        )
    pd.DataFrame(
        [
            (dlq_id, label)
            for dlq_id, labels in zip(frame["dlqId"], frame["labels"], strict=True)
            if isinstance(labels, list)
            for label in labels
        ],
        columns=["dlq_id", "label"],
    )
    return frame


def same(theirs: pd.DataFrame, ours: pd.DataFrame) -> None:
    """Stop unless both hold the same ids with the same bodies."""
    expected = {
        name: body.encode() if isinstance(body, str) else body
        for name, body in zip(theirs["dlqId"], theirs["body"], strict=True)
    }
    found = {
        name: text.encode() if isinstance(text, str) else base64.b64decode(raw)
        for name, text, raw in zip(
            ours["dlq_id"], ours["body"], ours["body_base64"], strict=True
        )
    }
    if found != expected:
        wrong = [name for name in expected if found.get(name) != expected[name]]
        raise SystemExit(
            f"the loop and load_failures differ in {len(wrong):,} rows, such as {wrong[:3]}"
        )
