"""Access next to a running bot: HTTP client of its server, and its store opened for reading.

A message with receipt, replies and deliveries as text or JSON.
"""

import asyncio
import http.client
import json
import re
from collections.abc import AsyncIterator, Callable, Collection, Coroutine, Iterator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager, contextmanager, suppress
from dataclasses import asdict, dataclass
from functools import partial
from http import HTTPStatus
from typing import Any, TypeVar
from uuid import UUID, uuid4

from bot.cli.characters import WEB, CharacterConfig
from bot.cli.process.shutdown import print_notice
from bot.domain.environment import Entity, Room
from bot.domain.instructions import RoomInstructions
from bot.domain.ledger import CostEntry, CostKey, Delivery, DeliveryState, EventOrigin, ModelCall, Receipt, Rule
from bot.domain.memory import Memory, MemoryKind
from bot.domain.proposal import Proposal
from bot.errors import ConfigError, StoreInaccessible, TemporaryError
from bot.http import UploadedFile
from bot.inbound.agent_handle import AdapterSpec
from bot.logs import configure_logging
from bot.operate.conversations import ConversationReader
from bot.operate.operations import (
    NO_DRAFT,
    DecisionResult,
    DeliveryBody,
    DraftBody,
    DraftDecision,
    ForgottenResponse,
    IgnoredResponse,
    Operations,
    PartDecision,
    SaidResponse,
)
from bot.operate.results import ReceiptBody
from bot.operate.rooms import RoomInstructionsBody, TakeOverBody
from bot.outbound.outbox import describe_cause, list_behind
from bot.outbound.proposals import ProposalDecision
from bot.plugin_system.loading import find_adapter
from bot.plugin_system.plugin import collect_schemas, find_storage
from bot.receipts import describe_receipt
from bot.settings import CoreSettings
from bot.store.activity import VoteSum
from bot.store.protocols import Store
from bot.store.storage import Storage
from bot.text import shorten

T = TypeVar("T")
U = TypeVar("U")
TIMEOUT_SECONDS = 10.0
CHANGE_TIMEOUT_SECONDS = 60.0  # a corrected fact is embedded before it answers
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
    try:
        stored_token = file.read_text(encoding="utf-8").strip()
    except OSError as error:
        raise ConfigError(f"the token of its server cannot be read from {file}: {error.strerror}") from None
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


@asynccontextmanager
async def open_store_for_reading(config: CharacterConfig) -> AsyncIterator[Store]:
    """Open a character's store for reading; another process may be using it."""
    async with require_storage(config).open_read_only(config.agent_config.agent_id, config.settings) as store:
        yield store


@dataclass(frozen=True, slots=True)
class RemoteOperations:
    """What `Operations` change, done by the running bot; `source` is its own."""

    _bot: RunningBot
    _agent_id: UUID

    async def decide(self, part_id: str, decision: PartDecision) -> DecisionResult:
        """Send a held or failed part again, or give a part up."""
        reply = await self._send("POST", "/api/outbox/decisions", {"ids": [part_id], "decision": decision.value})
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
        """Send, edit or drop a draft."""
        body = {"revision": revision} | ({"text": text} if decision is ProposalDecision.EDIT else {})
        allowed = (HTTPStatus.OK, HTTPStatus.NOT_FOUND, HTTPStatus.CONFLICT)
        reply = await self._send("POST", f"/api/drafts/{draft_id}/{decision}", body, allowed=allowed)
        draft = DraftBody.model_validate(reply.body) if reply.status is HTTPStatus.OK else None
        note = str(reply.body.get("note", "")) if draft is not None else reply.problem
        is_known = reply.status is not HTTPStatus.NOT_FOUND
        return DraftDecision(id=draft_id, is_done=draft is not None, note=note if is_known else NO_DRAFT, draft=draft)

    async def change_fact(self, fact_id: UUID, text: str | None, *, source: str = "") -> bool:
        """Replace the text of a fact, or delete it without a text; return whether there was one."""
        method, body = ("DELETE", None) if text is None else ("PATCH", {"text": text})
        reply = await self._send(method, f"/api/facts/{fact_id}", body, allowed=(HTTPStatus.OK, HTTPStatus.NOT_FOUND))
        return reply.status is HTTPStatus.OK

    async def forget_person(self, entity_id: UUID, *, source: str = "") -> ForgottenResponse:
        """Delete a person's data, as they could with `/forget-me`."""
        return ForgottenResponse.model_validate((await self._send("POST", f"/api/people/{entity_id}/forget")).body)

    async def mark_minor(self, entity: Entity, *, is_minor: bool, source: str = "") -> None:
        """Store whether a person is a minor."""
        await self._send("POST", f"/api/people/{entity.id}/{'mark' if is_minor else 'unmark'}-minor")

    async def ignore_person(self, entity_id: UUID, *, is_ignored: bool, source: str = "") -> IgnoredResponse:
        """Store for an operator that a person is not read, or end that; what others have set stays."""
        action = "ignore" if is_ignored else "read"
        return IgnoredResponse.model_validate((await self._send("POST", f"/api/people/{entity_id}/{action}")).body)

    async def take_over(
        self, room_id: UUID, person_id: UUID | None = None, *, name: str = "", reason: str = "", source: str = ""
    ) -> TakeOverBody:
        """Store that an operator answers in place of the agent in a room, or one person there; return what holds."""
        body = {"person": person_id and str(person_id), "name": name, "reason": reason}
        return TakeOverBody.model_validate((await self._send("POST", f"/api/rooms/{room_id}/take-over", body)).body)

    async def give_back(self, room_id: UUID, person_id: UUID | None = None, *, source: str = "") -> list[TakeOverBody]:
        """End the take-over of a room or a person there, else those of all people there; return what has ended."""
        body = {"person": person_id and str(person_id)}
        reply = await self._send("POST", f"/api/rooms/{room_id}/give-back", body)
        return [TakeOverBody.model_validate(item) for item in reply.body["ended"]]

    async def instructions(self, room_id: UUID, rooms: Mapping[str, RoomInstructions]) -> RoomInstructionsBody:
        """Return what is in effect in a room; the running bot knows its character's file."""
        reply = await self._send("GET", f"/api/rooms/{room_id}/instructions")
        return RoomInstructionsBody.model_validate(reply.body)

    async def set_instructions(
        self,
        room_id: UUID,
        values: Mapping[str, str],
        rooms: Mapping[str, RoomInstructions],
        *,
        of_world: bool = False,
        source: str = "",
    ) -> RoomInstructionsBody:
        """Set values of a room or its world, and return what is in effect then."""
        body = {"values": dict(values), "of_world": of_world}
        reply = await self._send("PUT", f"/api/rooms/{room_id}/instructions", body)
        return RoomInstructionsBody.model_validate(reply.body)

    async def write_as_agent(self, room_id: UUID, text: str, *, name: str = "", key: str = "") -> SaidResponse:
        """Send what a person wrote as the bot's account, marked as theirs."""
        body = {"text": text, "name": name}
        return SaidResponse.model_validate((await self._send("POST", f"/api/rooms/{room_id}/write", body)).body)

    async def add_costs(self, entries: Sequence[CostEntry]) -> None:
        """Count costs of another process in the sums and against the limits of today."""
        costs = [{"model": entry.model, "purpose": entry.purpose, **entry.to_json()} for entry in entries]
        await self._send("POST", "/api/costs", {"costs": costs})

    async def _send(
        self, method: str, path: str, body: Any = None, allowed: Collection[HTTPStatus] = (HTTPStatus.OK,)
    ) -> HttpReply:
        target = f"{path}?agent={self._agent_id}"
        send = partial(self._bot.send, method, target, body, allowed=allowed, timeout=CHANGE_TIMEOUT_SECONDS)
        return await asyncio.to_thread(send)


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
    storage, agent_id = require_storage(config), config.agent_config.agent_id
    operations: Operations | RemoteOperations | None = None
    if storage.is_shared(config.settings):
        with suppress(ConfigError, TemporaryError):  # a running bot would not see a change of the store
            operations = RemoteOperations(await asyncio.to_thread(find_own_bot, config), agent_id)
    async with AsyncExitStack() as stack:
        if operations is None:
            async with open_store_for_reading(config):
                pass
            try:
                opened = storage.open(agent_id, config.settings, collect_schemas(config.plugins))
                operations = Operations.on_store(agent_id, await stack.enter_async_context(opened))
            except StoreInaccessible as refusal:
                with explaining(refusal):
                    operations = RemoteOperations(await asyncio.to_thread(find_own_bot, config), agent_id)
        yield operations


def find_own_bot(config: CharacterConfig) -> RunningBot:
    """Return the bot that runs this character, once it has answered. Raises ConfigError, TemporaryError."""
    running_bot = find_running_bot(config)
    agents = running_bot.send("GET", "/api/agents").body.get("agents", ())
    if str(config.agent_config.agent_id) not in [agent.get("id") for agent in agents]:
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


MAX_TEXT_LENGTH = 120
MIN_AMOUNT = 0.000001


@dataclass(frozen=True, slots=True)
class MessageReport:
    """A message with its receipt, replies and deliveries; those in `behind` wait for an earlier one of the room."""

    receipt: Receipt
    room: Room | None
    author: str
    message: Memory | None
    replies: tuple[Memory, ...]
    deliveries: tuple[Delivery, ...]
    run: Mapping[str, Any] | None
    agent_id: UUID
    agent_name: str
    draft: Proposal | None = None
    votes: VoteSum | None = None
    behind: frozenset[str] = frozenset()

    def lines(self) -> Iterator[str]:
        """Yield the report as lines of text."""
        receipt = self.receipt
        is_command = receipt.origin is EventOrigin.COMMAND
        text = repr(shorten(self.message.content.text, MAX_TEXT_LENGTH)) if self.message else "(removed)"
        if is_command:
            text = receipt.reason
        yield f"{receipt.received_at.astimezone():%Y-%m-%d %H:%M:%S}  {self.author} in {self.room_label}: {text}"
        yield f"  {describe_receipt(receipt, self.agent_name)}"
        for line in explain_receipt(receipt):
            yield f"  {line}"
        if receipt.attempts > 1:
            yield f"  attempts: {receipt.attempts}"
        if self.run is not None:
            yield from (f"  {line}" for line in format_run(self.run))
        if self.draft is not None:
            yield f"  draft {self.draft.id}: {self.draft.state}{_describe_decision(self.draft)}"
            texts = [self.draft.proposed.text, *([self.draft.content.text] if self.draft.is_edited else [])]
            yield from (f"    {shorten(text, MAX_TEXT_LENGTH)!r}" for text in texts)
        for reply in self.replies:
            yield f"  reply: {shorten(reply.content.text, MAX_TEXT_LENGTH)!r}"
        if self.votes is not None:
            yield f"  reactions to it: {self.votes.liked} like it, {self.votes.disliked} do not"
        for part in self.deliveries:
            tries = f", {part.attempts} attempts" if part.attempts > 1 else ""
            held = ", held" if part.state is DeliveryState.UNKNOWN else ""
            cause = describe_cause(part, self.behind)
            yield f"  part {part.id}: {part.state}{held}{tries}{f': {cause}' if cause else ''}"
        yield f"  receipt {receipt.id}" if is_command else f"  message {receipt.memory_id}, receipt {receipt.id}"

    def to_json(self) -> dict[str, Any]:
        """Return the report as JSON, with the names of the HTTP API."""
        receipt = self.receipt
        body = ReceiptBody.of(receipt, self.agent_id, self.agent_name)
        return (
            body.model_dump(exclude={"agent_id", "seconds", "tokens_in", "tokens_out", "cost"})
            | {
                "platform_message_id": receipt.key.message_id,
                "room": self.room_label,
                "author": self.author,
                "text": self.message.content.text if self.message else None,
                "model_calls": [asdict(call) for call in receipt.model_calls],
                "replies": [{"id": reply.id, "text": reply.content.text} for reply in self.replies],
                "deliveries": [
                    DeliveryBody.build(part, message_id=part.memory_id).model_dump() | {"external_id": part.external_id}
                    for part in self.deliveries
                ],
                "votes": {"liked": self.votes.liked, "disliked": self.votes.disliked} if self.votes else None,
                "run": self.run,
            }
            | ({"draft": self._draft_json(self.draft)} if self.draft is not None else {})
        )

    def _draft_json(self, draft: Proposal) -> dict[str, Any]:
        fields = ("id", "state", "revision", "reason", "decided_by", "decided_at")
        texts = {"text": draft.content.text, "proposed": draft.proposed.text}
        return {name: getattr(draft, name) for name in fields} | texts

    @property
    def room_label(self) -> str:
        """The room's name for display."""
        return room_label(self.room, self.receipt.room_id)


async def build_report(
    conversations: ConversationReader, receipt: Receipt, agent_id: UUID, agent_name: str
) -> MessageReport:
    """Return the report of a message, read from the store."""
    replies, parts, draft = [], [], None
    if receipt.turn_id is not None and receipt.rule in (Rule.DRAFT, Rule.APPROVAL_TIMEOUT, Rule.LATEST_RESPONSE):
        draft = await conversations.proposal(receipt.turn_id)
    if receipt.turn_id is not None and receipt.superseded_by is None:
        replies = await conversations.replies(receipt.turn_id)
        parts = await conversations.deliveries(receipt.turn_id)
    open_parts: Sequence[Delivery] = ()
    if any(part.state is DeliveryState.PENDING for part in parts):
        open_parts = await conversations.room_deliveries(receipt.room_id, is_open=True)
    return MessageReport(
        receipt=receipt,
        room=await conversations.room(receipt.room_id),
        author=author_label(await conversations.receipt_author(receipt)),
        message=await conversations.message(receipt.memory_id),
        replies=tuple(reply for reply in replies if reply.kind is MemoryKind.MESSAGE and reply.entity_id == agent_id),
        deliveries=tuple(parts),
        run=await conversations.run_log(receipt),
        agent_id=agent_id,
        agent_name=agent_name,
        draft=draft,
        votes=await conversations.votes(receipt.turn_id) if receipt.turn_id is not None and replies else None,
        behind=list_behind(open_parts),
    )


def _describe_decision(draft: Proposal) -> str:
    return f" by {draft.decided_by}" if draft.decided_by else ""


def author_label(author: Entity | None) -> str:
    """Return the name of a message's author, or why there is none."""
    if author is None:
        return "an unknown person"
    is_forgotten = not author.external_id  # see `anonymize_entity`
    return author.name or ("a person who was forgotten" if is_forgotten else "a person without a name")


def room_label(room: Room | None, room_id: UUID) -> str:
    """Return the room's name, or the platform's id of it, with the platform."""
    if room is None:
        return str(room_id)
    return f"{room.name or room.external_id} ({room.platform})"


def format_run(run: Mapping[str, Any]) -> Iterator[str]:
    """Yield one line for each evaluator of a run."""
    for evaluator in run.get("evaluators", ()):
        yield f"evaluator {evaluator['name']}: {evaluator['error'] or 'done'}"


def explain_receipt(receipt: Receipt) -> Iterator[str]:
    """Yield a receipt as lines: outcome, reason, rule, model calls with costs, duration."""
    yield f"{receipt.outcome}: {receipt.reason}" if receipt.reason else str(receipt.outcome)
    if receipt.rule:
        yield f"decided by: {receipt.rule}"
    if receipt.superseded_by is not None:
        yield f"superseded by: message {receipt.superseded_by}"
    if not receipt.model_calls:
        yield "no model was called"
    for call in receipt.model_calls:
        yield _format_call(call)
    if len(receipt.model_calls) > 1:
        costs = [call.cost for call in receipt.model_calls if call.is_counted]
        unpriced = f", and what {count} of them cost" if (count := costs.count(None)) else ""
        yield f"total: {format_dollars(sum(cost for cost in costs if cost is not None))}{unpriced}"
    if receipt.seconds is not None:
        yield f"took {receipt.seconds * 1000:.0f} ms"
    yield from receipt.notes


def _format_call(call: ModelCall) -> str:
    estimate_prefix = "about " if call.is_estimate else ""
    cached = f" ({call.tokens_cached} of them cached)" if call.tokens_cached else ""
    price = format_price(call.cost) if call.is_counted else "not counted"
    error = (f", failed: {call.error}" if call.has_failed else ", cancelled") if call.error else ""
    return (
        f"called {call.model} for {call.purpose}: {estimate_prefix}{call.tokens_in} tokens in{cached}, "
        f"{call.tokens_out} out, {price}, {call.seconds * 1000:.0f} ms{error}"
    )


def format_price(cost: float | None) -> str:
    """Return an amount in dollars, or "price unknown" for None."""
    return "price unknown" if cost is None else format_dollars(cost)


def format_dollars(amount: float) -> str:
    """Return an amount in dollars: with cents from $10 on, else with up to six decimals."""
    if amount >= 10:
        return f"${amount:,.2f}"
    if 0 < amount < MIN_AMOUNT:
        return "under $0.000001"
    return "$" + (f"{amount:.6f}".rstrip("0").rstrip("."))
