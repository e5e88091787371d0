"""What the watchdog reports to the owner too: a deaf gateway, a full disk, messages that were left."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from adapters.discord.adapter import DiscordAdapter
from adapters.discord.sharding import WHOLE_ACCOUNT
from bot import Outcome, derived_id, system_clock
from bot.store import InMemoryStore, StoreUnavailable
from bot.store.sql.sqlite.storage import OpenFiles
from bot.testing import make_message
from tests.browser.situations.running import Bot, Group, Running, Situation, in_room, link, run_bots

MINUTE = timedelta(minutes=1)


async def store_message(outcome: Outcome, reason: str, rule: str) -> InMemoryStore:
    """Return a store with a message that was left with this outcome."""
    store, now = InMemoryStore(), system_clock()
    message = make_message("Is anybody there?", sent_at=now, platform="web", room=f"Room of {outcome}")
    [event] = await store.ledger.receive([message], now)
    closed = replace(event.receipt, outcome=outcome, reason=reason, rule=rule, closed_at=now)
    await store.ledger.save_receipts([closed])
    return store


@asynccontextmanager
async def open_left() -> AsyncIterator[Running]:
    """Run a bot to which the gateway brings nothing, and two with messages that were left."""
    parked = await store_message(Outcome.PARKED, "it came in before the backup was made", "restore")
    expired = await store_message(Outcome.EXPIRED, "it was left unanswered for too long", "restart")
    deaf = Bot("Deaf", "discord")
    async with run_bots(deaf, Bot("Parked", store=parked), Bot("Expired", store=expired)) as running:
        emulator, state = deaf.emulator, deaf.emulator.state
        await running.wait_for(lambda: emulator.recorder.counts["ready"])
        [channel] = [number for number, item in state.channels.items() if item.get("name") == "quay"]
        [kim] = [number for number, item in state.users.items() if item["global_name"] == "Kim"]
        await emulator.people.say(channel, kim, "Hello")
        await running.settle("Deaf", 1)
        emulator.gateway.is_deaf = True
        await emulator.people.say(channel, kim, "Hello?")
        [adapter] = [item for item in running.server.runtime.adapters if isinstance(item, DiscordAdapter)]
        [account] = adapter.accounts
        account.shards[WHOLE_ACCOUNT].probe._clock = lambda: system_clock() + MINUTE
        await account.shards[WHOLE_ACCOUNT].probe.check()
        yield running


@asynccontextmanager
async def open_full() -> AsyncIterator[Running]:
    """Run a bot whose database cannot grow."""
    with TemporaryDirectory() as folder:
        path, files = Path(folder, "bot.db"), OpenFiles()
        async with (
            files.open_store(path, derived_id("agent", "Ada")) as store,
            files.use(path) as database,
            run_bots(Bot("Ada", store=store)) as running,
        ):
            used = await database.write(lambda db: db.exec_driver_sql("PRAGMA page_count").scalar())
            await database.write(lambda db: db.exec_driver_sql(f"PRAGMA max_page_count = {used}").scalar())
            handle: Any = running.server.runtime.handles[0]
            with suppress(StoreUnavailable):
                for number in range(500):
                    message = make_message(f"{number} " * 500, sent_at=system_clock(), message_id=str(number))
                    await handle.submit(message)
            yield running


LEFT = Group(
    "left",
    open_left,
    [
        Situation("the gateway is connected and deaf", "Deaf on Discord is connected but receives no messages."),
        Situation("messages are parked", "1 message is parked."),
        in_room(
            "a message expired", "Room of expired", "Is anybody there?", "more than 15 minutes old after a restart"
        ),
        Situation("a parked message", "restored from a backup", (link("See them: "),), about="Is anybody there?"),
    ],
)
FULL = Group("full", open_full, [Situation("the disk is full", "Messages cannot be received: the disk is full")])
GROUPS = (LEFT, FULL)
