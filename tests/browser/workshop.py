"""A bot with pleasant data for every page: three platforms, people, costs, tasks, documents, and things gone wrong."""

import asyncio
import json
import logging
import os
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any
from uuid import UUID, uuid4
from xml.sax.saxutils import escape

import pytest
from aiohttp import ClientSession

from adapters.web.adapter import WebAdapter
from adapters.web.config import WebSettings
from bot import (
    ChannelType,
    Component,
    Content,
    Entity,
    Memory,
    MemoryKind,
    MemoryScope,
    Outcome,
    Relationship,
    Room,
    Runtime,
    Task,
    TaskSchedule,
    TaskTag,
    World,
    derived_id,
    system_clock,
)
from bot.cli.characters import load_character_config
from bot.cli.operator import with_operator_tools
from bot.logs import configure_logging
from bot.models import ModelRefused, TextRequest, TextResult, Usage
from bot.platform import AccessTokens, ConnectionStatus, DeliveryState, DisconnectCause, InboundMessage, TokenScope
from bot.prompts import parse_history
from bot.store import CostEntry, InMemoryStore
from tests.adapters.web.conftest import TOKEN, EchoModel, RunningServer
from tests.adapters.web.test_agents import Chores
from tests.adapters.web.test_overview import ShakyAdapter

MODEL = "claude-sonnet-4-6"
CHARACTER: dict[str, Any] = {
    "name": "Marlo",
    "bio": ["Keeps the mending circle going: knows who has the key, and where the good thread is."],
    "system": "You are Marlo, the companion of a mending circle. Answer briefly.",
    "plugins": ["bootstrap", "knowledge"],
    "settings": {"secrets": {"OPENAI_API_KEY": "sk-proj-0123456789abcdefghij"}},
}
SETTINGS = {"SERVER_PORT": "0", "SERVER_TOKEN": TOKEN, "BUDGET_USD": "8", "BUDGET_TOKENS_PER_ROOM": "5000000"}
UNUSED = ("sql", "offline", "openai")  # of the bundled plugins that the file would bring
UNSET = ("BOT_DATA_DIR", "DATABASE_URL", "POSTGRES_URL", "OPENAI_API_KEY", "CONVERSATION_LENGTH")
SCHEDULE = """Here is a plan that fits the four of you:

| week | who opens | what we mend |
|---|---|---|
| 1 | Eve | sleeves and cuffs |
| 2 | Tom | bags and straps |
| 3 | Ines | **knitwear**, bring wool |

- The key is with Eve until Thursday.
- New people sit beside somebody who knows the irons.

```python
for week, name in enumerate(["Eve", "Tom", "Ines"], start=1):
    print(week, name)
```"""
SILENT = "I can take the bags home and wash them."
SMOKE = "Marlo, can you smell smoke?"
REPLIES = {
    "Can you make a plan for the next three weeks?": SCHEDULE,
    "Marlo, who has the key this week?": "Eve has it until Thursday. After that it hangs in the workshop again.",
    "What should I bring for a torn sleeve?": "A needle, thread a shade darker than the cloth, and patience.",
    "Is the workshop open on Sunday?": "Not this Sunday: the irons are being repaired.",
}
MENDING, GIVEAWAY = ("discord", "Mending circle", "mending"), ("discord", "Mending circle", "leftovers")
INES = ("telegram", "Telegram", "Ines")
CONVERSATION = (
    (MENDING, "Eve", "Marlo, who has the key this week?"),
    (MENDING, "Tom", SILENT),
    (GIVEAWAY, "Tom", "There is a box of buttons for whoever wants it."),
    (INES, "Ines", "What should I bring for a torn sleeve?"),
    (MENDING, "Ines", SMOKE),
    (INES, "Ines", "Is the workshop open on Sunday?"),
)
FACTS = ("Runs the mending circle on Thursdays.", "Has a key to the workshop.", "Prefers linen thread to cotton.")
RULES = "The mending circle meets on Thursdays at seven.\n\nWhoever leaves last unplugs the irons and hangs up the key."


class WorkshopModel(EchoModel):
    """Answers as written above, at a known price; otherwise as EchoModel does, or as `say` decides.

    It takes `seconds`, which are none but for pictures, and what `wait` takes.
    """

    say: Callable[[str], str] | None = None
    seconds = 0.0
    wait: Callable[[], Awaitable[None]] | None = None

    async def answer(self, request: TextRequest) -> TextResult:
        lines = [line.text for line in parse_history(request.prompt) if not line.is_agent]
        if not lines:  # what the evaluators ask
            return TextResult("<response></response>", MODEL, Usage(900, 4))
        last_line = lines[-1]
        await asyncio.sleep(self.seconds)
        if self.wait is not None:
            await self.wait()
        if self.say is not None:
            return TextResult(self.say(last_line), MODEL, Usage(900, 40))
        if last_line == SMOKE:
            raise ModelRefused("400: the request was refused")
        if last_line == SILENT or (reply := REPLIES.get(last_line)):
            action, words = ("IGNORE", "") if last_line == SILENT else ("REPLY", escape(reply))
            text = f"<response><actions>{action}</actions><text>{words}</text></response>"
            return TextResult(text, MODEL, Usage(2_480, 96))
        result = await super().answer(request)
        return replace(result, model=MODEL)


class Account(ShakyAdapter):
    """An account on a platform; rooms are groups, so that the character may stay silent."""

    def __init__(self, agent_id: UUID, platform: str) -> None:
        super().__init__(agent_id)
        self.platform = platform  # type: ignore[misc]  # one class for two platforms
        self.status = ConnectionStatus(platform, "Marlo", agent_id=agent_id)


def compose(text: str, author: str, place: Sequence[str], number: object, minutes: float = 0) -> InboundMessage:
    """Return a message that came some minutes ago; `place` is platform, world and room."""
    platform, world_name, room_name = place
    entity = Entity(derived_id(platform, author), platform, author.lower(), (author,))
    world = World(derived_id(platform, world_name), platform, world_name, world_name)
    kind = ChannelType.DM if platform == "telegram" else ChannelType.GROUP
    room = Room(derived_id(platform, world_name, room_name), world.id, kind, platform, room_name, "account", room_name)
    at = system_clock() - timedelta(minutes=minutes)
    content = Content(text=text, source=platform)
    return InboundMessage.build(world, room, entity, content, created_at=at, message_id=f"{platform}-{number}")


class Workshop:
    """The running server and what the tests name of its data."""

    def __init__(self, server: RunningServer, accounts: dict[str, Account], tokens: AccessTokens) -> None:
        self.server, self.accounts = server, accounts
        self.script = server.script
        self.tokens = {scope: tokens.create(scope, scope, system_clock())[1] for scope in TokenScope}
        self.agent = server.runtime.agents[0].agent
        self.store = self.agent.store
        self.receipts: dict[str, Any] = {}
        self.conversation = self.plan = ""  # of the page: its id, and that of its message

    def person(self, name: str, platform: str = "discord") -> UUID:
        return derived_id(platform, name)

    def room(self, place: Sequence[str] = MENDING) -> UUID:
        return derived_id(*place)

    async def hear(self, text: str, author: str = "Eve", place: Sequence[str] = MENDING) -> Any:
        """Submit a message now; return its receipt with the outcome."""
        [handle] = self.server.runtime.handles
        receipt = await handle.submit(compose(text, author, place, f"now-{len(self.receipts)}"))
        self.receipts[text] = await handle.wait_outcome(receipt.id)
        return self.receipts[text]

    async def converse(self, *texts: str) -> tuple[str, str]:
        """Create a conversation on the page; return its id and that of the last message."""
        body = await (
            await self.server.request("POST", "/api/conversations", headers=self.server.bearer, json={})
        ).json()
        client = await self.server.open_socket(room=body["room"], agent="marlo")
        outcomes = [(await client.send_message(text, uuid4().hex))[-1] for text in texts]
        await client.ws.close()
        return body["id"], next(frame["message_id"] for frame in reversed(outcomes) if frame["type"] == "outcome")

    async def hold(self, text: str, state: DeliveryState, cause: str) -> None:
        """Set the state of the only part of the reply to a message."""
        ledger = self.store.ledger
        [part] = await ledger.deliveries(turn_id=self.receipts[text].turn_id)
        await ledger.save_delivery(replace(part, state=state, cause=cause))


async def store_history(store: InMemoryStore) -> None:
    """Store messages of the last hours with their receipts, and costs of the last ten days."""
    now = system_clock()
    for number in range(90):
        minutes = 2 + number * 0.6 + (number % 7) * 0.4
        message = compose(f"About seam {number}", ("Eve", "Tom", "Ines")[number % 3], MENDING, number, minutes)
        [event] = await store.ledger.receive([message], message.message.created_at)
        outcome, rule = (Outcome.IGNORED, "IGNORE") if number % 5 == 0 else (Outcome.ANSWERED, "mention")
        seconds = 1 + (number * 7 % 11) / 4
        closed_at = message.message.created_at + timedelta(seconds=seconds)
        receipt = replace(event.receipt, outcome=outcome, rule=rule, reason="a plan", closed_at=closed_at)
        await store.ledger.save_receipts([receipt])
    entries = []
    for day in range(10):
        for model, share in ((MODEL, 1.0), ("gpt-5-mini", 0.35), ("text-embedding-3-small", 0.04)):
            usd = share * (0.6 + (day * 5 % 7) / 8)
            date = now.date() - timedelta(days=day)
            entries.append(
                CostEntry(
                    date, model, derived_id(*MENDING), derived_id("discord", "Eve"), 40, 90_000, 0, 4_000, usd,
                    purpose="reply" if model == MODEL else "embedding",
                )
            )  # fmt: skip
    await store.costs.add(entries)


async def store_people(workshop: Workshop) -> None:
    """Store what is known of Eve: facts, a contact, a relationship."""
    eve, tom = workshop.person("Eve"), workshop.person("Tom")
    where = {"entity_id": eve, "room_id": workshop.room(), "world_id": derived_id("discord", "Mending circle")}
    facts = [
        Memory(
            derived_id("fact", text),
            MemoryKind.FACT,
            content=Content(text=text),
            created_at=system_clock(),
            scope=MemoryScope.SHARED if index == 2 else MemoryScope.ROOM,
            **where,
        )
        for index, text in enumerate(FACTS)
    ]
    await workshop.store.memories.add(facts)
    contact = Component(derived_id("contact"), eve, "contact", {"email": "eve@example.org"}, source_entity_id=tom)
    await workshop.store.entities.save_component(contact)
    await workshop.store.entities.save_relationship(Relationship(eve, tom, ("friend",), 7))


async def store_tasks(workshop: Workshop) -> None:
    """Store a task in each state."""
    repeating = {
        "tags": frozenset({TaskTag.QUEUE, TaskTag.REPEAT}),
        "metadata": TaskSchedule(timedelta(days=7)).to_metadata(),
    }
    tasks = {
        "Remind the circle of Thursday": repeating,
        "Ask who takes the key": {"room_id": workshop.room()},
        "Count the buttons": {**repeating, "is_paused": True},
        "Order more thread": {"is_parked": True, "attempts": 5, "error": "the shop does not answer"},
    }
    for hours, (name, fields) in enumerate(tasks.items(), start=1):
        known = {key: value for key, value in fields.items() if key in Task.__dataclass_fields__}
        task = Task(derived_id("task", name), "CHORE", system_clock() + timedelta(hours=hours), name, **known)
        await workshop.store.tasks.save_task(task)


async def fill(workshop: Workshop) -> None:
    """Send the conversations, and make some of their replies fail."""
    for place, author, text in CONVERSATION:
        await workshop.hear(text, author, place)
    await workshop.hold("What should I bring for a torn sleeve?", DeliveryState.UNKNOWN, "timed out")
    await workshop.hold("Is the workshop open on Sunday?", DeliveryState.FAILED, "blocked by this person (403)")
    await store_people(workshop)
    await store_tasks(workshop)
    document = {"name": "rules.md", "text": RULES}
    await workshop.server.post("/plugins/knowledge/documents", document, 201)
    workshop.conversation, workshop.plan = await workshop.converse("Can you make a plan for the next three weeks?")


def write_character() -> Path:
    """Write the character's file into the working directory; return its path."""
    path = Path("marlo.json")
    path.write_text(json.dumps(CHARACTER, indent=2), encoding="utf-8")
    return path


@asynccontextmanager
async def run_workshop(folder: Path) -> AsyncIterator[Workshop]:
    """Run the bot in a folder during the block."""
    with pytest.MonkeyPatch.context() as patch, open(os.devnull, "w") as sink:  # noqa: ASYNC230  # not a real file
        patch.chdir(folder)
        for name in UNSET:
            patch.delenv(name, raising=False)
        for name, value in SETTINGS.items():
            patch.setenv(name, value)
        script, store, tokens = WorkshopModel(), InMemoryStore(), AccessTokens(folder)
        config = load_character_config(write_character())
        agent_config = with_operator_tools(config)
        plugins = [plugin for plugin in agent_config.plugins if plugin.name not in UNUSED]
        agent_config = replace(agent_config, plugins=(*plugins, script.plugin, Chores().plugin), store=store)
        with configure_logging(fd=sink.fileno()):
            async with store:
                await store_history(store)
            async with Runtime([agent_config]) as runtime, ClientSession() as session:
                adapter = WebAdapter(runtime.handles, config.settings.load(WebSettings), TOKEN, access_tokens=tokens)
                accounts = {name: Account(runtime.handles[0].agent_id, name) for name in ("discord", "telegram")}
                for connected in (adapter, *accounts.values()):
                    await runtime.connect(connected)
                for account in accounts.values():
                    account.status.connected()
                workshop = Workshop(RunningServer(runtime, adapter, script, session), accounts, tokens)
                await fill(workshop)
                accounts["telegram"].status.failed(DisconnectCause.LIMITED, "429")
                logging.getLogger("workshop").warning("The irons are on since nine o'clock")
                yield workshop
