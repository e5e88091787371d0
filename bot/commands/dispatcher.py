"""`CommandDispatcher`: runs a command once, with role, rate limit and log entry."""

import asyncio
import logging
from collections import Counter
from collections.abc import Collection, Mapping
from dataclasses import replace
from datetime import timedelta
from typing import Any
from uuid import UUID

from pydantic import ValidationError

from bot.agent import Agent
from bot.commands.builtin import COMMAND_LOG_KIND
from bot.concurrency.clock import Clock
from bot.concurrency.isolation import Failure, run_isolated
from bot.domain.content import Choice, Content
from bot.domain.environment import Role, World
from bot.domain.inbound import CommandInvocation, CommandResponse
from bot.inbound.inbox import Inbox
from bot.inbound.sanitize import sanitize_entity, sanitize_place
from bot.outbound.content_filter import filter_outgoing
from bot.plugin_system.command import Command, CommandContext
from bot.text import find_closest, sanitize_text
from bot.user_texts import user_text

logger = logging.getLogger(__name__)

COMMAND_TIMEOUT = 60.0
RESPONSE_TTL = timedelta(days=1)
ANSWERED_TTL = timedelta(days=30)  # as long as a message that is delivered again is recognised
MAX_ARGUMENT_LENGTH = 4000


class CommandDispatcher:
    """Runs commands; a user's mistake is explained in the response."""

    def __init__(
        self, agent: Agent, commands: Mapping[str, Command[Any]], inbox: Inbox, secrets: Collection[str] = ()
    ) -> None:
        self._agent = agent
        self._commands = commands
        self._inbox = inbox
        self._secrets = secrets
        self._rate_limit = CommandRateLimit(agent.clock)
        self._in_progress: dict[str, asyncio.Future[CommandResponse]] = {}

    async def dispatch(self, invocation: CommandInvocation) -> CommandResponse:
        """Run a command; the same event gets the same response for a day.

        Raises InboxClosed while the bot is stopping and StoreUnavailable while nothing can be stored.
        """
        key = _key_of(invocation)
        if key not in self._in_progress:
            dispatching = asyncio.ensure_future(
                self._inbox.run_shielded(self._dispatch_once(key, _sanitize(invocation)))
            )
            self._in_progress[key] = dispatching
            dispatching.add_done_callback(lambda _: self._in_progress.pop(key, None))
        return await asyncio.shield(self._in_progress[key])

    async def note_answered(self, invocation: CommandInvocation) -> None:
        """Record that the sender has the response: the same command gets an empty one for 30 days."""
        expires_at = self._agent.clock() + ANSWERED_TTL
        await self._agent.store.cache.set(_key_of(invocation), _to_cached(CommandResponse("")), expires_at=expires_at)

    async def _dispatch_once(self, key: str, invocation: CommandInvocation) -> CommandResponse:
        cache = self._agent.store.cache
        if (cached := await cache.get(key)) is not None:
            return _from_cached(cached)
        if (refusal := self._rate_limit.check(invocation.author.id)) is not None:
            return refusal
        response = await self._execute(invocation)
        if response.receipt is None:  # a message is known again by itself
            await cache.set(key, _to_cached(response), expires_at=self._agent.clock() + RESPONSE_TTL)
        return response

    async def _execute(self, invocation: CommandInvocation) -> CommandResponse:
        command = self._commands.get(invocation.name)
        if command is None:
            return CommandResponse(
                format_unknown_command(invocation.name, find_closest(invocation.name, self._commands))
            )
        context = CommandContext(
            self._agent, invocation, await current_role(self._agent, invocation.world, invocation.author.id)
        )
        if not command.is_allowed(context):
            await self._log(context, "its role does not reach that far")
            return CommandResponse(user_text("commands.needs_role", name=invocation.name, role=command.spec.role))
        try:
            arguments = command.parse_arguments(invocation)
        except ValidationError as error:
            return CommandResponse(_build_usage_error(command, error))
        await self._log(context)
        return self._filter_response(await self._run(command, context, arguments))

    async def _run(
        self, command: Command[Any], context: CommandContext, arguments: Mapping[str, Any]
    ) -> CommandResponse:
        """Run a command; a failure of a plugin's command is a response, one of our own is raised."""
        running = command.run(context, arguments)
        if not command.spec.plugin:
            return await running
        result = await run_isolated(running, label=f"command {command.spec.name}", timeout=COMMAND_TIMEOUT)
        return CommandResponse(user_text("commands.failed")) if isinstance(result, Failure) else result

    async def _log(self, context: CommandContext, refusal: str = "") -> None:
        """Log who used which command; not with which words."""
        invocation = context.invocation
        body = {
            "command": invocation.name,
            "allowed": not refusal,
            "reason": refusal,
            "role": context.role.value,
            "event": invocation.event_id,
        }
        await self._agent.store.logs.log(
            COMMAND_LOG_KIND, body, room_id=invocation.room.id, entity_id=invocation.author.id
        )
        if refusal:
            logger.info("/%s refused in room %s: %s", invocation.name, invocation.room.id, refusal)

    def _filter_response(self, response: CommandResponse) -> CommandResponse:
        """Return the response bounded and without secrets."""
        content = filter_outgoing(Content(text=response.text, choices=response.choices), self._secrets)
        if content is None:
            return CommandResponse("", response.is_ephemeral, receipt=response.receipt)
        return replace(response, text=content.text, choices=content.choices)


def _key_of(invocation: CommandInvocation) -> str:
    """Return what two deliveries of a command have in common: its message, or its event where it is none."""
    room = invocation.room
    event = f"{room.id}:{invocation.message_id}" if invocation.message_id else invocation.event_id
    return f"command:{invocation.author.id}:{room.platform}:{room.account}:{event}"


async def current_role(agent: Agent, world: World, entity_id: UUID) -> Role:
    """Return a user's role: the platform's current one, and what was granted here."""
    stored = await agent.store.worlds.world(world.id)
    return (world.merge(stored) if stored is not None else world).role_of(entity_id)


def _sanitize(invocation: CommandInvocation) -> CommandInvocation:
    """Return an invocation with bounded values."""
    return CommandInvocation(
        name=sanitize_text(invocation.name.strip().lstrip("/").replace("_", "-").lower(), 40),
        world=sanitize_place(invocation.world),
        room=sanitize_place(invocation.room),
        author=sanitize_entity(invocation.author),
        event_id=sanitize_text(invocation.event_id),
        created_at=invocation.created_at,
        arguments={
            name: sanitize_text(argument, MAX_ARGUMENT_LENGTH) if isinstance(argument, str) else argument
            for name, argument in invocation.arguments.items()
        },
        text=sanitize_text(invocation.text, MAX_ARGUMENT_LENGTH),
        message_id=sanitize_text(invocation.message_id),
    )


def _build_usage_error(command: Command[Any], error: ValidationError) -> str:
    problems = error.errors(include_url=False, include_input=False, include_context=False)
    details = "; ".join(f"{'.'.join(map(str, problem['loc']))}: {problem['msg'].lower()}" for problem in problems[:5])
    names = " ".join(f"<{name}>" for name in command.spec.parameters.get("properties", ()))
    return f"/{command.spec.name} {names}\n{details}"


def format_unknown_command(name: str, suggestion: str | None = None) -> str:
    """Return what the person reads who has sent a command that there is not."""
    known = user_text("commands.unknown_suggestion", suggestion=suggestion) if suggestion else ""
    return user_text("commands.unknown", name=name, hint=known or user_text("commands.unknown_list"))


def _to_cached(response: CommandResponse) -> dict[str, Any]:
    choices = [(choice.label, choice.value) for choice in response.choices]
    return {"text": response.text, "is_private": response.is_ephemeral, "choices": choices}


def _from_cached(data: Mapping[str, Any]) -> CommandResponse:
    return CommandResponse(data["text"], data["is_private"], tuple(Choice(*choice) for choice in data["choices"]))


MAX_COMMANDS, RATE_WINDOW = 20, timedelta(minutes=1)


class CommandRateLimit:
    """Counts commands by person, from zero again every minute."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._counts = Counter[UUID]()
        self._ends_at = clock()

    def check(self, entity_id: UUID) -> CommandResponse | None:
        """Count a command; return a refusal above the limit, which is empty after the first one."""
        if (now := self._clock()) >= self._ends_at:
            self._counts.clear()
            self._ends_at = now + RATE_WINDOW
        self._counts[entity_id] += 1
        if self._counts[entity_id] <= MAX_COMMANDS:
            return None
        is_first = self._counts[entity_id] == MAX_COMMANDS + 1
        return CommandResponse(user_text("commands.too_many") if is_first else "")
