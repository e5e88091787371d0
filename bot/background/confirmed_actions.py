"""Runs actions that their askers have confirmed with a button or a code."""

import json
import time
from collections.abc import Mapping
from contextlib import suppress
from typing import Any
from uuid import UUID

from bot.agent import Agent
from bot.domain.authority import ANYBODY
from bot.domain.choices import ChoiceRequest
from bot.domain.content import Content
from bot.domain.environment import Room
from bot.domain.ids import derived_id
from bot.domain.ledger import EventKey, Receipt
from bot.domain.results import ActionResult
from bot.domain.task import Task
from bot.pipeline.closing_text import write_closing_text
from bot.pipeline.commit import build_result_memories
from bot.pipeline.compose import Composer
from bot.pipeline.reply_plan import ActionCall
from bot.pipeline.run_actions import ActionRunner
from bot.pipeline.turn_order import ActiveTurns, TurnStopped
from bot.plugin_system.components import Worker
from bot.plugin_system.confirmation import CONFIRMED_WORKER
from bot.plugin_system.registry import Registry
from bot.turn import Turn, TurnInput
from bot.user_texts import user_text

REPORT_SECONDS = 300.0  # for an action without a deadline of its own, and for the report


class ConfirmedActions:
    """Runs each confirmed action once, with the arguments that were shown, and reports in its room.

    The role and the condition of the action are checked again. The action has a turn of its own, one of
    `active_turns`, whose journal tells after a crash whether it has run.
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
        with suppress(TurnStopped), self._active_turns.track(turn):  # what stopped it says so
            result = await self._runner.run(turn, ActionCall(action, arguments), 0, is_confirmed=True)
            if not turn.replies or not result.success:
                is_trusted = self._registry.is_trusted(action)
                await turn.reply(Content(text=await self._write_report(turn, result, is_trusted=is_trusted)))
            await agent.store.memories.add(build_result_memories(turn))

    async def _write_report(self, turn: Turn, result: ActionResult, *, is_trusted: bool) -> str:
        """Return what became of the action; in the character's words if its result is not meant for people."""
        if result.is_outcome_unknown:
            return user_text("actions.unknown")
        if not result.success:
            return user_text("choices.not_done", cause=result.error or result.text)
        return (
            result.text or user_text("choices.confirmed")
            if is_trusted and ANYBODY not in (result.authors or ())
            else await write_closing_text(turn, self._composer)
        )


async def _build_turn(agent: Agent, task: Task, room: Room, message_id: UUID, author_id: UUID) -> Turn | None:
    """Return a turn about the message that asked for the action, by whom it was confirmed alone."""
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
    return Turn(agent, turn_id, room, world, [turn_input], replies=replies, actions=agent.catalog.actions)
