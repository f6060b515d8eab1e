"""The page's files, as the control API serves them. They hold no data: the page asks the API for all that it shows."""

from pathlib import Path
from typing import Final

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route
from starlette.staticfiles import StaticFiles

__all__ = ["ASSETS", "CONTENT_SECURITY_POLICY", "page_routes"]

CONTENT_SECURITY_POLICY: Final = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
"""What a browser may load for the page: its files and the API's responses, nothing from another host."""

ASSETS: Final = Path(__file__).with_name("assets")
"""Every file of the page but index.html."""


def page_routes() -> list[Route]:
    """The routes of the page: `/` and `/assets/...`, for GET and HEAD."""
    assets, page = StaticFiles(directory=ASSETS), StaticFiles(directory=ASSETS.parent)

    async def serve(request: Request) -> Response:
        path = request.path_params.get("path")
        files, name = (page, "index.html") if path is None else (assets, path)
        response = await files.get_response(name, request.scope)
        response.headers["Cache-Control"] = "no-cache"
        return response

    return [Route("/", serve, name="page"), Route("/assets/{path:path}", serve, name="page-file")]
