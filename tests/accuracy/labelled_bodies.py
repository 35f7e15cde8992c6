"""Labelled responses of failed runs: our own templates in the formats of common systems, filled at random.

The rules of `classify_failures` were written with `TUNED` at hand, and generalised with `HELD_OUT`, which was
written after them. Add what a new rule needs to `TUNED`; what no rule has seen is in `held_out_bodies`.
"""

# ruff: noqa: E501 - a template is a line

from __future__ import annotations

import json
import random
import re
from typing import Final, NamedTuple

from tests.accuracy.log_lines import FIELDS

VARIATIONS: Final = 2  # of each template


class Labelled(NamedTuple):
    """A response and the class that a person gave it."""

    label: str
    status: int | None
    body: str


Templates = dict[str, list[tuple[int | None, str]]]

TUNED: Final[Templates] = {
    "transient": [
        (
            500,
            "Error: read ECONNRESET\n    at TLSWrap.onStreamRead (node:internal/stream_base_commons:217:20)\n    at charge (/srv/app/src/pay.js:~n~:11)",
        ),
        (
            500,
            '{"error": {"code": "40P01", "message": "deadlock detected", "detail": "Process ~n~ waits for ShareLock on transaction ~n~."}}',
        ),
        (
            500,
            "com.mysql.cj.jdbc.exceptions.MySQLTransactionRollbackException: Deadlock found when trying to get lock; try restarting transaction\n\tat com.mysql.cj.jdbc.exceptions.SQLError.createSQLException(SQLError.java:123)\n\tat com.acme.orders.OrderDao.save(OrderDao.java:~n~)",
        ),
        (
            409,
            '{"__type": "com.amazonaws.dynamodb.v20120810#TransactionConflictException", "message": "Transaction is ongoing for the item"}',
        ),
        (
            500,
            'Traceback (most recent call last):\n  File "/app/sync.py", line ~n~, in pull\n    conn.read()\nConnectionResetError: [Errno 104] Connection reset by peer',
        ),
        (500, "could not serialize access due to concurrent update (order ~id~)"),
        (
            408,
            "<html><head><title>408 Request Time-out</title></head><body><h1>408 Request Time-out</h1>Your browser didn't send a complete request in time.</body></html>",
        ),
        (500, "getaddrinfo EAI_AGAIN ~host~"),
        (
            500,
            "MongoServerError: WriteConflict error: this operation conflicted with another operation. Please retry your operation or multi-document transaction.",
        ),
        (
            500,
            "org.apache.kafka.common.errors.NotLeaderOrFollowerException: For requests intended only for the leader, this error indicates that the broker is not the current leader.",
        ),
        (
            500,
            "Microsoft.Data.SqlClient.SqlException (0x80131904): Transaction (Process ID ~n~) was deadlocked on lock resources with another process and has been chosen as the deadlock victim. Rerun the transaction.\n   at Acme.Orders.Store.Save() in C:\\src\\Store.cs:line ~n~",
        ),
        (
            409,
            '{"type": "about:blank", "title": "Conflict", "status": 409, "detail": "ETag mismatch: order ~id~ was changed in the meantime, reload and retry"}',
        ),
        (
            500,
            "urllib3.exceptions.ProtocolError: ('Connection aborted.', RemoteDisconnected('Remote end closed connection without response'))",
        ),
        (500, 'Post "https://~host~/v2/orders": net/http: TLS handshake timeout'),
        (
            500,
            "org.hibernate.StaleObjectStateException: Row was updated or deleted by another transaction (or unsaved-value mapping was incorrect) : [com.acme.Order#~n~]\n\tat org.hibernate.persister.entity.AbstractEntityPersister.check(AbstractEntityPersister.java:2650)\n\tat com.acme.orders.Store.save(Store.java:~n~)",
        ),
        (500, "SQLITE_BUSY: database is locked"),
        (500, "FATAL: terminating connection due to conflict with recovery"),
        (
            500,
            "asyncpg.exceptions.SerializationError: could not serialize access due to read/write dependencies among transactions",
        ),
        (500, "Net::ReadTimeout with #<TCPSocket:(closed)>"),
        (
            500,
            "ActiveRecord::StaleObjectError: Attempted to update a stale object: Order.",
        ),
        (500, "write tcp ~ip~:443: write: broken pipe"),
    ],
    "throttled": [
        (
            429,
            '{"error": {"type": "rate_limit_error", "message": "Number of request tokens has exceeded your per-minute rate limit"}}',
        ),
        (400, '{"__type": "ThrottlingException", "message": "Rate exceeded"}'),
        (429, ""),
        (
            500,
            "openai.RateLimitError: Error code: 429 - You exceeded your current quota, please check your plan",
        ),
        (
            503,
            "<Error><Code>SlowDown</Code><Message>Please reduce your request rate.</Message><RequestId>~hex~</RequestId></Error>",
        ),
        (
            500,
            'Traceback (most recent call last):\n  File "/app/mail.py", line ~n~, in send\n    api.post(message)\n  File "/usr/lib/python3.11/site-packages/sdk/api.py", line 88, in post\n    raise TooManyRequests(retry_after)\nsdk.errors.TooManyRequests: retry after ~n~ seconds',
        ),
        (
            500,
            "upstream ~service~ returned HTTP 429 Too Many Requests for tenant ~user~",
        ),
        (
            429,
            '{"code": 20429, "message": "Too Many Requests", "more_info": "https://www.twilio.com/docs/errors/20429", "status": 429}',
        ),
        (
            403,
            '{"error": {"code": 403, "message": "User Rate Limit Exceeded", "errors": [{"domain": "usageLimits", "reason": "userRateLimitExceeded"}]}}',
        ),
        (
            500,
            "An error occurred (ProvisionedThroughputExceededException) when calling the PutItem operation: The level of configured provisioned throughput for the table was exceeded.",
        ),
        (
            403,
            '{"message": "API rate limit exceeded for ~ip~. (But here\'s the good news: Authenticated requests get a higher rate limit.)", "documentation_url": "https://docs.github.com"}',
        ),
        (
            529,
            '{"type": "error", "error": {"type": "overloaded_error", "message": "Overloaded"}}',
        ),
        (
            500,
            "Google.Apis.Requests.RequestError: Quota exceeded for quota metric 'Read requests' and limit 'Read requests per minute per user'",
        ),
        (
            500,
            "slack_sdk.errors.SlackApiError: The request to the Slack API failed. The server responded with: {'ok': False, 'error': 'ratelimited'}",
        ),
        (500, "stripe.error.RateLimitError: Request rate limit exceeded"),
        (
            400,
            '{"errorCode": "REQUEST_LIMIT_EXCEEDED", "message": "TotalRequests Limit exceeded."}',
        ),
        (429, '{"errors": [{"status": "429", "title": "Throttled"}]}'),
        (
            500,
            "Azure.RequestFailedException: Operations per second is over the account limit.\nStatus: 503 (Server Busy)\nErrorCode: ServerBusy",
        ),
        (
            500,
            "rpc error: code = ResourceExhausted desc = quota exceeded for ~service~",
        ),
    ],
    "poison input": [
        (
            422,
            '{"detail": [{"loc": ["body", "amount"], "msg": "value is not a valid integer", "type": "type_error.integer"}]}',
        ),
        (
            400,
            '{"error": "ValidationError", "message": "\\"email\\" must be a valid email"}',
        ),
        (
            500,
            "SyntaxError: Unexpected token < in JSON at position 0\n    at JSON.parse (<anonymous>)\n    at readOrder (/srv/app/src/orders.js:~n~:17)",
        ),
        (
            500,
            'Traceback (most recent call last):\n  File "/app/parse.py", line ~n~, in read\n    return json.loads(raw)\njson.decoder.JSONDecodeError: Expecting value: line 1 column 1 (char 0)',
        ),
        (
            500,
            "java.time.format.DateTimeParseException: Text '~n~-13-45' could not be parsed: Invalid value for MonthOfYear\n\tat java.base/java.time.format.DateTimeFormatter.parse(DateTimeFormatter.java:1920)\n\tat com.acme.billing.Invoice.dueDate(Invoice.java:~n~)",
        ),
        (
            413,
            "<html><head><title>413 Request Entity Too Large</title></head><body><center><h1>413 Request Entity Too Large</h1></center><hr><center>nginx</center></body></html>",
        ),
        (
            500,
            'duplicate key value violates unique constraint "orders_pkey" (order ~id~)',
        ),
        (500, 'invalid input syntax for type uuid: "~user~"'),
        (
            400,
            '{"title": "One or more validation errors occurred.", "status": 400, "errors": {"Email": ["The Email field is not a valid e-mail address."]}}',
        ),
        (
            500,
            'ZodError: [{"code":"invalid_type","expected":"string","received":"undefined","path":["email"],"message":"Required"}]',
        ),
        (
            500,
            'java.lang.NumberFormatException: For input string: "12,5"\n\tat java.base/java.lang.Integer.parseInt(Integer.java:652)\n\tat com.acme.cart.Line.quantity(Line.java:~n~)',
        ),
        (
            500,
            "UnicodeDecodeError: 'utf-8' codec can't decode byte 0xff in position 0: invalid start byte",
        ),
        (
            400,
            '{"error": {"type": "card_error", "code": "incorrect_number", "message": "Your card number is incorrect.", "param": "number"}}',
        ),
        (
            500,
            "/app/models/user.rb:~n~:in `create!': Validation failed: Name can't be blank (ActiveRecord::RecordInvalid)\n\tfrom /app/jobs/import.rb:9:in `perform'",
        ),
        (500, "Error: Data too long for column 'title' at row 1"),
        (500, "serde_json::Error: EOF while parsing an object at line 1 column ~n~"),
        (
            500,
            'org.xml.sax.SAXParseException; lineNumber: ~n~; columnNumber: 3; The element type "item" must be terminated by the matching end-tag',
        ),
        (400, '{"errors": {"amount": ["must be greater than 0"]}}'),
        (
            500,
            'ERROR: null value in column "customer_id" of relation "orders" violates not-null constraint',
        ),
        (500, 'strconv.Atoi: parsing "~word~": invalid syntax'),
        (422, "Unprocessable Entity"),
    ],
    "contract drift": [
        (
            500,
            "psycopg2.errors.UndefinedColumn: column orders.~service~_ref does not exist",
        ),
        (
            500,
            'com.fasterxml.jackson.databind.exc.UnrecognizedPropertyException: Unrecognized field "discount" (class com.acme.Order), not marked as ignorable\n\tat com.fasterxml.jackson.databind.exc.UnrecognizedPropertyException.from(UnrecognizedPropertyException.java:61)\n\tat com.acme.orders.Reader.read(Reader.java:~n~)',
        ),
        (
            404,
            "<!DOCTYPE html><html><body><pre>Cannot POST /api/v1/orders/~id~</pre></body></html>",
        ),
        (405, '{"detail": "Method Not Allowed"}'),
        (
            500,
            '{"error": "WorkflowError", "message": "Incompatible step name. Expected \'charge\', got \'reserve-~word~\' from the request"}',
        ),
        (
            410,
            '{"error": {"code": "api_version_sunset", "message": "API version 2019-05 is no longer supported"}}',
        ),
        (
            500,
            "rpc error: code = Unimplemented desc = unknown method ChargeV1 for service pay.~service~",
        ),
        (
            500,
            "org.apache.avro.AvroTypeException: Found com.acme.Order, expecting com.acme.Order, missing required field currency",
        ),
        (500, 'relation "~service~_v2" does not exist'),
        (
            400,
            '{"errors": [{"message": "Cannot query field \\"totalPrice\\" on type \\"Order\\". Did you mean \\"total\\"?", "extensions": {"code": "GRAPHQL_VALIDATION_FAILED"}}]}',
        ),
        (
            500,
            'io.confluent.kafka.schemaregistry.client.rest.exceptions.RestClientException: Schema being registered is incompatible with an earlier schema for subject "~service~-value"; error code: 409',
        ),
        (
            500,
            "java.lang.NoSuchMethodError: 'com.acme.Price com.acme.Order.getTotal()'\n\tat com.acme.report.Sum.run(Sum.java:~n~)",
        ),
        (
            400,
            '{"error": {"type": "invalid_request_error", "message": "Received unknown parameter: source_order"}}',
        ),
        (
            404,
            "<html><head><title>404 Not Found</title></head><body><h1>Not Found</h1><p>The requested URL /v1/charge was not found; this API was retired, use /v3.</p></body></html>",
        ),
        (
            500,
            "SQLSTATE[42S22]: Column not found: 1054 Unknown column 'orders.vat' in 'field list'",
        ),
        (500, "TypeError: charge() got an unexpected keyword argument 'currency'"),
        (
            400,
            '{"error": {"message": "Unsupported API version: 2021-01", "code": "UnsupportedApiVersion"}}',
        ),
        (500, "ERROR: function ~service~_total(integer) does not exist"),
        (415, '{"title": "Unsupported Media Type", "status": 415}'),
        (
            500,
            "google.protobuf.message.DecodeError: Wrong wire type in tag; schema of ~service~ changed",
        ),
    ],
    "authentication": [
        (
            500,
            '{"error": "SignatureError", "message": "Failed to verify that the Workflow request comes from the queue: the signature does not fit the key"}',
        ),
        (
            401,
            '{"error": "invalid_token", "error_description": "The access token expired"}',
        ),
        (
            403,
            "<Error><Code>AccessDenied</Code><Message>Access Denied</Message><RequestId>~hex~</RequestId></Error>",
        ),
        (500, 'FATAL: password authentication failed for user "~user~"'),
        (
            500,
            "JsonWebTokenError: invalid signature\n    at /srv/app/node_modules/jsonwebtoken/verify.js:171:19\n    at check (/srv/app/src/auth.js:~n~:5)",
        ),
        (
            400,
            '{"__type": "UnrecognizedClientException", "message": "The security token included in the request is invalid."}',
        ),
        (
            500,
            "AADSTS7000222: The provided client secret keys for app '~uuid~' are expired.",
        ),
        (
            500,
            "rpc error: code = PermissionDenied desc = caller does not have permission on ~service~",
        ),
        (401, ""),
        (
            401,
            '{"message": "Invalid API key", "hint": "Double check your Supabase `anon` or `service_role` API key."}',
        ),
        (403, '{"message": "Missing Authentication Token"}'),
        (500, "botocore.exceptions.NoCredentialsError: Unable to locate credentials"),
        (
            500,
            "ERROR 1045 (28000): Access denied for user '~user~'@'~ip~' (using password: YES)",
        ),
        (500, "NOAUTH Authentication required."),
        (
            500,
            "google.auth.exceptions.RefreshError: ('invalid_grant: Token has been expired or revoked.', {'error': 'invalid_grant'})",
        ),
        (
            403,
            "<html><head><title>403 Forbidden</title></head><body><center><h1>403 Forbidden</h1></center><hr><center>nginx</center></body></html>",
        ),
        (
            500,
            "SignatureDoesNotMatch: The request signature we calculated does not match the signature you provided. Check your key and signing method.",
        ),
        (500, "MongoServerError: bad auth : Authentication failed."),
        (500, "jwt.exceptions.ExpiredSignatureError: Signature has expired"),
        (
            400,
            '{"error": "invalid_client", "error_description": "Client authentication failed"}',
        ),
        (
            403,
            '{"Code": "AuthorizationError", "Message": "User: ~user~ is not authorized to perform: SNS:Publish"}',
        ),
        (500, "git@~host~: Permission denied (publickey)."),
    ],
    "configuration": [
        (
            500,
            "KeyError: 'STRIPE_API_KEY' is not set: environment variable missing on ~host~",
        ),
        (
            500,
            "Traceback (most recent call last):\n  File \"/app/main.py\", line ~n~, in <module>\n    import pandas\nModuleNotFoundError: No module named 'pandas'",
        ),
        (
            500,
            "Error: Cannot find module './~service~/handler'\nRequire stack:\n- /var/task/index.js\n    at Module._resolveFilename (node:internal/modules/cjs/loader:1077:15)\n    at Module._load (node:internal/modules/cjs/loader:922:27)",
        ),
        (
            500,
            "org.springframework.beans.factory.NoSuchBeanDefinitionException: No qualifying bean of type 'com.acme.Mailer' available\n\tat org.springframework.beans.factory.support.DefaultListableBeanFactory.getBean(DefaultListableBeanFactory.java:351)\n\tat com.acme.App.main(App.java:~n~)",
        ),
        (
            404,
            "<Error><Code>NoSuchBucket</Code><Message>The specified bucket does not exist</Message><BucketName>~service~-~word~</BucketName></Error>",
        ),
        (500, 'FATAL: database "~service~_prod" does not exist'),
        (
            500,
            "django.core.exceptions.ImproperlyConfigured: The SECRET_KEY setting must not be empty.",
        ),
        (
            500,
            "Error: getaddrinfo ENOTFOUND ~service~-db.internal\n    at GetAddrInfoReqWrap.onlookup [as oncomplete] (node:dns:107:26)",
        ),
        (
            500,
            'PHP Fatal error:  Uncaught Error: Class "Acme\\Mailer" not found in /app/send.php:~n~\nStack trace:\n#0 {main}\n  thrown in /app/send.php on line 9',
        ),
        (
            500,
            "java.lang.ClassNotFoundException: com.mysql.cj.jdbc.Driver\n\tat java.base/jdk.internal.loader.BuiltinClassLoader.loadClass(BuiltinClassLoader.java:641)\n\tat com.acme.Db.open(Db.java:~n~)",
        ),
        (
            500,
            "PrismaClientInitializationError: error: Environment variable not found: DATABASE_URL.",
        ),
        (
            500,
            "tls: failed to verify certificate: x509: certificate signed by unknown authority",
        ),
        (
            400,
            '{"__type": "com.amazonaws.sqs#QueueDoesNotExist", "message": "The specified queue does not exist."}',
        ),
        (
            500,
            "FileNotFoundError: [Errno 2] No such file or directory: '/etc/~service~/config.yaml'",
        ),
        (500, "ImportError: cannot import name 'Order' from 'models' (/app/models.py)"),
        (500, "dial tcp: lookup ~service~.internal: no such host"),
        (500, "Runtime.HandlerNotFound: index.handler is undefined or not exported"),
        (
            500,
            "Could not resolve placeholder '~service~.url' in value \"${~service~.url}\"",
        ),
        (
            500,
            "sqlalchemy.exc.NoSuchModuleError: Can't load plugin: sqlalchemy.dialects:postgres",
        ),
    ],
    "resource exhaustion": [
        (
            500,
            "FATAL ERROR: Reached heap limit Allocation failed - JavaScript heap out of memory",
        ),
        (
            500,
            "java.lang.OutOfMemoryError: Java heap space\n\tat java.base/java.util.Arrays.copyOf(Arrays.java:3537)\n\tat com.acme.export.Csv.rows(Csv.java:~n~)",
        ),
        (500, "OSError: [Errno 28] No space left on device: '/tmp/~id~'"),
        (500, "Error: EMFILE: too many open files, open '/srv/data/~id~.json'"),
        (500, "FATAL: sorry, too many clients already"),
        (
            500,
            'Traceback (most recent call last):\n  File "/app/db.py", line ~n~, in session\n    return engine.connect()\nsqlalchemy.exc.TimeoutError: QueuePool limit of size 5 overflow 10 reached, connection timed out, timeout 30.00',
        ),
        (
            502,
            '{"errorMessage": "2026-03-01T10:00:00Z ~uuid~ Task timed out after 30.03 seconds"}',
        ),
        (
            500,
            '{"errorType": "Runtime.ExitError", "errorMessage": "RequestId: ~uuid~ Error: Runtime exited with error: signal: killed"}',
        ),
        (
            500,
            "MemoryError: Unable to allocate ~n~ MiB for an array with shape (~n~, ~n~) and data type float64",
        ),
        (500, "OOM command not allowed when used memory > 'maxmemory'."),
        (
            500,
            "PHP Fatal error:  Allowed memory size of 134217728 bytes exhausted (tried to allocate ~n~ bytes)",
        ),
        (
            500,
            "HikariPool-1 - Connection is not available, request timed out after 30000ms.",
        ),
        (500, "ERROR 1040 (HY000): Too many connections"),
        (
            500,
            "java.util.concurrent.RejectedExecutionException: Task java.util.concurrent.FutureTask@~hex~ rejected from java.util.concurrent.ThreadPoolExecutor[Running, pool size = 8, active threads = 8, queued tasks = 100]",
        ),
        (
            504,
            "An error occurred with your deployment\n\nFUNCTION_INVOCATION_TIMEOUT\n\nfra1::~hex~",
        ),
        (500, "container ~service~ terminated: OOMKilled (exit code 137)"),
        (500, "runtime: out of memory: cannot allocate ~n~-byte block"),
        (
            500,
            "System.OutOfMemoryException: Insufficient memory to continue the execution of the program.",
        ),
        (
            500,
            "ERROR 53300: remaining connection slots are reserved for superuser connections",
        ),
        (500, "RuntimeError: can't start new thread"),
        (507, ""),
    ],
    "dependency down": [
        (
            502,
            "<html><head><title>502 Bad Gateway</title></head><body><center><h1>502 Bad Gateway</h1></center><hr><center>nginx/1.25.3</center></body></html>",
        ),
        (
            500,
            "Error: connect ECONNREFUSED ~ip~:5432\n    at TCPConnectWrap.afterConnect [as oncomplete] (node:net:1595:16)",
        ),
        (
            503,
            "upstream connect error or disconnect/reset before headers. reset reason: connection failure",
        ),
        (503, "no healthy upstream"),
        (
            500,
            'Traceback (most recent call last):\n  File "/app/db.py", line ~n~, in connect\n    psycopg2.connect(dsn)\npsycopg2.OperationalError: could not connect to server: Connection refused\n\tIs the server running on host "~host~" (~ip~) and accepting TCP/IP connections on port 5432?',
        ),
        (
            500,
            "io.github.resilience4j.circuitbreaker.CallNotPermittedException: CircuitBreaker '~service~' is OPEN and does not permit further calls",
        ),
        (503, "FATAL: the database system is shutting down"),
        (500, "dial tcp ~ip~:6379: connect: connection refused"),
        (
            504,
            "<html><head><title>504 Gateway Time-out</title></head><body><center><h1>504 Gateway Time-out</h1></center></body></html>",
        ),
        (
            500,
            "redis.exceptions.ConnectionError: Error 111 connecting to ~host~:6379. Connection refused.",
        ),
        (
            500,
            "pymongo.errors.ServerSelectionTimeoutError: ~host~:27017: [Errno 111] Connection refused, Timeout: 30s",
        ),
        (
            500,
            "org.elasticsearch.client.transport.NoNodeAvailableException: None of the configured nodes are available: [{#transport#-1}{~ip~:9300}]",
        ),
        (
            503,
            '{"error": {"code": 503, "message": "The service is currently unavailable.", "status": "UNAVAILABLE"}}',
        ),
        (
            500,
            "System.Net.Http.HttpRequestException: No connection could be made because the target machine actively refused it. (~host~:443)\n ---> System.Net.Sockets.SocketException (10061): No connection could be made because the target machine actively refused it.\n   at System.Net.Http.HttpConnectionPool.ConnectToTcpHostAsync(String host)\n   at Acme.Pay.Client.Charge() in C:\\src\\Client.cs:line ~n~",
        ),
        (
            521,
            "<!DOCTYPE html><html><head><title>~host~ | 521: Web server is down</title></head><body></body></html>",
        ),
        (500, "ORA-12541: TNS:no listener"),
        (
            503,
            "<html><head><title>503 Service Temporarily Unavailable</title></head><body></body></html>",
        ),
        (500, "kafka.errors.NoBrokersAvailable: NoBrokersAvailable"),
        (500, "SQLSTATE[HY000] [2002] Connection refused"),
        (
            500,
            "Polly.CircuitBreaker.BrokenCircuitException: The circuit is now open and is not allowing calls.",
        ),
        (
            500,
            "com.mysql.cj.jdbc.exceptions.CommunicationsException: Communications link failure\n\tat com.mysql.cj.jdbc.ConnectionImpl.connect(ConnectionImpl.java:~n~)\nCaused by: java.net.ConnectException: Connection refused\n\tat java.base/sun.nio.ch.Net.pollConnect(Native Method)",
        ),
    ],
    "bug": [
        (
            500,
            "Traceback (most recent call last):\n  File \"/app/cart.py\", line ~n~, in total\n    return cart.items[0].price\nAttributeError: 'NoneType' object has no attribute 'items'",
        ),
        (
            500,
            "TypeError: Cannot read properties of undefined (reading 'id')\n    at total (/srv/app/src/cart.js:~n~:21)\n    at async step (/srv/app/src/flow.js:12:3)",
        ),
        (
            500,
            'java.lang.NullPointerException: Cannot invoke "com.acme.User.getName()" because "user" is null\n\tat com.acme.Mail.greet(Mail.java:~n~)',
        ),
        (
            500,
            "panic: runtime error: invalid memory address or nil pointer dereference\n[signal SIGSEGV: segmentation violation code=0x1 addr=~hex~ pc=~hex~]\n\ngoroutine ~n~ [running]:\nmain.(*Cart).Total(0x0)\n\t/app/cart.go:~n~ +0x1d",
        ),
        (
            500,
            "/app/lib/cart.rb:~n~:in `total': undefined method `price' for nil:NilClass (NoMethodError)\n\tfrom /app/lib/flow.rb:3:in `run'",
        ),
        (
            500,
            "System.NullReferenceException: Object reference not set to an instance of an object.\n   at Acme.Cart.Total() in C:\\src\\Cart.cs:line ~n~",
        ),
        (500, "ZeroDivisionError: division by zero"),
        (
            500,
            "thread 'main' panicked at src/cart.rs:~n~:13:\ncalled `Option::unwrap()` on a `None` value\nstack backtrace:\n   0: rust_begin_unwind\n   1: core::panicking::panic_fmt\n   2: app::cart::total\n             at ./src/cart.rs:~n~:13",
        ),
        (
            500,
            "PHP Fatal error:  Uncaught Error: Call to a member function getPrice() on null in /app/cart.php:~n~\nStack trace:\n#0 /app/run.php(20): Cart->total()\n#1 {main}\n  thrown in /app/cart.php on line 10",
        ),
        (
            500,
            "UnboundLocalError: cannot access local variable 'total' where it is not associated with a value",
        ),
        (
            500,
            '{"name": "ReferenceError", "message": "discount is not defined", "stack": "ReferenceError: discount is not defined\\n    at total (/srv/app/src/cart.js:~n~:9)"}',
        ),
        (
            500,
            "java.lang.ClassCastException: class java.lang.Integer cannot be cast to class java.lang.String\n\tat com.acme.report.Row.title(Row.java:~n~)",
        ),
        (
            500,
            'Traceback (most recent call last):\n  File "/app/walk.py", line ~n~, in visit\n    return visit(node.next)\n  [Previous line repeated 996 more times]\nRecursionError: maximum recursion depth exceeded',
        ),
        (
            500,
            "System.InvalidOperationException: Sequence contains no elements\n   at System.Linq.ThrowHelper.ThrowNoElementsException()\n   at Acme.Report.First() in C:\\src\\Report.cs:line ~n~",
        ),
        (500, "IndexError: list index out of range"),
        (
            500,
            "java.lang.ArrayIndexOutOfBoundsException: Index 5 out of bounds for length 3\n\tat com.acme.Row.cell(Row.java:~n~)",
        ),
        (500, 'PHP Warning:  Undefined array key "total" in /app/cart.php on line ~n~'),
        (
            500,
            "fatal error: all goroutines are asleep - deadlock!\n\ngoroutine 1 [chan receive]:\nmain.main()\n\t/app/main.go:~n~ +0x2",
        ),
        (500, "TypeError: unsupported operand type(s) for +: 'int' and 'str'"),
    ],
    "unknown": [
        (500, "Internal Server Error"),
        (500, ""),
        (500, '{"error": "Something went wrong", "requestId": "~uuid~"}'),
        (None, ""),
        (404, '{"message": "Not Found"}'),
        (500, "step ~service~ failed"),
        (400, ""),
        (500, '{"errorMessage": "Process exited before completing request"}'),
        (502, '{"status": 401, "error": "Bad Gateway"}'),
        (500, '{"ok": false}'),
        (
            500,
            "<html><head><title>500 Internal Server Error</title></head><body><h1>Internal Server Error</h1></body></html>",
        ),
        (200, '{"status": "done", "order": "~id~"}'),
        (
            404,
            "<html><head><title>404 Not Found</title></head><body><h1>Not Found</h1></body></html>",
        ),
        (500, "Error: ~word~"),
        (
            500,
            "An unexpected error has occurred. Please contact support with reference ~uuid~.",
        ),
        (500, "null"),
        (403, ""),
        (500, '{"status": "error", "code": "E~n~"}'),
        (502, '{"error": "Order ~id~ rejected", "status": 409}'),
    ],
}

HELD_OUT: Final[Templates] = {
    "transient": [
        (
            500,
            "Error: Connection lost: The server closed the connection.\n    at Protocol.end (/srv/app/node_modules/mysql/lib/protocol/Protocol.js:112:13)",
        ),
        (
            500,
            "reactor.netty.http.client.PrematureCloseException: Connection prematurely closed BEFORE response",
        ),
        (500, "ERROR: Lock wait timeout exceeded; try restarting transaction"),
        (
            500,
            "com.google.cloud.spanner.AbortedException: ABORTED: Transaction was aborted.",
        ),
        (
            500,
            "System.IO.IOException: Unable to read data from the transport connection: An existing connection was forcibly closed by the remote host.",
        ),
        (
            500,
            "requests.exceptions.ReadTimeout: HTTPSConnectionPool(host='~host~', port=443): Read timed out. (read timeout=10)",
        ),
        (
            412,
            '{"error": {"code": "ConditionNotMet", "message": "The condition specified using HTTP conditional header(s) is not met."}}',
        ),
        (
            500,
            "context deadline exceeded (Client.Timeout exceeded while awaiting headers)",
        ),
    ],
    "throttled": [
        (
            429,
            "<html><head><title>429 Too Many Requests</title></head><body><center><h1>429 Too Many Requests</h1></center></body></html>",
        ),
        (
            400,
            '{"error": {"code": 4, "message": "(#4) Application request limit reached", "type": "OAuthException"}}',
        ),
        (
            500,
            "anthropic.RateLimitError: 429 {'type': 'error', 'error': {'type': 'rate_limit_error'}}",
        ),
        (500, "HubspotError: You have reached your daily limit. policyName=DAILY"),
        (
            500,
            "Error: Request failed with status code 429\n    at createError (/srv/app/node_modules/axios/lib/core/createError.js:16:15)\n    at settle (/srv/app/src/crm.js:~n~:12)",
        ),
        (
            500,
            "TooManyRequestsException: Rate Exceeded. Lambda concurrency for ~service~",
        ),
        (
            403,
            '{"reason": "quotaExceeded", "message": "The request cannot be completed because you have exceeded your quota."}',
        ),
    ],
    "poison input": [
        (500, "csv.Error: line contains NUL in row ~n~ of upload ~id~"),
        (500, "PIL.UnidentifiedImageError: cannot identify image file '/tmp/~id~.jpg'"),
        (
            500,
            "decimal.InvalidOperation: [<class 'decimal.ConversionSyntax'>] while reading amount '~word~'",
        ),
        (
            400,
            '{"code": "INVALID_ARGUMENT", "message": "amount: value must be positive"}',
        ),
        (422, '{"message": "Invalid request.\\n\\n\\"head\\" was not supplied."}'),
        (
            500,
            'MongoServerError: E11000 duplicate key error collection: shop.orders index: _id_ dup key: { _id: "~id~" }',
        ),
        (
            500,
            'ActiveRecord::NotNullViolation: PG::NotNullViolation: ERROR: null value in column "email"',
        ),
        (413, '{"error": "payload_too_large"}'),
    ],
    "contract drift": [
        (
            500,
            "pydantic.error_wrappers.ValidationError: 1 validation error for PaymentResponse\nresponse -> settled_at\n  field required (type=value_error.missing)",
        ),
        (
            500,
            "Npgsql.PostgresException (0x80004005): 42703: column o.~service~_id does not exist",
        ),
        (404, '{"message": "no Route matched with those values"}'),
        (
            500,
            "com.google.gson.JsonSyntaxException: Expected BEGIN_OBJECT but was BEGIN_ARRAY at path $.items",
        ),
        (
            400,
            '{"error": {"message": "The model `text-davinci-003` has been deprecated", "code": "model_not_found"}}',
        ),
        (
            500,
            "grpc: error while marshaling: proto: wrong type for field amount, schema version mismatch",
        ),
        (
            405,
            "<html><head><title>405 Not Allowed</title></head><body><center><h1>405 Not Allowed</h1></center></body></html>",
        ),
    ],
    "authentication": [
        (401, "Unauthorized"),
        (
            500,
            "Error: Request failed with status code 401\n    at settle (/srv/app/src/crm.js:~n~:12)",
        ),
        (
            403,
            '{"error": {"code": 403, "message": "The caller does not have permission", "status": "PERMISSION_DENIED"}}',
        ),
        (
            500,
            "smtplib.SMTPAuthenticationError: (535, b'5.7.8 Username and Password not accepted.')",
        ),
        (
            500,
            'org.postgresql.util.PSQLException: FATAL: no pg_hba.conf entry for host "~ip~", user "~user~", database "shop", no encryption',
        ),
        (
            400,
            '{"error": "invalid_grant", "error_description": "Bad Request: refresh token reused"}',
        ),
        (
            500,
            "com.amazonaws.services.s3.model.AmazonS3Exception: The AWS Access Key Id you provided does not exist in our records. (Status Code: 403; Error Code: InvalidAccessKeyId)",
        ),
        (
            500,
            "slack_sdk.errors.SlackApiError: The server responded with: {'ok': False, 'error': 'invalid_auth'}",
        ),
    ],
    "configuration": [
        (
            500,
            "Error [ERR_MODULE_NOT_FOUND]: Cannot find package 'stripe' imported from /var/task/index.mjs",
        ),
        (500, "socket.gaierror: [Errno -2] Name or service not known"),
        (500, "Error: supabaseUrl is required. Set SUPABASE_URL in the environment."),
        (
            500,
            "java.lang.IllegalStateException: Failed to load ApplicationContext\n\tat org.springframework.test.Load.run(Load.java:98)\nCaused by: org.springframework.beans.factory.BeanCreationException: Error creating bean with name 'mailer'\n\tat com.acme.App.main(App.java:~n~)",
        ),
        (
            500,
            "x509: certificate is valid for ~service~.internal, not ~service~.example.net",
        ),
        (500, "LoadError: cannot load such file -- ~service~_client"),
        (500, "Unknown database '~service~_live'"),
    ],
    "resource exhaustion": [
        (
            500,
            "fork: retry: Resource temporarily unavailable; OSError: [Errno 11] cannot start process",
        ),
        (
            500,
            "torch.cuda.OutOfMemoryError: CUDA out of memory. Tried to allocate ~n~ MiB",
        ),
        (500, 'ERROR: could not extend file "base/~n~/~n~": No space left on device'),
        (500, "accept tcp [::]:8080: accept4: too many open files"),
        (500, "psycopg2.pool.PoolError: connection pool exhausted"),
        (500, "Error: write ENOSPC"),
        (
            500,
            "PHP Fatal error:  Maximum execution time of 30 seconds exceeded in /app/export.php on line ~n~",
        ),
        (
            502,
            '{"errorType": "Runtime.OutOfMemory", "errorMessage": "RequestId: ~uuid~ Error: Runtime exited"}',
        ),
    ],
    "dependency down": [
        (503, '{"message": "Service Unavailable"}'),
        (500, "AxiosError: connect ECONNREFUSED ~ip~:8080"),
        (
            500,
            "redis.clients.jedis.exceptions.JedisConnectionException: Failed to connect to any host resolved for DNS name ~host~",
        ),
        (
            500,
            "elasticsearch.exceptions.ConnectionError: ConnectionError(<urllib3.connection.HTTPConnection object>: Failed to establish a new connection: [Errno 113] No route to host)",
        ),
        (502, "upstream ~service~ sent no valid response: bad gateway"),
        (500, "Error: 14 UNAVAILABLE: No connection established"),
        (
            503,
            "<html><head><title>We'll be back soon</title></head><body><h1>Down for maintenance</h1></body></html>",
        ),
        (500, "CLUSTERDOWN The cluster is down"),
    ],
    "bug": [
        (500, "Uncaught TypeError: order.lines.map is not a function"),
        (500, "KeyError: 'shipping_total'\n"),
        (
            500,
            "Traceback (most recent call last):\n  File \"/app/tax.py\", line ~n~, in rate\n    return rates[country]\nNameError: name 'rates' is not defined",
        ),
        (
            500,
            "panic: assignment to entry in nil map\n\ngoroutine 1 [running]:\nmain.add(0x0)\n\t/app/main.go:~n~ +0x2",
        ),
        (
            500,
            "System.ArgumentOutOfRangeException: Index was out of range. Must be non-negative and less than the size of the collection.\n   at Acme.Row.Cell() in C:\\src\\Row.cs:line ~n~",
        ),
        (
            500,
            "thread 'tokio-runtime-worker' panicked at src/sum.rs:~n~:5:\nattempt to subtract with overflow",
        ),
        (
            500,
            "java.util.NoSuchElementException: No value present\n\tat java.base/java.util.Optional.get(Optional.java:143)\n\tat com.acme.Mail.to(Mail.java:~n~)",
        ),
    ],
    "unknown": [
        (500, "Error"),
        (
            500,
            '{"error": {"code": "internal_error", "message": "An error occurred. Request id ~uuid~"}}',
        ),
        (
            500,
            "<html><body><h1>Application error</h1><p>An error occurred in the application and your page could not be served.</p></body></html>",
        ),
        (404, '{"error": "order ~id~ not found"}'),
        (500, "failed to process order ~id~"),
        (409, '{"error": "conflict"}'),
        (500, '{"success": false, "data": null}'),
    ],
}

_WRAPPERS: Final = (
    lambda text: json.dumps({"error": {"message": text}}),
    lambda text: json.dumps({"message": text, "requestId": "req"}),
    lambda text: f"Error: {text}",
    lambda text: f"step 'load' failed: {text}",
)


def labelled_bodies(templates: Templates, seed: int = 0) -> list[Labelled]:
    """Each template twice: as it is, and, where it is one line of text, as a service would wrap it."""
    rng = random.Random(seed)
    found = []
    for label, listed in templates.items():
        for status, template in listed:
            for number in range(VARIATIONS):
                body = re.sub(r"~(\w+)~", lambda field: FIELDS[field[1]](rng), template)
                if number and body and body[0] not in "{[<" and "\n" not in body:
                    body = rng.choice(_WRAPPERS)(body)
                found.append(Labelled(label, status, body))
    return found


def macro_f1(labels: list[str], found: list[str]) -> float:
    """The mean over classes of the harmonic mean of precision and recall."""
    scores = []
    for label in sorted(set(labels)):
        both = sum(
            one == other == label for one, other in zip(labels, found, strict=True)
        )
        scores.append(2 * both / (labels.count(label) + found.count(label)))
    return sum(scores) / len(scores)
