"""Response bodies in 36 forms of frameworks, platforms, databases and languages, each with the right answers.

The bodies were written from the public descriptions of the forms before the reader of bodies was opened, so they are
a held-out set: `service_forms.py` measures how many are read rightly. Names and values are made up.

Each form has groups. Texts of one group are one error, texts of two groups are two. `error` names what the column
`error` and the title of the group must contain (one of the words, if there are several), and `action` what a plan of
a redrive must do with the group ("leave" or "retry").
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

UUIDS = ("0b7c1f0e-55a1-4b7e-9f13-2c8e6a90d1f4", "e1d2c3b4-0001-4aaa-8bbb-0123456789ab")


@dataclass(frozen=True)
class Form:
    """Bodies of one form, and how they must be read."""

    name: str
    groups: Mapping[str, Sequence[str]]
    error: Mapping[str, str | tuple[str, ...]]
    status: int = 500
    headers: Mapping[str, Sequence[str]] = field(default_factory=dict)
    action: Mapping[str, str] = field(default_factory=dict)


def compact(**fields: object) -> str:
    """Return the fields as compact JSON, as most servers write it."""
    return json.dumps(fields, ensure_ascii=False, separators=(",", ":"))


# Interfaces of clouds


def google(status: str, code: int, message: str, reason: str) -> str:
    """Return an error of a Google interface."""
    info = {
        "@type": "type.googleapis.com/google.rpc.ErrorInfo",
        "reason": reason,
        "domain": "storage.googleapis.com",
    }
    return json.dumps(
        {
            "error": {
                "code": code,
                "message": message,
                "status": status,
                "details": [info],
            }
        },
        indent=2,
    )


def azure(code: str, message: str) -> str:
    """Return an error of an Azure interface, whose message carries the request and the time."""
    inner = {"code": code, "date": "2026-03-01T10:11:12", "request-id": UUIDS[0]}
    return compact(error={"code": code, "message": message, "innerError": inner})


def entra(code: str, sentence: str, trace: str, at: str) -> str:
    """Return an error of Azure's token endpoint."""
    description = f"{code}: {sentence}\r\nTrace ID: {trace}\r\nCorrelation ID: {trace}\r\nTimestamp: {at}"
    number = int(code.removeprefix("AADSTS"))
    return compact(
        error="invalid_grant",
        error_description=description,
        error_codes=[number],
        timestamp=at,
        trace_id=trace,
    )


def s3(code: str, message: str, key: str, request: str) -> str:
    """Return an XML error of an object store."""
    return (
        f'<?xml version="1.0" encoding="UTF-8"?>\n<Error><Code>{code}</Code><Message>{message}</Message>'
        f"<Key>{key}</Key><RequestId>{request}</RequestId><HostId>{request}abc=</HostId></Error>"
    )


def aws_query(code: str, message: str, request: str) -> str:
    """Return an XML error of AWS's query protocol."""
    return (
        '<ErrorResponse xmlns="http://queue.amazonaws.com/doc/2012-11-05/"><Error><Type>Sender</Type>'
        f"<Code>{code}</Code><Message>{message}</Message></Error><RequestId>{request}</RequestId></ErrorResponse>"
    )


def kubernetes(message: str, reason: str, code: int) -> str:
    """Return a Status object of Kubernetes."""
    return compact(
        kind="Status",
        apiVersion="v1",
        metadata={},
        status="Failure",
        message=message,
        reason=reason,
        code=code,
    )


CLOUDS = (
    Form(
        "Google JSON",
        {
            "a": [
                google(
                    "PERMISSION_DENIED",
                    403,
                    f"svc-{n}@shop.iam.gserviceaccount.com does not have storage.objects.create access.",
                    "IAM_PERMISSION_DENIED",
                )
                for n in (17, 4051)
            ],
            "b": [
                google(
                    "RESOURCE_EXHAUSTED",
                    429,
                    "Quota exceeded for quota metric 'Write requests'",
                    "RATE_LIMIT_EXCEEDED",
                )
            ],
            "c": [
                google(
                    "UNAVAILABLE",
                    503,
                    "The service is currently unavailable.",
                    "BACKEND",
                )
            ],
        },
        {
            "a": "does not have storage.objects.create access",
            "b": "Quota exceeded",
            "c": "currently unavailable",
        },
        status=403,
    ),
    Form(
        "Azure JSON",
        {
            "a": [
                azure(
                    "BlobNotFound",
                    f"The specified blob does not exist.\nRequestId:{u}\nTime:2026-03-0{i}T10:11:12Z",
                )
                for i, u in enumerate(UUIDS, 1)
            ],
            "b": [azure("LeaseAlreadyPresent", "There is already a lease present.")],
            "c": [azure("LeaseLost", "There is already a lease present.")],
        },
        {"a": "blob does not exist", "b": "lease present"},
        status=404,
    ),
    Form(
        "Azure token endpoint",
        {
            "a": [
                entra(
                    "AADSTS700082",
                    "The refresh token has expired due to inactivity.",
                    u,
                    "2026-03-01 08:00:00Z",
                )
                for u in UUIDS
            ],
            "b": [
                entra(
                    "AADSTS50076",
                    "Multi-factor authentication is required.",
                    UUIDS[0],
                    "2026-03-01 08:00:00Z",
                )
            ],
        },
        {"a": "refresh token has expired", "b": "Multi-factor"},
        status=400,
    ),
    Form(
        "S3 XML",
        {
            "a": [
                s3(
                    "NoSuchKey",
                    "The specified key does not exist.",
                    f"in/{n}.csv",
                    f"4442587FB7D0A2F{n}",
                )
                for n in (3, 9)
            ],
            "b": [
                s3(
                    "SlowDown",
                    "Please reduce your request rate.",
                    "in/4.csv",
                    "4442587FB7D0A2F9",
                )
            ],
        },
        {"a": "key does not exist", "b": "reduce your request rate"},
        status=404,
    ),
    Form(
        "AWS query XML",
        {
            "a": [
                aws_query(
                    "AWS.SimpleQueueService.NonExistentQueue",
                    "The specified queue does not exist.",
                    u,
                )
                for u in UUIDS
            ],
            "b": [aws_query("Throttling", "Rate exceeded", UUIDS[0])],
        },
        {"a": "queue does not exist", "b": "Rate exceeded"},
        status=400,
    ),
    Form(
        "Kubernetes Status",
        {
            "a": [
                kubernetes(f'pods "mailer-{p}" not found', "NotFound", 404)
                for p in ("7d9f8b6c5d-x2x4q", "66c8d4f7b9-p9k2m")
            ],
            "b": [
                kubernetes(
                    'deployments.apps is forbidden: User "bot" cannot list resource',
                    "Forbidden",
                    403,
                )
            ],
        },
        {"a": "not found", "b": "forbidden"},
        status=404,
    ),
)

# Web frameworks


def spring(exception: str, message: str, path: str) -> str:
    """Return Spring Boot's error attributes with exception and trace."""
    trace = f"{exception}: {message}\n\tat com.acme.stock.StockService.take(StockService.java:41)\n\tat java.base/java.lang.Thread.run(Thread.java:833)\n"
    return compact(
        timestamp="2026-03-01T08:00:00.123+00:00",
        status=500,
        error="Internal Server Error",
        exception=exception,
        trace=trace,
        message=message,
        path=path,
    )


def aspnet(errors: Mapping[str, Sequence[str]], trace: str) -> str:
    """Return ASP.NET Core's validation problem."""
    return compact(
        type="https://tools.ietf.org/html/rfc9110#section-15.5.1",
        title="One or more validation errors occurred.",
        status=400,
        errors=errors,
        traceId=f"00-{trace}-01",
    )


def fastapi(location: Sequence[str], message: str, kind: str, value: object) -> str:
    """Return FastAPI's validation list."""
    return compact(
        detail=[
            {"type": kind, "loc": ["body", *location], "msg": message, "input": value}
        ]
    )


def rails(exception: str, message: str) -> str:
    """Return Rails' JSON of a debugged exception."""
    line = {
        "exception_object_id": 7220,
        "id": 0,
        "trace": "app/controllers/parcels_controller.rb:9:in `show'",
    }
    return compact(
        status=404,
        error="Not Found",
        exception=f"#<{exception}: {message}>",
        traces={
            "Application Trace": [line],
            "Framework Trace": [],
            "Full Trace": [line],
        },
    )


def symfony(name: str, detail: str) -> str:
    """Return Symfony's problem with the class and the trace of the exception."""
    frame = {
        "namespace": "App\\Billing",
        "short_class": "Ledger",
        "class": "App\\Billing\\Ledger",
        "type": "->",
        "function": "post",
    }
    return compact(
        type="https://tools.ietf.org/html/rfc2616#section-10",
        title="An error occurred",
        status=500,
        detail=detail,
        **{"class": name},
        trace=[
            {**frame, "file": "/srv/src/Billing/Ledger.php", "line": 77, "args": []}
        ],
    )


def joi(message: str, path: Sequence[str], kind: str, value: object) -> str:
    """Return the JSON of a Joi error."""
    context = {"label": path[-1], "value": value, "key": path[-1]}
    return compact(
        _original={path[0]: value},
        details=[{"message": message, "path": path, "type": kind, "context": context}],
    )


def werkzeug(heading: str, sentence: str, frame: str) -> str:
    """Return the page of Werkzeug's debugger."""
    return (
        f"<!doctype html>\n<html lang=en>\n  <head>\n    <title>{heading}: {sentence}\n // Werkzeug Debugger</title>\n"
        f'    <script>var CONSOLE_MODE = false, SECRET = "Yq3xZ0aa91";</script>\n  </head>\n  <body><div class="debugger">\n'
        f'<h1>{heading}</h1>\n<div class="detail"><p class="errormsg">{heading}: {sentence}\n</p></div>\n'
        f'<h2 class="traceback">Traceback <em>(most recent call last)</em></h2>\n'
        f'<div class="frame"><h4>File <cite class="filename">"/srv/{frame}.py"</cite>, line 12, in {frame}</h4></div></div></body></html>'
    )


def tomcat(kind: str, message: str, trace: str) -> str:
    """Return Tomcat's status report."""
    return (
        f'<!doctype html><html lang="en"><head><title>HTTP Status 500 – Internal Server Error</title><style type="text/css">'
        f"body {{font-family:Tahoma,Arial,sans-serif;}}</style></head><body><h1>HTTP Status 500 – Internal Server Error</h1>"
        f'<hr class="line" /><p><b>Type</b> {kind}</p><p><b>Message</b> {message}</p><p><b>Exception</b></p>'
        f"<pre>{trace}</pre><p><b>Note</b> The full stack trace is in the server logs.</p><h3>Apache Tomcat/10.1.19</h3></body></html>"
    )


FRAMEWORKS = (
    Form(
        "Spring Boot",
        {
            "a": [
                spring(
                    "com.acme.stock.OutOfStockException",
                    f"No stock left for article {n}",
                    f"/stock/{n}",
                )
                for n in (12, 99041)
            ],
            "b": [
                spring(
                    "java.lang.IllegalStateException", "Warehouse is closed", "/stock/4"
                )
            ],
        },
        {"a": "No stock left", "b": "Warehouse is closed"},
    ),
    Form(
        "ASP.NET validation",
        {
            "a": [
                aspnet(
                    {"Postcode": ["The field Postcode must match the expression."]}, t
                )
                for t in (
                    "4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7",
                    "a3ce929d0e0e47364bf92f3577b34da6-b7ad6b7169203331",
                )
            ],
            "b": [
                aspnet(
                    {"Weight": ["The field Weight must be between 1 and 30."]},
                    "00000000000000000000000000000001-0000000000000002",
                )
            ],
        },
        {"a": "Postcode", "b": "Weight"},
        status=400,
    ),
    Form(
        "FastAPI validation",
        {
            "a": [
                fastapi(
                    ["parcel", "weight"],
                    "Input should be a valid number",
                    "float_type",
                    v,
                )
                for v in ("heavy", "n/a")
            ],
            "b": [
                fastapi(
                    ["parcel", "depth"],
                    "Input should be a valid number",
                    "float_type",
                    "deep",
                )
            ],
            "c": [fastapi(["parcel", "weight"], "Field required", "missing", None)],
        },
        {
            "a": ("weight", "valid number"),
            "b": ("depth", "valid number"),
            "c": ("weight", "Field required"),
        },
        status=422,
    ),
    Form(
        "Rails JSON",
        {
            "a": [
                rails(
                    "ActiveRecord::RecordNotFound",
                    f"Couldn't find Parcel with 'id'={n}",
                )
                for n in (8, 77120)
            ],
            "b": [
                rails(
                    "ActionController::ParameterMissing",
                    "param is missing or the value is empty: parcel",
                )
            ],
        },
        {"a": "find Parcel", "b": "param is missing"},
        status=404,
    ),
    Form(
        "Symfony JSON",
        {
            "a": [
                symfony("App\\Billing\\LedgerClosed", f"Ledger {y} is closed.")
                for y in ("L-19", "L-207")
            ],
            "b": [
                symfony(
                    "Doctrine\\DBAL\\Exception\\ConnectionLost",
                    "MySQL server has gone away",
                )
            ],
        },
        {"a": "is closed", "b": "server has gone away"},
    ),
    Form(
        "Joi",
        {
            "a": [
                joi(
                    '"iban" is not allowed to be empty',
                    ["account", "iban"],
                    "string.empty",
                    "",
                )
            ]
            * 2,
            "b": [
                joi(
                    '"limit" must be less than or equal to 500',
                    ["account", "limit"],
                    "number.max",
                    v,
                )
                for v in (501, 90000)
            ],
        },
        {"a": "iban", "b": "limit"},
        status=400,
    ),
    Form(
        "Werkzeug page",
        {
            "a": [werkzeug("ZeroDivisionError", "division by zero", "split_bill")] * 2,
            "b": [
                werkzeug(
                    "sqlite3.OperationalError", "no such table: ledger", "read_ledger"
                )
            ],
        },
        {"a": "division by zero", "b": "no such table"},
    ),
    Form(
        "Tomcat page",
        {
            "a": [
                tomcat(
                    "Exception Report",
                    f"Parcel {n} has no label",
                    f"com.acme.LabelMissing: Parcel {n} has no label\n\tcom.acme.Labels.print(Labels.java:18)\n\tjakarta.servlet.http.HttpServlet.service(HttpServlet.java:658)\n",
                )
                for n in (6, 81244)
            ],
            "b": [
                tomcat(
                    "Exception Report",
                    "Cannot invoke &quot;Cart.total()&quot; because &quot;cart&quot; is null",
                    "java.lang.NullPointerException: Cannot invoke &quot;Cart.total()&quot; because &quot;cart&quot; is null\n\tcom.acme.Checkout.pay(Checkout.java:30)\n",
                )
            ],
        },
        {"a": "has no label", "b": "is null"},
    ),
)

# Proxies


def cloudflare(ray: str, heading: str, code: int, host: str) -> str:
    """Return an error page of Cloudflare."""
    return (
        f'<!DOCTYPE html>\n<html>\n<head>\n<title>{host} | {code}: {heading}</title></head>\n<body><div id="cf-wrapper">\n'
        f'<h1 class="inline-block"><span class="inline-block">{heading}</span> <span class="code-label">Error code {code}</span></h1>\n'
        f'<div>Visit <a href="https://www.cloudflare.com/5xx-error-landing">cloudflare.com</a></div>\n'
        f"<p>Cloudflare Ray ID: <strong>{ray}</strong> &bull; Your IP: <span>203.0.113.{len(ray)}</span></p></div></body></html>"
    )


def fastly(code: str, words: str, cache: str, number: int) -> str:
    """Return an error page of Fastly."""
    return (
        f'<?xml version="1.0" encoding="utf-8"?>\n<!DOCTYPE html PUBLIC "-//W3C//DTD XHTML 1.0 Strict//EN">\n<html>\n<head><title>{code} {words}</title></head>\n'
        f"<body><h1>Error {code} {words}</h1><p>{words}</p><h3>Error {number} {words}</h3><p>Details: {cache} 1711960000 {number}77</p><hr><p>Varnish cache server</p></body></html>"
    )


PROXIES = (
    Form(
        "Cloudflare page",
        {
            "a": [
                cloudflare(r, "Web server is down", 521, "shop.example.com")
                for r in ("86a1b2c3d4e5f607", "91ffeeddccbbaa00")
            ],
            "b": [
                cloudflare(
                    "86a1b2c3d4e5f607", "A timeout occurred", 524, "shop.example.com"
                )
            ],
        },
        {"a": "Web server is down", "b": "timeout occurred"},
        status=521,
    ),
    Form(
        "Fastly page",
        {
            "a": [
                fastly("503", "backend read error", c, n)
                for c, n in (
                    ("cache-fra-eddf8230045-FRA", 54113),
                    ("cache-lcy-eglc8600031-LCY", 54113),
                )
            ],
            "b": [
                fastly("503", "first byte timeout", "cache-fra-eddf8230045-FRA", 54113)
            ],
        },
        {"a": "backend read error", "b": "first byte timeout"},
        status=503,
    ),
    Form(
        "Envoy text",
        {
            "a": [
                f"upstream connect error or disconnect/reset before headers. retried and the latest reset reason: remote connection failure, transport failure reason: delayed connect error: {n}"
                for n in (111, 111)
            ],
            "b": [
                "upstream connect error or disconnect/reset before headers. reset reason: overflow"
            ],
            "c": ["no healthy upstream"],
        },
        {"a": "connection failure", "b": "overflow", "c": "no healthy upstream"},
        status=503,
    ),
)

# Databases

DATABASES = (
    Form(
        "MongoDB",
        {
            "a": [
                f'MongoServerError: E11000 duplicate key error collection: shop.carts index: token_1 dup key: {{ token: "{t}" }}\n    at InsertOneOperation.execute (/srv/node_modules/mongodb/lib/operations/insert.js:48:19)\n    at async addCart (/srv/src/carts.js:14:3)'
                for t in ("kq81", "zz-9004")
            ],
            "b": [
                'MongoServerError: E11000 duplicate key error collection: shop.users index: mail_1 dup key: { mail: "kim@example.com" }\n    at InsertOneOperation.execute (/srv/node_modules/mongodb/lib/operations/insert.js:48:19)\n    at async addCart (/srv/src/carts.js:14:3)'
            ],
        },
        {"a": ("E11000", "duplicate key"), "b": ("E11000", "duplicate key")},
    ),
    Form(
        "MySQL",
        {
            "a": [
                f"ERROR 1062 (23000): Duplicate entry '{v}' for key 'parcels.uq_barcode'"
                for v in ("991", "40-17-3")
            ],
            "b": [
                "ERROR 1213 (40001): Deadlock found when trying to get lock; try restarting transaction"
            ],
            "c": [
                "ERROR 1205 (HY000): Lock wait timeout exceeded; try restarting transaction"
            ],
        },
        {"a": "Duplicate entry", "b": "Deadlock found", "c": "Lock wait timeout"},
    ),
    Form(
        "Oracle",
        {
            "a": [
                f'java.sql.SQLException: ORA-12899: value too large for column "SHOP"."PARCEL"."NOTE" (actual: {n}, maximum: 40)\n\tat oracle.jdbc.driver.T4CTTIoer11.processError(T4CTTIoer11.java:509)\n\tat com.acme.ParcelStore.save(ParcelStore.java:77)'
                for n in (41, 128)
            ],
            "b": [
                'java.sql.SQLException: ORA-01400: cannot insert NULL into ("SHOP"."PARCEL"."NOTE")\n\tat oracle.jdbc.driver.T4CTTIoer11.processError(T4CTTIoer11.java:509)\n\tat com.acme.ParcelStore.save(ParcelStore.java:77)'
            ],
        },
        {"a": ("ORA-12899", "too large"), "b": ("ORA-01400", "cannot insert NULL")},
    ),
    Form(
        "SQLSTATE in JSON",
        {
            c: [
                compact(
                    name="error",
                    severity="ERROR",
                    code=state,
                    message="query failed",
                    table="parcels",
                    constraint=None,
                )
            ]
            * 2
            for c, state in (
                ("a", "40P01"),
                ("b", "57014"),
                ("c", "53300"),
                ("d", "25P02"),
            )
        },
        {"a": "query failed", "d": "query failed"},
    ),
    Form(
        "Redis",
        {
            "a": [
                "ReplyError: WRONGTYPE Operation against a key holding the wrong kind of value\n    at parseError (/srv/node_modules/redis-parser/lib/parser.js:179:12)\n    at parseType (/srv/node_modules/redis-parser/lib/parser.js:302:14)"
            ]
            * 2,
            "b": [
                "ReplyError: OOM command not allowed when used memory > 'maxmemory'.\n    at parseError (/srv/node_modules/redis-parser/lib/parser.js:179:12)\n    at parseType (/srv/node_modules/redis-parser/lib/parser.js:302:14)"
            ],
        },
        {"a": "WRONGTYPE", "b": "OOM"},
    ),
)

# Interfaces of third parties

THIRD_PARTIES = (
    Form(
        "Stripe",
        {
            "a": [
                compact(
                    error={
                        "code": "resource_missing",
                        "doc_url": "https://stripe.com/docs/error-codes/resource-missing",
                        "message": f"No such customer: '{c}'",
                        "param": "customer",
                        "request_log_url": f"https://dashboard.stripe.com/logs/{r}",
                        "type": "invalid_request_error",
                    }
                )
                for c, r in (
                    ("cus_Q1w2E3r4T5y6U7", "req_aaBB11"),
                    ("cus_Z9x8C7v6B5n4M3", "req_ccDD22"),
                )
            ],
            "b": [
                compact(
                    error={
                        "code": "card_declined",
                        "decline_code": "lost_card",
                        "message": "Your card was declined.",
                        "type": "card_error",
                    }
                )
            ],
            "c": [
                compact(
                    error={
                        "code": "card_declined",
                        "decline_code": "expired_card",
                        "message": "Your card was declined.",
                        "type": "card_error",
                    }
                )
            ],
        },
        {"a": "No such customer", "b": "card was declined"},
        status=400,
    ),
    Form(
        "Twilio",
        {
            "a": [
                compact(
                    code=21211,
                    message=f"The 'To' number {n} is not a valid phone number.",
                    more_info="https://www.twilio.com/docs/errors/21211",
                    status=400,
                )
                for n in ("+15005550001", "+4930123")
            ],
            "b": [
                compact(
                    code=21610,
                    message="Attempt to send to unsubscribed recipient",
                    more_info="https://www.twilio.com/docs/errors/21610",
                    status=400,
                )
            ],
        },
        {"a": "not a valid phone number", "b": "unsubscribed recipient"},
        status=400,
    ),
    Form(
        "Slack",
        {
            "a": [
                compact(
                    ok=False,
                    error="channel_not_found",
                    response_metadata={"messages": []},
                )
            ]
            * 2,
            "b": [compact(ok=False, error="msg_too_long")],
            "c": [
                compact(
                    ok=False,
                    error="missing_scope",
                    needed="chat:write",
                    provided="users:read",
                )
            ],
        },
        {
            "a": ("channel_not_found", "channel not found"),
            "b": ("msg_too_long", "msg too long"),
            "c": ("missing_scope", "missing scope"),
        },
        status=400,
    ),
    Form(
        "GitHub",
        {
            "a": [
                compact(
                    message="Validation Failed",
                    errors=[
                        {"resource": "Label", "code": "already_exists", "field": "name"}
                    ],
                    documentation_url="https://docs.github.com/rest/issues/labels",
                    status="422",
                )
            ]
            * 2,
            "b": [
                compact(
                    message="Validation Failed",
                    errors=[
                        {"resource": "Issue", "code": "missing_field", "field": "title"}
                    ],
                    documentation_url="https://docs.github.com/rest/issues/issues",
                    status="422",
                )
            ],
        },
        {
            "a": ("already_exists", "already exists"),
            "b": ("missing_field", "missing field", "title"),
        },
        status=422,
    ),
)

# Languages and workers

LANGUAGES = (
    Form(
        "Go panic",
        {
            "a": [
                f"panic: runtime error: invalid memory address or nil pointer dereference\n[signal SIGSEGV: segmentation violation code=0x1 addr=0x0 pc=0x{pc}]\n\ngoroutine {g} [running]:\nmain.(*Router).pick(0x0, {{0xc000{g}, 0x4}})\n\t/src/router.go:58 +0x1d\nmain.main()\n\t/src/main.go:12 +0x25\nexit status 2"
                for g, pc in ((18, "48f2a1"), (4417, "48f2b7"))
            ],
            "b": [
                "panic: assignment to entry in nil map\n\ngoroutine 7 [running]:\nmain.count({0xc0000140a0, 0x3})\n\t/src/count.go:9 +0x55\nmain.main()\n\t/src/main.go:15 +0x2a\nexit status 2"
            ],
        },
        {"a": "nil pointer dereference", "b": "nil map"},
    ),
    Form(
        "Go wrapped errors",
        {
            "a": [
                f"book parcel {n}: open carrier session: dial tcp 10.2.0.{n % 200}:8443: i/o timeout"
                for n in (14, 90221)
            ],
            "b": [
                "book parcel 5: open carrier session: x509: certificate has expired or is not yet valid"
            ],
        },
        {"a": "i/o timeout", "b": "certificate has expired"},
    ),
    Form(
        "Rust anyhow",
        {
            "a": [
                f"Error: could not render label\n\nCaused by:\n    0: template {t} is unreadable\n    1: No such file or directory (os error 2)"
                for t in ("/srv/a/8812.svg", "/srv/b/17.svg")
            ],
            "b": [
                "Error: could not render label\n\nCaused by:\n    Permission denied (os error 13)"
            ],
        },
        {
            "a": ("No such file", "could not render label"),
            "b": ("Permission denied", "could not render label"),
        },
    ),
    Form(
        ".NET trace",
        {
            "a": [
                f"System.AggregateException: One or more errors occurred. (Parcel {n} is locked.)\n ---> Acme.ParcelLockedException: Parcel {n} is locked.\n   at Acme.Parcels.Open(Int32 id) in C:\\src\\Parcels.cs:line 20\n   --- End of inner exception stack trace ---\n   at System.Threading.Tasks.Task.Wait()"
                for n in (3, 71120)
            ],
            "b": [
                "System.AggregateException: One or more errors occurred. (Sequence contains no elements)\n ---> System.InvalidOperationException: Sequence contains no elements\n   at System.Linq.ThrowHelper.ThrowNoElementsException()\n   at Acme.Parcels.Last() in C:\\src\\Parcels.cs:line 44\n   --- End of inner exception stack trace ---\n   at System.Threading.Tasks.Task.Wait()"
            ],
        },
        {"a": "is locked", "b": "contains no elements"},
    ),
    Form(
        "Elixir",
        {
            "a": [
                f"** (DBConnection.ConnectionError) connection not available and request was dropped from queue after {n}ms. This means requests are coming in and your connection pool cannot serve them fast enough.\n    (ecto_sql 3.11.1) lib/ecto/adapters/sql.ex:1054: Ecto.Adapters.SQL.raise_sql_call_error/1\n    (shop 0.1.0) lib/shop/parcels.ex:31: Shop.Parcels.list/1"
                for n in (2870, 151)
            ],
            "b": [
                '** (FunctionClauseError) no function clause matching in Shop.Parcels.weigh/1\n    (shop 0.1.0) lib/shop/parcels.ex:52: Shop.Parcels.weigh(nil)\n    (elixir 1.16.0) lib/enum.ex:1700: Enum."-map/2-lists^map/1-1-"/2'
            ],
        },
        {"a": "connection not available", "b": "no function clause"},
    ),
    Form(
        "Sidekiq and BullMQ",
        {
            "a": ["job stalled more than allowable limit"] * 2,
            "b": [f"Missing lock for job {n}. moveToFinished" for n in (4, 90112)],
            "c": [
                compact(
                    queue="labels",
                    **{"class": "PrintLabel"},
                    jid=j,
                    error_class="Errno::ECONNREFUSED",
                    error_message="Failed to open TCP connection to printer:9100",
                    retry_count=n,
                )
                for j, n in (
                    ("b4a577edbccf1d805744efa9", 1),
                    ("0011aa22bb33cc44dd55ee66", 24),
                )
            ],
        },
        {
            "a": "stalled",
            "b": "Missing lock",
            "c": ("ECONNREFUSED", "Failed to open TCP connection"),
        },
    ),
    Form(
        "Python chain with notes",
        {
            "a": [
                f'Traceback (most recent call last):\n  File "/srv/rates.py", line 8, in read\n    return rates[code]\n           ~~~~~^^^^^^\nKeyError: \'XAU\'\n\nThe above exception was the direct cause of the following exception:\n\nTraceback (most recent call last):\n  File "/srv/quote.py", line 21, in quote\n    raise QuoteError("no rate") from error\nquote.QuoteError: no rate\nquote {n} of customer {c}'
                for n, c in ((17, 3), (90443, 88))
            ],
            "b": [
                "Traceback (most recent call last):\n  File \"/srv/quote.py\", line 30, in sign\n    return key.sign(text)\nPermissionError: [Errno 13] Permission denied: '/run/signer'\nask the operators for access"
            ],
        },
        {"a": ("no rate", "KeyError"), "b": "Permission denied"},
    ),
)

# Scripts, encodings, and failures that must not be sent again

OTHERS = (
    Form(
        "Korean, Thai, Arabic and Hebrew",
        {
            "a": [f"주문 {n}번의 결제가 거절되었습니다" for n in (7, 80214)],
            "b": [f"주문 {n}번의 배송지를 찾을 수 없습니다" for n in (4, 551)],
            "c": [f"ไม่พบคำสั่งซื้อหมายเลข{n}ในระบบ" for n in (12, 9001)],
            "d": [f"تعذر حفظ الطلب {n} في قاعدة البيانات" for n in ("٧", "٩٩٠")],
            "e": [f"ההזמנה {n} לא נמצאה" for n in (3, 6150)],
            "f": [f"ההזמנה {n} כבר נשלחה" for n in (3, 718)],
        },
        {"a": "결제가 거절", "c": "ไม่พบคำสั่งซื้อ", "d": "تعذر حفظ الطلب", "e": "לא נמצאה"},
    ),
    Form(
        "refused in a field",
        {
            "a": [
                compact(
                    error={
                        "message": f"Tax number of seller {n} was revoked",
                        "retryable": False,
                    }
                )
                for n in (2, 5140)
            ],
            "b": [
                compact(
                    error={"message": "Rate service is warming up", "retryable": True}
                )
            ],
        },
        {"a": "was revoked", "b": "warming up"},
        status=500,
        action={"a": "leave", "b": "retry"},
    ),
    Form(
        "refused by header",
        {
            "a": [
                compact(message="Voucher was already redeemed", step=n) for n in (1, 8)
            ]
        },
        {"a": "already redeemed"},
        status=489,
        headers={"Upstash-NonRetryable-Error": ["true"]},
        action={"a": "leave"},
    ),
)

FORMS = (
    *CLOUDS,
    *FRAMEWORKS,
    *PROXIES,
    *DATABASES,
    *THIRD_PARTIES,
    *LANGUAGES,
    *OTHERS,
)
