"""Errors with a runbook in other words, and errors without one, written for this project.

A runbook describes the situation as an engineer would who has solved it, and seldom repeats a word of the
error. The limit of `suggest_runbooks` was set on the errors without a runbook at even positions only.
"""

from __future__ import annotations

from typing import NamedTuple


class Case(NamedTuple):
    """An error and the runbook for it."""

    error: str
    runbook: str


WITH_RUNBOOK: tuple[Case, ...] = (
    Case(
        'psycopg2.OperationalError: connection to server at "10.0.3.7", port 5432 '
        "failed: Connection refused",
        "Postgres is not reachable. Check in the console whether the primary has failed"
        " over, then restart the pool of connections of the workers. The database "
        "listens again after about a minute.",
    ),
    Case(
        "OSError: [Errno 28] No space left on device: '/var/lib/exports/part-0017.csv'",
        "A full disk of the export machines. Remove files older than a week from the "
        "scratch volume, and extend the volume if usage stays above ninety percent.",
    ),
    Case(
        '{"error": {"type": "card_error", "code": "card_declined", "message": "Your '
        'card was declined."}}',
        "Payments that the bank rejects. Do not charge the customer again; send the "
        "mail that asks for another payment method, and close the order after three "
        "days.",
    ),
    Case(
        "x509: certificate has expired or is not yet valid: current time "
        "2026-03-01T00:00:03Z is after 2026-02-28",
        "Expired TLS certificates. Renew with the certificate manager, reload the "
        "proxy, and check the calendar reminder for the next renewal.",
    ),
    Case(
        "HTTP 429 Too Many Requests: rate limit of 100 requests per minute exceeded",
        "We call the supplier faster than the contract permits. Lower the parallelism "
        "of the workflow with flow control, and ask the supplier for a larger quota.",
    ),
    Case(
        "java.lang.OutOfMemoryError: Java heap space at "
        "com.acme.report.PdfRenderer.render(PdfRenderer.java:88)",
        "The PDF service runs out of memory on large reports. Raise the limit of the "
        "container, and split reports of more than a thousand pages.",
    ),
    Case(
        "JWT verification failed: token is expired (exp claim 1772323200)",
        "Logins with old sessions are rejected. Refresh the credentials of the service "
        "account in the vault; the nightly rotation has probably stopped.",
    ),
    Case(
        'ERROR: duplicate key value violates unique constraint "orders_pkey" DETAIL: '
        "Key (id)=(4711) already exists.",
        "The same order arrived twice. Look whether the first one is complete; if so, "
        "delete the entry. Inserts should use ON CONFLICT DO NOTHING so that repeats "
        "are harmless.",
    ),
    Case(
        "getaddrinfo ENOTFOUND inventory.internal.example",
        "Host names of internal services do not resolve. Restart the DNS cache on the "
        "node, and verify the search domain of the cluster.",
    ),
    Case(
        "deadlock detected: Process 331 waits for ShareLock on transaction 9921; "
        "blocked by process 412",
        "Two transactions lock each other in the ledger. Retry is safe. If it happens "
        "often, update accounts in the order of their numbers.",
    ),
    Case(
        "smtplib.SMTPRecipientsRefused: {'jo@example.org': (550, b'5.1.1 mailbox "
        "unavailable')}",
        "Mails that bounce. Mark the address of the customer as invalid and stop "
        "sending newsletters to it.",
    ),
    Case(
        "KafkaError: Local: Queue full while producing to topic invoices.v2",
        "The broker cannot keep up with the messages of invoicing. Add partitions or "
        "consumers, and slow the importer down until the lag is gone.",
    ),
    Case(
        "TypeError: Cannot read properties of undefined (reading 'postalCode') at "
        "formatAddress (address.js:31)",
        "Orders from guests have no shipping address. Deploy the release with the check"
        " for missing ZIP codes, or complete the customer record by hand.",
    ),
    Case(
        "botocore.exceptions.ClientError: An error occurred (AccessDenied) when calling"
        " the PutObject operation",
        "Uploads to the bucket are forbidden. The IAM role of the uploader lost its "
        "policy after the migration; attach the policy for writing objects in S3 again.",
    ),
    Case(
        "upstream request timeout: no response from pricing-service within 30000 ms",
        "Prices are calculated too slowly. Look at the latency dashboard of pricing, "
        "scale it to six replicas, and use cached prices meanwhile.",
    ),
    Case(
        "UnicodeDecodeError: 'utf-8' codec can't decode byte 0xe9 in position 14: "
        "invalid continuation byte",
        "Files of the French supplier are in Latin-1. Convert the encoding of the file "
        "with iconv before the import.",
    ),
    Case(
        "redis.exceptions.ReadOnlyError: You can't write against a read only replica.",
        "After a failover the cache client still talks to a Redis replica. Restart the "
        "workers so that they find the new master.",
    ),
    Case(
        '{"message":"Validation failed","errors":[{"field":"vat_id","code":"invalid"}]}',
        "The tax number of a company is wrong. Ask the customer for the correct VAT "
        "number, fix the account, and start the run again.",
    ),
    Case(
        "MongoServerSelectionError: server selection timed out after 30000 ms, no "
        "primary found in replica set",
        "MongoDB has no primary. Check the election in the cluster; two of three "
        "members have to be up. The catalog is read only until then.",
    ),
    Case(
        "webhook signature mismatch: expected sha256=9f8c, computed sha256=11ab",
        "Someone rotated the secret of incoming webhooks on one side only. Copy the new"
        " signing secret from the partner's console into our configuration.",
    ),
    Case(
        "ImportError: libcudart.so.12: cannot open shared object file: No such file or "
        "directory",
        "The image of the recommendation workers was built without the GPU libraries. "
        "Use the base image with CUDA and deploy again.",
    ),
    Case(
        "ValueError: time data '31/02/2026' does not match format '%d/%m/%Y'",
        "Impossible dates in the spreadsheets of the sales team. Correct the day in the"
        " sheet; the parser skips the row if you set lenient parsing.",
    ),
    Case(
        "elasticsearch: index_closed_exception: closed index [products-2026.01]",
        "Search for old months fails since the archive was tidied up. Open the "
        "Elasticsearch index again, or change the alias to the current month.",
    ),
    Case(
        "stripe.error.InvalidRequestError: No such customer: 'cus_9s6XKzkNRiz8i3'",
        "A customer was deleted in the Stripe dashboard. Create the customer again by "
        "our admin tool and link the subscription.",
    ),
    Case(
        "PermissionError: [Errno 13] Permission denied: '/etc/app/secrets.yaml'",
        "The application cannot read the configuration because the file belongs to "
        "root. Change owner and mode of the file in the chart.",
    ),
    Case(
        "Error: connect ECONNRESET 203.0.113.9:443 during TLS handshake with "
        "api.shipper.example",
        "The carrier drops our connections before encryption starts. Our outgoing "
        "address is missing from the allow list of the shipping company; open a ticket "
        "with them.",
    ),
    Case(
        "fatal: lock file /repo/.git/index.lock exists; another git process seems to be"
        " running",
        "The publisher of documentation was killed in the middle of a commit. Remove "
        "the stale lock of the repository on the build machine.",
    ),
    Case(
        "Image decode failed: unsupported color space CMYK in product-9921.jpg",
        "Pictures from the print agency cannot be resized. Convert photos to RGB with "
        "the media tool and upload them again.",
    ),
    Case(
        "Scheduled maintenance: the banking gateway is unavailable between 02:00 and "
        "04:00 CET",
        "The bank is closed for maintenance at night. Nothing to do: redrive the "
        "payments in the morning.",
    ),
    Case(
        "RangeError: Maximum call stack size exceeded at flattenCategories (tree.js:12)",
        "A category in the shop is its own parent, so the recursion never ends. Find "
        "the loop in the catalog editor and remove it.",
    ),
    Case(
        "twilio: 21610 Attempt to send to unsubscribed recipient",
        "People who replied STOP get no text messages any more. Remove the phone number"
        " from the campaign.",
    ),
    Case(
        "grpc: DEADLINE_EXCEEDED: context deadline exceeded after 4.999s, peer "
        "fraud-check:50051",
        "The fraud scoring answers late under load. Approve orders below fifty euros "
        "without a score until the model server has more capacity.",
    ),
    Case(
        "mysql: ERROR 1366 (HY000): Incorrect string value: '\\xF0\\x9F\\x98\\x80' for "
        "column 'comment'",
        "Emoji in reviews break the insert. The MySQL table needs the character set "
        "utf8mb4.",
    ),
    Case(
        "Feature flag 'new-checkout' not found in environment production",
        "A toggle was created in staging only. Create the feature flag in production as"
        " well before the release.",
    ),
    Case(
        "SFTP: Host key verification failed for files.partner.example",
        "The partner has moved their file server, so the fingerprint changed. Confirm "
        "it by phone, then replace the entry in known hosts.",
    ),
    Case(
        "NullPointerException: currency must not be null at Money.of(Money.java:40)",
        "Offers of the Swiss shop come without a currency. Set the default currency of "
        "the tenant to francs.",
    ),
    Case(
        "Pod evicted: The node was low on resource: ephemeral-storage",
        "Kubernetes evicts the workers because logs fill up the local storage of the "
        "node. Turn off debug logging and drain the node.",
    ),
    Case(
        "Warehouse API: 409 Conflict: stock item SKU-8831 was modified by another user",
        "Two pickers change the same article at once. Read the current amount of stock "
        "again and repeat the booking.",
    ),
    Case(
        "openai.APIError: This model's maximum context length is 8192 tokens, however "
        "you requested 11290 tokens",
        "The prompt for summaries of support tickets is too long for the language "
        "model. Truncate the conversation to the last ten mails.",
    ),
    Case(
        "celery.exceptions.WorkerLostError: Worker exited prematurely: signal 9 "
        "(SIGKILL)",
        "The kernel killed a Celery process, usually for its memory. Lower the prefetch"
        " count and look for the OOM killer in dmesg.",
    ),
)
"""Errors with one runbook each."""

WITHOUT_RUNBOOK: tuple[str, ...] = (
    "panic: runtime error: index out of range [5] with length 5 at scoring.go:77",
    "XML parse error: unclosed element <Invoice> at line 209",
    "Printer queue label-03 is paused: paper jam in tray 2",
    "LDAP: invalid credentials (49) for cn=reporting,ou=services",
    "ffmpeg exited with code 1: moov atom not found in clip-22.mp4",
    "Invalid IBAN checksum: DE00 0000 for payout 5512",
    "AssertionError: expected 3 line items, found 2",
    "Terraform state is locked by ci-runner-7 since 11:02",
    "Unknown locale 'xx_YY' requested for template welcome",
    "geocoding: ZERO_RESULTS for the given street",
    "snowflake: SQL compilation error: invalid identifier 'REVENUE_NET'",
    "Zip archive is corrupt: bad central directory record",
    "Barcode scanner calibration missing for station 14",
    "AttributeError: 'NoneType' object has no attribute 'split'",
    "LicenseError: all 25 seats of the CAD converter are in use",
    "Calendar conflict: meeting room Oslo is booked twice",
    "Division by zero in metric conversion_rate of dashboard 88",
    "GraphQL: Cannot query field 'nickname' on type 'Employee'",
    "Voice transcription rejected: sample rate 7000 Hz is too low",
    "The contract template requires a signature of both parties",
    "ModuleNotFoundError: No module named 'numpy.core._multiarray'",
    "Exchange rate for XAU on 2026-01-01 is not published",
    "Docker pull failed: manifest for builder:nightly not found",
    "Survey response 991 has an answer outside of the scale 1 to 5",
    "rabbitmq: PRECONDITION_FAILED - inequivalent arg 'durable' for exchange",
    "Temperature of freezer 3 above -15 degrees for 20 minutes",
    "Cannot convert circular structure to JSON",
    "OCR confidence 0.31 is below the limit for passport scans",
    "Route optimizer: no feasible tour for vehicle 12",
    "Employee 771 has no manager, so the approval cannot start",
    "Syntax error near 'FORM': did you mean FROM?",
    "SAML response has no NameID",
    "Minimum order quantity of 12 not reached for article tea-green",
    "clock skew of 312 seconds between client and time server",
    "Discount code SPRING was already redeemed",
    "WebSocket closed with code 1006 while streaming quotes",
    "Checksum of firmware image does not match, update of device aborted",
    "Translation memory has no segment for key footer.imprint",
    "Loan application rejected: income statement older than 90 days",
    "thread 'main' panicked at 'called `Option::unwrap()` on a `None` value'",
)
"""Errors that no runbook is about."""
