"""Write the code that sends a failed request again: for a shell, for Python, and as a test.

All values become quoted arguments or literals, so that no value of a request can become code. A secret is a
variable of the environment, which the reader fills in.
"""

from __future__ import annotations

import base64
import re
import shlex
import textwrap
from collections.abc import Sequence
from itertools import chain
from typing import Final, NamedTuple

from toolkit.base.python_code import Code, fill, joined, literal
from toolkit.fixes.placeholders import Parts, Placeholder

# Linux accepts 131,072 bytes per argument of a program.
_LONGEST_ARGUMENT: Final = 100_000
_BASE64_LINE: Final = 76
_HOST: Final = re.compile(r"\A[^/?#]*")


class ShownRequest(NamedTuple):
    """A request in parts, without secrets. The characters of a binary body are bytes (Latin-1)."""

    dlq_id: str
    method: str
    url: Parts
    headers: tuple[tuple[str, Parts], ...]
    body: Parts
    is_binary: bool
    outcome: str

    @property
    def has_secret_body(self) -> bool:
        """Return True if a part of the body is not shown."""
        return any(isinstance(part, Placeholder) for part in self.body)

    @property
    def encoding(self) -> str:
        """Return the encoding of the characters of the body."""
        if self.is_binary:
            return "latin-1"
        return "utf-8"

    @property
    def visible_body(self) -> bytes:
        """Return the bytes of the body that may be shown."""
        text = "".join(part for part in self.body if isinstance(part, str))
        return text.encode(self.encoding, "surrogatepass")

    @property
    def fits_argument(self) -> bool:
        """Return True if the body can be an argument of a program."""
        return not self.is_binary and len(self.visible_body) < _LONGEST_ARGUMENT

    @property
    def has_placeholders(self) -> bool:
        """Return True if any value is not shown."""
        values = [value for _, value in self.headers]
        parts = chain(self.url, self.body, *values)
        return any(isinstance(part, Placeholder) for part in parts)

    @property
    def names_content_type(self) -> bool:
        """Return True if the request has a header Content-Type."""
        return any(name.lower() == "content-type" for name, _ in self.headers)


def curl_command(request: ShownRequest) -> str:
    """Return a command for a POSIX shell that sends the request with curl."""
    method, url = shlex.quote(request.method), _shell(request.url)
    arguments = [
        # without globs and shortened paths, curl sends the address as it is written
        f"--request {method} --globoff --path-as-is --url {url}",
        *(f"--header {_header_line(name, value)}" for name, value in request.headers),
    ]
    if not request.names_content_type:
        # curl would add the type of a form
        arguments.append("--header 'Content-Type:'")

    if request.fits_argument:
        # unlike --data-binary, --data-raw does not read a file if the body begins with @
        arguments.append(f"--data-raw {_shell(request.body)}")
        return _command(arguments)

    if request.has_secret_body:
        # a shell cannot put values into bytes, so the reader provides the whole body
        arguments.append('--data-binary "@${FILL_IN_BODY_FILE:?}"')
        return _command(arguments)

    arguments.append("--data-binary @-")
    encoded = base64.b64encode(request.visible_body).decode()
    lines = textwrap.wrap(encoded, _BASE64_LINE)

    return "\n".join(["base64 -d <<'END' |", *lines, "END", _command(arguments)])


def python_program(request: ShownRequest) -> Code:
    """Return a program that sends the request with requests, and prints the response."""
    return joined(
        [
            *_imports(request),
            Code(""),
            fill(
                "response = requests.request(\n{arguments}\n)\nprint(response.status_code, response.text)",
                arguments=_arguments(request, _text(request.url), "    "),
            ),
        ]
    )


def pytest_file(request: ShownRequest) -> Code:
    """Return a test file that sends the request to an application, and expects a success."""
    path = _path(request.url)
    template = """{title}
import os

import requests

APPLICATION = os.environ.get("APPLICATION", "http://localhost:3000")


def test_the_failed_request_succeeds():
    response = requests.request(
{arguments}
    )
    assert response.status_code < 300, response.text
"""
    url = joined([Code("APPLICATION"), _text(path)], " + ")

    return fill(
        template,
        title=literal(request.outcome),
        arguments=_arguments(request, url, "        "),
    )


def _command(arguments: Sequence[str]) -> str:
    return "curl " + " \\\n  ".join(arguments)


def _header_line(name: str, value: Parts) -> str:
    """Return a header as curl reads it: an empty value is written with a semicolon."""
    if not value:
        return shlex.quote(f"{name};")
    return _shell((f"{name}: ", *value))


def _shell(parts: Parts) -> str:
    """Quote parts as one word for a POSIX shell. A variable that is empty stops the shell.

    >>> print(_shell(("it's ", Placeholder("FILL_IN_BODY", "the body"))))
    'it'"'"'s '"${FILL_IN_BODY:?}"
    """
    words = []
    for part in parts:
        if isinstance(part, Placeholder):
            words.append(f'"${{{part.variable}:?}}"')
        else:
            words.append(shlex.quote(part))

    return "".join(words) or "''"


def _imports(request: ShownRequest) -> list[Code]:
    if request.has_placeholders:
        return [Code("import os"), Code(""), Code("import requests")]
    return [Code("import requests")]


def _arguments(request: ShownRequest, url: Code, indent: str) -> Code:
    """Return the arguments of ``requests.request``, one per line."""
    lines = [
        fill("{method},", method=literal(request.method)),
        fill("{url},", url=url),
        Code("headers={"),
        *(
            fill("    {name}: {value},", name=literal(name), value=value)
            for name, value in _joined_headers(request)
        ),
        Code("},"),
        fill("data={body},", body=_bytes(request)),
        Code("allow_redirects=False,"),
        Code("timeout=30,"),
    ]
    return joined([Code(indent + line) for line in lines])


def _joined_headers(request: ShownRequest) -> list[tuple[str, Code]]:
    """Return one value per header. Several values are joined by commas (RFC 9110, section 5.3)."""
    values: dict[str, list[Parts]] = {}
    names: dict[str, str] = {}
    for name, parts in request.headers:
        names.setdefault(name.lower(), name)
        values.setdefault(name.lower(), []).append(parts)

    return [(names[key], _text(_with_commas(listed))) for key, listed in values.items()]


def _with_commas(values: Sequence[Parts]) -> Parts:
    parts = list(values[0])
    for value in values[1:]:
        parts += [", ", *value]
    return tuple(parts)


def _text(parts: Parts) -> Code:
    """Return a Python expression of the text.

    >>> print(_text(("Bearer ", Placeholder("FILL_IN_AUTHORIZATION", "the header"))))
    'Bearer ' + os.environ['FILL_IN_AUTHORIZATION']
    """
    if not parts:
        return literal("")
    return joined([_expression(part) for part in parts], " + ")


def _expression(part: str | Placeholder) -> Code:
    if isinstance(part, Placeholder):
        return fill("os.environ[{variable}]", variable=part.variable)
    return literal(part)


def _bytes(request: ShownRequest) -> Code:
    """Return a Python expression of the body as bytes."""
    return fill(
        "({text}).encode({encoding}, {errors})",
        text=_text(request.body),
        encoding=request.encoding,
        errors="surrogatepass",
    )


def _path(url: Parts) -> Parts:
    """Return the path and query of an address in parts, without scheme and host.

    A placeholder in the host, for example of a user and password, is removed with the host.
    """
    for position, part in enumerate(url):
        # the host ends in the first text with a slash after the scheme
        path = after_host(f"://{part}" if position else str(part))
        if isinstance(part, str) and path:
            return (path, *url[position + 1 :])

    return ()


def after_host(url: str) -> str:
    """Return an address without scheme and host, as it is written.

    >>> after_host("https://[masked len=6 tag=75f3361f]@shop.example/pay?a=1")
    '/pay?a=1'
    """
    after_scheme = url.partition("://")[2]
    return _HOST.sub("", after_scheme, count=1)
