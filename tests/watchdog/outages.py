"""Outages of a running bot: each is brought about in the real machine, and begins when its function returns."""

import base64
import json
import sqlite3
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import timedelta
from typing import Any

from bot import Outcome, TemporaryError, derived_id
from bot.concurrency.process_health import DiskSpace
from bot.domain.task import Task
from bot.errors import DeliveryHeld, ModelUnreachable, NotSent, StoreUnavailable, Undeliverable
from bot.models import ModelRefused, TextRequest, TextResult, Usage
from bot.platform import AdapterSpec, DisconnectCause
from bot.settings import SettingsModel
from bot.testing import make_message, model_answer
from tests.watchdog.scene import Scene

GB = 1_000_000_000


@dataclass(frozen=True, slots=True)
class Outage:
    """Something that goes wrong; the owner's notice contains `words`.

    `begins_after` are the seconds after which it counts as an outage, as docs/watchdog.md says. With `on_file` the
    store is a real SQLite file; with `is_lively` thirty messages an hour came in for a week.
    """

    name: str
    words: str
    begin: Callable[[Scene], Awaitable[object]]
    begins_after: int = 0
    settings: Mapping[str, str] = field(default_factory=dict)
    script: Any = "Well."
    on_file: bool = False
    is_lively: bool = False


def stop(cause: DisconnectCause) -> Any:
    """Return what ends the connection for good."""

    async def begin(scene: Scene) -> None:
        scene.platform.status.stopped(cause, "refused")

    return begin


def cut_off(cause: DisconnectCause) -> Any:
    """Return what interrupts the connection."""

    async def begin(scene: Scene) -> None:
        scene.platform.status.failed(cause, "failed")

    return begin


class NoSettings(SettingsModel):
    """The settings of an adapter that has none."""


async def fail_to_start(scene: Scene) -> None:
    """Start an adapter that cannot be started."""

    def refuse(handles: object) -> Any:
        raise TemporaryError("the server of the platform is down")

    await scene.runtime.start_adapter(AdapterSpec("x", refuse, NoSettings))


async def become_deaf(scene: Scene) -> None:
    """Report that the platform has a message that it did not bring."""
    scene.platform.status.unheard_since = scene.clock.wall()


async def fall_silent(scene: Scene) -> None:
    """Bring nothing from now on."""


async def write(scene: Scene, count: int = 1) -> None:
    """Send a message."""
    for number in range(count):
        text = f"Hello {number}"
        message = make_message(text, sent_at=scene.clock.wall(), platform="telegram", room=f"room {number}")
        await scene.runtime.agents[0].inbox.submit(message)


async def answer(scene: Scene, count: int = 1) -> None:
    """Send a message, and wait for the outcome."""
    inbox = scene.runtime.agents[0].inbox
    for number in range(count):
        message = make_message("Hello", sent_at=scene.clock.wall(), platform="telegram", room=f"room {number}")
        receipt = await inbox.submit(message)
        await inbox.wait_outcome(receipt.id)


async def spend(scene: Scene) -> None:
    """Send a message whose answer costs money."""
    await answer(scene)
    today = scene.clock.wall().date()
    await scene.runtime.handles[0].conversations.costs(today, today)  # stores what else is stored after ten seconds


async def hang(scene: Scene) -> None:
    """Send a reply that the platform takes and never acknowledges."""
    scene.platform.is_hanging = True
    await answer(scene)


def refuse_parts(*faults: Exception) -> Any:
    """Return what makes the platform answer each attempt to send with an error."""

    async def begin(scene: Scene) -> None:
        scene.platform.fail_with(*faults)
        await answer(scene)
        await scene.platform.wait_until_attempted(1)

    return begin


async def fill_database(scene: Scene) -> None:
    """Forbid the database to grow."""
    database = scene.database
    used = await database.write(lambda db: db.exec_driver_sql("PRAGMA page_count").scalar())
    await database.write(lambda db: db.exec_driver_sql(f"PRAGMA max_page_count = {used}").scalar())
    with suppress(StoreUnavailable):
        await write(scene, 200)


async def lock_database(scene: Scene) -> None:
    """Lock the database by another program, until it is closed."""
    other = sqlite3.connect(scene.path, isolation_level=None)
    scene.closing.callback(other.close)
    other.execute("BEGIN EXCLUSIVE")


async def move_database(scene: Scene) -> None:
    """Move the file away."""
    scene.path.rename(scene.path.with_suffix(".moved"))


async def fill_disk(scene: Scene) -> None:
    """Leave little space on the disk of the data folder."""
    scene.monitor._read_disk = lambda folder: DiskSpace(GB // 10, 20 * GB)


def jump(**length: float) -> Any:
    """Return what sets the clock."""

    async def begin(scene: Scene) -> None:
        scene.clock.offset += timedelta(**length)

    return begin


async def slow_down(scene: Scene) -> None:
    """Make each second of the loop take four."""
    scene.lag = 3.0


def unreachable(request: TextRequest) -> str:
    """Fail, as a model whose server is down."""
    raise ModelUnreachable("connection refused")


def refused(request: TextRequest) -> str:
    """Fail, as a model that refuses the key."""
    raise ModelRefused("401: no such key")


def expensive(request: TextRequest) -> TextResult:
    """Take tokens that cost two dollars."""
    return TextResult(model_answer("Dear."), "scripted", Usage(20_000, 0))


async def poison(scene: Scene) -> None:
    """Take up a message during which the process died three times."""
    now = scene.clock.wall()
    [event] = await scene.store.ledger.receive([make_message("Boo", sent_at=now, platform="telegram")], now)
    receipt = replace(event.receipt, crash_count=3, attempts=3)
    await scene.store.ledger.save_receipts([receipt])
    inbox = scene.runtime.agents[0].inbox
    await inbox.processor.resume(receipt)
    await inbox.wait_outcome(receipt.id)


async def park(scene: Scene) -> None:
    """Park a message, as restoring a backup does."""
    now = scene.clock.wall()
    [event] = await scene.store.ledger.receive([make_message("Hello", sent_at=now, platform="telegram")], now)
    await scene.store.ledger.save_receipts([replace(event.receipt, outcome=Outcome.PARKED, closed_at=now)])


async def fail_backup(scene: Scene) -> None:
    """Report that the last backup failed."""
    scene.runtime.handles[0].read_failed_backup = lambda: "the folder is not writable"


async def delay_task(scene: Scene) -> None:
    """Leave a task that is due without anything that runs it."""
    task = Task(derived_id("late"), "WATER_PLANTS", scene.clock.wall() - timedelta(minutes=1))
    await scene.store.tasks.save_task(task)


async def park_task(scene: Scene) -> None:
    """Park a task after too many failures."""
    task = Task(derived_id("parked"), "WATER_PLANTS", scene.clock.wall() + timedelta(days=1), is_parked=True)
    await scene.store.tasks.save_task(task)


async def shorten_token(scene: Scene) -> None:
    """Replace a token by one that ends in ten days."""
    ends_at = scene.clock.wall() + timedelta(days=10)
    payload = base64.urlsafe_b64encode(json.dumps({"exp": int(ends_at.timestamp())}).encode()).decode().rstrip("=")
    scene.renew_tokens({"MODEL_API_KEY": f"eyJhbGciOiJIUzI1NiJ9.{payload}.c2lnbmF0dXJl"})


PRICES = {"MODEL_PRICES": "scripted=100/100"}
OUTAGES = (
    Outage("the token was revoked", "rejects the token", stop(DisconnectCause.REFUSED)),
    Outage("a permission is missing", "required permissions", stop(DisconnectCause.FORBIDDEN)),
    Outage("the platform is unreachable", "cannot be reached", cut_off(DisconnectCause.UNREACHABLE)),
    Outage("the certificate is not accepted", "certificate is not accepted", cut_off(DisconnectCause.TLS)),
    Outage("another program has the token", "uses the same token", cut_off(DisconnectCause.CONTESTED)),
    Outage("the webhook fails", "cannot deliver to the webhook", cut_off(DisconnectCause.WEBHOOK)),
    Outage("the adapter fails", "adapter has failed", cut_off(DisconnectCause.FAULT)),
    Outage("a platform does not start", "X is off", fail_to_start),
    Outage("the gateway is deaf, its socket alive", "receives no messages", become_deaf),
    Outage("a lively room is silent", "has received nothing", fall_silent, begins_after=910, is_lively=True),
    Outage("a send lane hangs", "waiting to be sent for 1 min", hang),
    Outage("a send lane fails", "waiting to be sent for 1 min", refuse_parts(*[NotSent("502: oops")] * 99)),
    Outage("an answer hangs", "in progress for 5 min", write, begins_after=300, script=None),
    Outage("the database is full", "the disk is full", fill_database, on_file=True),
    Outage("the database is locked", "another program locks", lock_database, on_file=True),
    Outage("the database was moved", "cannot be reached", move_database, on_file=True),
    Outage("the disk is nearly full", "almost full: 100 MB left", fill_disk),
    Outage("the clock jumps forward", "jumped forward by 2 h", jump(hours=2)),
    Outage("the clock jumps back", "jumped back by 3 days", jump(days=-3)),
    Outage("the loop is late", "a delay of 3.0 s", slow_down),
    Outage("the model's server is down", "paused after repeated failures", lambda s: answer(s, 3), script=unreachable),
    Outage("the model refuses the key", "401: no such key", lambda s: answer(s, 3), script=refused),
    Outage(
        "80 % of the budget is spent",
        "$2.00 of today's limit of $2.40 is used.",
        spend,
        settings={**PRICES, "BUDGET_USD": "2.4"},
        script=expensive,
    ),
    Outage("the budget is spent", "is used up", spend, settings={**PRICES, "BUDGET_USD": "1"}, script=expensive),
    Outage("a part is held", "1 part of a reply is held", refuse_parts(DeliveryHeld("no answer"))),
    Outage("a part is refused", "could not be sent", refuse_parts(Undeliverable("blocked"))),
    Outage("a message is poisoned", "abandoned today", poison),
    Outage("a message is parked", "1 message is parked", park),
    Outage("a backup failed", "The folder is not writable", fail_backup),
    Outage("a task is late", "1 task is overdue", delay_task),
    Outage("a task has failed too often", "failed too often", park_task),
    Outage("a token ends soon", "MODEL_API_KEY expires in 10 days", shorten_token),
)
