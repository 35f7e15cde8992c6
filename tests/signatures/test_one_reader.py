"""Response bodies are parsed in one place: the package `signatures`."""

from __future__ import annotations

import ast
from pathlib import Path

import toolkit

PACKAGE = Path(toolkit.__file__).parent
DECODERS = {
    "json.loads", "json.load", "json.JSONDecoder", "msgspec.json.decode", "msgspec.json.Decoder",
    "html.unescape", "HTMLParser", "ElementTree",
}  # fmt: skip
FORMS = {"json_errors", "markup", "traces", "trace_frames", "languages"}
BODIES = ("response_body", "responseBody")

DECODE_SOMETHING_ELSE = {
    "failures/attribute_values.py": "labels, headers, and fields that are attributes of a failure",
    "failures/group_rules.py": "what was learned, as a user passes it",
    "failures/grouping.py": "what was learned, as plain values",
    "filters/failure_rows.py": "labels",
    "tables/frames.py": "labels",
}
"""Modules that name the response body, and decode another value."""


def names(tree: ast.AST) -> set[str]:
    """Return the dotted names in a module, and the names that it imports."""
    found = {
        ast.unparse(node)
        for node in ast.walk(tree)
        if isinstance(node, ast.Attribute | ast.Name)
    }
    imports = (node for node in ast.walk(tree) if isinstance(node, ast.ImportFrom))
    return found | {alias.name for node in imports for alias in node.names}


def decoding_modules() -> set[str]:
    """Return the modules outside of the reader that name the response body and decode something."""
    found = set()
    for path in PACKAGE.rglob("*.py"):
        module = path.relative_to(PACKAGE).as_posix()
        if module.startswith("signatures/"):
            continue
        source = path.read_text("utf-8")
        if (
            any(name in source for name in BODIES)
            and names(ast.parse(source)) & DECODERS
        ):
            found.add(module)
    return found


def test_no_other_module_parses_bodies():
    """A module that decodes something and names the response body is listed with a reason."""
    assert decoding_modules() <= set(DECODE_SOMETHING_ELSE), (
        "use toolkit.signatures.reading.read_document"
    )


def form_of(module: str) -> str:
    """Return the form that a module of the reader belongs to, for example "languages"."""
    return module.removeprefix("toolkit.signatures.").partition(".")[0]


def imported_parts(path: Path) -> set[str]:
    """Return the names that a module imports from the forms of bodies."""
    imports = [
        node
        for node in ast.walk(ast.parse(path.read_text("utf-8")))
        if isinstance(node, ast.ImportFrom)
    ]
    forms = [node for node in imports if form_of(node.module or "") in FORMS]
    return {alias.name for node in forms for alias in node.names}


def test_only_the_reader_uses_its_forms():
    """Other packages read bodies by `read_document`, `read_details` and `error_text`, not by a form."""
    others = [
        path
        for path in PACKAGE.rglob("*.py")
        if "signatures" not in path.relative_to(PACKAGE).parts
    ]
    users = {path.stem: parts for path in others if (parts := imported_parts(path))}
    # the record of a body has the trace as a value of this type
    assert users == {"text_index": {"StackTrace"}}


def test_the_list_has_no_other_modules():
    """Each listed module exists, and still decodes a value."""
    assert set(DECODE_SOMETHING_ELSE) <= decoding_modules()
