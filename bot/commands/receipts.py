"""`CommandReceipts`: runs each command and each pressed button once, and has its response sent."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any
from uuid import UUID

from bot.agent import Agent
from bot.concurrency.crash_points import crash_point
from bot.domain.content import Choice, Content
from bot.domain.environment import Entity, Room, World
from bot.domain.ids import delivery_id, new_id
from bot.domain.inbound import RESPONSE_SOURCE, CommandResponse, ResponseTarget
from bot.domain.ledger import COMMAND_PREFIX, Delivery, EventKey, Outcome, Receipt, Rule, Step, StepState
from bot.errors import InboxClosed, TemporaryError
from bot.inbound.inbox import Inbox
from bot.runs import Run, current_run
from bot.user_texts import user_text

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
