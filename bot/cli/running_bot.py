"""Access next to a running bot: HTTP client of its server, and its store opened for reading.

The rooms and people that a text of the command line names.
"""

import asyncio
import http.client
import json
import re
from collections.abc import AsyncIterator, Callable, Collection, Coroutine, Iterator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager, contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from http import HTTPStatus
from typing import Any, TypeVar
from uuid import UUID, uuid4

from bot.cli.characters import WEB, CharacterConfig
from bot.cli.process.shutdown import UsageError, explain_os_error, print_notice
from bot.domain.environment import Entity, Room
from bot.domain.instructions import RoomInstructions
from bot.domain.ledger import CostEntry, CostKey
from bot.errors import ConfigError, StoreInaccessible, TemporaryError
from bot.http import UploadedFile
from bot.inbound.agent_handle import AdapterSpec
from bot.logs import configure_logging
from bot.operate.conversations import ConversationReader
from bot.operate.operations import (
    NO_DRAFT,
    DecisionResult,
    DraftBody,
    DraftDecision,
    ForgottenResponse,
    IgnoredResponse,
    Operations,
    PartDecision,
    SaidResponse,
)
from bot.operate.people import find_people
from bot.operate.results import Result, name_room
from bot.operate.rooms import RoomInstructionsBody, TakeOverBody
from bot.outbound.proposals import ProposalDecision
from bot.plugin_system.loading import find_adapter
from bot.plugin_system.plugin import collect_schemas, find_storage
from bot.settings import CoreSettings
from bot.store.protocols import Store
from bot.store.storage import Storage
from bot.text import suggest

T = TypeVar("T")
U = TypeVar("U")
R = TypeVar("R", bound=Result)
TIMEOUT_SECONDS = 10.0
CHANGE_TIMEOUT_SECONDS = 60.0  # a corrected fact is embedded before it answers
MAX_SHOWN_ROOMS, MAX_SHOWN_PEOPLE = 5, 20
SOURCE = "command line"  # in the log of who changed what
TOKEN_FILE = "server-token"
ANY_STATUS = tuple(HTTPStatus)
LOOPBACK_BY_WILDCARD = {"0.0.0.0": "127.0.0.1", "::": "::1"}


@dataclass(frozen=True, slots=True)
class HttpReply:
    """The response of the running bot."""

    status: HTTPStatus
    body: Mapping[str, Any]

    @property
    def problem(self) -> str:
        """The message of an error response, or the HTTP status."""
        error = self.body.get("error")
        return str(error.get("message", self.status)) if isinstance(error, Mapping) else str(self.status)


@dataclass(frozen=True, slots=True)
class RunningBot:
    """Address and token of a running bot's server."""

    host: str
    port: int
    token: str

    def send(
        self,
        method: str,
        path: str,
        body: Any = None,
        file: UploadedFile | None = None,
        *,
        allowed: Collection[HTTPStatus] = (HTTPStatus.OK,),
        timeout: float = TIMEOUT_SECONDS,
    ) -> HttpReply:
        """Send a request, with a body as JSON or a file as a form, and return a response with an allowed status.

        Raises ConfigError if the bot refuses, TemporaryError if it cannot do it now or none answers.
        """
        connection = http.client.HTTPConnection(self.host, self.port, timeout=timeout)
        headers = {"Authorization": f"Bearer {self.token}"}
        data = None
        if file is not None:
            headers["Content-Type"], data = _build_form(file)
        elif body is not None:
            headers["Content-Type"] = "application/json"
            data = json.dumps(body).encode()
        try:
            connection.request(method, path, data, headers)
            response = connection.getresponse()
            document = json.loads(response.read())
            status = HTTPStatus(response.status)
        except (OSError, http.client.HTTPException, ValueError) as error:
            raise TemporaryError(f"no bot answers at {self} ({error})") from None
        finally:
            connection.close()
        reply = HttpReply(status, document if isinstance(document, Mapping) else {})
        if status in allowed:
            return reply
        error_type = TemporaryError if status >= HTTPStatus.INTERNAL_SERVER_ERROR else ConfigError
        raise error_type(f"the bot at {self} refused: {reply.problem}")

    async def ask(self, method: str, path: str, body: Any = None, **options: Any) -> HttpReply:
        """Send a request in a thread, as `send` does."""
        return await asyncio.to_thread(partial(self.send, method, path, body, **options))

    def __str__(self) -> str:
        return f"http://{f'[{self.host}]' if ':' in self.host else self.host}:{self.port}"


def _build_form(file: UploadedFile) -> tuple[str, bytes]:
    """Return the content type and the body of a form with one file."""
    boundary = uuid4().hex
    name = re.sub(r'[\x00-\x1f\x7f"\\]', "_", file.name)
    head = f'--{boundary}\r\nContent-Disposition: form-data; name="{file.field_name}"; filename="{name}"\r\n'
    head += f"Content-Type: {file.content_type}\r\n\r\n"
    body = head.encode("utf-8", "replace") + file.data + f"\r\n--{boundary}--\r\n".encode()
    return f"multipart/form-data; boundary={boundary}", body


def find_running_bot(config: CharacterConfig, access_token: str = "") -> RunningBot:
    """Return the server of the process that runs a character, to be called with a token, by default its own.

    Raises ConfigError if it is unknown.
    """
    spec = find_adapter(WEB)
    if not isinstance(spec, AdapterSpec):
        raise ConfigError(spec)
    values = config.settings.load(spec.settings).model_dump()
    host, port, token = str(values["server_host"]), int(values["server_port"]), values["server_token"]
    if not port:
        raise ConfigError("SERVER_PORT is 0 (any free port): set it to the port that the running bot printed")
    if access_token or token is not None:
        return RunningBot(LOOPBACK_BY_WILDCARD.get(host, host), port, access_token or token.get_secret_value())
    file = config.settings.load(CoreSettings).bot_data_dir / TOKEN_FILE
    with explain_os_error(ConfigError, f"the token of its server cannot be read from {file}"):
        stored_token = file.read_text(encoding="utf-8").strip()
    return RunningBot(LOOPBACK_BY_WILDCARD.get(host, host), port, stored_token)


def require_storage(config: CharacterConfig) -> Storage:
    """Return a character's storage. Raises ConfigError if its data is in memory only."""
    storage = find_storage(config.plugins)
    if storage is None:
        raise ConfigError(
            f"{config.name} ({config.path}) is stored in memory only: name the plugin sql in its file, or "
            "set DATABASE_URL"
        )
    return storage


def open_store(config: CharacterConfig) -> AbstractAsyncContextManager[Store]:
    """Open a character's store for this process. Raises StoreInaccessible where another one uses it alone."""
    return require_storage(config).open(config.agent_id, config.settings, collect_schemas(config.plugins))


@asynccontextmanager
async def open_store_for_reading(config: CharacterConfig) -> AsyncIterator[Store]:
    """Open a character's store for reading; another process may be using it."""
    async with require_storage(config).open_read_only(config.agent_id, config.settings) as store:
        yield store


@dataclass(frozen=True, slots=True)
class RemoteOperations:
    """What `Operations` change, done by the running bot; `source` is its own. The methods are described there."""

    _bot: RunningBot
    _agent_id: UUID

    async def decide(self, part_id: str, decision: PartDecision) -> DecisionResult:
        reply = await self._send("POST", "outbox/decisions", {"ids": [part_id], "decision": decision.value})
        return DecisionResult.model_validate(reply.body["results"][0])

    async def decide_draft(
        self,
        draft_id: str,
        decision: ProposalDecision,
        *,
        actor: str = "",
        revision: int | None = None,
        text: str | None = None,
    ) -> DraftDecision:
        body = {"revision": revision} | ({"text": text} if decision is ProposalDecision.EDIT else {})
        allowed = (HTTPStatus.OK, HTTPStatus.NOT_FOUND, HTTPStatus.CONFLICT)
        reply = await self._send("POST", f"drafts/{draft_id}/{decision}", body, allowed=allowed)
        draft = DraftBody.model_validate(reply.body) if reply.status is HTTPStatus.OK else None
        note = str(reply.body.get("note", "")) if draft is not None else reply.problem
        is_known = reply.status is not HTTPStatus.NOT_FOUND
        return DraftDecision(id=draft_id, is_done=draft is not None, note=note if is_known else NO_DRAFT, draft=draft)

    async def change_fact(self, fact_id: UUID, text: str | None, *, source: str = "") -> bool:
        method, body = ("DELETE", None) if text is None else ("PATCH", {"text": text})
        reply = await self._send(method, f"facts/{fact_id}", body, allowed=(HTTPStatus.OK, HTTPStatus.NOT_FOUND))
        return reply.status is HTTPStatus.OK

    async def forget_person(self, entity_id: UUID, *, source: str = "") -> ForgottenResponse:
        return await self._get(ForgottenResponse, "POST", f"people/{entity_id}/forget")

    async def mark_minor(self, entity: Entity, *, is_minor: bool, source: str = "") -> None:
        await self._send("POST", f"people/{entity.id}/{'mark' if is_minor else 'unmark'}-minor")

    async def ignore_person(self, entity_id: UUID, *, is_ignored: bool, source: str = "") -> IgnoredResponse:
        return await self._get(IgnoredResponse, "POST", f"people/{entity_id}/{'ignore' if is_ignored else 'read'}")

    async def take_over(
        self, room_id: UUID, person_id: UUID | None = None, *, name: str = "", reason: str = "", source: str = ""
    ) -> TakeOverBody:
        body = {"person": person_id and str(person_id), "name": name, "reason": reason}
        return await self._get(TakeOverBody, "POST", f"rooms/{room_id}/take-over", body)

    async def give_back(self, room_id: UUID, person_id: UUID | None = None, *, source: str = "") -> list[TakeOverBody]:
        reply = await self._send("POST", f"rooms/{room_id}/give-back", {"person": person_id and str(person_id)})
        return [TakeOverBody.model_validate(item) for item in reply.body["ended"]]

    async def instructions(self, room_id: UUID, rooms: Mapping[str, RoomInstructions]) -> RoomInstructionsBody:
        return await self._get(RoomInstructionsBody, "GET", f"rooms/{room_id}/instructions")

    async def set_instructions(
        self,
        room_id: UUID,
        values: Mapping[str, str],
        rooms: Mapping[str, RoomInstructions],
        *,
        of_world: bool = False,
        source: str = "",
    ) -> RoomInstructionsBody:
        body = {"values": dict(values), "of_world": of_world}
        return await self._get(RoomInstructionsBody, "PUT", f"rooms/{room_id}/instructions", body)

    async def write_as_agent(self, room_id: UUID, text: str, *, name: str = "", key: str = "") -> SaidResponse:
        return await self._get(SaidResponse, "POST", f"rooms/{room_id}/write", {"text": text, "name": name})

    async def add_costs(self, entries: Sequence[CostEntry]) -> None:
        costs = [{"model": entry.model, "purpose": entry.purpose, **entry.to_json()} for entry in entries]
        await self._send("POST", "costs", {"costs": costs})

    async def _get(self, model: type[R], method: str, path: str, body: Any = None) -> R:
        return model.model_validate((await self._send(method, path, body)).body)

    async def _send(
        self, method: str, path: str, body: Any = None, allowed: Collection[HTTPStatus] = (HTTPStatus.OK,)
    ) -> HttpReply:
        target = f"/api/{path}?agent={self._agent_id}"
        return await self._bot.ask(method, target, body, allowed=allowed, timeout=CHANGE_TIMEOUT_SECONDS)


@contextmanager
def explaining(refusal: StoreInaccessible) -> Iterator[None]:
    """Ask the running bot in the block, since it uses the store; an error there also says what `refusal` says."""
    try:
        yield
    except (ConfigError, TemporaryError) as error:
        raise type(error)(f"{refusal}\nand that process could not be asked: {error}") from None


@asynccontextmanager
async def connect(config: CharacterConfig) -> AsyncIterator[Operations | RemoteOperations]:
    """Yield what changes a character's data: the running bot if it uses the store, or else the store itself.

    Nothing is created where there is no store yet. Raises ConfigError, TemporaryError.
    """
    operations: Operations | RemoteOperations | None = None
    if require_storage(config).is_shared(config.settings):
        with suppress(ConfigError, TemporaryError):  # a running bot would not see a change of the store
            operations = RemoteOperations(await asyncio.to_thread(find_own_bot, config), config.agent_id)
    async with AsyncExitStack() as stack:
        if operations is None:
            async with open_store_for_reading(config):
                pass
            try:
                store = await stack.enter_async_context(open_store(config))
                operations = Operations.on_store(config.agent_id, store)
            except StoreInaccessible as refusal:
                with explaining(refusal):
                    operations = RemoteOperations(await asyncio.to_thread(find_own_bot, config), config.agent_id)
        yield operations


def find_own_bot(config: CharacterConfig) -> RunningBot:
    """Return the bot that runs this character, once it has answered. Raises ConfigError, TemporaryError."""
    running_bot = find_running_bot(config)
    agents = running_bot.send("GET", "/api/agents").body.get("agents", ())
    if str(config.agent_id) not in [agent.get("id") for agent in agents]:
        raise ConfigError(f"the bot at {running_bot} does not run {config.name}")
    return running_bot


def run_connected(
    config: CharacterConfig, work: Callable[[Operations | RemoteOperations], Coroutine[Any, Any, T]]
) -> T:
    """Return what a change returns that is made as `connect` says."""
    return run_with(config, connect(config), work)


def read_store(config: CharacterConfig, read: Callable[[Store], Coroutine[Any, Any, T]]) -> T:
    """Return what is read of a character's store, which a running bot may use meanwhile."""
    return run_with(config, open_store_for_reading(config), read)


def run_with(
    config: CharacterConfig, opened: AbstractAsyncContextManager[U], work: Callable[[U], Coroutine[Any, Any, T]]
) -> T:
    """Return what work with something that is opened returns; problems are logged as the settings say."""

    async def run() -> T:
        async with opened as value:
            return await work(value)

    with configure_logging(level=config.settings.get("LOG_LEVEL") or "WARNING", secrets=config.secrets):
        return asyncio.run(run())


def store_costs(config: CharacterConfig, entries: Mapping[CostKey, CostEntry], label: str) -> None:
    """Add what work of a command has cost to the sums of a character that has a database, through the bot if it runs.

    `label` names the work where the costs cannot be stored.
    """
    if not entries or find_storage(config.plugins) is None:
        return

    async def add(operations: Operations | RemoteOperations) -> None:
        await operations.add_costs(list(entries.values()))

    try:
        run_connected(config, add)
    except (ConfigError, TemporaryError) as error:
        if spent := sum(entry.cost for entry in entries.values()):
            print_notice(f"what {label} has cost (${spent:.4f}) is in no sum and no limit: {error}")


async def find_rooms(store: Store, text: str) -> list[Room]:
    """Return the rooms whose id, name or id on the platform is a text. Raises UsageError where there is none."""
    conversations = ConversationReader(store)
    if found := await conversations.find_rooms(text):
        return found
    rooms = await conversations.rooms()
    latest = ", ".join(f"{name_room(room)} ({room.platform})" for room in rooms[:MAX_SHOWN_ROOMS]) or "none yet"
    hint = suggest(text, map(name_room, rooms), otherwise=f"the latest are: {latest}")
    raise UsageError(f"no room {text!r} was found; {hint}")


async def choose_room(store: Store, text: str) -> Room:
    """Return the one room that a text names. Raises UsageError where there is none or several."""
    rooms = await find_rooms(store, text)
    if len(rooms) > 1:
        lines = [f"{len(rooms)} rooms are called {text!r}: name one by the id that stands first"]
        raise UsageError("\n".join([*lines, *(f"  {room.id}  {name_room(room)} ({room.platform})" for room in rooms)]))
    return rooms[0]


async def choose_person(store: Store, text: str, agent_id: UUID) -> Entity:
    """Return the person whose id, account or name is a text. Raises UsageError where there is none or several."""
    people = await find_people(store, text, agent_id)
    if not people:
        raise UsageError(f"{text!r} is no stored person: name the id of the account, as the Console's people show it")
    if len(people) > 1:
        lines = [f"{len(people)} people are called {text!r}: name one by the id that stands first"]
        lines += [f"  {entity.id}  {describe_person(entity)}" for entity in people[:MAX_SHOWN_PEOPLE]]
        raise UsageError("\n".join(lines))
    return people[0]


def describe_person(entity: Entity) -> str:
    """Return the name and the account of a person."""
    return f"{entity.name or 'without a name'} ({entity.platform} {entity.external_id})"
