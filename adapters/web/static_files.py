"""The pages of the web app, and the files that they load."""

import hashlib
from dataclasses import dataclass
from pathlib import Path

from aiohttp import web

PAGES_FOLDER = Path(__file__).with_name("pages")
# Every page with the addresses that show it: the page itself reads the rest of the address.
PAGES = {
    "/": "index.html",
    "/c/{id}": "index.html",
    "/signin": "signin.html",
    "/console": "console.html",
    "/console/{tail:.*}": "console.html",
}
SIGN_IN_PATH = "/signin"
TEXT_TYPES = {
    ".html": "text/html",
    ".js": "text/javascript",
    ".mjs": "text/javascript",
    ".css": "text/css",
    ".svg": "image/svg+xml",
    ".json": "application/json",
    ".txt": "text/plain",
}
CONTENT_TYPES = {**TEXT_TYPES, ".woff2": "font/woff2", ".png": "image/png", ".webp": "image/webp"}


def relative_base(path: str) -> str:
    """Return the relative address of the app's root from a path, such as `../` from `/c/1`.

    So the app works behind a path prefix that a proxy removes, without knowing it.
    """
    return "../" * (path.count("/") - 1) or "./"


@dataclass(frozen=True, slots=True)
class Page:
    """An HTML page; its base address is the app's root, however deep the address is that shows it."""

    body: bytes

    async def serve(self, request: web.Request) -> web.StreamResponse:
        """Respond with the page."""
        base = f'<head>\n<base href="{relative_base(request.path)}">'
        body = self.body.replace(b"<head>", base.encode(), 1)
        return web.Response(body=body, content_type="text/html", charset="utf-8", headers={"Cache-Control": "no-store"})


@dataclass(frozen=True, slots=True)
class StaticFile:
    """A static file; `etag` is a hash of its content."""

    body: bytes
    content_type: str
    charset: str | None
    etag: str

    async def serve(self, request: web.Request) -> web.StreamResponse:
        """Respond with the file, or with 304 if the client has it."""
        if any(etag.value == self.etag for etag in request.if_none_match or ()):
            response = web.Response(status=304)
        else:
            response = web.Response(body=self.body, content_type=self.content_type, charset=self.charset)
        response.etag = self.etag
        response.headers["Cache-Control"] = "private, no-cache"
        return response


def add_pages(router: web.UrlDispatcher) -> dict[str, web.AbstractRoute]:
    """Add the routes of the pages; return them by path."""
    bodies = {name: (PAGES_FOLDER / name).read_bytes() for name in PAGES.values()}
    return {path: router.add_get(path, Page(bodies[name]).serve) for path, name in PAGES.items()}


def add_static_files(router: web.UrlDispatcher) -> list[web.AbstractRoute]:
    """Add routes for the other files of the pages' folder and its sub-folders, under `/pages/`; return them."""
    return [
        router.add_get(f"/pages/{path.relative_to(PAGES_FOLDER).as_posix()}", _read_file(path).serve)
        for path in sorted(PAGES_FOLDER.rglob("*"))
        if path.suffix in CONTENT_TYPES and path.suffix != ".html" and path.is_file()
    ]


def _read_file(path: Path) -> StaticFile:
    body = path.read_bytes()
    charset = "utf-8" if path.suffix in TEXT_TYPES else None
    return StaticFile(body, CONTENT_TYPES[path.suffix], charset, hashlib.sha256(body).hexdigest()[:16])
