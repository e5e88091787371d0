"""The console: lines in, replies out, one after another."""

import asyncio
import os
import sys
from collections.abc import Sequence
from functools import partial
from typing import TextIO
from uuid import UUID

from adapters.console.config import ConsoleSettings
from adapters.console.incoming import PLATFORM, command_given, message_received
from adapters.console.outgoing import plain, shown
from adapters.console.terminal_io import PipedLines, TypedLines, apart, write_all
from bot import ConfigError, Receipt, Room, new_id, system_clock
from bot.platform import Adapter, Delivery, Door, Undeliverable

ERASE = "\r\x1b[K"
BETWEEN_LOOKS = 0.05


class ConsoleAdapter(Adapter):
    """Talks with one person through file descriptors, on behalf of one agent.

    At a terminal it prompts and names who speaks, and a reply is seen as it is written; anywhere else
    nothing but the replies is written.
    Whoever drives it asks `read` for a line and gives it to `say`, or answers it with `show`.
    """

    platform = PLATFORM
    is_private = True

    def __init__(self, door: Door, *, lines: PipedLines | TypedLines, output: int | None) -> None:
        self._door = door
        self._lines = lines
        self._output = output
        self._user = door.settings.load(ConsoleSettings).console_user
        self._handled: set[str] = set()
        self._changed = asyncio.Condition()
        self._is_gone = output is None
        self._shows_typing = False
        self._begun: tuple[UUID, str] | None = None  # a reply that stands there in part

    @property
    def is_interactive(self) -> bool:
        """Whether a person sits at a terminal."""
        return isinstance(self._lines, TypedLines)

    async def read(self) -> str | None:
        """Wait for the next line; None at the end. Raises BrokenPipeError where nobody reads the replies."""
        if self._is_gone:
            raise BrokenPipeError("nobody reads what the console writes")
        return await apart(self._lines)

    async def say(self, text: str) -> Receipt:
        """Give the agent a line, and wait for its outcome and until everything said to it is written."""
        arrival = message_received(
            text, agent_id=self._door.agent_id, user=self._user, message_id=new_id(), at=system_clock()
        )
        return await self._answered(await self._door.inbox.put(arrival))

    async def command(self, line: str) -> str:
        """Give the agent a command; back with what to show, when everything said to it is written."""
        asked = command_given(line, agent_id=self._door.agent_id, user=self._user, at=system_clock())
        shown = await self._door.command(asked)
        if shown.receipt is not None:
            await self._answered(shown.receipt)
        return shown.text

    async def _answered(self, receipt: Receipt) -> Receipt:
        """Wait for an outcome and until everything said with it is written."""
        receipt = await self._door.inbox.settled(receipt.id)
        if receipt.turn_id is not None:
            said = {delivery.id for delivery in await self._door.records.deliveries(receipt.turn_id)}
            async with self._changed:
                await self._changed.wait_for(lambda: said <= self._handled)
        self._handled.clear()
        return receipt

    async def show(self, text: str) -> None:
        """Write something that is no reply."""
        await self._write(f"{plain(text)}\n")

    async def deliver(self, delivery: Delivery) -> str:
        """Write a reply; raises Undeliverable where nobody reads any more."""
        text = f"{shown(delivery.content)}\n"
        if isinstance(self._lines, TypedLines):
            text = self._rest_of(delivery.memory_id, text)
            self._begun = None
            if self._lines.is_waiting:
                text = f"{ERASE}{text}{self._lines.again()}"
        try:
            await self._write(text)
        except OSError as error:
            raise Undeliverable(f"nobody reads what the console writes: {error}") from None
        finally:
            async with self._changed:
                self._handled.add(delivery.id)
                self._changed.notify_all()
        return delivery.id

    def edits_every(self, room: Room) -> float | None:
        """Show replies at a terminal as they are written."""
        return BETWEEN_LOOKS if self.is_interactive else None

    async def preview(self, delivery: Delivery) -> None:
        """Write what came to a reply since the last look, unless somebody types just now."""
        if isinstance(self._lines, TypedLines) and self._lines.is_waiting:
            return
        text = shown(delivery.content)
        if text:
            more = self._rest_of(delivery.memory_id, text)
            self._begun = (delivery.memory_id, text)
            await self._write(more)
        elif self._begun is not None:
            self._begun = None
            await self._write("\n")

    async def typing(self, room: Room, active: bool) -> None:
        """Show at a terminal that the character is writing."""
        if not self.is_interactive or os.environ.get("TERM", "dumb") == "dumb":
            return
        if active:
            self._shows_typing = True
            await self._write(f"{self._door.character.name} is writing …")
        elif erase := self._clear():
            await self._write(erase)

    def restore(self) -> None:
        """Give the terminal back as it was found."""
        if isinstance(self._lines, TypedLines):
            self._lines.restore()

    def _rest_of(self, message_id: UUID, text: str) -> str:
        """What is to be written so that a reply stands there: the rest, where it does already in part."""
        known, before = self._begun or (None, "")
        if known == message_id and text.startswith(before):
            return text.removeprefix(before)
        end = "\n" if known is not None else ""
        return f"{self._clear()}{end}{self._door.character.name}: {text}"

    def _clear(self) -> str:
        """What takes the typing sign away, if it is there."""
        is_shown, self._shows_typing = self._shows_typing, False
        return ERASE if is_shown else ""

    async def _write(self, text: str) -> None:
        if self._output is None:
            raise BrokenPipeError("stdout is closed")
        try:
            await apart(partial(write_all, self._output, text.encode("utf-8", "replace")))
        except OSError:
            self._is_gone = True
            raise


def open_console(doors: Sequence[Door]) -> ConsoleAdapter:
    """Open this process's own stdin and stdout for one agent."""
    if len(doors) != 1:
        raise ConfigError(f"the console talks with one character at a time, not with {len(doors)}")
    [door] = doors
    stdin, stdout = _descriptor(sys.__stdin__), _descriptor(sys.__stdout__)
    if stdin is not None and stdout is not None and os.isatty(stdin) and os.isatty(stdout):
        return ConsoleAdapter(door, lines=TypedLines(f"to {plain(door.character.name)}> "), output=stdout)
    return ConsoleAdapter(door, lines=PipedLines(stdin), output=stdout)


def _descriptor(stream: TextIO | None) -> int | None:
    try:
        return None if stream is None else stream.fileno()
    except (OSError, ValueError):
        return None
