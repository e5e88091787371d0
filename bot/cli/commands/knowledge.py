"""List, add, search or delete the documents that the character knows; a running bot follows at once."""

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Iterator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import replace
from functools import partial
from http import HTTPStatus
from pathlib import Path
from typing import Annotated, Any
from urllib.parse import quote, urlencode

import typer

from bot.cli.characters import CharacterConfig
from bot.cli.options import Output, examples, new_group, working
from bot.cli.process.shutdown import UsageError, explain_os_error, print_notice
from bot.cli.running_bot import ANY_STATUS, HttpReply, explaining, find_running_bot, require_storage, run_with
from bot.domain.task import Task
from bot.errors import BotError, ConfigError, StoreInaccessible, TemporaryError
from bot.http import RouteRequest, UploadedFile
from bot.plugin_system.loading import PluginPurpose, bundled_names
from bot.plugin_system.plugin import Plugin
from bot.text import shorten, strip_terminal_codes, suggest

TIMEOUT_SECONDS = 300.0  # all fragments of a document are embedded before it answers
MAX_PASSAGE_LENGTH = 300
LIST, ADD, SEARCH, DELETE = "list", "add", "search", "delete"
DOCUMENTS, DOCUMENT_BY_ID, FOUND = "/documents", "/documents/{id}", "/search"
ROUTES = {("GET", DOCUMENTS), ("POST", DOCUMENTS), ("DELETE", DOCUMENT_BY_ID), ("GET", FOUND)}

Send = Callable[[RouteRequest], Awaitable[HttpReply]]
Work = Callable[[Send], Coroutine[Any, Any, Mapping[str, Any]]]

knowledge_app = new_group(
    "List, add, search or delete the documents that the character knows; a running bot follows at once."
)


@knowledge_app.command(LIST, epilog=examples("bot knowledge list", "bot knowledge list --json"))
def list_documents(config: CharacterConfig) -> Output:
    """List the documents of the character's file, and those that were added."""
    return _run(config, _list, is_indexed=True)


@knowledge_app.command(
    ADD, epilog=examples("bot knowledge add tides.md", "bot knowledge add https://example.org/tides")
)
def add_documents(
    config: CharacterConfig,
    sources: Annotated[list[str], typer.Argument(metavar="FILE|URL", help="Text, Markdown, CSV, PDF, DOCX or HTML.")],
) -> Output:
    """Add files and web pages; one of the same name is replaced."""
    return _run(config, partial(_add_all, sources))


@knowledge_app.command(SEARCH, epilog=examples("bot knowledge search when is low water"))
def search(
    config: CharacterConfig,
    question: Annotated[list[str], typer.Argument(metavar="QUESTION", help="What a person would ask.")],
) -> Output:
    """Print the passages that are found for a question."""
    request = RouteRequest("GET", FOUND, query={"q": " ".join(question)})
    return _run(config, lambda send: _call(send, request), is_indexed=True)


@knowledge_app.command(DELETE, epilog=examples("bot knowledge delete tides.md"))
def delete(
    config: CharacterConfig,
    documents: Annotated[list[str], typer.Argument(metavar="ID|NAME", help="As `bot knowledge list` shows it.")],
) -> Output:
    """Delete added documents with all that was learnt from them."""
    return _run(config, partial(_delete_all, documents))


def _run(config: CharacterConfig, work: Work, *, is_indexed: bool = False) -> Output:
    """Carry out the work on the character's own store, or through the running bot that uses it."""
    require_storage(config)
    with working("reading documents"):
        result = run_with(config, _connect(config, _find_plugin(config), is_indexed=is_indexed), work)
    header = ("document", "name", "origin", "fragments", "address")
    rows, lines = [], []
    for item in result.get("documents", ()):
        origin = "added" if item["added"] else "of the character's file"
        world = f"told in the world {item['world']} only" if item["world"] else ""
        place = ", ".join(filter(None, (origin, world)))
        rows.append((item["id"], item["name"], place, str(item["fragments"]), item["url"] or ""))
        details = (origin, f"{item['fragments']} fragments", world, f"from {item['url']}" if item["url"] else "")
        lines.append(f"{item['id']}  {item['name']}  ({', '.join(filter(None, details))})")
    return Output(result, lines or _format(result), header, rows)


def _find_plugin(config: CharacterConfig) -> Plugin:
    """Return the plugin that keeps documents: one with the routes of `knowledge`. Raises ConfigError."""
    for plugin in config.plugins:
        if {(route.method, route.path) for route in plugin.routes} >= ROUTES:
            return plugin
    [name] = bundled_names(PluginPurpose.DOCUMENTS)
    raise ConfigError(f'{config.name} uses no documents: add "{name}" to the plugins in {config.path}')


async def _call(send: Send, request: RouteRequest) -> Mapping[str, Any]:
    """Return the body of a response. Raises UsageError, ConfigError, TemporaryError."""
    reply = await send(request)
    if reply.status < HTTPStatus.MULTIPLE_CHOICES:
        return reply.body
    if reply.status in (HTTPStatus.UNPROCESSABLE_ENTITY, HTTPStatus.NOT_FOUND, HTTPStatus.REQUEST_ENTITY_TOO_LARGE):
        raise UsageError(reply.problem)
    error_type = TemporaryError if reply.status >= HTTPStatus.INTERNAL_SERVER_ERROR else ConfigError
    raise error_type(f"the documents cannot be reached: {reply.problem}")


@asynccontextmanager
async def _connect(config: CharacterConfig, plugin: Plugin, *, is_indexed: bool) -> AsyncIterator[Send]:
    """Open the store with the models and one plugin, or ask the running bot that uses it.

    The character's own documents are indexed where they are asked for.
    """
    from bot.runtime.agent_runtime import run_agent  # here, because help needs no pipeline

    plugins = tuple(plugin if idle.name == plugin.name else idle for idle in config.idle_config.plugins)
    async with AsyncExitStack() as stack:
        try:
            running = run_agent(replace(config.idle_config, plugins=plugins))
            agent_runtime = await stack.enter_async_context(running)
        except StoreInaccessible as refusal:
            yield partial(_send_to_running_bot, config, plugin, refusal)
            return
        agent = agent_runtime.agent
        for worker in plugin.workers if is_indexed else ():
            try:
                await worker(agent, Task(agent.id, worker.name, agent.clock()))
            except BotError as error:
                print_notice(strip_terminal_codes(f"found by words only: {error}"))
        routes = {(item.method, item.path): item for item in agent_runtime.handle.routes if item.plugin == plugin.name}

        async def call_route(request: RouteRequest) -> HttpReply:
            response = await routes[request.method, request.path].handle(request)
            return HttpReply(HTTPStatus(response.status), response.json)

        yield call_route


async def _send_to_running_bot(
    config: CharacterConfig, plugin: Plugin, refusal: StoreInaccessible, request: RouteRequest
) -> HttpReply:
    path = request.path.format_map({name: quote(value, safe="") for name, value in request.parameters.items()})
    query = urlencode({**request.query, "agent": str(config.agent_id)})
    target = f"/plugins/{quote(plugin.name, safe='')}{path}?{query}"
    body, file = json.loads(request.body) if request.body else None, next(iter(request.files), None)
    with explaining(refusal):
        ask = partial(find_running_bot(config).ask, allowed=ANY_STATUS, timeout=TIMEOUT_SECONDS)
        return await ask(request.method, target, body, file=file)


async def _list(send: Send) -> Mapping[str, Any]:
    return await _call(send, RouteRequest("GET", DOCUMENTS))


async def _add_all(sources: Sequence[str], send: Send) -> Mapping[str, Any]:
    """Add what can be added. Raises UsageError that names each source that cannot, and what was added."""
    documents, problems = list[Mapping[str, Any]](), list[str]()
    for source in sources:
        try:
            documents += await _add(send, source)
        except UsageError as error:
            text = str(error)
            problems.append(text if Path(source).name in text else f"{source}: {text}")
    if problems:
        added = ", ".join(document["name"] for document in documents)
        raise UsageError("\n".join([*problems, *([f"added: {added}"] if added else [])]))
    return {"documents": documents}


async def _delete_all(names: Sequence[str], send: Send) -> Mapping[str, Any]:
    listed = await _list(send)
    chosen = [_choose(listed["documents"], name) for name in dict.fromkeys(names)]
    for document in chosen:
        await _call(send, RouteRequest("DELETE", DOCUMENT_BY_ID, parameters={"id": document["id"]}))
    return {"deleted": chosen}


async def _add(send: Send, source: str) -> Sequence[Mapping[str, Any]]:
    """Add what is in a file or at a URL; return the documents as they were added."""
    if source.startswith(("http://", "https://")):
        added = await _call(send, RouteRequest("POST", DOCUMENTS, body=json.dumps({"url": source}).encode()))
    else:
        path = Path(source)
        with explain_os_error(UsageError, f"{source}: it cannot be read"):
            data = await asyncio.to_thread(path.read_bytes)
        file = UploadedFile("file", path.name, "application/octet-stream", data)
        added = await _call(send, RouteRequest("POST", DOCUMENTS, files=[file]))
    items: Sequence[Mapping[str, Any]] = added["documents"]
    return items


def _choose(listed: Sequence[Mapping[str, Any]], name: str) -> Mapping[str, Any]:
    """Return the document of an id or a name. Raises UsageError unless there is exactly one that was added."""
    found = [document for document in listed if name in (document["id"], document["name"])]
    if not found:
        hint = suggest(name, [document["name"] for document in listed], otherwise="`bot knowledge list` shows them")
        raise UsageError(f"there is no document {name!r}: {hint}")
    added = [document for document in found if document["added"]]
    if not added:
        raise UsageError(f"{name!r} is of the character's file: remove it there, or from its folder")
    if len(added) > 1:
        ids = ", ".join(document["id"] for document in added)
        raise UsageError(f"several documents are named {name!r}: name one by its id: {ids}")
    return added[0]


def _format(result: Mapping[str, Any]) -> Iterator[str]:
    if "passages" in result:
        for passage in result["passages"]:
            source = f" <{passage['url']}>" if passage["url"] else ""
            yield f"{passage['name']}{source}: {shorten(' '.join(passage['text'].split()), MAX_PASSAGE_LENGTH)}"
        if not result["passages"]:
            yield "nothing is found"
    elif "deleted" in result:
        yield from (f"deleted: {document['name']}" for document in result["deleted"])
    else:
        yield "there are no documents"
