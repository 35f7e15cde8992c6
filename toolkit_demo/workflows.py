"""The workflows of the small application: two that end well and ten that fail, each in its own way."""

from __future__ import annotations

import asyncio
import json
import traceback
from typing import Any, Final, NoReturn

from starlette.responses import PlainTextResponse, Response

from toolkit_demo.causes import JSON_TYPE, TEXT_TYPE, cause
from toolkit_demo.protocol import Delivery, Sleep, Step, StepFailed, Workflow

FAILURE_FUNCTION: Final = "failed"
"""Path of the failure function that works."""
BROKEN_FAILURE_FUNCTION: Final = "failed/broken"
"""Path of the one that does not."""

_VAT_RATES: Final = {"DE": 0.19, "FR": 0.2, "TR": 0.2}
_SLOWNESS: Final = 2.5  # seconds; longer than the timeout that is asked for


async def _reserve(delivery: Delivery) -> dict[str, Any]:
    return {"reserved": _number(delivery)}


async def _charge(delivery: Delivery) -> dict[str, Any]:
    return {"charged": _number(delivery) / 100}


async def _fails_twice(delivery: Delivery) -> dict[str, Any]:
    if delivery.retried < 2:  # noqa: PLR2004 - twice
        body = {"error": "busy", "message": f"try {delivery.retried + 1} of order {_number(delivery)}"}
        raise StepFailed(Response(json.dumps(body), 503, {"Content-Type": JSON_TYPE}))
    return {"tries": delivery.retried + 1}


async def _really_raises(delivery: Delivery) -> dict[str, Any]:
    """A failure of this program itself: the answer is the traceback of a real exception."""
    countries = ("XK", "DE", "ZZ")
    try:
        country = countries[_number(delivery) % 2 * 2]
        return {"vat": _VAT_RATES[country]}
    except KeyError:
        raise StepFailed(PlainTextResponse(traceback.format_exc(), 500)) from None


async def _too_slow(_: Delivery) -> NoReturn:
    await asyncio.sleep(_SLOWNESS)
    # by now the service has given up; a result would still be taken, and the run would go on
    raise StepFailed(PlainTextResponse("rendering took too long", 500))


async def _not_retriable(delivery: Delivery) -> dict[str, Any]:
    body = json.dumps({"error": "unknown order", "message": f"order {_number(delivery)} does not exist"})
    raise StepFailed(
        Response(
            body,
            489,
            {
                "Content-Type": JSON_TYPE,
                "Service-NonRetryable-Error": "true",
                "Upstash-NonRetryable-Error": "true",
                "NonRetryable-Error": "true",
            },
        )
    )


def _answers(*names: str) -> Step:
    """A step that always answers with one of these causes, by the number in the payload."""

    async def step(delivery: Delivery) -> NoReturn:
        number = _number(delivery)
        found = cause(names[number % len(names)])
        headers = found.headers | {"Content-Type": found.content_type}
        raise StepFailed(Response(found.body(number), found.status or 500, headers))

    return step


def _number(delivery: Delivery) -> int:
    try:
        return int(json.loads(delivery.payload)["order"])
    except (ValueError, KeyError, TypeError):
        message = f"a payload of {len(delivery.payload)} bytes without an order number"
        raise StepFailed(PlainTextResponse(message, 400, {"Content-Type": TEXT_TYPE})) from None


WORKFLOWS: Final[tuple[Workflow, ...]] = (
    Workflow(
        name="orders/checkout",
        steps={"reserve": _reserve, "wait": Sleep(seconds=5), "charge": _charge},
        labels=("shop",),
        fails=False,
    ),
    Workflow(name="orders/flaky", steps={"send": _fails_twice}, retries=3, labels=("shop",), fails=False),
    Workflow(
        name="orders/prices",
        steps={"quote": _answers("js_error_json", "json_validation", "json_conflict", "json_hostile")},
        labels=("shop", "eu"),
        failure_function=FAILURE_FUNCTION,
    ),
    Workflow(
        name="legacy/sync",
        steps={"import": _answers("html_error", "html_gateway")},
        retries=1,
        labels=("legacy",),
        failure_function=BROKEN_FAILURE_FUNCTION,
    ),
    Workflow(
        name="invoices/send",
        steps={"tax": _really_raises},
        labels=("finance",),
        failure_function=FAILURE_FUNCTION,
    ),
    Workflow(
        name="orders/fulfil", steps={"price": _answers("js_type_error")}, labels=("shop", "release-2.15")
    ),
    Workflow(
        name="reports/render",
        steps={"render": _too_slow},
        retries=1,
        labels=("reports",),
        settings={"Timeout": "1s"},
        failure_function=FAILURE_FUNCTION,
    ),
    Workflow(name="media/thumbnail", steps={"scale": _answers("binary_image", "latin1_text", "utf16_text")}),
    Workflow(
        name="exports/bulk",
        steps={"write": _answers("json_rate_limit")},
        labels=("bulk",),
        settings={"Flow-Control-Key": "tenant-bulk", "Flow-Control-Value": "parallelism=8"},
    ),
    Workflow(
        name="payments/capture",
        steps={"reserve": _reserve, "confirm": _answers("go_panic", "java_caused_by")},
        labels=("payments", "priority"),
        failure_function=FAILURE_FUNCTION,
    ),
    Workflow(
        name="ledger/post", steps={"insert": _answers("python_chained", "text_disk")}, labels=("finance",)
    ),
    Workflow(name="accounts/remove", steps={"look up": _not_retriable}, labels=("eu",)),
)
"""Every workflow of the application."""
