"""Name functions and files of a stack trace in the same way for every build.

Compilers and bundlers add hashes, line numbers and generated parts to names. For example, the function
`com.acme.Orders$$Lambda$14/0x1f.run` is `com.acme.Orders.run` here, and the file
`/srv/dist/checkout.3f9c2a1b.min.js` is `checkout`.
"""

from __future__ import annotations

import re
from typing import Final

from toolkit.signatures.remembering import cached

_GENERATED: Final = re.compile(
    r"\$\$(?:Lambda|Enhancer|FastClass|SpringCGLIB|Proxy)[\w$/]*|\$Proxy\d+|\$\d+|/0x[0-9a-f]+|@[0-9a-f]{4,}"
    r"|lambda\$(?=\w)|\$lambda|access\$\d+|\$default|\$\w+\$lambda|-\$\$Nest\$\w+"
    r"|<locals>\.|<lambda>|<(?:listcomp|dictcomp|genexpr|setcomp)>|<anonymous>|<module>|<main>"
    r"|<top \(required\)>"
    r"|\{\{?closure\}?\}?|\{closure[#:][^}]*\}|::h[0-9a-f]{16}\b|\.func\d+(?:\.\d+)*|\.gowrap\d+"
    r"|\[\.\.\.\]|\(\*?(?=\w)|\)(?=\.)"
    r"|<>c(?:__DisplayClass[\d_]+)?[.+]?|<(?=\w+>[bdg]__)|>[bdg]__\w*|\.MoveNext|`\d+|\[T\w*\]"
    r"|\bblock (?:\(\d+ levels\) )?in |\brescue in |\bensure in |\basync |\bnew |\bsingleton class"
    r"|#<Class:0x[0-9a-f]+>"
)
_DOTS: Final = re.compile(r"\.{2,}|(?:::){2,}|\$+(?=\.|$)|[.:$#]+$|^[.:$#]+")
_PLAIN_NAME: Final = re.compile(
    r"(?!.*\.(?:func\d|gowrap\d|MoveNext))[A-Za-z_]\w*+(?>(?:\.\w++)*)"
)
"""A name that `_GENERATED` and `_DOTS` leave as it is, as most names. It is told ten times as fast."""
_MINIFIED: Final = re.compile(
    r"^(?:\w{1,2}|[a-z]\.\w{1,2}|\w{1,2}\.\w{1,2}|Object\.\w{1,2})$"
)
_LONG_LINE: Final = 300
"""Nobody writes longer lines by hand: a frame at a later column is minified code."""
_HASHED: Final = re.compile(
    r"[.\-_](?=[0-9a-z]*\d)[0-9a-z]{6,}$|\.(?:min|bundle|chunk|prod)$", re.IGNORECASE
)
_EXTENSION: Final = re.compile(r"\.(?:py|[mc]?[jt]sx?|rb|php|go|rs|cs|java|kt|min)$")
_DIGIT: Final = re.compile(r"\d")
_BUILD_DIGITS: Final = re.compile(r"\d{3,}|(?=[a-f]*\d)[0-9a-f]{8,}")


@cached
def stable_name(name: str) -> str:
    """Return a function or type with the digits of a build replaced. Other digits belong to the name.

    >>> stable_name("Base64.decode"), stable_name("Worker$48213.run")
    ('Base64.decode', 'Worker$<num>.run')
    """
    if _DIGIT.search(name) is None:
        return name

    # the code of an error stays, for example "Error [P2002]"
    function, bracket, code = name.partition(" [")
    return _BUILD_DIGITS.sub("<num>", function) + bracket + code


@cached
def plain_name(name: str) -> str:
    """Return the name of a function without the parts that compilers and runtimes add.

    >>> plain_name("com.acme.Orders$$Lambda$14/0x1f.run"), plain_name("Orders.<locals>.<lambda>")
    ('com.acme.Orders.run', 'Orders')
    """
    if _PLAIN_NAME.fullmatch(name):
        return name
    return _DOTS.sub("", _GENERATED.sub("", name)).strip()


@cached
def file_stem(path: str) -> str:
    """Return the name of a file without folders, extensions and the content hash of a bundler.

    >>> file_stem("/srv/dist/checkout.3f9c2a1b.min.js?v=7"), file_stem("<string>")
    ('checkout', '')
    """
    name = path.partition("?")[0].replace("\\", "/").rpartition("/")[2]
    shorter = _HASHED.sub("", _EXTENSION.sub("", name))
    while shorter != name:
        name = shorter
        shorter = _HASHED.sub("", _EXTENSION.sub("", name))

    if name.startswith("<"):
        return ""  # code without a file

    return name


def is_minified(function: str, path: str, column: int | None) -> bool:
    """Return whether a function of JavaScript has another name in the next build.

    >>> is_minified("a.b", "/srv/main.js", 4711), is_minified("total", "/srv/main.js", 4711)
    (True, False)
    """
    if column is None or not _MINIFIED.match(plain_name(function)):
        return False

    has_hash = _HASHED.search(_EXTENSION.sub("", path)) is not None
    return column >= _LONG_LINE or has_hash
