"""Runs a command once, with role, rate limit and log entry."""

import asyncio
import logging
from collections import Counter
from collections.abc import Collection, Mapping
from datetime import timedelta
from typing import Any
from uuid import UUID

from pydantic import ValidationError

from bot.agent import Agent
from bot.commands.builtin import COMMANDS
from bot.concurrency.clock import Clock
from bot.concurrency.isolation import Failure, contained
from bot.domain.content import Choice, Content
from bot.domain.environment import Role, World
from bot.domain.inbound import Asked, Shown
from bot.inbound.inbox import Inbox
from bot.inbound.sanitize import tidied_person, tidied_room, tidied_world
from bot.outbound.content_filter import cleared
from bot.plugin_system.command import Asking, Command
from bot.text import nearest, tidy

logger = logging.getLogger(__name__)

DEADLINE = 60.0
REMEMBERED = timedelta(days=1)
LONGEST = 4000
FAILED = "That did not work; whoever runs me can see why in the log."


class Desk:
    """Answers commands; whatever a person did wrong, they are told in the answer."""

    def __init__(
        self, agent: Agent, commands: Mapping[str, Command[Any]], inbox: Inbox, secrets: Collection[str] = ()
    ) -> None:
        self._agent = agent
        self._commands = commands
        self._inbox = inbox
        self._secrets = secrets
        self._pace = Pace(agent.clock)
        self._under_way: dict[str, asyncio.Future[Shown]] = {}

    async def answer(self, asked: Asked) -> Shown:
        """Answer a command, and give the same answer to the same event for a day.

        Raises IntakeClosed while the bot is stopping and StoreUnavailable while nothing can be kept.
        """
        room = asked.room
        key = f"command:{room.platform}:{room.account}:{asked.event_id}"
        if key not in self._under_way:
            answering = asyncio.ensure_future(self._inbox.carry_out(self._once(key, _tidied(asked))))
            self._under_way[key] = answering
            answering.add_done_callback(lambda _: self._under_way.pop(key, None))
        return await asyncio.shield(self._under_way[key])

    async def _once(self, key: str, asked: Asked) -> Shown:
        cache = self._agent.store.cache
        if (known := await cache.get(key)) is not None:
            return _shown(known)
        if (refusal := self._pace.refusal(asked.author.id)) is not None:
            return refusal
        shown = await self._answer(asked)
        if shown.receipt is None:  # a message is known again by itself
            await cache.set(key, _data(shown), expires_at=self._agent.clock() + REMEMBERED)
        return shown

    async def _answer(self, asked: Asked) -> Shown:
        found = self._commands.get(asked.name)
        if found is None:
            near = nearest(asked.name, self._commands)
            hint = f"Did you mean /{near}?" if near else "/help lists what there is."
            return Shown(f"I do not know /{asked.name}. {hint}")
        asking = Asking(self._agent, asked, await role_now(self._agent, asked.world, asked.author.id))
        if not found.allows(asking):
            await self._note(asking, "its role does not reach that far")
            return Shown(f"/{asked.name} needs the role {found.spec.role} here.")
        try:
            arguments = found.read(asked)
        except ValidationError as error:
            return Shown(_corrected(found, error))
        await self._note(asking)
        return self._fit(await self._run(found, asking, arguments))

    async def _run(self, found: Command[Any], asking: Asking, arguments: Mapping[str, Any]) -> Shown:
        """Run a command; a plugin's fault stays with it, and ours is told to the platform."""
        running = found.run(asking, arguments)
        if not found.spec.plugin:
            return await running
        done = await contained(running, what=f"command {found.spec.name}", deadline=DEADLINE)
        return Shown(FAILED) if isinstance(done, Failure) else done

    async def _note(self, asking: Asking, refusal: str = "") -> None:
        """Write down who asked what; not with which words."""
        asked = asking.asked
        body = {
            "command": asked.name,
            "allowed": not refusal,
            "reason": refusal,
            "role": asking.role.value,
            "event": asked.event_id,
        }
        await self._agent.store.logs.log(COMMANDS, body, room_id=asked.room.id, entity_id=asked.author.id)
        if refusal:
            logger.info("/%s refused in room %s: %s", asked.name, asked.room.id, refusal)

    def _fit(self, shown: Shown) -> Shown:
        """Bound an answer, and take secrets out of it."""
        content = cleared(Content(text=shown.text, choices=shown.choices), self._secrets)
        if content is None:
            return Shown("", shown.is_private, receipt=shown.receipt)
        return Shown(content.text, shown.is_private, content.choices, shown.receipt)


async def role_now(agent: Agent, world: World, person_id: UUID) -> Role:
    """Tell a person's role: what the platform says of them now, and what was granted here."""
    kept = await agent.store.worlds.world(world.id)
    return (world.added_to(kept) if kept is not None else world).role_of(person_id)


def _tidied(asked: Asked) -> Asked:
    """Bound what came from outside."""
    return Asked(
        name=tidy(asked.name.strip().lstrip("/").replace("_", "-").lower(), 40),
        world=tidied_world(asked.world),
        room=tidied_room(asked.room),
        author=tidied_person(asked.author),
        event_id=tidy(asked.event_id),
        created_at=asked.created_at,
        arguments={
            name: tidy(one, LONGEST) if isinstance(one, str) else one for name, one in asked.arguments.items()
        },
        text=tidy(asked.text, LONGEST),
        message_id=tidy(asked.message_id),
    )


def _corrected(found: Command[Any], error: ValidationError) -> str:
    problems = error.errors(include_url=False, include_input=False, include_context=False)
    told = "; ".join(f"{'.'.join(map(str, one['loc']))}: {one['msg'].lower()}" for one in problems[:5])
    names = " ".join(f"<{name}>" for name in found.spec.parameters.get("properties", ()))
    return f"/{found.spec.name} {names}\n{told}"


def _data(shown: Shown) -> dict[str, Any]:
    choices = [(one.label, one.value) for one in shown.choices]
    return {"text": shown.text, "is_private": shown.is_private, "choices": choices}


def _shown(data: Mapping[str, Any]) -> Shown:
    return Shown(data["text"], data["is_private"], tuple(Choice(*one) for one in data["choices"]))


MOST, WITHIN = 20, timedelta(minutes=1)
SLOW_DOWN = "That is a lot of commands: slow down, please. I take no more of you for a minute."


class Pace:
    """Counts commands by person, anew every minute."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._counts = Counter[UUID]()
        self._ends_at = clock()

    def refusal(self, person_id: UUID) -> Shown | None:
        """Count a command; beyond the bound the person is told so, and after that nothing."""
        if (now := self._clock()) >= self._ends_at:
            self._counts.clear()
            self._ends_at = now + WITHIN
        self._counts[person_id] += 1
        if self._counts[person_id] <= MOST:
            return None
        return Shown(SLOW_DOWN if self._counts[person_id] == MOST + 1 else "")
