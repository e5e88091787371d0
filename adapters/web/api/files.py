"""Files: uploading them, and serving those of messages by token or signed link."""

import asyncio
import hashlib
import re
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from urllib.parse import quote
from uuid import UUID

from aiohttp import web

from adapters.web.auth import GRANT, Access, TokenAuth
from adapters.web.config import Limits
from adapters.web.errors import HttpProblem, build_not_found
from adapters.web.files import UploadStore, read_uploads
from adapters.web.incoming import is_own_room, uploader_of
from adapters.web.json_io import JsonResponder, body_timeout, validate_model
from adapters.web.openapi import Operation
from adapters.web.queries import AgentDirectory
from adapters.web.schemas import MAX_ATTACHMENTS, FileLimits, Query, ResponseModel

UPLOAD_ID = re.compile(r"[0-9a-f]{32}")
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


class UploadBody(ResponseModel):
    """An uploaded file; its `id` is named as `file` in the attachments of a message."""

    id: str
    name: str
    content_type: str
    bytes: int
    url: str
    transcript: str = ""


class UploadsResponse(ResponseModel):
    """The files of the form, in its order."""

    files: list[UploadBody]


@dataclass(frozen=True, slots=True)
class StoredFile:
    """A file as it is served: its bytes, or the path where they are."""

    name: str
    content_type: str
    data: bytes | None = None
    path: Path | None = None


def build_file_limits(limits: Limits) -> FileLimits:
    """Return the limits of the files of a message."""
    return FileLimits(max_bytes=limits.max_file_bytes, max_count=MAX_ATTACHMENTS)


@dataclass(frozen=True, slots=True)
class FilesApi:
    """Handlers for files; those of messages are deleted with them."""

    _directory: AgentDirectory
    _auth: TokenAuth
    _responder: JsonResponder
    _uploads: UploadStore
    _limits: Limits

    async def upload_files(self, request: web.Request) -> web.StreamResponse:
        """Store the files of a form; those that are not attached to a message within a day are removed."""
        if request.content_type != "multipart/form-data":
            raise HttpProblem(415, "unsupported_media_type", "send the files as Content-Type: multipart/form-data")
        owner = uploader_of(GRANT.get())
        async with self._uploads.slots, body_timeout(self._limits.upload_seconds):
            uploads = await read_uploads(request, self._uploads, owner, MAX_ATTACHMENTS)
        bodies = [
            UploadBody.build(upload, bytes=upload.size, url=f"/api/files/{upload.id}", transcript="")
            for upload in uploads
        ]
        return self._responder.respond(UploadsResponse(files=bodies))

    async def serve_file(self, request: web.Request) -> web.StreamResponse:
        """Return a file of a message, to any token that may read its room or by a signed link, or an own upload."""
        validate_model(FileQuery, dict(request.query))
        is_signed = self._auth.is_signed(request)
        file = await self._find_file(request, is_signed=is_signed)
        response = _build_response(request, file)
        is_shown = file.content_type in SHOWN_TYPES
        if response.status != 304:
            response.content_type = file.content_type if is_shown else "application/octet-stream"
            disposition = "inline" if is_shown else "attachment"
            response.headers["Content-Disposition"] = f"{disposition}; filename*=UTF-8''{quote(file.name, safe='')}"
        response.headers["Accept-Ranges"] = "bytes"
        response.headers["Cache-Control"] = "private, no-cache"
        response.headers["Content-Security-Policy"] = FILE_POLICY
        if is_signed:  # pages of other sites may show it
            response.headers["Cross-Origin-Resource-Policy"] = "cross-origin"
        return response

    async def sign_link(self, request: web.Request) -> web.StreamResponse:
        """Return a link to a file of a message that needs no token until it expires."""
        if not FILE_ID.fullmatch(request.match_info["id"]):
            raise build_not_found("file", request.match_info["id"])
        await self._find_file(request, is_signed=False)
        link, expires_at = self._auth.sign_path(request.path.removesuffix("/link"))
        return self._responder.respond(FileLinkResponse(url=link, expires_at=expires_at))

    def operations(self) -> list[Operation]:
        """Return the operations with their handlers."""
        path = "/api/files/{id}"
        return [
            Operation(
                "upload_files",
                self.upload_files,
                "/api/files",
                Access.CHAT,
                UploadsResponse,
                problem_statuses=(400, 408, 413, 415, 422, 503),
                method="POST",
                takes_files=True,
            ),
            Operation(
                "file", self.serve_file, path, Access.SIGNED, query=FileQuery, problem_statuses=(416,), is_file=True
            ),
            Operation(
                "file_link", self.sign_link, f"{path}/link", Access.ANY, FileLinkResponse, problem_statuses=(404,)
            ),
        ]

    async def _find_file(self, request: web.Request, *, is_signed: bool) -> StoredFile:
        """Return a file that the request may read. Raises HttpProblem (404) for any other."""
        file_id = request.match_info["id"]
        match = FILE_ID.fullmatch(file_id)
        if match is None:
            file = None if is_signed else await self._find_upload(file_id)
        else:
            file = await self._find_attached(UUID(match[1]), int(match[2]), is_signed=is_signed)
        if file is None or (file.path is not None and not await asyncio.to_thread(file.path.is_file)):
            raise build_not_found("file", file_id)
        return file

    async def _find_upload(self, upload_id: str) -> StoredFile | None:
        """Return a file that was uploaded with the token of the request."""
        if not UPLOAD_ID.fullmatch(upload_id):
            return None
        upload = await self._uploads.find(uploader_of(GRANT.get()), upload_id)
        if upload is None:
            return None
        return StoredFile(upload.name, upload.content_type, path=self._uploads.find_path(upload.url))

    async def _find_attached(self, message_id: UUID, number: int, *, is_signed: bool) -> StoredFile | None:
        found = await self._directory.find_message(message_id)
        if found is None or number >= len(found[1].content.attachments):
            return None
        handle, message = found
        if not is_signed:
            room = await handle.conversations.room(message.room_id)
            if room is None or not is_own_room(GRANT.get(), room):
                return None
        attachment = message.content.attachments[number]
        name = attachment.name or "file"
        path = self._uploads.find_path(attachment.url)
        if attachment.data is None and path is None:
            return None
        return StoredFile(name, attachment.content_type, attachment.data, path)


def _build_response(request: web.Request, file: StoredFile) -> web.StreamResponse:
    """Return the bytes of a file that a request asks for, or that the client has them."""
    if file.data is None:
        assert file.path is not None
        return web.FileResponse(file.path)
    etag = hashlib.sha256(file.data).hexdigest()[:16]
    if any(known.value == etag for known in request.if_none_match or ()):
        response = web.Response(status=304)
    else:
        response = _build_range(request, file.data)
    response.etag = etag
    return response


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
