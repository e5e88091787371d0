"""Plugins, tasks, messages, the budget and the database that stop answers on their way."""

import asyncio
import sqlite3
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, closing
from datetime import timedelta
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Self

from bot import Plugin, Role, Service, Task, Turn, action, derived_id, evaluator, provider, system_clock, worker
from bot.models import Purpose, TextRequest, TextResult, Usage
from bot.store import InMemoryStore
from bot.store.sql.sqlite.storage import OpenFiles
from bot.testing import model_answer
from tests.browser.situations.running import Bot, Group, Running, Situation, echo, in_room, link, run_bots, silence

REASON = "the lamp is broken"
BUDGET = {"MODEL_PRICES": "scripted=100/100", "BUDGET_USD": "1.25"}


@action("LIGHT_LAMP", "Light the lamp.")
async def light_lamp(turn: Turn) -> None:
    """Fail."""
    raise ValueError(REASON)


@action("OPEN_DOOR", "Open the door.", role=Role.OWNER)
async def open_gate(turn: Turn) -> None:
    """Do nothing."""


@provider("WEATHER", "The weather.")
def weather(turn: Turn) -> Any:
    """Fail."""
    raise ValueError("no weather today")


@evaluator("MOOD", "Judge the mood.")
async def mood(turn: Turn) -> None:
    """Fail."""
    raise ValueError("no mood today")


@worker("WATER_PLANTS")
async def water_plants(agent: Any, task: Task) -> None:
    """Fail."""
    raise ValueError("the can is empty")


@worker("COUNT_STARS")
async def count_stars(agent: Any, task: Task) -> None:
    """Never end."""
    await asyncio.Event().wait()


class Tower(Service):
    """A service that does not start."""

    async def __aenter__(self) -> Self:
        raise ValueError("no bricks")


def act(name: str) -> Any:
    """Return a model that chooses this action."""
    return lambda request: model_answer("At once.", actions=("REPLY", name))


def expensive(request: TextRequest) -> TextResult:
    """Take tokens that cost more than a dollar."""
    return TextResult(model_answer("Dear."), "scripted", Usage(20_000, 100))


class Pausing:
    """A model that answers "wait" once it may."""

    def __init__(self) -> None:
        self.asked, self.released = asyncio.Semaphore(0), asyncio.Event()

    async def write(self, request: TextRequest) -> str:
        """Answer, after a while if it is asked to wait."""
        if request.purpose is Purpose.REPLY:
            self.asked.release()
            if "wait" in request.prompt:
                await self.released.wait()
        return echo(request)


@asynccontextmanager
async def open_plugins() -> AsyncIterator[Running]:
    """Run bots with failing plugins, tasks and a spent budget, and write to each."""
    plugin = Plugin("workshop", actions=[light_lamp, open_gate])
    failing = Plugin("failing", providers=[weather], evaluators=[mood], services=[Tower])
    tasks, now = InMemoryStore(), system_clock()
    due = now - timedelta(minutes=5)
    await tasks.tasks.save_task(Task(derived_id("plants"), "WATER_PLANTS", due))
    await tasks.tasks.save_task(Task(derived_id("stars"), "COUNT_STARS", due))
    bots = [
        Bot("Lamp", script=act("LIGHT_LAMP"), plugins=(plugin,)),
        Bot("Door", script=act("OPEN_DOOR"), plugins=(plugin,)),
        Bot("Wings", script=act("FLY")),
        Bot("Weather", plugins=(failing,)),
        Bot("Garden", store=tasks, plugins=(Plugin("garden", workers=[water_plants, count_stars]),)),
        Bot("Dear", script=expensive, settings=BUDGET),
    ]
    async with run_bots(*bots) as running:
        for bot in ("Lamp", "Door", "Wings", "Weather", "Dear"):
            await running.write(bot, "Hello", "Hello again", room=f"Room of {bot}")
        yield running


@asynccontextmanager
async def open_messages() -> AsyncIterator[Running]:
    """Change, delete and stop messages while they are answered."""
    models = {name: Pausing() for name in ("Edited", "Deleted", "Joined", "Stopped")}
    edited, joined, stopped = (
        Bot("Edited", "telegram", script=models["Edited"].write),
        Bot("Joined", "telegram", script=models["Joined"].write),
        Bot("Stopped", script=models["Stopped"].write),
    )
    deleted = Bot("Deleted", "discord", script=models["Deleted"].write)
    async with run_bots(edited, joined, stopped, deleted) as running:
        message = running.say("Edited", "Kim", "wait a moment")
        await models["Edited"].asked.acquire()
        edited.emulator.people.edit(message, "never mind")
        people = joined.emulator.people
        kim = people.add_user("Kim")
        chat = people.open_private_chat(kim)
        people.say(chat, kim, "wait a moment")
        await models["Joined"].asked.acquire()
        people.say(chat, kim, "and another thing")
        state = deleted.emulator.state
        await running.wait_for(lambda: deleted.emulator.recorder.counts["ready"])
        [channel] = [number for number, item in state.channels.items() if item.get("name") == "quay"]
        [author] = [number for number, item in state.users.items() if item["global_name"] == "Kim"]
        [own] = state.tokens.values()
        number = await deleted.emulator.people.say(channel, author, f"<@{own}> wait a moment")
        await models["Deleted"].asked.acquire()
        await deleted.emulator.people.delete(channel, number)
        sending = asyncio.create_task(running.write("Stopped", "wait a moment", room="Room of Stopped"))
        await models["Stopped"].asked.acquire()
        [receipt] = (await running.server.get("/api/receipts?agent=Stopped"))["receipts"]
        await running.server.post(f"/api/messages/{receipt['message_id']}/stop", {})
        for model in models.values():
            model.released.set()
        await sending
        for bot, count in (("Edited", 2), ("Joined", 2), ("Deleted", 1)):
            await running.settle(bot, count)
        yield running


@asynccontextmanager
async def open_locked() -> AsyncIterator[Running]:
    """Run a bot whose database another program locks."""
    with TemporaryDirectory() as folder:
        path = Path(folder, "bot.db")
        async with (
            OpenFiles().open_store(path, derived_id("agent", "Ada")) as store,
            run_bots(Bot("Ada", "telegram", store=store)) as running,
        ):
            with closing(sqlite3.connect(path, isolation_level=None)) as other:
                other.execute("BEGIN EXCLUSIVE")
                running.say("Ada", "Kim", "Hello")
                await running.wait_for(lambda: running.server.runtime.handles[0].problem)
                yield running


PLUGINS = Group(
    "plugins",
    open_plugins,
    [
        in_room("an action fails", "Room of Lamp", "Hello", "LIGHT_LAMP failed: ValueError: the lamp is broken"),
        in_room("a role is missing", "Room of Door", "Hello again", "OPEN_DOOR"),
        in_room("the action does not exist", "Room of Wings", "Hello again", "action 'FLY' is not known"),
        Situation("a provider fails", "no weather today", (link("Log"),)),
        Situation("an evaluator fails", "no mood today", (link("Log"),)),
        Situation("a service does not start", "no bricks", (link("Log"),)),
        Situation("a task fails", "the can is empty", (link("Tasks"),)),
        Situation("a task is late", "1 task is overdue."),
        Situation("the budget of the day is spent", "Today's limit of $1.25 for Dear is used up."),
    ],
)
MESSAGES = Group(
    "messages",
    open_messages,
    [
        silence("the message was edited", "Replaced: the message was edited"),
        silence("another message came meanwhile", "Handled together with a later message"),
        silence("the message was deleted", "Cancelled: the message was deleted"),
        silence("the answer was stopped", "Stopped by the author while it was being written"),
    ],
)
LOCKED = Group(
    "locked",
    open_locked,
    [
        Situation(
            "another program locks the database", "Messages cannot be received: another program locks the database"
        )
    ],
)
GROUPS = (PLUGINS, MESSAGES, LOCKED)
