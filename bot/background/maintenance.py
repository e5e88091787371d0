"""Scheduled copies of a database: `ScheduledBackups` makes them, `BackupFolder` holds them.

Deletes memories of the kinds that plugins declare once their time is over.

Runs actions that their askers have confirmed with a button or a code.
"""

import asyncio
import json
import logging
import re
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import TracebackType
from typing import Any, Self
from uuid import UUID

from bot.concurrency.clock import Clock, TimeSource
from bot.concurrency.tasks import Failure, TaskSet, run_isolated
from bot.domain.content import Content
from bot.domain.environment import ANYBODY, ChoiceRequest, Room
from bot.domain.ids import derived_id
from bot.domain.ledger import ActionResult, EventKey, Outcome, Receipt
from bot.domain.memory import MemoryKind
from bot.domain.task import Task
from bot.errors import BotError, StoreUnavailable
from bot.outbound.proposals import TASK_KEY
from bot.pipeline.commit import ActionParked, build_proposal, build_result_memories, load_steps
from bot.pipeline.compose import Composer
from bot.pipeline.respond import ActionCall
from bot.pipeline.run_actions import ActionRunner, write_closing_text
from bot.pipeline.turn_order import ActiveTurns, TurnStopped
from bot.plugin_system.components import Worker
from bot.plugin_system.registry import CONFIRMED_WORKER, Registry
from bot.runs import Run, current_run
from bot.settings import CoreSettings, Settings
from bot.store.protocols import MemoryStore
from bot.store.storage import Storage, listen_to_progress
from bot.turn import Agent, Turn, TurnInput
from bot.user_texts import user_text

logger = logging.getLogger(__name__)

TIME_FORMAT, TIME_PATTERN = "%Y%m%d-%H%M%S", r"\d{8}-\d{6}"
FIRST_DELAY_SECONDS = 60.0  # a start has other things to do
RECHECK_SECONDS = 600.0
MAX_RETRY_DELAY = timedelta(hours=1)
OVERDUE_FACTOR = 2  # a copy is missing after twice the time between two


@dataclass(frozen=True, slots=True)
class BackupFolder:
    """The copies of one database in a folder, and why the last attempt to make one failed.

    `name` is that of the copies without their time. Several processes may read it while one writes.
    """

    path: Path
    name: str

    @classmethod
    def of(cls, storage: Storage, settings: Settings) -> Self | None:
        """Return the folder of scheduled copies; None where they are off or not supported."""
        core = settings.operator_only().load(CoreSettings)
        if not core.backup_every or not (name := storage.backup_name(settings)):
            return None
        return cls(core.backup_dir or core.bot_data_dir / "backups", name)

    def copies(self) -> list[Path]:
        """Return the copies, the latest first."""
        stem, suffix = Path(self.name).stem, Path(self.name).suffix
        pattern = re.compile(f"{re.escape(stem)}-{TIME_PATTERN}{re.escape(suffix)}")
        files = self.path.iterdir() if self.path.is_dir() else ()
        return sorted((file for file in files if pattern.fullmatch(file.name)), reverse=True)

    def last_time(self, now: datetime) -> datetime | None:
        """Return when the latest copy was made; one of the future was made while the clock was wrong."""
        for copy in self.copies():
            with suppress(ValueError):
                made_at = datetime.strptime(copy.stem[-len("20260101-000000") :], TIME_FORMAT).replace(tzinfo=UTC)
                if made_at <= now:
                    return made_at
        return None

    def new_copy(self, now: datetime) -> Path:
        """Create the folder if there is none, and return the path of a new copy."""
        self.path.mkdir(mode=0o700, parents=True, exist_ok=True)
        return self.path / f"{Path(self.name).stem}-{now:{TIME_FORMAT}}{Path(self.name).suffix}"

    def delete_surplus(self, keep: int, latest: Path) -> list[Path]:
        """Delete all copies but `latest` and those before it; return the deleted ones.

        Copies of the future, made while the clock was wrong, count as the oldest.
        """
        surplus = sorted(self.copies(), key=lambda copy: copy.name > latest.name)[keep:]
        for file in surplus:
            file.unlink(missing_ok=True)
        return surplus

    def delete_unfinished(self) -> None:
        """Delete what killed processes left; to be called by the process that makes the copies, while it makes none."""
        with suppress(OSError):  # a folder that cannot be read is found by the next copy
            for file in self.path.glob(f"{Path(self.name).stem}-*.part"):
                file.unlink(missing_ok=True)

    @property
    def failure(self) -> str:
        """Why the last attempt failed; empty where it did not."""
        with suppress(OSError):
            return self._failure_file.read_text(encoding="utf-8").strip()
        return ""

    def record_result(self, failure: str) -> None:
        """Store why an attempt failed, or with an empty text that it succeeded."""
        with suppress(OSError):  # a folder that cannot be written is the failure
            if failure:
                self.path.mkdir(mode=0o700, parents=True, exist_ok=True)
                self._failure_file.write_text(f"{failure}\n", encoding="utf-8")
            else:
                self._failure_file.unlink(missing_ok=True)

    @property
    def _failure_file(self) -> Path:
        return self.path / f"{self.name}.failed"


class StoppedError(BotError):
    """A copy was given up because the process stops."""


class ScheduledBackups:
    """Copies one database every so often while it is entered, and deletes surplus copies.

    A failed attempt is repeated within an hour; until then `failure` says why. A restart does not begin anew: the
    time of the latest copy counts. Where processes share the database, the one whose `hold_duty` returns True copies.
    """

    def __init__(
        self,
        storage: Storage,
        settings: Settings,
        folder: BackupFolder,
        time_source: TimeSource | None = None,
        hold_duty: Callable[[], Awaitable[bool]] | None = None,
    ) -> None:
        self._storage, self._settings, self._folder = storage, settings, folder
        core = settings.operator_only().load(CoreSettings)
        self._interval, self._keep = timedelta(hours=core.backup_every), core.backup_keep
        self._time, self._hold_duty = time_source or TimeSource(), hold_duty
        self._tasks = TaskSet("scheduled backups")
        self._is_stopping = threading.Event()
        self._retry_at: datetime | None = None
        self.failure = folder.failure

    async def __aenter__(self) -> Self:
        self._tasks.start(self._run())
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._is_stopping.set()
        await self._tasks.cancel()

    async def back_up(self) -> Path | None:
        """Make a copy and delete surplus ones; return the copy, None if that failed."""
        result = await run_isolated(self._copy(), label="the scheduled backup", timeout=None)
        if self._is_stopping.is_set() and isinstance(result, Failure):
            return None
        if isinstance(result, Failure):
            self._note_failure(result.cause)
            return None
        self.failure, self._retry_at = "", None
        self._folder.record_result("")
        logger.info("the database was backed up to %s", result)
        return result

    def _note_failure(self, cause: str) -> None:
        self.failure = cause
        self._retry_at = self._time.now() + min(self._interval, MAX_RETRY_DELAY)
        self._folder.record_result(cause)
        logger.error("the scheduled backup failed: %s; it is tried again within the hour", cause)

    async def _copy(self) -> Path | Failure:
        try:
            with listen_to_progress(self._check_stopping):
                copy = await self._storage.backup(self._settings, self._folder.new_copy(self._time.now()))
            for deleted in self._folder.delete_surplus(self._keep, copy):
                logger.debug("deleted the old backup %s", deleted)
        except (BotError, OSError) as error:
            return Failure(str(error), error)
        return copy

    def _check_stopping(self, step: str, done: int, total: int) -> None:
        """Raise StoppedError if the process stops: a thread that copies cannot be cancelled otherwise."""
        if self._is_stopping.is_set():
            raise StoppedError(f"{step}: the process stops")

    async def _run(self) -> None:
        if await self._has_duty():
            await asyncio.to_thread(self._folder.delete_unfinished)
        await self._time.sleep(FIRST_DELAY_SECONDS)
        while True:
            try:
                wait = (self._due_at() - self._time.now()).total_seconds()
            except OSError as error:  # the folder cannot be read
                self._note_failure(str(error))
                continue
            if wait <= 0 and await self._has_duty():
                await self.back_up()
            else:
                await self._time.sleep(min(wait, RECHECK_SECONDS) if wait > 0 else RECHECK_SECONDS)

    async def _has_duty(self) -> bool:
        try:
            return self._hold_duty is None or await self._hold_duty()
        except StoreUnavailable:
            return False

    def _due_at(self) -> datetime:
        now = self._time.now()
        if self._retry_at is not None and self._retry_at - now <= MAX_RETRY_DELAY:
            return self._retry_at
        last = self._folder.last_time(now)
        return now if last is None else last + self._interval


def find_backup_problem(storage: Storage, settings: Settings, now: Callable[[], datetime]) -> str:
    """Return what is wrong with the scheduled copies of a database: the last attempt failed, or none was made for long.

    Return an empty text where nothing is wrong or none are scheduled.
    """
    folder = BackupFolder.of(storage, settings)
    if folder is None:
        return ""
    if folder.failure:
        return f"the last scheduled backup failed: {folder.failure}"
    last = folder.last_time(now())
    interval = timedelta(hours=settings.operator_only().load(CoreSettings).backup_every)
    if last is not None and now() - last > OVERDUE_FACTOR * interval:
        cause = "does another process make them now?" if storage.is_shared(settings) else "is the bot running?"
        return f"the last scheduled backup is of {last:%Y-%m-%d %H:%M} UTC: {cause}"
    return ""


INTERVAL_SECONDS = 3600.0
PAUSE_SECONDS = 0.05  # between two pages, so that other work of the store comes first
PAGE_SIZE = 500


class _Repetition(ABC):
    """Work that is repeated from when it is entered until it is left."""

    _task: asyncio.Task[None] | None = None

    async def __aenter__(self) -> Self:
        self._task = asyncio.get_running_loop().create_task(self._run())
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait({self._task})

    @abstractmethod
    async def _run(self) -> None: ...


class MemoryRetention(_Repetition):
    """Deletes expired memories of one agent, when it starts and every hour; entered and left by its runtime.

    `lifetimes` say how long memories of each kind are stored; without any there is nothing to do.
    """

    def __init__(
        self,
        memories: MemoryStore,
        lifetimes: Mapping[MemoryKind, timedelta],
        clock: Clock,
        *,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        self._memories = memories
        self._lifetimes = lifetimes
        self._clock = clock
        self._sleep = sleep

    async def delete_expired(self) -> int:
        """Delete what has expired, a page at a time; return how many memories it was."""
        count = 0
        for kind, lifetime in self._lifetimes.items():
            before = self._clock() - lifetime
            while ids := await self._memories.expired(kind, before, PAGE_SIZE):
                count += await self._memories.remove(ids)
                await self._sleep(PAUSE_SECONDS)
        return count

    async def _run(self) -> None:
        while self._lifetimes:
            count = await run_isolated(self.delete_expired(), label="deleting expired memories", timeout=None)
            if count:
                logger.debug("deleted expired memories: %s", count)
            await self._sleep(INTERVAL_SECONDS)


EXPIRY_SECONDS = 30.0


class ProposalExpiry(_Repetition):
    """Drops proposals about which no person has decided in time, every half minute; entered and left by its runtime."""

    def __init__(
        self, expire: Callable[[], Awaitable[int]], *, sleep: Callable[[float], Awaitable[None]] = asyncio.sleep
    ) -> None:
        self._expire, self._sleep = expire, sleep

    async def _run(self) -> None:
        while True:
            await self._sleep(EXPIRY_SECONDS)
            await run_isolated(self._expire(), label="dropping expired drafts", timeout=None)


REPORT_SECONDS = 300.0  # for an action without a deadline of its own, and for the report


class ConfirmedActions:
    """Runs each confirmed action once, with the arguments that were shown, and reports in its room.

    The role and the condition of the action are checked again. The action has a turn of its own, one of
    `active_turns`, whose journal tells after a crash whether it has run. How it ended is in the receipt of the request.
    """

    def __init__(self, registry: Registry, active_turns: ActiveTurns | None = None) -> None:
        self._registry = registry
        self._active_turns = active_turns or ActiveTurns()
        self._composer = Composer(registry)
        self._runner = ActionRunner(self._composer)

    @property
    def worker(self) -> Worker:
        """The worker that runs confirmed actions."""
        longest = max((action.spec.deadline or 0.0 for action in self._registry.actions.values()), default=0.0)
        return Worker(CONFIRMED_WORKER, self._run_task, deadline=longest + REPORT_SECONDS)

    async def _run_task(self, agent: Agent, task: Task) -> None:
        request = ChoiceRequest.from_metadata(task.metadata)
        room = await agent.store.worlds.room(task.room_id) if task.room_id is not None else None
        if room is None:
            return
        operation = request.operation
        action = self._registry.find_action(operation["action"])
        turn = await _build_turn(agent, task, room, UUID(operation["message"]), request.chooser)
        if turn is None or action is None:
            gone = "the message that asked for it, or its author," if turn is None else f"action {operation['action']}"
            cause = user_text("choices.not_done", cause=f"{gone} is not known any more")
            await agent.say(room, cause, key=f"{task.id} report")
            return
        arguments: Mapping[str, Any] = json.loads(operation["arguments"])
        ending = f"{action.spec.name} was stopped: it may have taken effect"
        with _count_calls(turn), suppress(TurnStopped), self._active_turns.track(turn):  # what stopped it says so
            result = await self._run(turn, ActionCall(action, arguments), task)
            ending = f"{result.action} {'is done' if result.success else f'failed: {result.error or result.text}'}"
            if not turn.replies or not result.success:
                is_trusted = id(action) in self._registry.trusted_ids
                await turn.reply(Content(text=await self._write_report(turn, result, is_trusted=is_trusted)))
            await agent.store.memories.add(build_result_memories(turn))
            if held := await build_proposal(turn, Outcome.ANSWERED, ()):
                await agent.proposals.propose(replace(held, receipt_id=None))
        await _record_run(turn, action.spec.name, ending)

    async def _run(self, turn: Turn, call: ActionCall, task: Task) -> ActionResult:
        """Run an action; raise ActionParked, and show it to approvers, where one of them has to decide first."""
        try:
            return await self._runner.run(turn, call, 0, is_confirmed=True)
        except ActionParked as parked:
            waiting = replace(parked.proposal, receipt_id=None, metadata={TASK_KEY: str(task.id)})
            await turn.agent.proposals.propose(waiting)
            raise

    async def _write_report(self, turn: Turn, result: ActionResult, *, is_trusted: bool) -> str:
        """Return what became of the action; in the character's words if its result is not meant for people."""
        if result.is_outcome_unknown:
            return user_text("actions.unknown")
        if result.is_error_internal:
            return user_text("choices.failed")
        if not result.success:
            return user_text("choices.not_done", cause=result.error or result.text)
        return (
            result.text or user_text("choices.confirmed")
            if is_trusted and ANYBODY not in (result.authors or ())
            else await write_closing_text(turn, self._composer)
        )


@contextmanager
def _count_calls(turn: Turn) -> Iterator[None]:
    """Count the model calls in this block for the turn, its room and its author."""
    run = Run(turn.id, turn.room.id, turn.message.id, turn.author.id, calls=turn.inputs[-1].calls)
    token = current_run.set(run)
    try:
        yield
    finally:
        current_run.reset(token)


async def _record_run(turn: Turn, name: str, ending: str) -> None:
    """Log how a confirmed action ended, and add it, with its model calls, to the receipt of the request."""
    logger.info("message %s: it was confirmed, and %.300s", turn.message.id, ending)
    ledger = turn.agent.store.ledger
    if (receipt := await ledger.receipt(turn.message.id)) is not None:
        notes = (f"{name} was confirmed by its asker", *turn.notes, ending)
        await ledger.add_model_calls(receipt.id, turn.inputs[-1].calls, notes)


async def _build_turn(agent: Agent, task: Task, room: Room, message_id: UUID, author_id: UUID) -> Turn | None:
    """Return a turn about the message that asked for the action, by whom it was confirmed alone.

    Its own receipt, by which it can be stopped, is not stored.
    """
    store = agent.store
    world = await store.worlds.world(room.world_id)
    message = (await store.memories.memories([message_id])).get(message_id)
    author = (await store.entities.entities([author_id])).get(author_id)
    if world is None or message is None or author is None:
        return None
    key = EventKey(room.platform, room.account, str(task.id), room.id, message.external_id)
    turn_id = derived_id(task.id, "confirmed")
    receipt = Receipt(derived_id(task.id, "receipt"), key, room.id, author.id, message.id, agent.clock())
    turn_input = TurnInput(receipt, message, author, time.monotonic(), lambda receipt: None)
    memories = await store.memories.by_turn(turn_id)
    replies = [memory for memory in memories if memory.is_reply]
    turn = Turn(agent, turn_id, room, world, [turn_input], replies=replies, actions=agent.catalog.actions)
    turn.restore_held((await load_steps(turn)).values())
    return turn
