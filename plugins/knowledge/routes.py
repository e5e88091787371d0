"""HTTP routes with which an operator adds, lists, searches and deletes documents while the bot runs."""

import asyncio
import codecs
import json
from dataclasses import replace
from pathlib import PurePath
from typing import Annotated, Any
from urllib.parse import urlsplit
from uuid import UUID

from pydantic import BaseModel, ConfigDict, Field, StringConstraints, ValidationError

from bot import Agent, Memory, RecallScope, RouteRequest, RouteResponse, route
from bot.models import ModelError, ModelType
from bot.platform import DocumentFormat, FetchError, MemoryLimitReached
from bot.prompts import ANYBODY, AUTHORS_KEY
from bot.text import sanitize_name
from plugins.knowledge.documents import (
    COPIES,
    FORMATS,
    MAX_FILE_BYTES,
    READABLE_SUFFIXES,
    NewDocument,
    UnreadableDocument,
    extract_isolated,
    extract_text,
)
from plugins.knowledge.index import KnowledgeIndex

MAX_NAME_LENGTH = 200
DocumentName = Annotated[str, StringConstraints(strip_whitespace=True, max_length=MAX_NAME_LENGTH)]


class DocumentRequest(BaseModel):
    """A document to add: its text and name, or the URL where it is; the name of one from a URL is optional."""

    model_config = ConfigDict(extra="forbid")
    name: DocumentName = ""
    text: str = ""
    url: str = Field("", max_length=2048)


@route("GET", "/documents")
async def list_documents(agent: Agent, request: RouteRequest) -> RouteResponse:
    """List the documents, those of the character file first; `unreadable` are those of it that could not be read."""
    index = agent.services[KnowledgeIndex]
    own = await index.list_documents()
    documents = [_describe(document, index) for document in (*own.values(), *await index.list_added())]
    unreadable = [{"name": name, "problem": problem} for name, problem in index.problems.items() if name not in own]
    return RouteResponse(json={"documents": documents, "unreadable": unreadable})


@route("POST", "/documents", files=True, max_body_bytes=2 * MAX_FILE_BYTES)
async def add_documents(agent: Agent, request: RouteRequest) -> RouteResponse:
    """Add the files of a form, or a text or a URL as JSON; one of the same name is replaced."""
    index = agent.services[KnowledgeIndex]
    try:
        documents = [await _read_file(agent, file.name, file.data) for file in request.files]
        documents = documents or [await _read_request(agent, request)]
        added = [await index.add(document) for document in documents]
    except (UnreadableDocument, FetchError) as error:
        return _problem(422, "unreadable_document", str(error))
    except MemoryLimitReached as error:
        return _problem(503, "no_memory", str(error))
    except ModelError as error:
        return _problem(503, "model_failed", f"it could not be embedded; send it again later: {error}")
    return RouteResponse(201, json={"documents": [_describe(document, index) for document in added]})


@route("POST", "/documents/{id}/read")
async def read_document_again(agent: Agent, request: RouteRequest) -> RouteResponse:
    """Read a document once more: one of the character file, or one that was added by its URL."""
    index = agent.services[KnowledgeIndex]
    own = list((await index.list_documents()).values())
    document = next(
        (item for item in (*own, *await index.list_added()) if str(item.id) == request.parameters["id"]), None
    )
    if document is None:
        return _problem(404, "not_found", "no document has this id")
    url = document.metadata.get("url", "")
    if document not in own and not url:
        return _problem(409, "not_readable", "only its text is stored: add the file again")
    try:
        if document in own:
            await index.read_again(document)
        else:
            await index.add(await _read_added_again(agent, document, url))
    except (UnreadableDocument, FetchError) as error:
        return _problem(422, "unreadable_document", str(error))
    except MemoryLimitReached as error:
        return _problem(503, "no_memory", str(error))
    except ModelError as error:
        return _problem(503, "model_failed", f"it could not be embedded; send it again later: {error}")
    found = (*(await index.list_documents()).values(), *await index.list_added())
    described = [_describe(item, index) for item in found if item.id == document.id]
    if not described:
        name = document.metadata["name"]
        return _problem(422, "unreadable_document", index.problems.get(name, "it is no longer there"))
    return RouteResponse(json=described[0])


@route("DELETE", "/documents/{id}")
async def delete_document(agent: Agent, request: RouteRequest) -> RouteResponse:
    """Delete a document that was added while the bot ran."""
    index = agent.services[KnowledgeIndex]
    for document in await index.list_added():
        if str(document.id) == request.parameters["id"]:
            await index.remove_document(document)
            return RouteResponse(json={"deleted": str(document.id)})
    return _problem(404, "not_found", "no added document has this id; one of the character file is removed there")


@route("GET", "/search")
async def search_documents(agent: Agent, request: RouteRequest) -> RouteResponse:
    """Return the passages that `?q=` finds among the documents that everyone, or `?room=`, may be told."""
    scope = await _find_scope(agent, request.query.get("room", ""))
    if scope is None:
        return _problem(404, "not_found", "no room has this id")
    passages = await agent.services[KnowledgeIndex].search(request.query.get("q", "")[:2_000], scope)
    found = [
        {"name": passage.name, "url": passage.url, "text": passage.text, "similarity": passage.similarity}
        for passage in passages
    ]
    return RouteResponse(json={"passages": found})


async def _find_scope(agent: Agent, room_id: str) -> RecallScope | None:
    """Return what may be recalled in a room, or everywhere for a blank id; None for an unknown room."""
    if not room_id:
        return RecallScope(room_id=agent.id, world_id=agent.id)
    try:
        room = await agent.store.worlds.room(UUID(room_id))
    except ValueError:
        return None
    return None if room is None else RecallScope(room_id=room.id, world_id=room.world_id)


async def _read_request(agent: Agent, request: RouteRequest) -> NewDocument:
    """Return the document of a JSON body. Raises UnreadableDocument, FetchError, MemoryLimitReached."""
    try:
        body = DocumentRequest.model_validate(json.loads(request.body))
    except (ValidationError, ValueError) as error:
        raise UnreadableDocument(f"the body is no document: {type(error).__name__}") from None
    if bool(body.url) == bool(body.text) or (body.text and not body.name):
        raise UnreadableDocument("send files, or a name and a text, or a URL")
    if body.text:
        return NewDocument(body.name, await asyncio.to_thread(extract_text, ".txt", body.text.encode()))
    async with agent.memory.hold(COPIES * MAX_FILE_BYTES):
        return await _read_url(agent, body)


async def _read_url(agent: Agent, body: DocumentRequest) -> NewDocument:
    file = await agent.fetcher.get(body.url, max_bytes=MAX_FILE_BYTES)
    file_name = sanitize_name(PurePath(urlsplit(file.url).path).name)
    document_format = DocumentFormat.of(file.content_type, file_name)
    if document_format is None and not file.is_text:
        raise UnreadableDocument(f"it is {file.content_type or 'of an unknown type'}, which cannot be read")
    # Of a page that names another encoding than its server, the server is believed, as browsers do.
    is_decoded = file.is_text and (document_format is None or bool(file.charset))
    data = codecs.BOM_UTF8 + file.text().encode() if is_decoded else file.body
    suffix = ".csv" if file.content_type == "text/csv" else ".txt"
    name = body.name or file_name or urlsplit(file.url).hostname or body.url
    text = await _extract(agent, suffix, data, document_format)
    return NewDocument(name[:MAX_NAME_LENGTH], text, url=body.url, authors=(ANYBODY,))


async def _read_added_again(agent: Agent, document: Memory, url: str) -> NewDocument:
    """Return the document at a URL as it is now. Raises UnreadableDocument, FetchError."""
    name = document.metadata["name"]
    found = await _read_request(agent, RouteRequest("POST", "", body=json.dumps({"name": name, "url": url}).encode()))
    return replace(
        found,
        author_id=document.entity_id if document.entity_id != agent.id else None,
        world_id=document.world_id if document.metadata.get("world") else None,
        authors=tuple(map(UUID, document.metadata.get(AUTHORS_KEY, ()))),
    )


async def _read_file(agent: Agent, name: str, data: bytes) -> NewDocument:
    """Return the document of an uploaded file, whose name is only shown. Raises UnreadableDocument."""
    name = sanitize_name(PurePath(name.replace("\\", "/")).name)[:MAX_NAME_LENGTH]
    suffix = PurePath(name).suffix.lower()
    if suffix not in READABLE_SUFFIXES:
        raise UnreadableDocument(f"{name!r}: only {', '.join(sorted(READABLE_SUFFIXES))} files are read")
    try:
        return NewDocument(name, await _extract(agent, suffix, data, FORMATS.get(suffix)))
    except UnreadableDocument as error:
        raise UnreadableDocument(f"{name!r}: {error}") from None


async def _extract(agent: Agent, suffix: str, data: bytes, document_format: DocumentFormat | None) -> str:
    """Return the text of a file. Raises UnreadableDocument."""
    if document_format is not None:
        suffix, data = ".txt", await extract_isolated(agent, data, document_format)
    return await asyncio.to_thread(extract_text, suffix, data)


def _describe(document: Memory, index: KnowledgeIndex) -> dict[str, Any]:
    fragments: list[UUID] = document.metadata["fragments"]
    problem = index.problems.get(document.metadata["name"], "") if "world" not in document.metadata else ""
    if not document.metadata["model"] and index.agent.models.has_handler_for(ModelType.TEXT_EMBEDDING):
        problem = problem or "it could not be embedded, so it is found by its words only"
    return {
        "id": str(document.id),
        "name": document.metadata["name"],
        "url": document.metadata.get("url", ""),
        "added": "world" in document.metadata,
        "world": str(document.world_id) if document.metadata.get("world") else None,
        "fragments": len(fragments),
        "bytes": document.metadata.get("bytes"),
        "problem": problem,
        "created_at": document.created_at.isoformat(),
    }


def _problem(status: int, code: str, message: str) -> RouteResponse:
    return RouteResponse(status, json={"error": {"code": code, "message": message}})
