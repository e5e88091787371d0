"""The pages and what belongs to them: small files, read once at the start."""

import hashlib
from dataclasses import dataclass
from pathlib import Path

from aiohttp import web

FOLDER = Path(__file__).with_name("pages")
PAGES = {"/": "chat.html"}
TYPES = {".html": "text/html", ".js": "text/javascript", ".css": "text/css", ".svg": "image/svg+xml"}


@dataclass(frozen=True, slots=True)
class File:
    """A file as it is served; `etag` changes with what is in it."""

    body: bytes
    content_type: str
    etag: str

    async def serve(self, request: web.Request) -> web.StreamResponse:
        """Answer with the file, or with the news that the client has it."""
        is_page = self.content_type == "text/html"
        caching = "no-store" if is_page else "private, no-cache"
        known = request.if_none_match or ()
        if not is_page and any(one.value == self.etag for one in known):
            response = web.Response(status=304)
        else:
            response = web.Response(body=self.body, content_type=self.content_type, charset="utf-8")
        if not is_page:
            response.etag = self.etag
        response.headers["Cache-Control"] = caching
        return response


def add_files(router: web.UrlDispatcher) -> None:
    """Serve every page under its address and everything else under `/pages/`."""
    for address, name in PAGES.items():
        router.add_get(address, _read(FOLDER / name).serve)
    for path in sorted(FOLDER.iterdir()):
        if path.suffix in TYPES and path.name not in PAGES.values():
            router.add_get(f"/pages/{path.name}", _read(path).serve)


def _read(path: Path) -> File:
    body = path.read_bytes()
    return File(body, TYPES[path.suffix], hashlib.sha256(body).hexdigest()[:16])
