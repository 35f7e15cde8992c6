"""Labelled lines in the shapes of 16 kinds of system logs: our own templates, filled at random.

Values are frequent or rare as in real logs, are words, lists and phrases as well as numbers, and some kinds of
lines occur once or twice only.
"""

# ruff: noqa: E501 - a template is a line

from __future__ import annotations

import random
from collections.abc import Callable

from tests.accuracy.log_lines import FIELDS, fill

_STEMS = """
agate basil cobalt dorado elm fennel garnet hazel indigo jasper kelp larch maple nutmeg opal pewter
quill rowan sorrel topaz umber violet willow yarrow zinnia
""".split()  # noqa: SIM905 - a list of words
_USERS = """
root admin deploy guest backup carla sven yara nils petra omar
""".split()  # noqa: SIM905 - a list of words
_UNITS = """
Battery Screen Sensor Wallet Camera Keyboard Volume Radio Locale Alarm Dock Sound Notes Mailer
""".split()  # noqa: SIM905 - a list of words


def _zipf(rng: random.Random, values: list[str]) -> str:
    return rng.choices(values, [1 / (place + 1) for place in range(len(values))])[0]


def _stem(rng: random.Random) -> str:
    return rng.choice(_STEMS)


def _package(rng: random.Random) -> str:
    return f"com.{_stem(rng)}.{_stem(rng)}" + rng.choice(
        ["", f".{_stem(rng)}", f"/.{rng.choice(_UNITS)}Service"]
    )


def _list(rng: random.Random, made: Callable[[random.Random], str], most: int) -> str:
    return "[" + ", ".join(made(rng) for _ in range(rng.randrange(1, most))) + "]"


_MORE: dict[str, Callable[[random.Random], str]] = {
    "who": lambda r: _zipf(r, _USERS),
    "stem": _stem,
    "unit": lambda r: r.choice(_UNITS),
    "package": _package,
    "type": lambda r: f"{_stem(r).title()}{r.choice(_UNITS)}" + r.choice(["Manager", "Task", "Listener"]),
    "long": lambda r: str(r.randrange(10**11, 10**13)),
    "small": lambda r: str(r.randrange(1, 9)),
    "words": lambda r: _list(r, _stem, 5),
    "numbers": lambda r: _list(r, lambda one: str(one.randrange(400)), 6),
    "hosts": lambda r: _list(r, lambda one: f"{_stem(one)}-{one.randrange(30)}:{one.randrange(2000, 9999)}", 5),
    "life": lambda r: r.choice(["<1 sec", f"{r.randrange(60):02d}:{r.randrange(60):02d}", f"{r.randrange(1, 9)}:{r.randrange(60):02d}:{r.randrange(60):02d}"]),
    "span": lambda r: r.choice([f"{r.randrange(1, 90)} days, {r.randrange(24)}:{r.randrange(60):02d}", f"{r.randrange(24)}:{r.randrange(60):02d}"]),
    "transfer": lambda r: r.choice([f"{r.randrange(1024)} bytes", f"{r.randrange(1024, 9**7)} bytes ({r.random() * 900:.2f} KB)", f"{r.randrange(9**7, 9**9)} bytes ({r.random() * 90:.2f} MB)"]),
    "command": lambda r: r.choice([f"/usr/sbin/{_stem(r)}", f"/opt/{_stem(r)}/bin/{_stem(r)} -q {_stem(r)}", f"run-all /etc/{_stem(r)}.d", f"cd /var/{_stem(r)} && ./{_stem(r)} > /dev/null 2>&1"]),
    "rack": lambda r: f"R{r.randrange(64):02d}-M{r.randrange(2)}-N{r.randrange(16)}-C:J{r.randrange(18):02d}-U{r.randrange(90):02d}",
    "registers": lambda r: " ".join(f"0x{r.randrange(16**8):08x}" for _ in range(4)),
    "bare": lambda r: f"{r.randrange(16**8):08x}",
    "device": lambda r: r.choice(["eth0", "eth1", "bond0", "sda", "sdb1", "tun"]),
    "job": lambda r: f"job_{r.randrange(10**12, 10**13)}_{r.randrange(10**4):04d}",
    "title": lambda r: " ".join(r.choices(_STEMS, k=r.randrange(1, 4))),
    "quoted": lambda r: f'"{" ".join(r.choices(_STEMS, k=r.randrange(1, 4)))}"',
    "flag": lambda r: r.choice(["true", "false"]),
    "shared": lambda r: f"lib{_stem(r)}.so.{r.randrange(9)}",
    "date": lambda r: r.choice(["Mon", "Tue", "Fri"]) + f" Jun {r.randrange(1, 29)} {r.randrange(24):02d}:{r.randrange(60):02d}:{r.randrange(60):02d} 2026",
    "xml": lambda r: f"Foundation-{r.choice(['Core', 'Client', 'Print'])}-Package~{r.randrange(16**8):08x}~amd64~~{r.randrange(10)}.{r.randrange(10)}.{r.randrange(9000)}.{r.randrange(9999)}",
    "ratio": lambda r: f"{r.random():.6f}",
    "hashes": lambda r: "##".join(str(r.randrange(10**6)) for _ in range(5)),
}  # fmt: skip
FIELDS.update(_MORE)

SYSTEMS: dict[str, str] = {
    "file store": """
Adding block {block} to pool {small} on {path}
Served block {block} to /{ip}
{ip}:{port} Served block {block} to /{ip}
{ip}:{port}:Got exception while sending {block} to /{ip}:{port}:
PipelineAck {small} for block {block} closing
Received copy {block} of size {n} from /{ip} and mirrored to /{ip}:{port}
NAMES* Registry.addStored: blockMap updated: {ip}:{port} is added to {block} size {n}
NAMES* Registry.remove: {block} is added to stale set of {ip}:{port}
NAMES* ask {ip}:{port} to copy {block} to datanode(s) {ip}:{port} {ip}:{port}
Verification of {block} succeeded
Changing block file offset of block {block} from {n} to {n} meta file offset to {n}
Starting thread to move block {block} to {ip}:{port}, {ip}:{port}
""",
    "map and reduce": """
Task {job}_m_{n}_0 is done and is in the process of committing
Progress of attempt {job}_m_{n}_{small} is : {ratio}
{job} Job Transitioned from INIT to SETUP
{job} Job Transitioned from SETUP to RUNNING
Assigned container container_{n}_{n}_01_{n} to {job}_m_{n}_0
Recalculating schedule, headroom=<memory:{n}, vCores:{small}>
After Scheduling: PendingReds:{n} ScheduledMaps:{n} AssignedMaps:{n} CompletedReds:{n} HostLocal:{n} RackLocal:{n}
Resolved {stem}-{n}.rack.example.org to /default-rack
Address change detected. Old: {stem}/{ip}:{port} New: {stem}:{port}
Retrying connect to server: {stem}/{ip}:{port}. Already tried {small} time(s); retry policy is Fixed(maxRetries={small}, sleep={n} MILLISECONDS)
Using callQueue class {package}
Registering class {package}$EventType for class {package}$Dispatcher
Loaded properties from {stem}-metrics2.properties
maxContainerCapability: <memory:{n}, vCores:{small}>
Communication exception: java.net.NoRouteToHost: No route from {stem}/{ip} to {stem}:{port} failed on socket timeout
Instantiated {type} at {path}
queue: {stem}
ERROR IN CONTACTING the manager.
Launching {job}_r_{n}_1 on {stem}-{n}:{port}
""",
    "cluster computing": """
Running task {n}.0 in stage {n}.0 (TID {n})
Finished task {n}.{small} in stage {n}.0 (TID {n}). {n} bytes result sent to driver
Block broadcast_{n} stored as values in memory (estimated size {size}, free {size})
Block broadcast_{n}_piece{small} stored as bytes in memory (estimated size {size}, free {size})
Found block rdd_{n}_{n} locally
Getting {n} non-empty blocks out of {n} blocks
Started {n} remote fetches in {ms}
Input split: {url}:{n}+{n}
Changing view acls to: {who},{stem}
Partition rdd_{n}_{n} not found, computing it
Times: total = {n}, boot = -{n}, init = {n}, finish = {n}
Told master about block broadcast_{n}
Saved output of task 'attempt_{n}_{n}_m_{n}_{n}' to {url}
mapred.{stem}.id is deprecated. Instead, use mapreduce.{stem}.{stem}.id
Successfully started service '{unit}' on port {port}.
Starting executor ID {n} on host {stem}-{n}.example.net
""",
    "coordination": """
Received connection request /{ip}:{port}
Cannot open channel to {small} at election address {stem}{small}/{ip}:{port}
Accepted socket connection from /{ip}:{port}
Established session {hex} with negotiated timeout {n} for client /{ip}:{port}
Closed socket connection for client /{ip}:{port} (no session established for client)
Closed socket connection for client /{ip}:{port} which had sessionid {hex}
Notification: {small} (n.leader), {hex} (n.zxid), {hex} (n.round), LOOKING (n.state), {small} (n.sid), {hex} (n.peerEPoch), LOOKING (my state)
Notification: {small} (n.leader), {hex} (n.zxid), {hex} (n.round), FOLLOWING (n.state), {small} (n.sid), {hex} (n.peerEPoch), LOOKING (my state)
Connection broken for id {long}, my id = {small}, error =
Server environment:host.name={stem}{small}
Unexpected Exception:
Snapshotting: {hex} to {path}
FOLLOWING - LEADER ELECTION TOOK - {n}
Exception causing close of session {hex} due to java.io.IOException: Server not running
tickTime set to {n}
Have smaller server identifier, so dropping the connection: ({small}, {small})
Got user-level Exception when processing sessionid:{hex} type:create cxid:{hex} zxid:{hex} txntype:-1 reqpath:n/a Error Path:{path} Error:NodeExists for {path}
""",
    "cloud compute": """
[instance: {uuid}] VM Started (Lifecycle Event)
[instance: {uuid}] Creating image
[instance: {uuid}] During sync, the instance has a pending task (spawning). Skip.
[instance: {uuid}] Total memory: {n} MB, used: {f} MB
[instance: {uuid}] disk limit not specified, defaulting to unlimited
[instance: {uuid}] Took {f} seconds to build instance.
[req-{uuid} {sha} {sha} - - -] {ip} "GET /v2/{sha}/servers/detail HTTP/1.1" status: 200 len: {n} time: {ratio}
[req-{uuid} {sha} {sha} - - -] {ip} "POST /v2/{sha}/os-events HTTP/1.1" status: 200 len: {n} time: {ratio}
[req-{uuid} {sha} {sha} - - -] {ip} "DELETE /v2/{sha}/servers/{uuid} HTTP/1.1" status: 204 len: {n} time: {ratio}
image {uuid} at ({path}): checking
image {uuid} at ({path}): in use: on this node {small} local, {small} on other nodes sharing this storage
Removable base files: {path} {path}
Running instance usage audit for host {stem}-{n}.example.net from {time} to {time}. {n} instances.
Auditing locally available compute resources for node {stem}-{n}.example.net
Final resource view: name={stem}-{n}.example.net phys_ram={n}MB used_ram={n}MB phys_disk={n}GB used_disk={n}GB total_vcpus={n} used_vcpus={n} pci_stats=[]
Successfully synced instances from host '{stem}-{n}'.
HTTP exception thrown: No instances found for any event
Creating event network-vif-plugged:{uuid} for instance {uuid}
""",
    "supercomputer": """
instruction cache parity error corrected
{n} ddr errors(s) detected and corrected on rank {small}, symbol {n}, bit {small}
generating dump.{n}
{n} floating point alignment exceptions
iod: Error reading message prefix on CioStream socket to {ip}:{port}, Link has been severed
iod: Error loading {path}: invalid or missing program image, Permission denied
iod: failed to read message prefix on control stream (CioStream socket to {ip}:{port}
program interrupt: illegal instruction......{small}
rts: kernel terminated for reason {n}
data address space................{small}
lr:{bare} cr:{bare} xer:{bare} ctr:{bare}
r{n}={hex} r{n}={hex} r{n}={hex} r{n}={hex}
iar {bare} dear {bare}
MidplaneSwitch: controller connected, port {port}
Node card VPD check: missing {rack} node, VPD ecid {sha}
PrepareForService shutting down Node card(mLctn({rack}), mCardSernum({sha}), mLp({ip}), mIp({ip}), mType({small}))
NodeCard is not fully functional ({rack})
critical input interrupt (unit={hex} bit={hex}): warning for torus {unit} wire, suppressing further interrupts of same type
total of {n} ddr error(s) detected and corrected over {n} seconds
exited abnormally, {rack} on signal 9
""",
    "computing centre": """
boot (command {n}) Error: power/control problem on {stem}-D{n}
Link error on broadcast tree Interconnect-{small}T{n}:{n}:{n}
Link ok on node {stem}-{n}
Temperature ({n}C) exceeds warning threshold
Fan speeds ( {n} {n} {n} {n} {n} {n} )
ServerFileSystem: An ServerFileSystem domain panic has occurred on {stem}_domain
ServerFileSystem: ServerFileSystem domain {stem}{small}_domain is full
Targeting domains:node-D{small} and nodes:node-[{n}-{n}] child of command {n}
PSU status ( on on )
PSU status ( off on )
network (command {n}) Error: {stem}-{n} is not responding
Component State Change: Component \042alt{small}\042 is in the unavailable state (HWID={n})
critical: temperature of {stem}-{n} is at {n}
NIFF: node node-{n} detected a failed network connection on network {ip} via interface {device}
ambient={n}
""",
    "cluster nodes": """
session opened for user {who} by (uid={n})
session closed for user {who}
({who}) CMD ({command})
connect from {ip}
Accepted publickey for {who} from ::ffff:{ip} port {port} ssh2
data_thread() got not answer from any [{unit} {title}] datasource
Warning: received processor context message from {stem}-{n}
{device}: link up, {n} Mbps, full-duplex
{device}: no IPv6 routers present
synchronized to {ip}, stratum {small}
ib_sm.x[{n}]: [{long}]: ** status is {hex}
to=<{email}>, relay={stem}.example.com., [{ip}], delay={clock}, stat=Sent ({id} Message accepted for delivery)
from={who}, size={n}, class=0, nrcpts={small}, msgid=<{id}@{stem}{n}.example.net>, relay={who}@localhost
DHCPDISCOVER from {bare} via {device}: network {ip}: no free leases
DHCPREQUEST for {ip} from {bare} via {device}
imjournal: begin to drop messages due to rate-limiting
read from {stem}-{n}: Connection reset by peer
Losing some ticks... checking if CPU frequency changed.
{stem}-{n}.example.org refused connection from {ip}:{port}
""",
    "desktop system, servicing": """
Loaded Servicing Stack v{n}.{n}.{n}.{n} with Core: {path}
Read out cached package applicability for package: {xml}, ApplicableState: {n}, CurrentState:{n}
Session: {n}_{n} initialized by client {type}.
Failed to internally open package. [HRESULT = 0x800f0805 - CBS_E_INVALID_PACKAGE]
Warning: Unrecognized packageExtended attribute.
Expecting attribute name [HRESULT = 0x800f080d - CBS_E_MANIFEST_INVALID_ITEM]
{bare}@{time} CSI Transaction @{hex} initialized for deployment engine {n} with flags {bare} and client id [{n}]{quoted}/
{bare} Created NT transaction (seq {small}) result {hex}, handle @{hex}
SQM: Requesting upload of all unsent reports.
SQM: Failed to start upload with file pattern: {path}, flags: {hex} [HRESULT = 0x80004005 - E_FAIL]
Startup processing thread terminated normally
TrustedInstaller service starts successfully.
{bare} ICSITransaction::Commit calling IStorePendingTransaction::Apply - coldpatching={flag} applyflags={n}
NonStart: Checking to ensure startup processing was not required.
Idle processing thread terminated normally
Scavenge: Starts
Offline image is: {flag}
""",
    "server system": """
authentication failure; logname= uid={n} euid={n} tty=NODEVssh ruser= rhost={ip}
authentication failure; logname= uid={n} euid={n} tty=NODEVssh ruser= rhost={host}  user={who}
session opened for user {who} by (uid={n})
session closed for user {who}
connection from {ip} ({host}) at {date}
connection from {ip} () at {date}
check pass; user unknown
Kerberos authentication failed
{stem} startup succeeded
{stem} shutdown failed
ALERT exited abnormally with [1]
alert: {stem} is back
Found a bad {unit} cable on {device}
cpu {small}: machine check {bare}
Out of Memory: Killed process {n} ({stem}).
klogd {n}.{n}.{n}, log source = {path} started.
Linux version {n}.{n}.{n}-{n} ({who}@{stem}.example.com) #1 {date}
ROOT LOGIN ON tty{small}
{device}: {n} sectors ({n} MB), CHS={n}/{n}/{n}
ANONYMOUS FTP LOGIN FROM {ip}, {email}
usb.c: registered new driver {stem}
could not open {path}: errno = 13
""",
    "laptop": """
ARPT: {f}: wl0: Roamed or switched channel, reason #{small}, bssid {stem}, last RSSI -{n}
en0: channel changed to {n}
AirPort: Link Down on awdl0. Reason {small} ({title}).
{unit} is not responding to {stem} since {span}
PM response took {n} ms ({n}, {stem})
IOThunderboltSwitch<{small}>({hex})::listenerCallback - Thunderbolt HPD packet for route = {hex} port = {n} unplug = {small}
Sandbox: {stem}({n}) deny(1) file-read-data {path}
Previous sleep cause: {small}
Could not find uuid for {package} in {numbers}
dnssd_clientstub ConnectToServer: connect()-> No of tries: {small}
tcp_connection_tls_session_error_callback_imp {n} __tcp_connection_tls_session_callback_write_block_invoke.{n} error {n}
{package}: wakeup time is {n} secs, last {unit} wake {span}
[{time}] <{unit}>: service {package} of {who} ended with reason {quoted}
Unexpected payload found for message {n}, dataLen {n}
objc[{n}]: Class {type} is implemented in both {path} and {path}. One of the two will be used. Which one is undefined.
no observer callback for {package}
assertion failed: {bare}: {shared} + {n} [{uuid}]: {hex}
full wake promotion (reason {small}) {n} ms
""",
    "phone": """
acquire lock={n}, flags={hex}, tag="{unit} {stem}", name={package}, ws=null, uid={n}, pid={n}
release:lock={n}, flg={hex}, tag="{unit} {stem}", name={package}, ws=WorkSource{{ {n} }}, uid={n}, pid={n}
setSystemUiVisibility vis={bare} mask={bare} oldVal={bare} newVal={bare} diff={bare} fullscreenStackVis={n} dockedStackVis={n}, fullscreenStackBounds=Rect(0, 0 - {n}, {n}), dockedStackBounds=Rect({n}, {n} - {n}, {n})
visible is {package}
Skipping AppWindowToken{{ {bare} token=Token{{ {bare} ActivityRecord{{ {bare} u0 {package} t{n} }} }} }} -- going to hide
startAnimation begin
onKeyDown key {n} from {type}
getRunningAppProcesses: caller {n} does not hold REAL_GET_TASKS; limiting output
overlay: {title} hidden by {package}
cancelNotification: package {package}, id {n}, tag {stem}
printFreezingDisplayLogsopening app wtoken = AppWindowToken{{ {bare} token=Token{{ {bare} }} }}, allDrawn= {flag}, startingDisplayed = {flag}, startingMoved = {flag}, isRelaunching = {flag}
applyOptionsLocked: Unknown animationType={small}
handleMessage: what {small} obj {package} when {long}
userActivityNoUpdateLocked: eventTime={n}, event={small}, flags={hex}, uid={n}
mVisibility.getValue() is {flag}
ready={flag},policy={small},wakefulness={small},wksummary={hex},uasummary={hex},bootcompleted={flag},boostinprogress={flag},waitmodeenable={flag},mode={flag},manual={n},auto={n},adj={ratio} userId={n}
interceptKeyTi keyCode={n} down={flag} repeatCount={small} keyguardOn={flag} canceled={flag}
""",
    "health app": """
onStepsCounted {n}
onExtend:{long} {n} {n} {n}
getDaySteps = {long}##{hashes}
setDayTotalSteps={long}##{hashes}
REPORT : {n} {n} {n} {n}
flush sensor data
totalCalories={n}
needRefresh {flag}
screen status unknown,think screen on
upLoadOneMinute lastSteps = {n} totalSteps = {n}
saveHealthDetailData() deviceID = {small}, startTime = {long}, endTime={long}, type = {n}, values = {words}
processHandleBroadcastAction action:{package}.TIME_TICK
reportOne: type:{stem}, count:{n}, session:{hex}
sendSyncFailedBroadcast
{type} onCreate() user={n}
uploadStaticsToDB() onResult type = {small} obj={flag}
""",
    "web server": """
[client {ip}] File does not exist: {path}
[client {ip}] Directory index forbidden by rule: {path}
[client {ip}] request failed: error reading the headers
[client {ip}] script not found or unable to stat: {path}
Env.init() ok {path}
worker_child Env in error state {small}
Found child {n} in scoreboard slot {n}
Can't find child {n} in scoreboard
caught SIGTERM, shutting down
Digest: generating secret for digest authentication ...
Could not create worker of class {type} with config {path}
""",
    "remote shell": """
Failed password for {who} from {ip} port {port} ssh2
Failed password for invalid user {who} from {ip} port {port} ssh2
Accepted password for {who} from {ip} port {port} ssh2
Invalid user {who} from {ip}
input_userauth_request: invalid user {who} [preauth]
pam_unix(sshd:auth): check pass; user unknown
pam_unix(sshd:auth): authentication failure; logname= uid={n} euid={n} tty=ssh ruser= rhost={ip}
pam_unix(sshd:auth): authentication failure; logname= uid={n} euid={n} tty=ssh ruser= rhost={ip}  user={who}
pam_unix(sshd:session): session opened for user {who} by (uid={n})
PAM {small} more authentication failures; logname= uid=0 euid=0 tty=ssh ruser= rhost={ip}
Received disconnect from {ip}: {n}: Bye Bye [preauth]
Received disconnect from {ip}: {n}: disconnected by user
Too many authentication failures for {who} [preauth]
message repeated {small} times: [ Failed password for {who} from {ip} port {port} ssh2]
Did not receive identification string from {ip}
Address {ip} maps to {host}, but this does not map back to the address - POSSIBLE BREAK-IN ATTEMPT!
Bad protocol version identification '{stem}' from {ip} port {port}
error: Received disconnect from {ip}: {n}: org.example.ssh.SSHException: Auth fail [preauth]
fatal: Write failed: Connection reset by peer [preauth]
""",
    "proxy client": """
{host}:{port} open through proxy {host}:{port} HTTPS
{host}:{port} close, {transfer} sent, {transfer} received, lifetime {life}
{host}:{port} error : Could not connect through proxy {host}:{port} - Proxy closed the connection unexpectedly.
{host}:{port} error : Could not connect to proxy {host}:{port} - connection attempt failed with error {n}
{stem}.exe *64 - {host}:{port} close, {transfer} sent, {transfer} received, lifetime {life}
open through proxy {host}:{port} SOCKS5
proxy {host}:{port} is not available, switching to {host}:{port}
""",
}


def system_log(
    name: str, count: int = 2000, *, seed: int = 0
) -> tuple[list[str], list[int]]:
    """Lines of one kind of system and their labels, by Zipf's law, each label at least once."""
    rng = random.Random(f"{name} {seed}")
    templates = SYSTEMS[name].strip().splitlines()
    order = rng.sample(range(len(templates)), len(templates))
    weights = [1 / (rank + 1) ** 1.5 for rank in range(len(order))]
    labels = [*order, *rng.choices(order, weights, k=count - len(order))]
    rng.shuffle(labels)
    return [fill(templates[label], rng) for label in labels], labels
