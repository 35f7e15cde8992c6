"""Search a vector index by text: ``toolkit query``."""

from __future__ import annotations

import argparse
import json
from typing import Any, get_args

import toolkit as tk
from toolkit.cli.exit_status import ExitStatus
from toolkit.cli.output import print_message, print_result, unknown_names_end
from toolkit.cli.service_connection import add_token_file, connected
from toolkit.cli.shared_options import add_command
from toolkit.cli.terminal import say_shortened
from toolkit.filters.query import QueryMode
from toolkit.secrets.redaction import visible

_LONGEST = 160
"""Characters of the text of a hit; ``--json`` has all of it."""


def add(commands: Any, summary: str) -> None:
    """Add the command."""
    example = "'connection refused' --namespace runbooks --top-k 5 --filter \"city = 'Izmir'\""
    add_option = add_command(commands, "query", _query, summary, example)
    add_option("text", "the words to search for")
    add_option("--top-k", "hits at most (10)", type=int, default=10, metavar="N")
    add_option(
        "--namespace",
        'namespace to search; "all" for every one (the default one)',
        default="",
        metavar="NAME",
    )
    add_option("--filter", "metadata filter", default="", metavar="FILTER")
    add_option("--query-mode", "for hybrid indexes", choices=get_args(QueryMode))
    add_token_file(add_option)
    add_option(
        "--json", "one JSON object per hit, with data and metadata", action="store_true"
    )


def _query(given: argparse.Namespace) -> ExitStatus:
    from toolkit.tables.json_rows import json_value  # noqa: PLC0415 - heavy

    options = {name: getattr(given, name) for name in ("top_k", "namespace", "filter")}
    hybrid = tk.HybridOptions(query_mode=given.query_mode)

    with (
        connected(given, "vector") as service,
        unknown_names_end(begin="The index has no namespace"),
    ):
        hits = tk.query_text(
            service,
            given.text,
            include_data=True,
            include_metadata=True,
            hybrid=hybrid,
            **options,
        )

    if hits.empty:
        print_message("no hits")
    redactor = service.redactor

    shown = hits[["rank", "id", "score", "data", "metadata"]].astype("object")
    # Only columns of objects keep None. Others would turn it into NaN, which JSON does not have.
    for hit in shown.where(hits.notna(), None).to_dict("records"):
        data = hit["data"]
        if data is not None:
            data = redactor.text(data)
        if given.json:
            metadata = json_value(hit["metadata"]) if hit["metadata"] else None
            print_result(
                json.dumps(hit | {"data": data, "metadata": redactor.value(metadata)})
            )
        else:
            words = " ".join((data or "").split())
            if len(words) > _LONGEST:
                words = f"{words[:_LONGEST]}…"
            say_shortened(
                visible(f"{hit['rank']:>3}  {hit['score']:.4f}  {hit['id']}  {words}")
            )

    return ExitStatus.DONE
