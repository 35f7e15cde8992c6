"""The causes of failures of the sample workflows: error responses of an application.

All responses are made up. ``$number`` and ``$hex`` in a template are replaced per failure.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field
from string import Template
from typing import Final, Literal

from toolkit.base.errors import InputError

JSON_TYPE: Final = "application/json"
HTML_TYPE: Final = "text/html; charset=utf-8"
TEXT_TYPE: Final = "text/plain; charset=utf-8"


@dataclass(frozen=True, kw_only=True)
class Cause:
    """One cause of failures: the response of the application, or no response if `status` is None.

    `text` is a template of the body. The encoding ``"binary"`` is Latin-1 followed by 96 bytes of noise.
    """

    name: str
    status: int | None
    content_type: str
    text: str
    encoding: Literal["utf-8", "latin-1", "utf-16-le", "binary"] = "utf-8"
    headers: dict[str, str] = field(default_factory=dict)

    def body(self, number: int) -> bytes:
        """Return the response body of the failure with this number.

        >>> cause("json_conflict").body(7)
        b'{"error":"conflict","message":"order 7 was changed by someone else (version 7902699be42c)"}'
        """
        digest = hashlib.sha256(str(number).encode()).digest()
        filled = Template(self.text).substitute(number=number, hex=digest.hex()[:12])
        # bytes that no text encoding accepts, as images and archives have
        if self.encoding == "binary":
            return filled.encode("latin-1") + digest * 3

        return filled.encode(self.encoding)


# Stack traces in four languages and three pages of HTML, in the usual forms.

_NODE: Final = """\
TypeError: Cannot read properties of undefined (reading 'currency')
    at priceOf (/srv/shop/src/pricing.js:88:31)
    at Array.map (<anonymous>)
    at totalOf (/srv/shop/src/pricing.js:41:22)
    at async fulfil (/srv/shop/src/workflows/fulfil.js:117:19)
    at async WorkflowContext.run (/srv/shop/node_modules/flow/context.js:64:12)
order=$number request=$hex
"""

_PYTHON_KEY: Final = """\
Traceback (most recent call last):
  File "/srv/invoices/app/steps.py", line 212, in run_step
    result = step(context)
  File "/srv/invoices/app/steps.py", line 87, in make_invoice
    country = VAT_RATES[customer["country"]]
              ~~~~~~~~~^^^^^^^^^^^^^^^^^^^^^
KeyError: 'XK'
invoice $number ($hex)
"""

_PYTHON_CHAINED: Final = """\
Traceback (most recent call last):
  File "/srv/ledger/db.py", line 58, in insert
    cursor.execute(STATEMENT, row)
sqlite3.OperationalError: database is locked

During handling of the above exception, another exception occurred:

Traceback (most recent call last):
  File "/srv/ledger/book.py", line 131, in post_entry
    insert(connection, entry)
  File "/srv/ledger/db.py", line 63, in insert
    raise LedgerBusy(f"entry {entry.id} after {tries} tries") from error
ledger.errors.LedgerBusy: entry $number after 5 tries
"""

_JAVA_MEMORY: Final = """\
java.lang.OutOfMemoryError: Java heap space
\tat com.example.reports.PageBuffer.grow(PageBuffer.java:142)
\tat com.example.reports.PdfRenderer.render(PdfRenderer.java:318)
\tat com.example.reports.RenderStep.lambda$$run$$3(RenderStep.java:77)
\tat java.base/java.util.concurrent.FutureTask.run(FutureTask.java:317)
\tat java.base/java.lang.Thread.run(Thread.java:1583)
report $number, used 503316480 of 536870912 bytes
"""

_JAVA_CAUSED: Final = """\
com.example.stock.ReservationFailed: reservation $number could not be stored
\tat com.example.stock.ReserveStep.run(ReserveStep.java:64)
\tat com.example.flow.Worker.execute(Worker.java:201)
Caused by: java.net.SocketTimeoutException: Read timed out
\tat java.base/sun.nio.ch.NioSocketImpl.timedRead(NioSocketImpl.java:278)
\tat com.example.stock.WarehouseClient.post(WarehouseClient.java:119)
\t... 2 more
"""

_GO_PANIC: Final = """\
panic: runtime error: invalid memory address or nil pointer dereference
[signal SIGSEGV: segmentation violation code=0x1 addr=0x18 pc=0x6f2c41]

goroutine $number [running]:
example.com/payments/capture.(*Client).Confirm(0x0, {0xc000$hex, 0x24})
\t/srv/payments/capture/client.go:96 +0x41
example.com/payments/capture.Step(...)
\t/srv/payments/capture/step.go:38
created by example.com/payments/worker.Start in goroutine 1
\t/srv/payments/worker/worker.go:52 +0x1a5
"""

_HTML_GATEWAY: Final = """\
<!doctype html>
<html lang="en"><head><title>502 Bad Gateway</title></head>
<body><h1>502 Bad Gateway</h1><p>The upstream server closed the connection.</p>
<hr><address>edge-$hex</address></body></html>
"""

_HTML_ERROR: Final = """\
<!doctype html>
<html lang="en"><head><meta charset="utf-8"><title>Something went wrong</title>
<style>body{font:16px sans-serif;margin:4rem auto;max-width:40rem}code{background:#eee}</style></head>
<body><h1>Something went wrong</h1>
<p>The legacy importer could not read the export of customer $number.</p>
<p>Reference: <code>$hex</code></p></body></html>
"""

_HTML_MAINTENANCE: Final = """\
<html><head><title>Down for maintenance</title></head>
<body><h1>We&#8217;ll be back soon</h1><p>Planned work until the full hour.</p>
<p>Ticket $number.</p></body></html>
"""

_HOSTILE: Final = (
    """{"error":"unexpected input","message":"<script>alert('sample $number')</script> """
    """\\u202egnp.exe $$x_1$$ {{7*7}} =1+1"}"""
)


def _json(error: str, message: str) -> str:
    return f'{{"error":"{error}","message":"{message}"}}'


CAUSES: Final[tuple[Cause, ...]] = (
    Cause(name="js_type_error", status=500, content_type=TEXT_TYPE, text=_NODE),
    Cause(
        name="js_error_json",
        status=500,
        content_type=JSON_TYPE,
        text='{"error":"FetchError","message":"request to http://prices.internal/quote/$number failed, '
        'reason: connect ECONNREFUSED 10.2.0.14:8443","stack":"FetchError: request failed\\n'
        "    at ClientRequest.<anonymous> (/srv/shop/node_modules/fetch/index.js:1501:11)\\n"
        '    at quote (/srv/shop/src/quote.js:23:15)"}',
    ),
    Cause(
        name="python_key_error", status=500, content_type=TEXT_TYPE, text=_PYTHON_KEY
    ),
    Cause(
        name="python_chained", status=500, content_type=TEXT_TYPE, text=_PYTHON_CHAINED
    ),
    Cause(name="java_memory", status=500, content_type=TEXT_TYPE, text=_JAVA_MEMORY),
    Cause(name="java_caused_by", status=500, content_type=TEXT_TYPE, text=_JAVA_CAUSED),
    Cause(name="go_panic", status=500, content_type=TEXT_TYPE, text=_GO_PANIC),
    Cause(name="html_gateway", status=502, content_type=HTML_TYPE, text=_HTML_GATEWAY),
    Cause(name="html_error", status=500, content_type=HTML_TYPE, text=_HTML_ERROR),
    Cause(
        name="html_maintenance",
        status=503,
        content_type=HTML_TYPE,
        text=_HTML_MAINTENANCE,
        headers={"Retry-After": "1800"},
    ),
    Cause(
        name="json_rate_limit",
        status=429,
        content_type=JSON_TYPE,
        text=_json(
            "rate limited", "tenant used 600 of 600 requests a minute (window $hex)"
        ),
        headers={
            "Retry-After": "60",
            "X-RateLimit-Limit": "600",
            "X-RateLimit-Remaining": "0",
        },
    ),
    Cause(
        name="json_validation",
        status=422,
        content_type=JSON_TYPE,
        text='{"error":"validation failed","details":['
        '{"field":"address.postcode","problem":"must not be empty"},'
        '{"field":"lines[2].quantity","problem":"got -1, expected at least 1"}],"order":$number}',
    ),
    Cause(
        name="json_conflict",
        status=409,
        content_type=JSON_TYPE,
        text=_json(
            "conflict", "order $number was changed by someone else (version $hex)"
        ),
    ),
    Cause(
        name="json_big_number",
        status=500,
        content_type=JSON_TYPE,
        # begins with 2**53 + 1, the first whole number that a float cannot represent
        text='{"error":"sequence out of range","sequence":9007199254740993$number,'
        '"limit":9223372036854775807}',
    ),
    Cause(name="json_hostile", status=500, content_type=JSON_TYPE, text=_HOSTILE),
    Cause(
        name="json_unauthorized",
        status=401,
        content_type=JSON_TYPE,
        text=_json("unauthorized", "the access token of client $hex expired"),
        headers={"WWW-Authenticate": "Bearer"},
    ),
    Cause(
        name="text_timeout",
        status=504,
        content_type=TEXT_TYPE,
        text="upstream request timed out after 30000 ms",
    ),
    Cause(
        name="text_refused",
        status=None,
        content_type=TEXT_TYPE,
        text="dial tcp 192.0.2.40:8080: connection refused",
    ),
    Cause(
        name="text_disk",
        status=507,
        content_type=TEXT_TYPE,
        text="write /var/spool/exports/$number.csv: no space left on device",
    ),
    Cause(name="text_empty", status=500, content_type=TEXT_TYPE, text=""),
    Cause(
        name="latin1_text",
        status=500,
        content_type="text/plain; charset=iso-8859-1",
        encoding="latin-1",
        text="Zugriff verweigert: Händler $number hat die Prüfung für Zürich nicht bestanden\n",
    ),
    Cause(
        name="utf16_text",
        status=500,
        content_type="text/plain; charset=utf-16",
        encoding="utf-16-le",
        text="\ufeffThe archive $number could not be opened.\r\n",
    ),
    Cause(
        name="binary_image",
        status=500,
        content_type="image/png",
        encoding="binary",
        text="\x89PNG\r\n\x1a\n\x00\x00\x00\rIHDR",
    ),
    Cause(
        name="binary_message",
        status=503,
        content_type="application/octet-stream",
        encoding="binary",
        text="\x0a\x10job-$number\x12\xff\xfe",
    ),
)
"""All causes. The order is stable: the sample data depend on it."""

_BY_NAME: Final = {item.name: item for item in CAUSES}


def cause(name: str) -> Cause:
    """Return the cause of this name. Raise InputError if it does not exist.

    >>> cause("html_gateway").status
    502
    """
    try:
        return _BY_NAME[name]
    except KeyError:
        expected = f"one of {', '.join(_BY_NAME)}"
        raise InputError(
            "looking up a sample cause", got=repr(name), expected=expected
        ) from None
