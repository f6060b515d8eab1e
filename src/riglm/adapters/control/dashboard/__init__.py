"""The page's files, as the control API serves them. They hold no data: the page asks the API for all that it shows."""

import hashlib
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Final

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

__all__ = ["CONTENT_SECURITY_POLICY", "PageFile", "page_files", "page_routes"]

CONTENT_SECURITY_POLICY: Final = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
"""What a browser may load for the page: its files and the API's responses, nothing from another host."""

_INDEX: Final = "index.html"
_MEDIA_TYPES: Final = {
    ".css": "text/css; charset=utf-8",
    ".html": "text/html; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".svg": "image/svg+xml",
    ".txt": "text/plain; charset=utf-8",
}


@dataclass(frozen=True, slots=True)
class PageFile:
    """One file; `tag` is an entity tag and changes with the content."""

    body: bytes
    media_type: str
    tag: str


@cache
def page_files() -> dict[str, PageFile]:
    """Every file of the page by its path below `assets`, and the page itself as index.html."""
    page = Path(__file__).parent
    assets = page / "assets"
    found = {file.relative_to(assets).as_posix(): _read(file) for file in assets.rglob("*") if file.is_file()}
    return found | {_INDEX: _read(page / _INDEX)}


def page_routes() -> list[Route]:
    """The routes of the page: `/` and `/assets/...`, for GET and HEAD."""
    return [Route("/", _serve, name="page"), Route("/assets/{path:path}", _serve, name="page-file")]


async def _serve(request: Request) -> Response:
    path = request.path_params.get("path")
    file = page_files().get(_INDEX if path is None else path)
    if file is None or path == _INDEX:
        raise HTTPException(404)
    headers = {"ETag": file.tag, "Cache-Control": "no-cache"}
    if file.tag in request.headers.get("if-none-match", ""):
        return Response(status_code=304, headers=headers)
    return Response(file.body, media_type=file.media_type, headers=headers)


def _read(file: Path) -> PageFile:
    body, media_type = file.read_bytes(), _MEDIA_TYPES.get(file.suffix or ".txt", "application/octet-stream")
    return PageFile(body, media_type, f'"{hashlib.sha256(body).hexdigest()[:20]}"')
