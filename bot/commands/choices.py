"""Buttons that were pressed: a choice made so comes to the same as one made in words."""

import asyncio
from dataclasses import replace

from bot.agent import Agent
from bot.commands.dispatcher import Desk, role_now
from bot.domain.choices import chosen, is_open, meant_by, objection, options_of
from bot.domain.content import LONGEST_VALUE
from bot.domain.environment import Role
from bot.domain.events import InteractionReceived
from bot.domain.inbound import Asked, Pressed, Shown
from bot.domain.task import Task
from bot.inbound.inbox import Inbox
from bot.inbound.sanitize import tidied_person, tidied_room, tidied_world
from bot.store.protocols import AUDIT
from bot.text import tidy

GONE = "This can no longer be chosen."


class Presses:
    """Takes in what was pressed, one after another: of two who press at once, the first has chosen."""

    def __init__(self, agent: Agent, desk: Desk, inbox: Inbox) -> None:
        self._agent, self._desk, self._inbox = agent, desk, inbox
        self._in_turn = asyncio.Lock()

    async def chosen(self, pressed: Pressed) -> Shown:
        """Carry out a choice, if it is this person's to make and still open; repeated, it does nothing more.

        A value that is a command is one; listeners hear of any other. Raises IntakeClosed while the bot is
        stopping and StoreUnavailable while nothing can be kept.
        """
        pressed = _tidied(pressed)
        if pressed.value.startswith("/"):
            name, _, text = pressed.value[1:].partition(" ")
            return await self._desk.answer(
                Asked(
                    name,
                    pressed.world,
                    pressed.room,
                    pressed.author,
                    pressed.event_id,
                    pressed.created_at,
                    text=text,
                )
            )
        return await self._inbox.carry_out(self._choose(pressed))

    async def _choose(self, pressed: Pressed) -> Shown:
        agent = self._agent
        if (meant := meant_by(pressed.value)) is None:
            agent.events.emit(InteractionReceived(agent.id, pressed.room, pressed.author, pressed.value))
            return Shown()
        task_id, number = meant
        async with self._in_turn:
            task = await agent.store.tasks.task(task_id)
            options = options_of(task) if task is not None else []
            if task is None or task.room_id != pressed.room.id or number >= len(options):
                return Shown(GONE)
            if (made := task.metadata.get("choice")) is not None:
                return Shown(f"It has been chosen already: {made}.")
            if not is_open(task, agent.clock()):
                return Shown(GONE)
            choice = options[number]
            role = await role_now(agent, pressed.world, pressed.author.id)
            refusal = objection(task, [pressed.author.id], role)
            await self._note(pressed, task, choice, role, refusal)
            if refusal:
                return Shown(f"{refusal[0].upper()}{refusal[1:]}.")
            await agent.store.tasks.save_task(chosen(task, choice, pressed.author.id, agent.clock()))
        agent.events.emit(InteractionReceived(agent.id, pressed.room, pressed.author, choice))
        return Shown(f"Chosen: {choice}.")

    async def _note(self, pressed: Pressed, task: Task, choice: str, role: Role, refusal: str) -> None:
        body = {
            "action": "CHOOSE_OPTION",
            "allowed": not refusal,
            "reason": refusal,
            "role": role.value,
            "actors": [str(pressed.author.id)],
            "world": str(pressed.world.id),
            "arguments": {"task": str(task.id), "name": task.name, "option": choice},
            "event": pressed.event_id,
        }
        logs = self._agent.store.logs
        await logs.log(AUDIT, body, room_id=pressed.room.id, entity_id=pressed.author.id)


def _tidied(pressed: Pressed) -> Pressed:
    """Bound what came from outside."""
    return replace(
        pressed,
        world=tidied_world(pressed.world),
        room=tidied_room(pressed.room),
        author=tidied_person(pressed.author),
        value=tidy(pressed.value, LONGEST_VALUE),
        event_id=tidy(pressed.event_id),
    )
