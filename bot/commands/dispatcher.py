"""`CommandDispatcher`: runs a command once, with role and rate limit.

`ChoiceHandler`: applies pressed buttons as the choices of waiting tasks.

`CommandReceipts`: runs each command and each pressed button once, and has its response sent.
"""

import asyncio
import logging
from collections import Counter
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import Any, TypeVar
from uuid import UUID

from pydantic import ValidationError

from bot.concurrency.clock import Clock
from bot.concurrency.tasks import Failure, crash_point, run_isolated
from bot.domain.character import CommandSpec
from bot.domain.content import MAX_VALUE_LENGTH, Choice, Content
from bot.domain.environment import ChoiceRequest, Entity, Role, Room, World, parse_choice_value
from bot.domain.events import InteractionReceived, ReactionReceived
from bot.domain.hiding import hide_entity, hide_place
from bot.domain.ids import delivery_id, new_id
from bot.domain.inbound import RESPONSE_SOURCE, ChoiceSelection, CommandInvocation, CommandResponse, ResponseTarget
from bot.domain.ledger import COMMAND_PREFIX, Delivery, EventKey, EventOrigin, Outcome, Receipt, Rule, Step, StepState
from bot.domain.task import Task
from bot.errors import InboxClosed, TemporaryError
from bot.inbound.inbox import Inbox, sanitize
from bot.outbound.content_filter import filter_outgoing
from bot.plugin_system.components import Command, CommandContext
from bot.plugin_system.registry import find_liked_task
from bot.runs import Run, current_run
from bot.store.protocols import LogKind
from bot.text import find_closest, sanitize_text, translate, translate_message
from bot.turn import Agent
from bot.user_texts import use_language, user_text

RESPONSE_STEP = "response"  # key of the step that holds a response which the caller shows


@dataclass(frozen=True, slots=True)
class CommandEvent:
    """A command or a pressed button: where, by whom, and what it is called in its receipt.

    `event_id` is the platform's id of the event, `message_id` that of the message with the command, if any.
    """

    label: str
    world: World
    room: Room
    author: Entity
    event_id: str
    message_id: str = ""

    @property
    def key(self) -> EventKey:
        """The key of its receipt, which differs from that of a message that the command submits."""
        prefix, room = f"{COMMAND_PREFIX}{self.author.id}:", self.room
        message_id = self.message_id or self.event_id
        return EventKey(room.platform, room.account, prefix + self.event_id, room.id, prefix + message_id)


@dataclass(frozen=True, slots=True)
class CommandResult:
    """The response to a command, and why it was refused; empty if it was carried out."""

    response: CommandResponse
    refusal: str = ""


class CommandReceipts:
    """Runs each event once: its receipt is stored before it is run, and its outcome together with its response.

    An event that is delivered again is not run again. If its response is sent by the outbox, nothing is sent again;
    else the caller gets the stored response. If the process that ran it died, its sender is told that.
    """

    def __init__(self, agent: Agent, inbox: Inbox) -> None:
        self._agent, self._inbox = agent, inbox
        self._in_progress: dict[EventKey, asyncio.Future[CommandResponse]] = {}

    async def run(
        self, event: CommandEvent, execute: Callable[[], Awaitable[CommandResult]], target: ResponseTarget | None
    ) -> CommandResponse:
        """Run an event unless that was done before; return what the caller has to show.

        Raises InboxClosed while the bot is stopping, StoreUnavailable while nothing can be stored, and what `execute`
        raises.
        """
        key = event.key
        if key not in self._in_progress:
            with use_language(*self._agent.language_tags(event.author)):
                running = asyncio.ensure_future(self._inbox.run_shielded(self._run(event, execute, target)))
            self._in_progress[key] = running
            running.add_done_callback(lambda _: self._in_progress.pop(key, None))
        elif target is not None:
            return CommandResponse(is_repeat=True)
        return await asyncio.shield(self._in_progress[key])

    async def _run(
        self, event: CommandEvent, execute: Callable[[], Awaitable[CommandResult]], target: ResponseTarget | None
    ) -> CommandResponse:
        receipt = self._new_receipt(event)
        world = replace(event.world, roles={})  # only messages and reports of members change them
        stored = await self._agent.store.ledger.receive_command(receipt, world, event.room, event.author)
        if stored.id != receipt.id:
            return await self._repeat(stored, event, target)
        with self._inbox.processor.running_command(receipt.id):
            crash_point("command.received")
            run = Run(receipt.id, event.room.id, receipt.memory_id, event.author.id)
            token = current_run.set(run)
            try:
                result = await execute()
            except (InboxClosed, TemporaryError):  # it is delivered again, and then its sender is told
                raise
            except Exception as error:
                reason = f"{event.label}: {type(error).__name__}"
                await self._close(replace(receipt, outcome=Outcome.FAILED, reason=reason, model_calls=tuple(run.calls)))
                raise
            finally:
                current_run.reset(token)
            crash_point("command.executed")
            outcome = Outcome.IGNORED if result.refusal else Outcome.ANSWERED
            reason = f"{event.label}: {result.refusal}" if result.refusal else event.label
            receipt = replace(receipt, outcome=outcome, reason=reason, model_calls=tuple(run.calls))
            return await self._respond(receipt, event.room, result.response, target)

    async def _repeat(self, receipt: Receipt, event: CommandEvent, target: ResponseTarget | None) -> CommandResponse:
        """Return the stored response to an event that was delivered again; tell the sender if it was interrupted."""
        # An event that this process still runs is in `_in_progress`: an open receipt was left by another.
        if receipt.rule == Rule.COMMAND_INTERRUPTED or not receipt.outcome.is_final:
            notice = CommandResponse(user_text("commands.interrupted", name=event.label))
            receipt = replace(receipt, outcome=Outcome.FAILED, rule=Rule.COMMAND_INTERRUPTED)
            return await self._respond(receipt, event.room, notice, target)
        step = None
        if target is None and receipt.turn_id is not None:
            step = (await self._agent.store.ledger.steps(receipt.turn_id)).get(RESPONSE_STEP)
        return CommandResponse(is_repeat=True) if step is None else await self._read_response(step.result)

    async def _respond(
        self, receipt: Receipt, room: Room, response: CommandResponse, target: ResponseTarget | None
    ) -> CommandResponse:
        """Close the receipt with the response; return what of it the caller has to show."""
        parts = target.split(response) if target is not None else ()
        if target is None or not parts:
            await self._close(receipt, response=self._response_step(receipt, response))
            return response
        await self._close(receipt, self._build_deliveries(receipt, room, parts, target))
        return CommandResponse(receipt=response.receipt, attachments=response.attachments)

    async def _close(self, receipt: Receipt, deliveries: Sequence[Delivery] = (), response: Step | None = None) -> None:
        receipt = replace(receipt, closed_at=self._agent.clock())
        await self._agent.outbox.commit_response(receipt, deliveries, response)
        self._agent.outbox.on_closed(receipt)

    def _new_receipt(self, event: CommandEvent) -> Receipt:
        now = self._agent.clock()
        return Receipt(
            new_id(),
            event.key,
            event.room.id,
            event.author.id,
            memory_id=new_id(),
            received_at=now,
            outcome=Outcome.CLAIMED,
            reason=event.label,
            rule=Rule.COMMAND,
            turn_id=new_id(),
            attempts=1,
            claimed_at=now,
            origin=EventOrigin.COMMAND,
        )

    def _build_deliveries(
        self, receipt: Receipt, room: Room, parts: Sequence[Content], target: ResponseTarget
    ) -> list[Delivery]:
        turn_id = receipt.turn_id or receipt.id
        return [
            Delivery(
                id=delivery_id(turn_id, 0, number),
                turn_id=turn_id,
                room_id=room.id,
                memory_id=receipt.memory_id,
                platform=room.platform,
                account=room.account,
                target=target.address,
                part=number,
                content=replace(content, source=RESPONSE_SOURCE),
                created_at=self._agent.clock(),
                reply_to=target.reply_to if number == 0 else "",
            )
            for number, content in enumerate(parts)
        ]

    def _response_step(self, receipt: Receipt, response: CommandResponse) -> Step:
        result = {
            "text": response.text,
            "is_private": response.is_ephemeral,
            "choices": [(choice.label, choice.value) for choice in response.choices],
            "receipt": str(response.receipt.id) if response.receipt is not None else "",
        }
        turn_id = receipt.turn_id or receipt.id
        return Step(turn_id, RESPONSE_STEP, "command", StepState.DONE, result=result, recorded_at=self._agent.clock())

    async def _read_response(self, result: Mapping[str, Any]) -> CommandResponse:
        receipt_id = result["receipt"]
        receipt = await self._agent.store.ledger.receipt(UUID(receipt_id)) if receipt_id else None
        choices = tuple(Choice(*choice) for choice in result["choices"])
        return CommandResponse(result["text"], result["is_private"], choices, receipt)


logger = logging.getLogger(__name__)

E = TypeVar("E", CommandInvocation, ChoiceSelection)
COMMAND_TIMEOUT = 60.0
UNKNOWN_COMMAND = "…"  # in place of a word of a person who is not read
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
        self._account_commands: dict[tuple[str, str], Command[Any]] = {}  # by platform and name
        self._receipts = receipts
        self._secrets = secrets
        self._rate_limit = CommandRateLimit(agent.clock)

    def add_commands(self, platform: str, commands: Sequence[Command[Any]]) -> None:
        """Run these commands too where they come from a platform; they replace earlier ones of the same names."""
        self._account_commands |= {(platform, command.spec.name): command for command in commands}

    async def dispatch(self, invocation: CommandInvocation, target: ResponseTarget | None = None) -> CommandResponse:
        """Run a command once; return what of its response the caller has to show, all of it without a `target`.

        Raises InboxClosed while the bot is stopping and StoreUnavailable while nothing can be stored.
        """
        invocation = _sanitize(invocation)
        if invocation.author.id in self._agent.store.marks.not_read:
            name = invocation.name if invocation.name in self._commands else UNKNOWN_COMMAND
            invocation = _without_names(replace(invocation, name=name))
        event = CommandEvent(
            f"/{invocation.name}",
            invocation.world,
            invocation.room,
            invocation.author,
            invocation.event_id,
            invocation.message_id,
        )
        needs_answer = target is not None and target.needs_answer
        return await self._receipts.run(event, lambda: self._execute(invocation, needs_answer=needs_answer), target)

    async def _execute(self, invocation: CommandInvocation, *, needs_answer: bool) -> CommandResult:
        if (limited := self._rate_limit.check(invocation.author.id, needs_answer=needs_answer)) is not None:
            return CommandResult(limited, "too many commands in a minute")
        account_command = self._account_commands.get((invocation.room.platform, invocation.name))
        command = account_command or self._commands.get(invocation.name)
        if command is None:
            suggestion = find_closest(invocation.name, self._commands)
            return CommandResult(
                CommandResponse(format_unknown_command(invocation.name, suggestion)), "there is no such command"
            )
        platform = invocation.room.platform
        context = CommandContext(
            self._agent,
            invocation,
            await current_role(self._agent, invocation.world, invocation.author.id),
            tuple(item.spec for (name, _), item in self._account_commands.items() if name == platform),
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
        world=sanitize(invocation.world),
        room=sanitize(invocation.room),
        author=sanitize(invocation.author),
        event_id=sanitize_text(invocation.event_id),
        created_at=invocation.created_at,
        arguments={
            name: sanitize_text(argument, MAX_ARGUMENT_LENGTH) if isinstance(argument, str) else argument
            for name, argument in invocation.arguments.items()
        },
        text=sanitize_text(invocation.text, MAX_ARGUMENT_LENGTH),
        message_id=sanitize_text(invocation.message_id),
    )


def _without_names(event: E) -> E:
    """Return what a person who is not read has sent, with their ids only."""
    world, room = hide_place(event.world, event.room)
    return replace(event, world=world, room=room, author=hide_entity(event.author))


def _build_usage_error(command: Command[Any], error: ValidationError) -> str:
    problems = error.errors(include_url=False, include_input=False, include_context=False)
    causes = [(".".join(map(str, problem["loc"])), translate_message(problem["msg"])) for problem in problems[:5]]
    details = "; ".join(f"{name}: {cause[:1].lower()}{cause[1:]}" for name, cause in causes)
    return f"/{command.spec.name}{format_parameters(command.spec)}\n{details}"


def format_parameters(spec: CommandSpec) -> str:
    """Return the parameters of a command, each behind a space, the optional ones in brackets."""
    required = spec.parameters.get("required", ())
    properties = spec.parameters.get("properties", ())
    names = [translate(name) if name in required else f"[{translate(name)}]" for name in properties]
    return "".join(f" {name}" for name in names)


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

    def check(self, entity_id: UUID, *, needs_answer: bool) -> CommandResponse | None:
        """Count a command; return a refusal above the limit, empty after the first one unless it needs an answer."""
        if (now := self._clock()) >= self._ends_at:
            self._counts.clear()
            self._ends_at = now + RATE_WINDOW
        self._counts[entity_id] += 1
        if self._counts[entity_id] <= MAX_COMMANDS:
            return None
        is_first = self._counts[entity_id] == MAX_COMMANDS + 1
        return CommandResponse(user_text("commands.too_many") if is_first or needs_answer else "")


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
        selection = _sanitize_selection(selection)
        if selection.author.id in self._agent.store.marks.not_read:
            selection = _without_names(selection)
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


def _sanitize_selection(selection: ChoiceSelection) -> ChoiceSelection:
    """Return a selection with bounded values."""
    return replace(
        selection,
        world=sanitize(selection.world),
        room=sanitize(selection.room),
        author=sanitize(selection.author),
        value=sanitize_text(selection.value, MAX_VALUE_LENGTH),
        event_id=sanitize_text(selection.event_id),
    )
