"""The address of the fault script: look at it, replace it, clear it."""

from __future__ import annotations

from starlette.endpoints import HTTPEndpoint
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import BaseRoute, Route

from toolkit.errors import InputError
from toolkit.local.answers import ApiError, read_json
from toolkit.local.faults.script import FaultScript


def fault_routes(script: FaultScript) -> list[BaseRoute]:
    """``/admin/faults``, for one script."""

    class FaultsEndpoint(HTTPEndpoint):
        """``/admin/faults``."""

        async def get(self, _: Request) -> Response:
            """The script, with how many requests each fault has seen and struck."""
            return JSONResponse(script.shown())

        async def put(self, request: Request) -> Response:
            """Replace the script; counting starts again."""
            try:
                script.put(await read_json(request))
            except InputError as error:
                raise ApiError(400, str(error)) from None
            return JSONResponse(script.shown())

        async def delete(self, _: Request) -> Response:
            """Let nothing go wrong any more."""
            script.clear()
            return JSONResponse(script.shown())

    return [Route("/admin/faults", FaultsEndpoint)]
