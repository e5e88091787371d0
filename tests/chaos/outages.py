"""Kill the bot with an emulated platform that fails a tenth of the sends: `python -m tests.chaos.outages`.

Each message is written in a room of its own, so every room must get an answer; a second copy of it must be marked
on Telegram and must not exist on Discord and X.
"""

import argparse
import asyncio
import random
import sys
import tempfile
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from adapters.discord.emulator import Emulator as DiscordEmulator
from adapters.discord.emulator import Fault as DiscordFault
from adapters.telegram.emulator import Emulator as TelegramEmulator
from adapters.telegram.emulator import Fault as TelegramFault
from adapters.telegram.outgoing import DUPLICATE_NOTICE
from adapters.x.emulator import Emulator as XEmulator
from adapters.x.emulator import Fault as XFault
from adapters.x.emulator import FaultKind
from adapters.x.emulator.server import NEUTRAL_SETTINGS
from bot.user_texts import user_text
from tests.chaos.database import BotDatabase
from tests.chaos.program import ForkServer, Program

FAILING_SHARE = 0.1
SHORTEST_RUN, LONGEST_RUN = 0.05, 2.0
WRITING_PAUSE = 0.01
START_TIMEOUT, END_TIMEOUT = 60.0, 1800.0
POLL_SECONDS = 0.2
TOKEN = "1000001:not-a-real-token"
DRAWN_SENDS = 20  # for each message
OPEN = """
SELECT (SELECT count(*) FROM deliveries WHERE is_open) + (SELECT count(*) FROM receipts WHERE is_open)
"""
HELD = "SELECT count(*) FROM deliveries WHERE state = 'unknown'"
WAYS: tuple[Mapping[str, Any], ...] = (
    {"status": 500},
    {"status": 500, "is_late": True},
    {},
    {"is_late": True},
    {"is_hanging": True},
)
X_WAYS = (FaultKind.REFUSED, FaultKind.FAILED, FaultKind.CUT, FaultKind.LOST, FaultKind.HANGING)
LATE_NOTICE = user_text("notices.late")


class Platform(ABC):
    """One emulated platform: how it fails, how messages are written, and what can be read in each room."""

    name = ""
    settings: Mapping[str, str]

    @abstractmethod
    async def __aenter__(self) -> "Platform": ...

    @abstractmethod
    async def __aexit__(self, *error: object) -> None: ...

    @abstractmethod
    async def write(self, number: int) -> None:
        """Write a message in a new room."""

    @abstractmethod
    def reads(self) -> int:
        """Return how often the bot has begun to read, or read on."""

    @abstractmethod
    def rooms(self) -> dict[str, list[str]]:
        """Return the bot's messages by room, also of rooms without any."""


@dataclass(slots=True)
class RandomTelegramFault(TelegramFault):
    """Fails a share of the sends, each in a way that is drawn."""

    chance: random.Random = field(default_factory=random.Random)
    failed: int = 0

    def applies_to(self, method: str, parameters: Mapping[str, Any]) -> bool:
        """Return whether a call fails; draw how."""
        if method != self.match or self.chance.random() >= FAILING_SHARE:
            return False
        draw_way(self)
        self.failed += 1
        return True


@dataclass(slots=True)
class RandomDiscordFault(DiscordFault):
    """Fails a share of the sends, each in a way that is drawn."""

    chance: random.Random = field(default_factory=random.Random)
    failed: int = 0

    def applies_to(self, request: Any) -> bool:
        """Return whether a request fails; draw how."""
        is_send = request.method == "POST" and request.path.endswith("/messages")
        if not is_send or self.chance.random() >= FAILING_SHARE:
            return False
        draw_way(self)
        self.failed += 1
        return True


def draw_way(fault: RandomTelegramFault | RandomDiscordFault) -> None:
    """Draw one of the five ways to fail."""
    way = {"status": 0, "is_late": False, "is_hanging": False, **fault.chance.choice(WAYS)}
    fault.status, fault.is_late, fault.is_hanging = way["status"], way["is_late"], way["is_hanging"]


class Telegram(Platform):
    """Private chats on Telegram."""

    name = "telegram"

    def __init__(self, messages: int, chance: random.Random) -> None:
        self._emulator = TelegramEmulator()
        self._fault = RandomTelegramFault("sendMessage", body="oops", chance=chance)
        self._chats: dict[str, int] = {}

    async def __aenter__(self) -> "Telegram":
        await self._emulator.__aenter__()
        self.settings = self._emulator.settings(self._emulator.add_bot(TOKEN))
        self._emulator.faults.append(self._fault)
        return self

    async def __aexit__(self, *error: object) -> None:
        await self._emulator.__aexit__(*error)

    async def write(self, number: int) -> None:
        people = self._emulator.people
        person = people.add_user(f"Person {number}")
        chat = people.open_private_chat(person)
        self._chats[str(number)] = chat["id"]
        people.say(chat, person, f"hello, I am {number}")

    def reads(self) -> int:
        return self._emulator.recorder.counts["getUpdates"]

    def rooms(self) -> dict[str, list[str]]:
        texts: dict[int, list[str]] = {chat: [] for chat in self._chats.values()}
        for message in self._emulator.recorder.messages:
            texts[message.room].append(message.text)
        return {number: texts[chat] for number, chat in self._chats.items()}


class Discord(Platform):
    """Direct channels on Discord."""

    name = "discord"

    def __init__(self, messages: int, chance: random.Random) -> None:
        self._emulator = DiscordEmulator()
        self._fault = RandomDiscordFault("", chance=chance)
        self._channels: dict[str, str] = {}

    async def __aenter__(self) -> "Discord":
        await self._emulator.__aenter__()
        state = self._emulator.state
        bot, self._owner = self._emulator.add_bot("Ada", TOKEN), state.add_user("Kim")
        state.add_channel(state.add_guild("Harbour", self._owner, [bot]), "quay")
        self._emulator.faults.append(self._fault)
        self.settings = {"DISCORD_API_TOKEN": TOKEN, "DISCORD_API_BASE_URL": self._emulator.url}
        return self

    async def __aexit__(self, *error: object) -> None:
        await self._emulator.__aexit__(*error)

    async def write(self, number: int) -> None:
        state = self._emulator.state
        channel = state.add_channel(None, "", 1)
        person = state.add_user(f"Person {number}")
        state.channels[channel]["recipients"] = [state.users[person]]
        self._channels[str(number)] = channel
        await self._emulator.people.say(channel, person, f"hello, I am {number}")

    def reads(self) -> int:
        counts = self._emulator.recorder.counts
        return counts["ready"] + counts["resume"]

    def rooms(self) -> dict[str, list[str]]:
        texts: dict[str, list[str]] = {channel: [] for channel in self._channels.values()}
        for message in self._emulator.recorder.messages:
            texts[message.room].append(message.texts[-1])
        return {number: texts[channel] for number, channel in self._channels.items()}


class X(Platform):
    """Mentions on X."""

    name = "x"

    def __init__(self, messages: int, chance: random.Random) -> None:
        self._emulator = XEmulator()
        ways = [
            chance.choice(X_WAYS) if chance.random() < FAILING_SHARE else FaultKind.PASSED
            for _ in range(messages * DRAWN_SENDS)
        ]
        self._emulator.add_faults(*[XFault("POST /2/tweets", way, 500) for way in ways])
        self._posts: dict[str, str] = {}

    async def __aenter__(self) -> "X":
        await self._emulator.__aenter__()
        self.settings = {**NEUTRAL_SETTINGS, **self._emulator.environment}
        return self

    async def __aexit__(self, *error: object) -> None:
        await self._emulator.__aexit__(*error)

    async def write(self, number: int) -> None:
        text = f"@greenroom_bot hello, I am {number}"
        self._posts[str(number)] = self._emulator.say(f"person_{number}", text)

    def reads(self) -> int:
        return sum(call.endpoint.endswith("/mentions") for call in self._emulator.calls)

    def rooms(self) -> dict[str, list[str]]:
        texts: dict[str, list[str]] = {post: [] for post in self._posts.values()}
        for post in self._emulator.state.posts_by(self._emulator.user_id):
            texts[post.reply_to_id].append(post.text)
        return {number: texts[post] for number, post in self._posts.items()}


PLATFORMS: Mapping[str, Callable[[int, random.Random], Platform]] = {"telegram": Telegram, "discord": Discord, "x": X}


@dataclass(frozen=True, slots=True)
class Report:
    """What came of one run."""

    platform: str
    messages: int
    kills: int
    unanswered: list[str]
    doubled: int
    unmarked: list[str]
    late: int
    held: int
    seconds: float

    @property
    def is_good(self) -> bool:
        """Whether every room was answered, and no double is unmarked."""
        return not self.unanswered and not self.unmarked


async def carry_out(name: str, messages: int, kills: int, seed: int, folder: Path, fork_server: ForkServer) -> Report:
    """Write all messages while the bot is killed so often, then let it finish."""
    began, chance = time.monotonic(), random.Random(seed)
    async with PLATFORMS[name](messages, chance) as platform:
        settings = {"STREAMING": "false", "LOG_LEVEL": "WARNING", "PYTHONWARNINGS": "ignore", **platform.settings}
        program = Program(fork_server, folder, settings, name, plugins=["sql"])
        written = 1
        async with program.running():  # until it has a session to resume
            await wait_until(lambda: platform.reads() > 0, START_TIMEOUT)
            await platform.write(written)
            await wait_until(lambda: all(platform.rooms().values()), END_TIMEOUT)
        for number in range(kills):
            async with program.running() as bot:
                reads = platform.reads()
                await wait_until(lambda reads=reads: platform.reads() > reads, START_TIMEOUT)  # type: ignore[misc]
                timer = asyncio.get_running_loop().call_later(chance.uniform(SHORTEST_RUN, LONGEST_RUN), bot.kill)
                while written < messages * (number + 1) // kills:
                    written += 1
                    await platform.write(written)
                    await asyncio.sleep(WRITING_PAUSE)
                await bot.wait()
                timer.cancel()
        database = BotDatabase(program.database)
        async with program.running() as bot:
            reads = platform.reads()
            await wait_until(lambda: platform.reads() > reads or bot.is_over, START_TIMEOUT)
            is_done = lambda: all(platform.rooms().values()) and not database.count(OPEN)  # noqa: E731  # read once
            with_timeout = await wait_until(lambda: bot.is_over or is_done(), END_TIMEOUT, is_strict=False)
            print_progress(name, with_timeout)
            bot.stop()
            await bot.wait()
        return judge(platform, messages, kills, database.count(HELD), time.monotonic() - began)


def judge(platform: Platform, messages: int, kills: int, held: int, seconds: float) -> Report:
    """Compare what can be read in each room with what must be."""
    rooms = platform.rooms()
    marked = platform.name == "telegram"
    unmarked = [
        number
        for number, texts in rooms.items()
        if sum(not (marked and text.startswith(DUPLICATE_NOTICE)) for text in texts) > 1
    ]
    return Report(
        platform.name,
        messages,
        kills,
        [number for number, texts in rooms.items() if not texts],
        sum(len(texts) > 1 for texts in rooms.values()),
        unmarked,
        sum(LATE_NOTICE.strip() in text for texts in rooms.values() for text in texts),
        held,
        seconds,
    )


async def wait_until(is_so: Callable[[], bool], seconds: float, *, is_strict: bool = True) -> bool:
    """Wait until something is so; return False after the time, or raise TimeoutError."""
    end = time.monotonic() + seconds
    while not is_so():
        if time.monotonic() > end:
            if is_strict:
                raise TimeoutError
            return False
        await asyncio.sleep(POLL_SECONDS)
    return True


def print_progress(name: str, is_complete: bool) -> None:
    """Report that a platform did not finish in time."""
    if not is_complete:
        write(f"{name}: not everything was finished in time")


def write(line: str) -> None:
    """Write a line without delay: the whole run takes minutes."""
    sys.stdout.write(f"{line.rstrip()}\n")
    sys.stdout.flush()


def main() -> int:
    """Carry out one run for each platform and print the figures."""
    parser = argparse.ArgumentParser(prog="python -m tests.chaos.outages", description=__doc__)
    parser.add_argument("--platform", choices=PLATFORMS, action="append", help="this one only; may be given again")
    parser.add_argument("--messages", type=int, default=1000, help="per platform")
    parser.add_argument("--kills", type=int, default=60, help="per platform")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--keep", type=Path, help="a folder in which databases and logs are kept")
    given = parser.parse_args()
    is_good = True
    write("platform  messages  kills  rooms without answer  rooms with doubles  unmarked doubles  late  held  seconds")
    with tempfile.TemporaryDirectory(prefix="outages-") as temporary:
        for name in given.platform or PLATFORMS:
            folder = (given.keep or Path(temporary)) / name
            folder.mkdir(parents=True)
            with ForkServer(folder) as fork_server:
                report = asyncio.run(carry_out(name, given.messages, given.kills, given.seed, folder, fork_server))
            is_good = is_good and report.is_good
            write(
                f"{name:<8}  {report.messages:>8}  {report.kills:>5}  {len(report.unanswered):>20}  "
                f"{report.doubled:>18}  {len(report.unmarked):>16}  {report.late:>4}  {report.held:>4}  "
                f"{report.seconds:>7.0f}"
            )
            for label, rooms in (("without answer", report.unanswered), ("unmarked doubles", report.unmarked)):
                if rooms:
                    write(f"    {label}: {', '.join(rooms[:20])}")
    return 0 if is_good else 1


if __name__ == "__main__":
    sys.exit(main())
