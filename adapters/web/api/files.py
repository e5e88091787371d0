"""Files of messages: pictures, recordings and documents that an agent has sent, by token or signed link."""

import hashlib
import re
from dataclasses import dataclass
from datetime import datetime
from urllib.parse import quote
from uuid import UUID

from aiohttp import web

from adapters.web.auth import GRANT, Access, TokenAuth
from adapters.web.errors import HttpProblem, build_not_found
from adapters.web.incoming import is_own_room
from adapters.web.json_io import JsonResponder, validate_model
from adapters.web.openapi import Operation
from adapters.web.queries import AgentDirectory
from adapters.web.schemas import Query, ResponseModel
from bot import Attachment

FILE_ID = re.compile(r"([0-9a-f]{32})-(\d{1,2})")
# Types that a browser may show in place; with `nosniff` it takes no file for anything else. Others are downloaded.
SHOWN_TYPES = frozenset(
    {"image/png", "image/jpeg", "image/gif", "image/webp", "image/avif", "audio/mpeg", "audio/ogg", "audio/wav"}
    | {"audio/flac", "audio/mp4", "audio/aac", "audio/webm", "video/mp4", "video/webm"}
)
FILE_POLICY = "default-src 'none'; frame-ancestors 'none'; sandbox"


class FileQuery(Query):
    """The signature of a link to a file."""

    expires: int | None = None
    signature: str | None = None


class FileLinkResponse(ResponseModel):
    """A path with a signature, at which a file needs no token until it expires."""

    url: str
    expires_at: datetime


@dataclass(frozen=True, slots=True)
class FilesApi:
    """Handlers for the files that are stored with messages; they are deleted with them."""

    _directory: AgentDirectory
    _auth: TokenAuth
    _responder: JsonResponder

    async def serve_file(self, request: web.Request) -> web.StreamResponse:
        """Return a file of a message, to any token that may read its room or by a signed link."""
        validate_model(FileQuery, dict(request.query))
        is_signed = self._auth.is_signed(request)
        attachment = await self._find_file(request, is_signed=is_signed)
        data = attachment.data or b""
        etag = hashlib.sha256(data).hexdigest()[:16]
        if any(known.value == etag for known in request.if_none_match or ()):
            response = web.Response(status=304)
        else:
            response = _build_range(request, data)
            is_shown = attachment.content_type in SHOWN_TYPES
            response.content_type = attachment.content_type if is_shown else "application/octet-stream"
            disposition = "inline" if is_shown else "attachment"
            name = quote(attachment.name or "file", safe="")
            response.headers["Content-Disposition"] = f"{disposition}; filename*=UTF-8''{name}"
        response.etag = etag
        response.headers["Accept-Ranges"] = "bytes"
        response.headers["Cache-Control"] = "private, no-cache"
        response.headers["Content-Security-Policy"] = FILE_POLICY
        if is_signed:  # pages of other sites may show it
            response.headers["Cross-Origin-Resource-Policy"] = "cross-origin"
        return response

    async def sign_link(self, request: web.Request) -> web.StreamResponse:
        """Return a link to a file that needs no token until it expires."""
        await self._find_file(request, is_signed=False)
        link, expires_at = self._auth.sign_path(request.path.removesuffix("/link"))
        return self._responder.respond(FileLinkResponse(url=link, expires_at=expires_at))

    def operations(self) -> list[Operation]:
        """Return the operations with their handlers."""
        path = "/api/files/{id}"
        return [
            Operation(
                "file", self.serve_file, path, Access.SIGNED, query=FileQuery, problem_statuses=(416,), is_file=True
            ),
            Operation(
                "file_link", self.sign_link, f"{path}/link", Access.ANY, FileLinkResponse, problem_statuses=(404,)
            ),
        ]

    async def _find_file(self, request: web.Request, *, is_signed: bool) -> Attachment:
        """Return a file that the request may read. Raises HttpProblem (404) for any other."""
        file_id = request.match_info["id"]
        match = FILE_ID.fullmatch(file_id)
        found = await self._directory.find_message(UUID(match[1])) if match else None
        if match is None or found is None:
            raise build_not_found("file", file_id)
        handle, message = found
        attachments = message.content.attachments
        number = int(match[2])
        if number >= len(attachments) or attachments[number].data is None:
            raise build_not_found("file", file_id)
        if not is_signed:
            room = await handle.conversations.room(message.room_id)
            if room is None or not is_own_room(GRANT.get(), room):
                raise build_not_found("file", file_id)
        return attachments[number]


def _build_range(request: web.Request, data: bytes) -> web.Response:
    """Return the bytes that a Range header selects, else all. Raises HttpProblem for an impossible range."""
    size = len(data)
    try:
        start, stop, _ = request.http_range.indices(size)
    except ValueError:
        start, stop = 0, 0
    if "Range" not in request.headers:
        return web.Response(body=data)
    if start >= stop:
        raise HttpProblem(416, "range_not_satisfiable", "the file is shorter", {"Content-Range": f"bytes */{size}"})
    headers = {"Content-Range": f"bytes {start}-{stop - 1}/{size}"}
    return web.Response(status=206, body=data[start:stop], headers=headers)
