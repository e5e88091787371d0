"""A character on an emulated Discord, with a scripted model and no real waits."""

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

from adapters.discord.adapter import DiscordAdapter
from adapters.discord.config import Limits
from adapters.discord.emulator import Emulator
from bot import Character, Clock, Outcome, Plugin, Receipt, system_clock
from bot.domain.ledger import EventOrigin
from bot.store import InMemoryStore, Store
from bot.testing import AgentHarness, ScriptedModel, model_answer, running_agent

TOKEN = "only-for-tests-never-a-token"
TYPING = 8.0


async def no_sleep(seconds: float) -> None:
    """Return at once, except between two typing indicators."""
    if seconds == TYPING:
        await asyncio.Event().wait()
    await asyncio.sleep(0)


LIMITS = Limits(guild_ready_timeout=0.02, typing_interval=TYPING, sleep=no_sleep)


@dataclass
class EmulatedServer:
    """An emulated Discord with one server: Ada the bot, Kim who owns it, Robin, and a channel."""

    emulator: Emulator
    bot: str = ""
    kim: str = ""
    robin: str = ""
    guild: str = ""
    lobby: str = ""
    stores: dict[str, Store] = field(default_factory=dict)

    def __post_init__(self) -> None:
        state = self.emulator.state
        self.bot = self.emulator.add_bot("Ada", TOKEN)
        self.kim, self.robin = state.add_user("Kim"), state.add_user("Robin", nickname="Rob")
        self.guild = state.add_guild("Harbour", self.kim, [self.robin, self.bot])
        self.lobby = state.add_channel(self.guild, "quay")

    @property
    def call(self) -> str:
        """The platform's mention of the bot."""
        return f"<@{self.bot}>"

    def direct(self, user: str) -> str:
        """Open a direct channel between a user and the bot."""
        channel = self.emulator.state.add_channel(None, "", 1)
        self.emulator.state.channels[channel]["recipients"] = [self.emulator.state.users[user]]
        return channel

    @asynccontextmanager
    async def run_bot(
        self,
        model: ScriptedModel | None = None,
        *plugins: Plugin,
        settings: Mapping[str, str] | None = None,
        character: Character | None = None,
        store: Store | None = None,
        clock: Clock = system_clock,
        limits: Limits = LIMITS,
        is_awaited: bool = True,
    ) -> AsyncIterator[tuple[AgentHarness, DiscordAdapter]]:
        """Run a connected character."""
        given = {
            "DISCORD_API_TOKEN": TOKEN,
            "DISCORD_API_BASE_URL": self.emulator.url,
            "STREAMING": "false",
            **(settings or {}),
        }
        model = model or ScriptedModel(model_answer("Aye."))
        async with running_agent(
            *plugins, model=model, settings=given, character=character, store=store or InMemoryStore(), clock=clock
        ) as harness:
            adapter = DiscordAdapter([harness.agent_runtime.handle], limits=limits, clock=clock)
            async with adapter:
                harness.agent.outbox.connect(adapter)
                if is_awaited:
                    [account] = adapter.accounts
                    async with asyncio.timeout(30):
                        await account.is_connected.wait()
                    assert not account.problem
                yield harness, adapter
                harness.agent_runtime.inbox.close()
                await harness.agent_runtime.inbox.drain(10)
                await harness.agent.outbox.drain(10)


async def receipts(harness: AgentHarness) -> list[Receipt]:
    """Return the receipts of all messages with their outcomes, oldest first."""
    found = await harness.agent.store.ledger.receipts(limit=1000)
    found = [receipt for receipt in found if receipt.origin is not EventOrigin.COMMAND]
    settled = [await harness.agent_runtime.inbox.wait_outcome(receipt.id) for receipt in found]
    return settled[::-1]


async def outcomes(harness: AgentHarness) -> list[Outcome]:
    """Return the outcome of every message, oldest first."""
    return [receipt.outcome for receipt in await receipts(harness)]
