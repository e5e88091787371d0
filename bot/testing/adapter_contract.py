"""The contract of adapters: order, no doubles, acknowledgement after storing, ambiguous sends, edits, files."""

import asyncio
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from datetime import datetime
from enum import StrEnum
from tempfile import TemporaryDirectory

from bot.adapter.adapter import Adapter
from bot.domain.content import Attachment, Content, MediaKind
from bot.domain.inbound import InboundMessage, StoredEvent, StreamCursor
from bot.domain.ledger import Delivery, DeliveryState
from bot.domain.memory import Memory
from bot.errors import ConfigError, PluginError, StoreUnavailable
from bot.inbound.agent_handle import AdapterSpec, EmulatedPage
from bot.models.types import Purpose, TextRequest
from bot.plugin_system.loading import find_emulator
from bot.store.sql.sqlite.memory import InMemoryStore
from bot.testing.emulator import EventRecorder
from bot.testing.harness import AgentHarness, running_agent
from bot.testing.plugin_contract import CONTRACT_TIMEOUT, ContractResult
from bot.testing.scripted_model import ScriptedModel, model_answer

AGENT_NAME = "Ada"
WAIT_TIMEOUT = 30.0
POLL_SECONDS = 0.05
SETTLE_SECONDS = 0.3  # for what must not happen to happen
FILE_NAME, FILE_TEXT = "notes.txt", "Buy oil for the lamp."
LONG_ANSWER = " ".join(f"word{number:04}" for number in range(600))
OPEN_STATES = (DeliveryState.PENDING, DeliveryState.ATTEMPTING)


class SendFault(StrEnum):
    """What an emulated platform does with the next message of the bot instead of showing it."""

    REFUSED = "refused"  # it says that it did not take it, for now
    LOST_BEFORE = "lost before"  # the connection is lost, and it did not take it
    LOST_AFTER = "lost after"  # the connection is lost, and it did take it


class PlatformControl(ABC):
    """What the contract does to an emulated platform; the emulator of an adapter yields it.

    It stands for an `EmulatedPlatform`: `url`, `settings` and `page` are the same. Everything happens in one direct
    chat with one person. `contract_settings` are further variables for the contract only, such as one that holds parts
    whose arrival is unknown instead of repeating them with a mark; `max_answer_length` is lower where the adapter cuts
    long answers on purpose. Call `changes.record` whenever something has changed, so that the contract looks again.
    """

    def __init__(self) -> None:
        self.url = ""
        self.settings: Mapping[str, Mapping[str, str]] = {}
        self.page: EmulatedPage | None = None
        self.contract_settings: Mapping[str, str] = {}
        self.max_answer_length = len(LONG_ANSWER)
        self.changes = EventRecorder()

    @abstractmethod
    async def post(
        self, text: str, *, message_id: str, event_id: str, revision: int = 0, files: Mapping[str, str] | None = None
    ) -> None:
        """Deliver a message of the person, with text files by name; with a `revision`, its edit.

        Called again with the same `event_id`, the platform delivers the event again. What is not acknowledged is
        delivered again too. Raises NotImplementedError for what the platform does not have: edits, files.
        """

    @abstractmethod
    def acknowledged(self) -> Sequence[str]:
        """Return the ids of the events that the bot has acknowledged, in order, repeated ones too."""

    @abstractmethod
    def shown(self) -> Sequence[str]:
        """Return the texts of the bot's messages as people see them now, in order."""

    @abstractmethod
    def fail_next_send(self, fault: SendFault) -> None:
        """Make the next message of the bot fail in this way."""

    def files(self) -> Mapping[str, bytes]:
        """Return the files that the bot has sent, by name."""
        raise NotImplementedError


class _FaultyStore(InMemoryStore):
    """A store whose ledger waits for `is_open` before it stores a message, and fails `failures` times."""

    def __init__(self) -> None:
        super().__init__()
        self.is_open, self.is_called, self.failures = asyncio.Event(), asyncio.Event(), 0
        receive = self.ledger.receive

        async def receive_later(
            messages: Sequence[InboundMessage], now: datetime, cursor: StreamCursor | None = None
        ) -> list[StoredEvent]:
            self.is_called.set()
            await self.is_open.wait()
            if messages and self.failures:
                self.failures -= 1
                raise StoreUnavailable("the contract lets it fail", cause="full")
            return await receive(messages, now, cursor)

        self.ledger.receive = receive_later  # type: ignore[method-assign]  # what is stored stays the ledger's


@dataclass(frozen=True, slots=True)
class _Connected:
    """An agent that is connected to an emulated platform by the adapter under test."""

    harness: AgentHarness
    adapter: Adapter
    platform: PlatformControl

    async def post(self, text: str, number: int) -> None:
        """Deliver a new message and wait until it is acknowledged."""
        await self.platform.post(text, message_id=str(number), event_id=f"event-{number}")
        await self.wait(lambda: f"event-{number}" in self.platform.acknowledged(), f"message {number} is acknowledged")

    async def wait(self, predicate: Callable[[], object], what: str) -> None:
        """Wait for a change of the platform. Raises TimeoutError that says what did not happen."""
        try:
            await self.platform.changes.wait_until(predicate, WAIT_TIMEOUT)
        except TimeoutError:
            raise TimeoutError(f"{what}: this did not happen within {WAIT_TIMEOUT:g} s") from None

    async def deliveries(self) -> list[Delivery]:
        """Return all deliveries once every message has its outcome and no part is open any more."""
        ledger, inbox = self.harness.agent.store.ledger, self.harness.agent_runtime.inbox
        for receipt in await ledger.receipts():
            await inbox.wait_outcome(receipt.id)
        async with asyncio.timeout(WAIT_TIMEOUT):
            while True:
                deliveries = await ledger.deliveries()
                if all(delivery.state not in OPEN_STATES for delivery in deliveries):
                    return deliveries
                await asyncio.sleep(POLL_SECONDS)

    async def messages(self) -> list[Memory]:
        """Return the stored messages of the person, oldest first."""
        store = self.harness.agent.store
        rooms = await store.worlds.rooms()
        found = [message for room in rooms for message in await store.memories.recent(room.id, 100)]
        return [message for message in found if message.entity_id != self.harness.agent.id]


@asynccontextmanager
async def _connect(
    spec: AdapterSpec, *, answers: Sequence[str] = (), store: InMemoryStore | None = None
) -> AsyncIterator[_Connected]:
    def write(request: TextRequest) -> str:
        number = len(model.requests_for(Purpose.REPLY))
        return model_answer(answers[min(number, len(answers)) - 1] if answers else f"Answer {number}.")

    model = ScriptedModel(write)
    with TemporaryDirectory(prefix="greenroom-contract-", ignore_cleanup_errors=True) as folder:
        async with find_emulator(spec)((AGENT_NAME,)) as platform:
            if not isinstance(platform, PlatformControl):
                raise PluginError(f"the emulator of {spec.name} yields no PlatformControl, so it cannot be tested")
            settings = {**platform.settings[AGENT_NAME], **platform.contract_settings, "BOT_DATA_DIR": folder}
            async with (
                running_agent(model=model, settings=settings, store=store) as harness,
                spec.open([harness.agent_runtime.handle]) as adapter,
            ):
                harness.agent.outbox.connect(adapter)
                yield _Connected(harness, adapter, platform)
                harness.agent.outbox.disconnect(adapter)


async def check_adapter_contract(spec: AdapterSpec) -> list[ContractResult]:
    """Return whether an adapter obeys each rule that holds for every adapter.

    Each rule is tested with an agent and an emulated platform of its own; the emulator of `spec` must yield a
    `PlatformControl`. Raises ConfigError if there is no emulator.
    """
    find_emulator(spec)
    return [await _check(rule, check, spec) for rule, check in RULES.items()]


Check = Callable[[AdapterSpec], Awaitable[Collection[str]]]


async def _check(rule: str, check: Check, spec: AdapterSpec) -> ContractResult:
    try:
        async with asyncio.timeout(CONTRACT_TIMEOUT):
            return ContractResult(rule, tuple(await check(spec)))
    except ConfigError:  # nothing can be tested
        raise
    except NotImplementedError:
        return ContractResult(rule, skipped="the emulator says that the platform does not have this")
    except TimeoutError as error:
        return ContractResult(rule, (str(error) or f"it did not end within {CONTRACT_TIMEOUT:g} s",))
    except Exception as error:  # of the adapter or its emulator: it is the result
        return ContractResult(rule, (f"{type(error).__name__}: {error}",))


async def _check_order(spec: AdapterSpec) -> list[str]:
    async with _connect(spec) as connected:
        texts = [f"Message {number}" for number in range(1, 6)]
        for number, text in enumerate(texts, 1):
            await connected.platform.post(text, message_id=str(number), event_id=f"event-{number}")
        await connected.wait(lambda: len(set(connected.platform.acknowledged())) == 5, "5 messages are acknowledged")
        stored = [message.content.text for message in await connected.messages()]
        await connected.deliveries()
    return [] if stored == texts else [f"5 messages were stored as {stored}"]


async def _check_doubles(spec: AdapterSpec) -> list[str]:
    async with _connect(spec) as connected:
        for _ in range(2):
            count = len(connected.platform.acknowledged())
            await connected.platform.post("Hello", message_id="1", event_id="event-1")
            await connected.wait(
                lambda count=count: len(connected.platform.acknowledged()) > count,  # type: ignore[misc]
                "an event is acknowledged each time it is delivered",
            )
            await connected.deliveries()
        stored, shown = len(await connected.messages()), list(connected.platform.shown())
    problems = [] if stored == 1 else [f"an event that was delivered twice was stored {stored} times"]
    return [*problems, *([] if len(shown) == 1 else [f"an event that was delivered twice got {len(shown)} answers"])]


async def _check_acknowledgement(spec: AdapterSpec) -> list[str]:
    store = _FaultyStore()
    store.failures = 1
    async with _connect(spec, store=store) as connected:
        await connected.platform.post("Hello", message_id="1", event_id="event-1")
        await asyncio.wait_for(store.is_called.wait(), WAIT_TIMEOUT)
        await asyncio.sleep(SETTLE_SECONDS)
        problems = ["it was acknowledged before it was stored"] if connected.platform.acknowledged() else []
        store.is_open.set()
        await asyncio.sleep(SETTLE_SECONDS)
        if connected.platform.acknowledged() and not await connected.messages():
            problems.append("it was acknowledged although it could not be stored")
        await connected.post("Hello", 1)  # the platform delivers it again
        if len(await connected.messages()) != 1:
            problems.append("a message that could not be stored at first was not stored when it was delivered again")
        await connected.deliveries()
    return problems


async def _check_long_text(spec: AdapterSpec) -> list[str]:
    answers: list[str] = []
    async with _connect(spec, answers=answers) as connected:
        answers.append(LONG_ANSWER[: connected.platform.max_answer_length])
        await connected.post("Count", 1)
        await connected.deliveries()
        shown = connected.platform.shown()
    if "".join("".join(shown).split()) != "".join(answers[0].split()):
        return [f"an answer of {len(answers[0])} characters was shown as {len(shown)} parts that do not make it up"]
    return []


def _check_fault(fault: SendFault) -> Check:
    async def check(spec: AdapterSpec) -> list[str]:
        async with _connect(spec, answers=["Only once."]) as connected:
            connected.platform.fail_next_send(fault)
            await connected.post("Hello", 1)
            [delivery, *_] = await connected.deliveries()
            shown = list(connected.platform.shown())
        if len(shown) > 1:
            return [f"it was shown {len(shown)} times"]
        if delivery.state is DeliveryState.SENT and not shown:
            return ["it counts as sent and was not shown"]
        if delivery.state is not DeliveryState.SENT and (fault is SendFault.REFUSED or delivery.state not in HELD):
            return [f"it ended as {delivery.state}: {delivery.cause}"]
        return []

    return check


HELD = (DeliveryState.UNKNOWN,)


async def _check_edits_of_people(spec: AdapterSpec) -> list[str]:
    async with _connect(spec) as connected:
        await connected.post("Helo", 1)
        await connected.deliveries()
        for _ in range(2):  # an edit may be delivered twice, too
            await connected.platform.post("Hello", message_id="1", event_id="event-2", revision=1)
        await connected.wait(lambda: "event-2" in connected.platform.acknowledged(), "an edit is acknowledged")
        await connected.deliveries()
        stored = [message.content.text for message in await connected.messages()]
    return [] if stored == ["Hello"] else [f"a message that was edited to 'Hello' is stored as {stored}"]


async def _check_own_edits(spec: AdapterSpec) -> list[str]:
    problems = []
    async with _connect(spec, answers=["First."]) as connected:
        await connected.post("Hello", 1)
        [delivery, *_] = await connected.deliveries()
        if not connected.adapter.can_edit:
            raise NotImplementedError
        for text in ("Second.", ""):
            edit = replace(delivery, content=Content(text=text), replaces_external_id=delivery.external_id)
            for _ in range(2):  # the outcome of the first may have been unknown
                await connected.adapter.edit(edit)
            if list(connected.platform.shown()) != ([text] if text else []):
                problems.append(f"edited to {text!r} twice, there is {list(connected.platform.shown())}")
    return problems


async def _check_files(spec: AdapterSpec) -> list[str]:
    problems = []
    async with _connect(spec) as connected:
        files = {FILE_NAME: FILE_TEXT}
        await connected.platform.post("Read this", message_id="1", event_id="event-1", files=files)
        await connected.wait(lambda: "event-1" in connected.platform.acknowledged(), "a file is acknowledged")
        await connected.deliveries()
        attachments = [file for message in await connected.messages() for file in message.content.attachments]
        data = [await connected.adapter.download(file.url) or file.text.encode() for file in attachments]
        if [file.name for file in attachments] != [FILE_NAME] or data != [FILE_TEXT.encode()]:
            problems.append(f"a received file was stored as {[file.name for file in attachments]} and cannot be read")
        [room] = await connected.harness.agent.store.worlds.rooms()
        file = Attachment("1", MediaKind.DOCUMENT, name=FILE_NAME, content_type="text/plain", data=FILE_TEXT.encode())
        await connected.harness.agent.say(room, Content(text="Here it is.", attachments=(file,)))
        await connected.deliveries()
        if dict(connected.platform.files()) != {FILE_NAME: FILE_TEXT.encode()}:
            problems.append(f"a file was sent as {sorted(connected.platform.files())}")
    return problems


RULES: Mapping[str, Check] = {
    "messages are stored in their order": _check_order,
    "an event that is delivered twice is answered once": _check_doubles,
    "a message is acknowledged once it is stored": _check_acknowledgement,
    "a long answer arrives completely and in order": _check_long_text,
    "a part that was refused for now is sent again": _check_fault(SendFault.REFUSED),
    "a part that was lost on the way is not shown twice": _check_fault(SendFault.LOST_BEFORE),
    "a part that arrived without an answer is not shown twice": _check_fault(SendFault.LOST_AFTER),
    "an edited message replaces the first one": _check_edits_of_people,
    "the bot's own messages can be edited and deleted": _check_own_edits,
    "files arrive in both directions": _check_files,
}
