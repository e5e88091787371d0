"""`CommandDispatcher`: runs a command once, with role and rate limit."""

import logging
from collections import Counter
from collections.abc import Collection, Mapping
from dataclasses import replace
from datetime import timedelta
from typing import Any
from uuid import UUID

from pydantic import ValidationError

from bot.agent import Agent
from bot.commands.receipts import CommandEvent, CommandReceipts, CommandResult
from bot.concurrency.clock import Clock
from bot.concurrency.isolation import Failure, run_isolated
from bot.domain.content import Content
from bot.domain.environment import Role, World
from bot.domain.inbound import CommandInvocation, CommandResponse, ResponseTarget
from bot.inbound.sanitize import sanitize_entity, sanitize_place
from bot.outbound.content_filter import filter_outgoing
from bot.plugin_system.command import Command, CommandContext
from bot.text import find_closest, sanitize_text
from bot.user_texts import user_text

logger = logging.getLogger(__name__)

COMMAND_TIMEOUT = 60.0
MAX_ARGUMENT_LENGTH = 4000


class CommandDispatcher:
    """Runs commands; a user's mistake is explained in the response."""

    def __init__(
        self,
        agent: Agent,
        commands: Mapping[str, Command[Any]],
        receipts: CommandReceipts,
        secrets: Collection[str] = (),
    ) -> None:
        self._agent = agent
        self._commands = commands
        self._receipts = receipts
        self._secrets = secrets
        self._rate_limit = CommandRateLimit(agent.clock)

    async def dispatch(self, invocation: CommandInvocation, target: ResponseTarget | None = None) -> CommandResponse:
        """Run a command once; return what of its response the caller has to show, all of it without a `target`.

        Raises InboxClosed while the bot is stopping and StoreUnavailable while nothing can be stored.
        """
        invocation = _sanitize(invocation)
        event = CommandEvent(
            f"/{invocation.name}",
            invocation.world,
            invocation.room,
            invocation.author,
            invocation.event_id,
            invocation.message_id,
        )
        return await self._receipts.run(event, lambda: self._execute(invocation), target)

    async def _execute(self, invocation: CommandInvocation) -> CommandResult:
        if (limited := self._rate_limit.check(invocation.author.id)) is not None:
            return CommandResult(limited, "too many commands in a minute")
        command = self._commands.get(invocation.name)
        if command is None:
            suggestion = find_closest(invocation.name, self._commands)
            return CommandResult(
                CommandResponse(format_unknown_command(invocation.name, suggestion)), "there is no such command"
            )
        context = CommandContext(
            self._agent, invocation, await current_role(self._agent, invocation.world, invocation.author.id)
        )
        if not command.is_allowed(context):
            text = user_text("commands.needs_role", name=invocation.name, role=command.spec.role)
            logger.info("/%s refused in room %s: it needs %s", invocation.name, invocation.room.id, command.spec.role)
            return CommandResult(CommandResponse(text), f"it needs the role {command.spec.role}")
        try:
            arguments = command.parse_arguments(invocation)
        except ValidationError as error:
            return CommandResult(CommandResponse(_build_usage_error(command, error)), "its arguments do not fit")
        return CommandResult(self._filter_response(await self._run(command, context, arguments)))

    async def _run(
        self, command: Command[Any], context: CommandContext, arguments: Mapping[str, Any]
    ) -> CommandResponse:
        """Run a command; a failure of a plugin's command is a response, one of our own is raised."""
        running = command.run(context, arguments)
        if not command.spec.plugin:
            return await running
        result = await run_isolated(running, label=f"command {command.spec.name}", timeout=COMMAND_TIMEOUT)
        return CommandResponse(user_text("commands.failed")) if isinstance(result, Failure) else result

    def _filter_response(self, response: CommandResponse) -> CommandResponse:
        """Return the response bounded and without secrets."""
        content = filter_outgoing(Content(text=response.text, choices=response.choices), self._secrets)
        if content is None:
            return CommandResponse("", response.is_ephemeral, receipt=response.receipt)
        return replace(response, text=content.text, choices=content.choices)


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
