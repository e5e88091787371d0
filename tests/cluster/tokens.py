"""Many characters with a Telegram token each: two gateways, of which one is killed, a worker and a sender."""

import asyncio
import time
from collections import defaultdict
from contextlib import suppress
from pathlib import Path
from tempfile import TemporaryDirectory

import asyncpg  # type: ignore[import-untyped]  # it brings no types

from adapters.telegram.emulator import Emulator
from tests.chaos.model import ModelServer
from tests.chaos.wire import Wire
from tests.cluster.roles import RoleProcesses, judge

ROLES = ("gateway", "worker", "sender", "gateway")
START_TIMEOUT, WAIT_TIMEOUT, CALM_SECONDS = 900.0, 90.0, 20.0
PAUSE_SECONDS = 10.0  # between an answer and the next message of a room


class Accounts:
    """The accounts on the emulated Telegram, a group for each, and the people who write there."""

    def __init__(self, emulator: Emulator, count: int) -> None:
        self._emulator = emulator
        self.characters = []
        self.sent: dict[int, list[str]] = {}  # by group
        self._texts: dict[int, list[str]] = defaultdict(list)
        self._has_news: dict[int, asyncio.Event] = defaultdict(asyncio.Event)
        self._seen = 0
        self.is_over = asyncio.Event()
        for number in range(count):
            bot = emulator.add_bot(f"{1_000_000 + number}:only-for-the-cluster", username=f"b{number}_bot", name="Ada")
            secrets = {"secrets": {"TELEGRAM_BOT_TOKEN": bot.token}}
            self.characters.append({"name": f"Ada {number}", "settings": secrets})
        for number, bot in enumerate(emulator.state.bots.values()):
            group = emulator.people.add_group(f"Group {number}")
            emulator.state.members[group["id"]] = {bot.id: "member"}
            self.sent[group["id"]] = []
        emulator.recorder.listeners.append(self._sort_answers)

    async def wait_polled(self, ended: float) -> float:
        """Wait until every account is polled again after a time; return the seconds that this took."""
        bots = self._emulator.state.bots.values()
        polls = {bot.id: bot.active_poll for bot in bots}
        waiting = set(polls)

        def are_all_polled() -> bool:
            for bot in bots:
                if bot.id in waiting and bot.active_poll not in (None, polls[bot.id]):
                    waiting.discard(bot.id)
            return not waiting

        await self._emulator.recorder.wait_until(are_all_polled, START_TIMEOUT)
        return time.monotonic() - ended

    async def write(self) -> None:
        """Write in every group until it is over, a while after the message before it was answered."""
        await asyncio.gather(*(self._write_in(group, number) for number, group in enumerate(self.sent)))

    def judge(self) -> tuple[int, int, int, int]:
        """Return how many messages were answered, lost and answered twice, and how many answers were out of order."""
        verdicts = [judge(sent, self._texts[group]) for group, sent in self.sent.items()]
        answered, lost, doubled, inversions = map(sum, zip(*verdicts, strict=True))
        return answered, lost, doubled, inversions

    async def _write_in(self, group: int, number: int) -> None:
        state, people, sent = self._emulator.state, self._emulator.people, self.sent[group]
        await self._pause(PAUSE_SECONDS * number / len(self.sent))
        while not self.is_over.is_set():
            name = f"m{number:04}{len(sent):04}"
            sent.append(name)
            people.say(state.chats[group], people.add_user(name), f"@b{number}_bot hello")
            with suppress(TimeoutError):
                async with asyncio.timeout(WAIT_TIMEOUT):
                    while f"re {name}" not in self._texts[group]:
                        self._has_news[group].clear()
                        await self._has_news[group].wait()
            await self._pause(PAUSE_SECONDS)

    async def _pause(self, seconds: float) -> None:
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self.is_over.wait()

    def _sort_answers(self) -> None:
        messages = self._emulator.recorder.messages
        for shown in messages[self._seen :]:
            self._texts[shown.room].append(shown.text)
            self._has_news[shown.room].set()
        self._seen = len(messages)


async def disturb_tokens(url: str, count: int) -> tuple[tuple[int, int, int, int], float, float]:
    """Kill the gateway of many accounts while people write to all of them.

    Returns the verdict, the seconds until all processes were ready, and those until the other gateway polled all
    accounts.
    """
    with TemporaryDirectory(prefix="greenroom-tokens-") as folder:
        async with Emulator() as emulator, ModelServer(Wire()) as model:
            accounts = Accounts(emulator, count)
            settings = {"TELEGRAM_API_BASE_URL": emulator.url}
            processes = RoleProcesses(url, model.url, Path(folder), "telegram", accounts.characters, settings)
            async with processes:
                began = time.monotonic()
                gateway = await processes.start(ROLES[0])
                await accounts.wait_polled(began)  # it creates the tables, and connects first
                for role in ROLES[1:]:
                    await processes.start(role)
                await _until_joined(url, count * len(ROLES))
                ready = time.monotonic() - began
                writing = asyncio.create_task(accounts.write())
                await asyncio.sleep(CALM_SECONDS)
                gateway.kill()
                await gateway.wait()
                taken = await accounts.wait_polled(time.monotonic())
                await asyncio.sleep(CALM_SECONDS)
                accounts.is_over.set()
                await writing
            return accounts.judge(), ready, taken


async def _until_joined(url: str, count: int) -> None:
    """Wait until the processes have joined for all their characters."""
    connection = await asyncpg.connect(url)
    try:
        async with asyncio.timeout(START_TIMEOUT):
            while await connection.fetchval("SELECT count(*) FROM workers") < count:  # noqa: ASYNC110  other processes
                await asyncio.sleep(1.0)
    finally:
        await connection.close()
