"""HTTP handlers of files: uploads, those of messages, and the documents that an agent knows."""

import asyncio
import hashlib
import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Annotated, Any
from urllib.parse import quote
from uuid import UUID

from aiohttp import web
from pydantic import Field, StringConstraints

from adapters.web.auth import GRANT, Access, TokenAuth
from adapters.web.config import Limits
from adapters.web.files import UploadStore, read_uploads
from adapters.web.incoming import is_own_room, uploader_of
from adapters.web.json_io import HttpProblem, build_not_found, validate_model
from adapters.web.openapi import operation
from adapters.web.plugin_routes import PluginRoutes
from adapters.web.queries import AgentDirectory
from adapters.web.schemas import MAX_ATTACHMENTS, AgentQuery, FileLimits, Query, RequestModel, ResponseModel
from bot.platform import AgentHandle, BoundRoute, body_timeout

UPLOAD_ID = re.compile(r"[0-9a-f]{32}")
FILE_ID = re.compile(r"([0-9a-f]{32})-(\d{1,2})")
# Types that a browser may show in place; with `nosniff` it takes no file for anything else. Others are downloaded.
SHOWN_TYPES = frozenset(
    {"image/png", "image/jpeg", "image/gif", "image/webp", "image/avif", "audio/mpeg", "audio/ogg", "audio/wav"}
    | {"audio/flac", "audio/mp4", "audio/aac", "audio/webm", "video/mp4", "video/webm"}
)
DocumentRoutes = dict[tuple[str, str], BoundRoute]
CHANGE_STATUSES = (400, 404, 408, 409, 413, 422, 503)
DOCUMENT_SEARCH = ("GET", "/search")
DOCUMENT_ROUTES = {("GET", "/documents"), ("POST", "/documents"), DOCUMENT_SEARCH}
NO_DOCUMENTS = "this character does not use the plugin knowledge: add it to the plugins of its file"
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
    _uploads: UploadStore
    _limits: Limits

    @operation("POST", "/api/files", "upload_files", Access.CHAT, (400, 408, 413, 415, 422, 503), takes_files=True)
    async def upload_files(self, request: web.Request) -> UploadsResponse:
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
        return UploadsResponse(files=bodies)

    @operation("GET", "/api/files/{id}", "file", Access.SIGNED, (416,), query=FileQuery, is_file=True)
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

    @operation("GET", "/api/files/{id}/link", "file_link", Access.ANY, (404,))
    async def sign_link(self, request: web.Request) -> FileLinkResponse:
        """Return a link to a file of a message that needs no token until it expires."""
        if not FILE_ID.fullmatch(request.match_info["id"]):
            raise build_not_found("file", request.match_info["id"])
        await self._find_file(request, is_signed=False)
        link, expires_at = self._auth.sign_path(request.path.removesuffix("/link"))
        return FileLinkResponse(url=link, expires_at=expires_at)

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


class DocumentsQuery(AgentQuery):
    """Selection of documents of an agent, by default of the first that looks things up in any."""

    limit: Annotated[int, Field(ge=1, le=200)] = 50
    before: Annotated[str, StringConstraints(pattern="^[0-9]{1,6}$")] | None = None


class DocumentRequest(RequestModel):
    """A document to add: its name and text, or its URL. Files are sent as `multipart/form-data` instead."""

    name: Annotated[str, StringConstraints(strip_whitespace=True, max_length=200)] = ""
    text: str = ""
    url: Annotated[str, StringConstraints(max_length=2048)] = ""


class DocumentBody(ResponseModel):
    """A document: its size and parts, when it was read, and what is wrong with it.

    `id` is null for one of the character's file that could not be read. `is_added` is true for one that was added
    while the bot ran; only those can be deleted. `world` is the id of the only world that is told of it. `usd` is what
    reading it has cost, null where that is not known.
    """

    id: UUID | None
    name: str
    url: str = ""
    bytes: int | None = None
    parts: int = 0
    read_at: datetime | None = None
    usd: float | None = None
    problem: str = ""
    is_added: bool = False
    world: UUID | None = None


class DocumentsResponse(ResponseModel):
    """Documents, those that were read last first.

    `is_available` is false, and there are none, while no plugin that keeps documents is on; `why` says what to do.
    """

    agent_id: UUID
    is_available: bool
    why: str
    count: int
    parts: int
    documents: list[DocumentBody]
    next: str | None


class AddedDocuments(ResponseModel):
    """The documents that were added."""

    documents: list[DocumentBody]


class DeletedDocument(ResponseModel):
    """The document that was deleted."""

    deleted: UUID


@dataclass(frozen=True, slots=True)
class DocumentsApi:
    """Handlers for the documents of agents, which a plugin with the routes of `knowledge` keeps."""

    _directory: AgentDirectory
    _plugins: PluginRoutes

    @operation("GET", "/api/documents", "documents", Access.READ)
    async def list_documents(self, request: web.Request, query: DocumentsQuery) -> DocumentsResponse:
        """List the documents of an agent."""
        handle, routes = self._find_routes(query.agent)
        listed = (await self._call(request, routes, ("GET", "/documents"))) if routes else {}
        documents = [_build_document(item) for item in listed.get("documents", ())]
        documents.sort(key=lambda item: (str(item.read_at), str(item.id)), reverse=True)
        unreadable = [DocumentBody(id=None, **item) for item in listed.get("unreadable", ())]
        found = unreadable + documents
        start = int(query.before or 0)
        end = start + query.limit
        return DocumentsResponse(
            agent_id=handle.agent_id,
            is_available=bool(routes),
            why="" if routes else NO_DOCUMENTS,
            count=len(found),
            parts=sum(item.parts for item in found),
            documents=found[start:end],
            next=str(end) if end < len(found) else None,
        )

    @operation(
        "POST",
        "/api/documents",
        "add-documents",
        Access.CHANGE,
        CHANGE_STATUSES,
        query=AgentQuery,
        body=DocumentRequest,
    )
    async def add_documents(self, request: web.Request) -> AddedDocuments:
        """Add the files of a form, or a text or a URL as JSON; a document of the same name is replaced."""
        answer = await self._change(request, ("POST", "/documents"))
        documents = [_build_document(item) for item in answer["documents"]]
        return AddedDocuments(documents=documents)

    @operation("DELETE", "/api/documents/{id}", "delete-document", Access.CHANGE, CHANGE_STATUSES, query=AgentQuery)
    async def delete_document(self, request: web.Request) -> DeletedDocument:
        """Delete a document that was added while the bot ran."""
        answer = await self._change(request, ("DELETE", "/documents/{id}"))
        return DeletedDocument.model_validate(answer)

    @operation("POST", "/api/documents/{id}/read", "read-document", Access.CHANGE, CHANGE_STATUSES, query=AgentQuery)
    async def read_document(self, request: web.Request) -> DocumentBody:
        """Read a document once more: one of the character's file, or one that was added by its URL."""
        answer = await self._change(request, ("POST", "/documents/{id}/read"))
        return _build_document(answer)

    async def _change(self, request: web.Request, name: tuple[str, str]) -> Any:
        query = validate_model(AgentQuery, dict(request.query))
        _, routes = self._find_routes(query.agent)
        if name not in routes:
            if "id" in request.match_info:
                raise build_not_found("document", request.match_info["id"])
            raise HttpProblem(409, "no_documents", NO_DOCUMENTS)
        return await self._call(request, routes, name)

    async def _call(self, request: web.Request, routes: DocumentRoutes, name: tuple[str, str]) -> Any:
        """Return what a route of the plugin answers. Raises HttpProblem for a problem."""
        response = await self._plugins.call(request, routes[name])
        if response.status >= 400:
            error = response.json["error"]
            raise HttpProblem(response.status, error["code"], error["message"])
        return response.json

    def _find_routes(self, agent: str | None) -> tuple[AgentHandle, DocumentRoutes]:
        handles = self._directory.select_agents(agent)
        found = [(handle, find_document_routes(handle)) for handle in handles]
        return next((pair for pair in found if pair[1]), found[0])


def find_document_routes(handle: AgentHandle) -> DocumentRoutes:
    """Return the routes of the plugin that keeps documents, one with those of `knowledge`; none without it."""
    by_plugin: dict[str, DocumentRoutes] = {}
    for route in handle.routes:
        by_plugin.setdefault(route.plugin, {})[route.method, route.path] = route
    return next((routes for routes in by_plugin.values() if routes.keys() >= DOCUMENT_ROUTES), {})


def _build_document(item: Mapping[str, Any]) -> DocumentBody:
    return DocumentBody(
        id=UUID(item["id"]),
        name=item["name"],
        url=item["url"],
        bytes=item.get("bytes"),
        parts=item["fragments"],
        read_at=datetime.fromisoformat(item["created_at"]),
        problem=item.get("problem", ""),
        is_added=item["added"],
        world=UUID(item["world"]) if item["world"] else None,
    )
