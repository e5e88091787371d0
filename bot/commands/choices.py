"""`ChoiceHandler`: applies pressed buttons as the choices of waiting tasks."""

import asyncio
from dataclasses import replace

from bot.agent import Agent
from bot.commands.dispatcher import CommandDispatcher, current_role
from bot.commands.receipts import CommandEvent, CommandReceipts, CommandResult
from bot.domain.choices import ChoiceRequest, parse_choice_value
from bot.domain.content import MAX_VALUE_LENGTH
from bot.domain.environment import Role
from bot.domain.events import InteractionReceived, ReactionReceived
from bot.domain.inbound import ChoiceSelection, CommandInvocation, CommandResponse, ResponseTarget
from bot.domain.task import Task
from bot.inbound.inbox import Inbox
from bot.inbound.sanitize import sanitize_entity, sanitize_place
from bot.plugin_system.confirmation import find_liked_task
from bot.store.protocols import LogKind
from bot.text import sanitize_text
from bot.user_texts import user_text


class ChoiceHandler:
    """Applies pressed buttons, one after another: of two people who press at once, the first chooses."""

    def __init__(self, agent: Agent, dispatcher: CommandDispatcher, receipts: CommandReceipts, inbox: Inbox) -> None:
        self._agent, self._dispatcher, self._receipts, self._inbox = agent, dispatcher, receipts, inbox
        self._lock = asyncio.Lock()
        agent.events.subscribe(ReactionReceived, self._choose_by_reaction)

    async def select(self, selection: ChoiceSelection, target: ResponseTarget | None = None) -> CommandResponse:
        """Apply a choice once, if this person may make it and it is open; return what the caller has to show.

        A value that is a command runs it; listeners receive any other. Raises InboxClosed while the bot is
        stopping and StoreUnavailable while nothing can be stored.
        """
        selection = _sanitize(selection)
        if selection.value.startswith("/"):
            name, _, text = selection.value[1:].partition(" ")
            return await self._dispatcher.dispatch(
                CommandInvocation(
                    name,
                    selection.world,
                    selection.room,
                    selection.author,
                    selection.event_id,
                    selection.created_at,
                    text=text,
                ),
                target,
            )
        event = CommandEvent("a button", selection.world, selection.room, selection.author, selection.event_id)
        return await self._receipts.run(event, lambda: self._apply(selection), target)

    async def _choose_by_reaction(self, event: ReactionReceived) -> None:
        """Apply a reaction that confirms a question as a press of its button."""
        agent, reaction = self._agent, event.reaction
        task = await find_liked_task(agent, reaction, event.room)
        world = await agent.store.worlds.world(event.room.world_id) if task is not None else None
        if task is not None and world is not None:
            value = ChoiceRequest.from_metadata(task.metadata).choices(task.id)[0].value
            selection = ChoiceSelection(world, event.room, event.author, value, str(reaction.id), reaction.created_at)
            await self._inbox.run_shielded(self._apply(selection))

    async def _apply(self, selection: ChoiceSelection) -> CommandResult:
        agent = self._agent
        if (target := parse_choice_value(selection.value)) is None:
            agent.events.emit(InteractionReceived(agent.id, selection.room, selection.author, selection.value))
            return CommandResult(CommandResponse())
        task_id, number = target
        async with self._lock:
            task = await agent.store.tasks.task(task_id)
            if task is None or task.room_id != selection.room.id:
                return _refuse(user_text("choices.unavailable"))
            request = ChoiceRequest.from_metadata(task.metadata)
            if number < len(request.options) and request.choice:
                return _refuse(user_text("choices.already", choice=request.choice))
            if number >= len(request.options) or not request.is_open(task, agent.clock()):
                return _refuse(user_text("choices.unavailable"))
            choice = request.options[number]
            role = await current_role(agent, selection.world, selection.author.id)
            refusal = request.refusal_for([selection.author.id], role)
            await self._log(selection, task, choice, role, refusal)
            if refusal:
                return CommandResult(CommandResponse(f"{refusal[0].upper()}{refusal[1:]}."), refusal)
            await agent.store.tasks.save_task(request.choose(task, choice, selection.author.id, agent.clock()))
        agent.events.emit(InteractionReceived(agent.id, selection.room, selection.author, choice))
        return CommandResult(CommandResponse(user_text("choices.done", choice=choice)))

    async def _log(self, selection: ChoiceSelection, task: Task, choice: str, role: Role, refusal: str) -> None:
        body = {
            "action": "CHOOSE_OPTION",
            "allowed": not refusal,
            "reason": refusal,
            "role": role.value,
            "actors": [str(selection.author.id)],
            "world": str(selection.world.id),
            "arguments": {"task": str(task.id), "name": task.name, "option": choice},
            "event": selection.event_id,
        }
        logs = self._agent.store.logs
        await logs.log(LogKind.AUTHORIZATION, body, room_id=selection.room.id, entity_id=selection.author.id)


def _refuse(text: str) -> CommandResult:
    return CommandResult(CommandResponse(text), text.rstrip("."))


def _sanitize(selection: ChoiceSelection) -> ChoiceSelection:
    """Return a selection with bounded values."""
    return replace(
        selection,
        world=sanitize_place(selection.world),
        room=sanitize_place(selection.room),
        author=sanitize_entity(selection.author),
        value=sanitize_text(selection.value, MAX_VALUE_LENGTH),
        event_id=sanitize_text(selection.event_id),
    )
