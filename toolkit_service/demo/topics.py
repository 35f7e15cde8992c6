"""The subjects of the sample documents: per topic, the sentences that documents are made of."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True)
class Topic:
    """Symptoms, checks and remedies on one subject; ``{service}`` and ``{city}`` are filled in."""

    name: str
    tags: tuple[str, ...]
    signs: tuple[str, ...]
    checks: tuple[str, ...]
    cures: tuple[str, ...]


TOPICS: Final[tuple[Topic, ...]] = (
    Topic(
        "connections",
        ("network", "tcp"),
        (
            "Connection refused when {service} calls its neighbour in {city}.",
            "Callers of {service} see connection reset by peer.",
            "The connection pool of {service} in {city} is used up.",
            "Half-open connections pile up on the hosts of {service}.",
        ),
        (
            "Look whether the port is listening and the firewall lets it through.",
            "Count the established connections and compare with the limit of the pool.",
            "Ask the load balancer which of its targets are healthy.",
        ),
        (
            "Restart the listener and drain the old targets.",
            "Raise the pool size and close idle connections sooner.",
            "Turn on keep-alive and lower the idle timeout.",
        ),
    ),
    Topic(
        "timeouts",
        ("latency", "deadline"),
        (
            "Requests to {service} time out after thirty seconds.",
            "The deadline of a step in {service} passes before the answer comes.",
            "Slow answers from {city} make the calls of {service} run late.",
            "The slowest one percent of {service} takes ten times the median.",
        ),
        (
            "Compare the slowest percentile with the deadline that callers set.",
            "Find the slow query behind the endpoint.",
            "Trace one slow request from end to end.",
        ),
        (
            "Split the long step in two and raise the timeout of the second.",
            "Answer at once and send the result through a callback.",
            "Cache the slow lookup for a minute.",
        ),
    ),
    Topic(
        "memory",
        ("java", "heap"),
        (
            "{service} stops with an out of memory error: heap space.",
            "Memory of {service} grows with every report until it is killed.",
            "The garbage collector of {service} in {city} takes half of the time.",
            "A leak of buffers makes {service} slower from day to day.",
        ),
        (
            "Take a heap dump and look for the largest retained set.",
            "Plot resident memory over a week.",
            "Look for caches without a limit.",
        ),
        (
            "Release the page buffers after rendering.",
            "Bound the cache by bytes instead of entries.",
            "Restart the workers nightly until the leak is mended.",
        ),
    ),
    Topic(
        "deploys",
        ("release", "rollback"),
        (
            "Errors rise minutes after a new release of {service}.",
            "Half of the hosts in {city} run the old version of {service}.",
            "An undefined field appears since the last deploy of {service}.",
            "The migration of {service} ran before the code that needs it.",
        ),
        (
            "Compare the first failure with the time of the release.",
            "Read the difference between the two versions.",
            "See which version answered the failing request.",
        ),
        (
            "Roll the release back, then resume the failed runs.",
            "Release to one host first and watch it for ten minutes.",
            "Ship the migration alone, the code a day later.",
        ),
    ),
    Topic(
        "rate limits",
        ("quota", "tenant"),
        (
            "One tenant uses up the request quota of {service}.",
            "{service} answers 429 too many requests to everybody in {city}.",
            "A bulk import sends thousands of messages to {service} at once.",
            "Retries of {service} make its rate limit worse.",
        ),
        (
            "Group the failures by flow control key and by caller address.",
            "Read the Retry-After header of the answers.",
            "See whether the retries come at the same moment.",
        ),
        (
            "Give the tenant a flow control key with a rate of its own.",
            "Spread the import over the night.",
            "Add jitter to the retry delay.",
        ),
    ),
    Topic(
        "certificates",
        ("tls", "security"),
        (
            "The certificate of {service} in {city} expired.",
            "Clients of {service} refuse the chain: unknown authority.",
            "The TLS handshake with {service} fails since the renewal.",
            "{service} offers a certificate for another host name.",
        ),
        (
            "Read the dates and names of the certificate that is served.",
            "Check that the intermediate certificate is sent too.",
            "Compare the clocks of both hosts.",
        ),
        (
            "Renew the certificate and reload the proxy.",
            "Send the whole chain.",
            "Warn thirty days before the next expiry.",
        ),
    ),
    Topic(
        "database locks",
        ("database", "sql"),
        (
            "Database is locked, says {service}, and gives up after five tries.",
            "Two transactions of {service} wait for each other: deadlock.",
            "A long report holds a table lock that {service} in {city} needs.",
            "Writes of {service} queue behind one open transaction.",
        ),
        (
            "List the open transactions by age.",
            "See which statement holds the lock.",
            "Look for a transaction that waits for a person.",
        ),
        (
            "End the idle transaction and shorten the others.",
            "Take locks in the same order everywhere.",
            "Move the report to a replica.",
        ),
    ),
    Topic(
        "queues",
        ("backlog", "retry"),
        (
            "The backlog of {service} in {city} grows by the hour.",
            "Failed runs of {service} fill the dead letter queue.",
            "Messages to {service} are delivered twice.",
            "A message that can never succeed is retried by {service} for a day.",
        ),
        (
            "Compare the arrival rate with the finishing rate.",
            "Group the dead letters by error text.",
            "Look at the age of the oldest message.",
        ),
        (
            "Add workers, then resume what failed.",
            "Make the step idempotent by its message id.",
            "Answer 489 to a message that cannot be handled.",
        ),
    ),
    Topic(
        "name lookup",
        ("dns", "network"),
        (
            "{service} cannot resolve the host name of its neighbour.",
            "Name lookups in {city} take five seconds.",
            "After the move {service} still calls the old address.",
            "The resolver of {service} answers no such host now and then.",
        ),
        (
            "Ask the resolver directly, twice.",
            "Read the time to live of the record.",
            "See whether the search list makes extra lookups.",
        ),
        (
            "Lower the time to live a day before a move.",
            "Run a caching resolver on each host.",
            "End the host name with a dot.",
        ),
    ),
    Topic(
        "disks",
        ("storage", "files"),
        (
            "No space left on device on a host of {service} in {city}.",
            "Logs of {service} fill the disk over the weekend.",
            "Writes of {service} are slow since the volume is nearly full.",
            "{service} cannot create a file although there is space: no inodes.",
        ),
        (
            "List the largest folders.",
            "Look for deleted files that are still open.",
            "Count inodes as well as bytes.",
        ),
        (
            "Rotate the logs by size and keep seven.",
            "Remove exports after they were fetched.",
            "Give the spool a volume of its own.",
        ),
    ),
    Topic(
        "access tokens",
        ("auth", "security"),
        (
            "{service} is refused with 401: the access token expired.",
            "A rotated signing key makes {service} refuse every callback.",
            "The service account of {service} lost a role.",
            "Clock skew in {city} makes fresh tokens of {service} invalid.",
        ),
        (
            "Read the expiry inside the token.",
            "Compare the key id with the published keys.",
            "Check the clock against a time server.",
        ),
        (
            "Fetch a new token a minute before the old one ends.",
            "Accept the current and the next key.",
            "Give the role back and write down who needs it.",
        ),
    ),
    Topic(
        "encodings",
        ("json", "text"),
        (
            "{service} cannot decode a body that is not UTF-8.",
            "Names with umlauts reach {service} as question marks.",
            "A large order number loses its last digits in {service}.",
            "{service} in {city} refuses JSON with a byte order mark.",
        ),
        (
            "Look at the raw bytes before any decoding.",
            "Read the charset of the content type.",
            "See whether a number passes through a float.",
        ),
        (
            "Keep bodies as bytes until the charset is known.",
            "Send large numbers as text.",
            "Strip the byte order mark at the door.",
        ),
    ),
)
