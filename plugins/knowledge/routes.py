"""HTTP routes with which an operator adds, lists, searches and deletes documents while the bot runs."""

import asyncio
import json
from pathlib import PurePath
from typing import Annotated, Any
from urllib.parse import urlsplit
from uuid import UUID

from pydantic import BaseModel, ConfigDict, Field, StringConstraints, ValidationError

from bot import Agent, BotError, Memory, RecallScope, RouteRequest, RouteResponse, route
from bot.models import ModelError
from bot.platform import FetchError, extract_pdf_text
from bot.prompts import ANYBODY
from bot.text import sanitize_name
from plugins.knowledge.chunks import NewDocument
from plugins.knowledge.documents import MAX_FILE_BYTES, READABLE_SUFFIXES, UnreadableDocument, extract_text
from plugins.knowledge.index import KnowledgeIndex

MAX_NAME_LENGTH = 200
SUFFIX_BY_TYPE = {"application/pdf": ".pdf", "text/csv": ".csv", "text/markdown": ".md", "text/plain": ".txt"}
DocumentName = Annotated[str, StringConstraints(strip_whitespace=True, max_length=MAX_NAME_LENGTH)]


class DocumentRequest(BaseModel):
    """A document to add: its text and name, or the URL where it is; the name of one from a URL is optional."""

    model_config = ConfigDict(extra="forbid")
    name: DocumentName = ""
    text: str = ""
    url: str = Field("", max_length=2048)


@route("GET", "/documents")
async def list_documents(agent: Agent, request: RouteRequest) -> RouteResponse:
    """List the documents, those of the character file first."""
    index = agent.services[KnowledgeIndex]
    own = [_describe(document) for document in (await index.list_documents()).values()]
    return RouteResponse(json={"documents": own + [_describe(document) for document in await index.list_added()]})


@route("POST", "/documents", files=True, max_body_bytes=2 * MAX_FILE_BYTES)
async def add_documents(agent: Agent, request: RouteRequest) -> RouteResponse:
    """Add the files of a form, or a text or a URL as JSON; one of the same name is replaced."""
    index = agent.services[KnowledgeIndex]
    try:
        documents = [await _read_file(file.name, file.data) for file in request.files]
        documents = documents or [await _read_request(agent, request)]
        added = [await index.add(document) for document in documents]
    except (UnreadableDocument, FetchError) as error:
        return _problem(422, "unreadable_document", str(error))
    except ModelError as error:
        return _problem(503, "model_failed", f"it could not be embedded; send it again later: {error}")
    return RouteResponse(201, json={"documents": [_describe(document) for document in added]})


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
    """Return the passages that `?q=` finds among the documents that everyone may be told."""
    everywhere = RecallScope(room_id=agent.id, world_id=agent.id)
    passages = await agent.services[KnowledgeIndex].search(request.query.get("q", "")[:2_000], everywhere)
    found = [{"name": passage.name, "url": passage.url, "text": passage.text} for passage in passages]
    return RouteResponse(json={"passages": found})


async def _read_request(agent: Agent, request: RouteRequest) -> NewDocument:
    """Return the document of a JSON body. Raises UnreadableDocument, FetchError."""
    try:
        body = DocumentRequest.model_validate(json.loads(request.body))
    except (ValidationError, ValueError) as error:
        raise UnreadableDocument(f"the body is no document: {type(error).__name__}") from None
    if bool(body.url) == bool(body.text) or (body.text and not body.name):
        raise UnreadableDocument("send files, or a name and a text, or a URL")
    if body.text:
        return NewDocument(body.name, await asyncio.to_thread(extract_text, ".txt", body.text.encode()))
    file = await agent.fetcher.get(body.url, max_bytes=MAX_FILE_BYTES)
    suffix = SUFFIX_BY_TYPE.get(file.content_type, "")
    if suffix != ".pdf" and not file.is_text:
        raise UnreadableDocument(f"it is {file.content_type or 'of an unknown type'}, which cannot be read")
    data = file.body if suffix == ".pdf" else file.text().encode()
    name = body.name or sanitize_name(PurePath(urlsplit(file.url).path).name) or urlsplit(file.url).hostname or body.url
    text = await _extract(suffix or ".txt", data)
    return NewDocument(name[:MAX_NAME_LENGTH], text, url=body.url, authors=(ANYBODY,))


async def _read_file(name: str, data: bytes) -> NewDocument:
    """Return the document of an uploaded file, whose name is only shown. Raises UnreadableDocument."""
    name = sanitize_name(PurePath(name.replace("\\", "/")).name)[:MAX_NAME_LENGTH]
    suffix = PurePath(name).suffix.lower()
    if suffix not in READABLE_SUFFIXES:
        raise UnreadableDocument(f"{name!r}: only {', '.join(sorted(READABLE_SUFFIXES))} files are read")
    try:
        return NewDocument(name, await _extract(suffix, data))
    except UnreadableDocument as error:
        raise UnreadableDocument(f"{name!r}: {error}") from None


async def _extract(suffix: str, data: bytes) -> str:
    """Return the text of a file; a PDF is read in a process of its own, because it may be made to harm."""
    if suffix != ".pdf":
        return await asyncio.to_thread(extract_text, suffix, data)
    if len(data) > MAX_FILE_BYTES:
        raise UnreadableDocument(f"it is larger than {MAX_FILE_BYTES // 2**20} MiB")
    try:
        text = await extract_pdf_text(data)
    except BotError as error:
        raise UnreadableDocument(str(error)) from None
    return await asyncio.to_thread(extract_text, ".txt", text.encode("utf-8", "replace"))


def _describe(document: Memory) -> dict[str, Any]:
    fragments: list[UUID] = document.metadata["fragments"]
    return {
        "id": str(document.id),
        "name": document.metadata["name"],
        "url": document.metadata.get("url", ""),
        "added": "world" in document.metadata,
        "world": document.metadata.get("world") or None,
        "fragments": len(fragments),
        "created_at": document.created_at.isoformat(),
    }


def _problem(status: int, code: str, message: str) -> RouteResponse:
    return RouteResponse(status, json={"error": {"code": code, "message": message}})
