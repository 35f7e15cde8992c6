"""Labelled log lines and error messages: our own templates in the styles of common systems, filled at random."""

# ruff: noqa: E501 - a template is a line

from __future__ import annotations

import random
from collections.abc import Callable

_FIRST = """
ann bob carla dmitri eve farid grace hiro ida jonas kofi lena mateo noor olga priya quinn rosa sven
tariq uma viktor wen yara zoe
""".split()  # noqa: SIM905 - a list of words
_SERVICES = """
billing orders inventory payments search mailer auth gateway catalog ledger shipping pricing
""".split()  # noqa: SIM905 - a list of words
_HOSTS = """
alpha bravo charlie delta echo foxtrot golf hotel india juliet
""".split()  # noqa: SIM905 - a list of words
_CLASSES = """
OrderHandler CartService UserRepository PriceCalculator InvoiceJob MailSender TokenStore
StockMonitor
""".split()  # noqa: SIM905 - a list of words
_WORDS = """
amber birch cedar dune ember frost glade harbor island jungle knoll lagoon meadow nectar orchid
prairie quartz river summit tundra
""".split()  # noqa: SIM905 - a list of words
_HEX = "0123456789abcdef"


def _hex(rng: random.Random, digits: int) -> str:
    return "".join(rng.choices(_HEX, k=digits))


FIELDS: dict[str, Callable[[random.Random], str]] = {
    "user": lambda r: r.choice(_FIRST),
    "service": lambda r: r.choice(_SERVICES),
    "host": lambda r: (
        f"{r.choice(_HOSTS)}-{r.randrange(40)}.{r.choice(_WORDS)}.example.net"
    ),
    "node": lambda r: f"R{r.randrange(64):02d}-M{r.randrange(2)}-N{r.randrange(16)}",
    "ip": lambda r: ".".join(str(r.randrange(1, 255)) for _ in range(4)),
    "port": lambda r: str(r.randrange(1024, 65_535)),
    "n": lambda r: str(r.randrange(10 ** r.randrange(1, 7))),
    "f": lambda r: f"{r.random() * 1000:.{r.randrange(1, 5)}f}",
    "ms": lambda r: r.choice(["{} ms", "{}ms"]).format(r.randrange(1, 90_000)),
    "id": lambda r: r.choice(["ord", "cus", "inv", "evt"]) + "_" + _hex(r, 14),
    "block": lambda r: f"blk_{r.choice(['', '-'])}{r.randrange(10**18)}",
    "uuid": lambda r: (
        f"{_hex(r, 8)}-{_hex(r, 4)}-{_hex(r, 4)}-{_hex(r, 4)}-{_hex(r, 12)}"
    ),
    "hex": lambda r: "0x" + _hex(r, r.randrange(2, 16)),
    "sha": lambda r: _hex(r, 40),
    "path": lambda r: (
        "/"
        + "/".join(r.choices(_WORDS, k=r.randrange(2, 5)))
        + r.choice(["", ".log", ".dat", f".{r.randrange(99)}"])
    ),
    "url": lambda r: (
        f"https://{r.choice(_SERVICES)}.example.com/v{r.randrange(1, 4)}/{r.choice(_WORDS)}/{r.randrange(10_000)}"
    ),
    "email": lambda r: f"{r.choice(_FIRST)}.{r.choice(_WORDS)}@example.com",
    "class": lambda r: r.choice(_CLASSES),
    "word": lambda r: r.choice(_WORDS),
    "table": lambda r: (
        r.choice(_WORDS) + "_" + r.choice(["items", "log", "state", "history"])
    ),
    "time": lambda r: (
        f"2026-{r.randrange(1, 13):02d}-{r.randrange(1, 29):02d} {r.randrange(24):02d}:{r.randrange(60):02d}:{r.randrange(60):02d}"
    ),
    "clock": lambda r: (
        f"{r.randrange(24):02d}:{r.randrange(60):02d}:{r.randrange(60):02d}.{r.randrange(1000):03d}"
    ),
    "size": lambda r: f"{r.randrange(1, 900)}{r.choice(['KB', 'MB', 'GB', ' MB'])}",
}

# A line a template. What is not in braces is what makes it one kind of failure.
TEMPLATES = """
Receiving block {block} src: /{ip}:{port} dest: /{ip}:{port}
PacketResponder {n} for block {block} terminating
Received block {block} of size {n} from /{ip}
Verification succeeded for {block}
Deleting block {block} file {path}
Got exception while serving {block} to /{ip}: java.io.IOException: Connection reset by peer
writeBlock {block} received exception java.io.IOException: Could not read from stream
BLOCK* NameSystem.allocateBlock: {path}. {block}
BLOCK* NameSystem.delete: {block} is added to invalidSet of {ip}:{port}
BLOCK* ask {ip}:{port} to replicate {block} to datanode(s) {ip}:{port}
Failed password for {user} from {ip} port {port} ssh2
Failed password for invalid user {user} from {ip} port {port} ssh2
Accepted publickey for {user} from {ip} port {port} ssh2: RSA SHA256:{sha}
Connection closed by {ip} [preauth]
Received disconnect from {ip}: 11: Bye Bye [preauth]
Invalid user {user} from {ip}
reverse mapping checking getaddrinfo for {host} [{ip}] failed - POSSIBLE BREAK-IN ATTEMPT!
session opened for user {user} by (uid={n})
session closed for user {user}
authentication failure; logname= uid={n} euid={n} tty=ssh ruser= rhost={ip} user={user}
jk2_init() Found child {n} in scoreboard slot {n}
workerEnv.init() ok {path}
mod_jk child workerEnv in error state {n}
[client {ip}] Directory index forbidden by rule: {path}
[client {ip}] File does not exist: {path}
instruction cache parity error corrected
data TLB error interrupt
{n} double-hummer alignment exceptions
generating core.{n}
ciod: failed to read message prefix on control stream (CioStream socket to {ip}:{port}
ciod: Error loading {path}: invalid or missing program image, No such file or directory
{n} L3 EDRAM error(s) (dcr 0x0157) detected and corrected over {n} seconds
CE sym {n}, at {hex}, mask {hex}
machine check interrupt (bit={hex}): L2 dcache unit data parity error
Link error on broadcast tree Interconnect-{n}T{n}:{n}:{n}
Node card status: no ALERTs are active. Clock Mode is {word}. node {node}
ServerFileSystem domain storage{n} is full
boot (command {n}) Error: unable to start node {node}
Lost task {n}.0 in stage {n}.0 (TID {n}, {host}, executor {n}): ExecutorLostFailure
Lost executor {n} on {host}: Remote RPC client disassociated
Block rdd_{n}_{n} stored as values in memory (estimated size {size}, free {size})
Finished task {n}.0 in stage {n}.0 (TID {n}). {n} bytes result sent to driver
Executor is trying to kill task {n}.0 in stage {n}.0 (TID {n})
Removed broadcast_{n}_piece{n} on {host}:{port} in memory (size: {size}, free: {size})
Container container_{n}_{n}_01_{n} transitioned from RUNNING to KILLED
Progress of TaskAttempt attempt_{n}_{n}_m_{n}_0 is : {f}
Address change detected. Old: {host}/{ip}:{port} New: {host}:{port}
Failed to renew lease for [DFSClient_NONMAPREDUCE_{n}_1] for {n} seconds. Will retry shortly ...
Error Recovery for block {block} in pipeline {ip}:{port}: bad datanode {ip}:{port}
Connection broken for id {n}, my id = {n}, error =
Notification time out: {n}
Received connection request /{ip}:{port}
Closed socket connection for client /{ip}:{port} which had sessionid {hex}
Expiring session {hex}, timeout of {n}ms exceeded
Cannot open channel to {n} at election address /{ip}:{port}
Send worker leaving thread
Interrupting SendWorker
caught end of stream exception
[instance: {uuid}] Took {f} seconds to spawn the instance on the hypervisor.
[instance: {uuid}] VM Stopped (Lifecycle Event)
[instance: {uuid}] Instance destroyed successfully.
Active base files: {path}
Unknown base file: {path}
{ip} "GET {path} HTTP/1.1" status: 200 len: {n} time: {f}
{ip} "POST {path} HTTP/1.1" status: 500 len: {n} time: {f}
HTTP exception thrown: No instances found for any event
{host}:{port} open through proxy {host}:{port} HTTPS
{host}:{port} close, {n} bytes sent, {n} bytes received, lifetime {clock}
{host}:{port} error : Could not connect through proxy {host}:{port} - Proxy server cannot establish a connection with the target, status code 403
{host}:{port} error : Could not connect through proxy {host}:{port} - Proxy server cannot establish a connection with the target, status code 503
CBS Loaded Servicing Stack v{n}.{n}.{n}.{n} with Core: {path}
CBS Failed to internally open package. [HRESULT = 0x800f0805 - CBS_E_INVALID_PACKAGE]
CBS Session: {n}_{n} initialized by client WindowsUpdateAgent.
ThreadManager: terminating {n} pooled threads, name={word}
acquire lock={n}, flags=0x1, tag="{word} Lock", name=android, ws=null, uid={n}, pid={n}
release:lock={n}, flg={hex}, tag="{word} Lock", name=android, ws=null, uid={n}, pid={n}
onStandStepChanged {n}
calculateCaloriesWithCache totalCalories={n}
checkInsertStatus stepStatSum or calorieStatSum is enough: totalSteps = {n}
getTodayTotalDetailSteps = {n}##{n}##{n}##{n}##{n}
ARPT: {f}: AirPort_Brcm43xx::powerChange: System Sleep
en0: Received EAPOL packet (length = {n})
Sandbox: {service}({n}) deny(1) mach-lookup com.apple.coresymbolicationd
Bluetooth -- LE is supported - Disable LE meta event
kernel: imklog {n}.{n}.{n}, log source = {path} started.
Out of memory: Killed process {n} ({service}) total-vm:{n}kB, anon-rss:{n}kB
segfault at {hex} ip {hex} sp {hex} error 4 in libc-2.31.so[{hex}+{hex}]
crond({n}): (root) CMD ({path})
check pass; user unknown
connection from {ip} ({host}) at {time}
ANONYMOUS FTP LOGIN FROM {ip}, (anonymous)
ntpd: synchronized to {ip}, stratum 3
connect ECONNREFUSED {ip}:{port}
connect ETIMEDOUT {ip}:{port}
getaddrinfo ENOTFOUND {host}
read ECONNRESET
socket hang up
Request failed with status code 500
Request failed with status code 502
Request failed with status code 429
timeout of {n}ms exceeded
Cannot read properties of undefined (reading 'id')
Cannot read properties of null (reading 'map')
Unexpected token < in JSON at position {n}
{word} is not defined in {class}.run at {clock}
Maximum call stack size exceeded
order {id} not found for customer {id}
customer {user} has no valid payment method on file
payment {id} declined: insufficient funds
payment {id} declined: card expired
payment {id} declined: do not honor
tenant {word} exceeded its quota of {n} requests a minute
rate limit reached for organization {word}: {n} tokens per min
could not obtain lock on row in relation "{table}"
duplicate key value violates unique constraint "{table}_pkey"
deadlock detected: process {n} waits for ShareLock on transaction {n}; blocked by process {n}
canceling statement due to statement timeout after {ms}
remaining connection slots are reserved for non-replication superuser connections
FATAL: password authentication failed for user "{user}"
FATAL: database "{table}" does not exist
relation "{table}" does not exist at character {n}
ORA-00060: deadlock detected while waiting for resource
ORA-00942: table or view does not exist
ORA-01555: snapshot too old: rollback segment number {n} with name "_SYSSMU{n}$" too small
Lock wait timeout exceeded; try restarting transaction
Too many connections from {ip}
MongoNetworkError: connection {n} to {ip}:{port} closed
E11000 duplicate key error collection: {service}.{table} index: email_1 dup key: {{ email: "{email}" }}
MOVED {n} {ip}:{port}
OOM command not allowed when used memory > 'maxmemory'.
READONLY You can't write against a read only replica.
Message {uuid} could not be delivered to {url}: 500 Internal Server Error
Message {uuid} could not be delivered to {url}: 404 Not Found
delivery to {email} failed: mailbox unavailable
delivery to {email} failed: greylisted, try again in {n} seconds
certificate has expired for {host}
unable to verify the first certificate of {host}
JWT expired at {time}. Current time: {time}, a difference of {n} milliseconds.
token for {email} was revoked at {time}
invalid api key provided: {sha}
webhook signature for event {id} does not match
validation failed for field '{word}': expected a string, got {n}
missing required property '{word}' in request {uuid}
schema version {n} of topic {table} is not compatible with reader version {n}
consumer group {service} lost partition {n} of topic {table}
Offset {n} is out of range for partition {table}-{n}
exited with code 137 after {ms}
exited with code 1 after {ms}
pod {service}-{hex} evicted: node {host} had memory pressure
Back-off restarting failed container {service} in pod {service}-{hex}
Failed to pull image "{service}:{n}": rpc error: code = NotFound
Liveness probe failed: HTTP probe failed with statuscode: 503
no space left on device: {path}
permission denied: {path}
too many open files: {path}
feature flag {word} has no variant for user {user}
job {id} of {class} retried {n} times, giving up after {ms}
upload of {path} ({size}) aborted by client {ip}
cache miss ratio {f} above threshold on {host}
disk {path} is {n}% full
worker {n} ({service}) did not send a heartbeat for {f} s
image {path} is corrupt: expected {n} bytes, got {n}
invoice {id} of {user} is locked by {user} since {time}
cannot convert currency {word} for region {word}
model {word} returned {n} tokens, limit is {n}
vector dimension {n} does not match index dimension {n}
""".strip().splitlines()


def log_lines(count: int, *, seed: int = 0) -> tuple[list[str], list[int]]:
    """Lines and their labels: frequent and rare templates as in real logs (Zipf's law)."""
    rng = random.Random(seed)
    order = list(range(len(TEMPLATES)))
    rng.shuffle(order)
    weights = [1 / (rank + 1) for rank in range(len(order))]
    labels = [order[rank] for rank in rng.choices(range(len(order)), weights, k=count)]
    return [fill(TEMPLATES[label], rng) for label in labels], labels


def fill(template: str, rng: random.Random) -> str:
    """One line of a template."""
    parts = template.replace("{{", "\x01").replace("}}", "\x02").split("{")
    line = parts[0]
    for part in parts[1:]:
        name, rest = part.split("}", 1)
        line += FIELDS[name](rng) + rest
    return line.replace("\x01", "{").replace("\x02", "}")
