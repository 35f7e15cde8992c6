"""Declare operations on the queue: request handlers, or functions that are one transaction."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar

from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from toolkit_service.api import read_as, read_body, read_json
from toolkit_service.operations import Declared
from toolkit_service.queue.listing import PUBLIC_PREFIX

if TYPE_CHECKING:
    from toolkit_service.queue.scheduler import Queue

F = TypeVar("F", bound=Callable[..., Any])


class QueueOperations(Declared["Queue"]):
    """Operations on the queue, declared by decorating handlers or functions of one transaction."""

    def transaction(
        self, method: str, path: str, name: str, returns: Any = None, **described: Any
    ) -> Callable[[F], F]:
        """Declare an operation that is one transaction, which only reads if the method is GET.

        The function receives the transaction, the names in the path and, if declared, the `body` and the
        `query`. It returns the JSON of the response, or None.
        """

        def declare(work: F) -> F:
            async def handler(queue: Queue, request: Request, query: Any) -> Response:
                arguments = dict(request.path_params)
                body = described.get("body")
                if body is bytes:
                    arguments["body"] = await read_body(request, queue.max_message)
                elif body is not None:
                    arguments["body"] = read_as(await read_json(request), body)

                if "query" in described:
                    arguments["query"] = query

                transaction = queue.store.read if method == "GET" else queue.write
                result = await transaction(work, **arguments)
                status = described.get("status", 200)
                if result is None:
                    return Response(status_code=status)

                return JSONResponse(result, status)

            # the docstring of the function is the summary of the operation
            handler.__doc__ = work.__doc__
            self(method, path, name, returns, **described)(handler)

            return work

        return declare


def with_cursor(queue: Queue, response: dict[str, Any], cursor: str) -> dict[str, Any]:
    """Return the response with the cursor of the next page.

    On the last page, the cursor is empty. In the public dialect it is omitted: clients in JavaScript read
    pages until it is undefined.
    """
    if not cursor and queue.prefix == PUBLIC_PREFIX:
        return response
    return {"cursor": cursor, **response}
