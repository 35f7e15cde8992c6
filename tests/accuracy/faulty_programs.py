"""Real stack traces: faulty programs, run in many variations that a signature has to see through."""

# ruff: noqa: E501 - a program is a line

from __future__ import annotations

import json
import random
import subprocess
import traceback
from pathlib import Path

# One failure each. `%s` is an id that differs from run to run.
PYTHON = {
    "total": "return 100 / len([])",
    "load_order": "return {'a': 1}['order']",
    "load_user": "return {'a': 1}['user']",
    "first_item": "return [][0]",
    "parse_price": "return int('12,50 %s')",
    "parse_rate": "return float('n/a')",
    "read_config": "return open('/nonexistent/%s.toml')",
    "send_mail": "raise ConnectionRefusedError(111, 'Connection refused to mail-%s')",
    "charge": "raise PaymentError('card declined for customer cus_%s')",
    "refund": "raise PaymentError('no charge to refund for ord_%s')",
    "validate": "raise ValueError('quantity must be positive, got -%s')",
    "check_stock": "raise LookupError('item %s is out of stock')",
    "decode": "return bytes([255, 254]).decode()",
    "attribute": "return None.total",
    "call_none": "handler = None; return handler()",
    "add_types": "return 'x' + 1",
    "sort_mixed": "return sorted([1, 'a'])",
    "unpack": "a, b = (1, 2, 3)",
    "missing_name": "return undefined_variable",
    "wrong_arguments": "return len(1, 2)",
    "assert_paid": "assert False, 'order %s is not paid'",
    "json_body": "import json; return json.loads('{\"a\": ')",
    "date": "import datetime; return datetime.date(2026, 13, 1)",
    "regex": "import re; return re.compile('(')",
    "import_missing": "import no_such_module_here",
    "timeout": "raise TimeoutError('no response from inventory after %s ms')",
    "permission": "raise PermissionError(13, 'Permission denied', '/data/%s')",
    "recursion": "return recursion(n + 1)",
    "stop": "return next(iter([]))",
    "overflow": "import math; return math.exp(10 ** 6)",
    "schema": "raise SchemaError('field %s of version 3 is unknown')",
    "rate": "raise RateLimitError('429 for tenant t-%s, retry in 17 s')",
    "lock": "raise LockError('row %s is locked by worker 7')",
    "quota": "raise QuotaError('tenant t-%s used 104 %% of its storage')",
    "migrate": "raise RuntimeError('migration %s failed at step 4')",
    "hash_list": "return {[]: 1}",
    "slice_text": "return 'abc'['x']",
    "memory": "raise MemoryError('cannot allocate %s bytes')",
    "encode": "return 'ü'.encode('ascii')",
    "checksum": "raise OSError(5, 'checksum of block %s does not match')",
}

_ERRORS = ["PaymentError", "SchemaError", "RateLimitError", "LockError", "QuotaError"]

JAVASCRIPT = {
    "total": "return undefined.length",
    "loadOrder": "return order.items",
    "firstItem": "return [].at(0).id",
    "parseBody": "return JSON.parse('{\"a\": %s')",
    "charge": "throw new PaymentError('card declined for customer cus_%s')",
    "refund": "throw new PaymentError('no charge to refund for ord_%s')",
    "checkStock": "throw new Error('item %s is out of stock')",
    "callUndefined": "const handler = undefined; return handler()",
    "nullMap": "const rows = null; return rows.map(x => x)",
    "constant": "const a = 1; a = 2",
    "range": "return new Array(-1)",
    "fixed": "return (1.5).toFixed(101)",
    "decode": "return decodeURIComponent('%%')",
    "bigint": "return 1n + 1",
    "symbol": "return Symbol('x') + ''",
    "iterate": "const [a] = {}; return a",
    "construct": "return new (class A { constructor() { throw new TypeError('bad option %s') } })()",
    "timeout": "throw Object.assign(new Error('no response from inventory after %s ms'), {code: 'ETIMEDOUT'})",
    "refused": "throw Object.assign(new Error('connect ECONNREFUSED 10.1.2.3:%s'), {code: 'ECONNREFUSED'})",
    "readFile": "return require('fs').readFileSync('/nonexistent/%s.json')",
    "deep": "return deep(n + 1)",
    "url": "return new URL('no url %s')",
    "regex": "return new RegExp('(')",
    "date": "return new Date('x').toISOString()",
    "rate": "throw new RangeError('429 for tenant t-%s, retry in 17 s')",
    "schema": "throw new TypeError('field f%s of version 3 is unknown')",
    "proxy": "return Reflect.ownKeys(1)",
    "instance": "return 1 instanceof 2",
    "inOperator": "return 'a' in 'b'",
    "buffer": "return Buffer.alloc(-1)",
    "lock": "throw new Error('row %s is locked by worker 7')",
    "quota": "throw new Error('tenant t-%s used 104 percent of its storage')",
    "missing": "return require('no-such-module-here')",
    "assertPaid": "require('assert')(false, 'order %s is not paid')",
    "hash": "return require('crypto').createHash('nope')",
    "circular": "const a = {}; a.a = a; return JSON.stringify(a)",
    "migrate": "throw new Error('migration %s failed at step 4')",
    "emit": "throw new Error('unhandled event kind of job %s')",
    "cause": "throw new Error('could not load order %s', {cause: new TypeError('store is closed')})",
    "freeze": "'use strict'; const a = Object.freeze({x: 1}); a.x = 2",
}


def python_traces(variations: int, *, seed: int = 0) -> tuple[list[str], list[str]]:
    """Traces of the Python programs, and the program of each."""
    rng = random.Random(seed)
    texts, labels = [], []
    for name, body in PYTHON.items():
        for _ in range(variations):
            texts.append(_run_python(name, body, rng))
            labels.append(f"python {name}")
    return texts, labels


def _run_python(name: str, body: str, rng: random.Random) -> str:
    filler = "\n" * rng.randrange(40)
    padding = f"    kept = {rng.randrange(10**6)}\n" * rng.randrange(4)
    code = body % rng.randrange(10, 10**9) if "%s" in body else body
    kind = rng.choice(
        ["plain", "lambda", "nested"]
        if name == "recursion"
        else ["plain", "async", "lambda", "nested"]
    )
    depth = rng.randrange(1, 6)
    lines = [filler, *(f"class {error}(Exception):\n    pass\n" for error in _ERRORS)]
    lines.append(
        f"{'async ' if kind == 'async' else ''}def {name}(n=0):\n{padding}    {code}\n"
    )
    call = f"{name}()"
    if kind == "async":
        lines.append(
            f"async def step(n):\n    return await ({name}() if n == 0 else step(n - 1))\n"
        )
        lines.append(f"import asyncio\nasyncio.run(step({depth}))\n")
    else:
        inner = {
            "plain": call,
            "lambda": f"(lambda: {call})()",
            "nested": f"[{call} for _ in range(1)]",
        }[kind]
        lines.append(f"def step(n):\n    return {inner} if n == 0 else step(n - 1)\n")
        lines.append(f"step({depth})\n")
    folder = rng.choice(
        ["/srv/app", "/home/deploy/releases/" + str(rng.randrange(10**9)), "C:\\app"]
    )
    try:
        exec(compile("".join(lines), f"{folder}/jobs.py", "exec"), {"__name__": "jobs"})  # noqa: S102 - the programs above
    except Exception:  # noqa: BLE001 - whatever they raise
        return traceback.format_exc()
    raise AssertionError(name)


def javascript_traces(
    variations: int, folder: Path, *, seed: int = 0
) -> tuple[list[str], list[str]]:
    """Traces of the JavaScript programs, run by Node, and the program of each."""
    rng = random.Random(seed)
    jobs, labels = [], []
    for name, body in JAVASCRIPT.items():
        for number in range(variations):
            jobs.append(str(_write_javascript(folder / f"v{number}", name, body, rng)))
            labels.append(f"javascript {name}")
    runner = folder / "runner.js"
    runner.write_text(
        "const util = require('util');\nconst out = [];\n(async () => {\n"
        "  for (const path of JSON.parse(require('fs').readFileSync(0))) {\n"
        "    try { await require(path)(); out.push('nothing thrown ' + path) } catch (e) { out.push(util.inspect(e)) }\n"
        "  }\n  console.log(JSON.stringify(out));\n})();\n"
    )
    done = subprocess.run(
        ["node", str(runner)],
        input=json.dumps(jobs),
        capture_output=True,
        text=True,
        check=True,
    )
    return json.loads(done.stdout), labels


def _write_javascript(folder: Path, name: str, body: str, rng: random.Random) -> Path:
    code = body.replace("%s", str(rng.randrange(10, 10**9))).replace("%%", "%")
    kind = rng.choice(["plain", "async", "arrow", "method"])
    minified = rng.random() < 0.2
    own = {"name": name, "step": "step"} | (
        {"name": rng.choice("etr"), "step": "i"} if minified else {}
    )
    code = code.replace(f"{name}(", f"{own['name']}(")
    waits = "await " if kind == "async" else ""
    define = f"{'async ' if waits else ''}function {own['name']}(n = 0) {{ {code} }}"
    call = {
        "plain": f"{own['name']}()",
        "async": f"{own['name']}()",
        "arrow": f"(() => {own['name']}())()",
        "method": f"new (class T {{ run() {{ return {own['name']}() }} }})().run()",
    }[kind]
    step = f"async function {own['step']}(n) {{ return n === 0 ? {waits}{call} : {waits}{own['step']}(n - 1) }}"
    head = "class PaymentError extends Error { constructor(m) { super(m); this.name = 'PaymentError' } }"
    lines = [
        "\n" * rng.randrange(30),
        head,
        define,
        step,
        f"module.exports = () => {own['step']}({rng.randrange(1, 6)})",
    ]
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / (
        f"jobs.{rng.randrange(16**8):08x}.min.js" if minified else f"jobs_{name}.js"
    )
    path.write_text((" " * 400 + ";".join(lines[1:])) if minified else "\n".join(lines))
    return path
