"""Console adapter: reads lines as inbound messages, writes replies, and stores the files of a command's response."""

import asyncio
import os
import re
import sys
from collections.abc import Sequence
from datetime import datetime
from functools import partial
from itertools import count
from pathlib import Path
from typing import TextIO
from uuid import UUID

import bot.platform as bp
from adapters.console.config import ConsoleSettings
from adapters.console.terminal_io import InteractiveInput, PipedInput, run_in_daemon_thread, write_all
from bot import (
    Attachment,
    ChannelType,
    ConfigError,
    Content,
    Entity,
    Receipt,
    Role,
    Room,
    World,
    derived_id,
    new_id,
    system_clock,
)
from bot.text import ANSI_SEQUENCE, sanitize_name, translate, translate_message, user_text

PLATFORM = "console"


def build_inbound_message(
    text: str, *, agent_id: UUID, user: str, message_id: UUID, sent_at: datetime
) -> bp.InboundMessage:
    """Return the inbound message for one line.

    The user of the terminal is the operator and so owns the world. The room has a fixed id, so that a stored
    conversation continues at the next start.
    """
    account = str(agent_id)
    name = sanitize_name(user)
    author = Entity(derived_id(PLATFORM, "entity", user), PLATFORM, user, (name,))
    world = World(derived_id(PLATFORM, "world", account), PLATFORM, account, "Terminal", {author.id: Role.OWNER})
    room = Room(
        id=derived_id(PLATFORM, "room", account, user),
        world_id=world.id,
        type=ChannelType.DM,
        platform=PLATFORM,
        external_id=user,
        account=account,
        name=f"Terminal of {name}",
        is_age_restricted=True,  # it is the operator's
    )
    content = Content(text=text, source=PLATFORM)
    return bp.InboundMessage.build(
        world, room, author, content, created_at=sent_at, message_id=str(message_id), memory_id=message_id
    )


def build_command_invocation(line: str, *, agent_id: UUID, user: str, sent_at: datetime) -> bp.CommandInvocation:
    """Return the command for one line that begins with a slash."""
    name, _, text = line[1:].partition(" ")
    context = build_inbound_message("", agent_id=agent_id, user=user, message_id=new_id(), sent_at=sent_at)
    return bp.CommandInvocation(
        name, context.world, context.room, context.author, context.key.event_id, sent_at, text=text
    )


_LINE_END = re.compile(r"\r\n?|[\x0b\x0c\x85\u2028\u2029]")
_CONTROL = re.compile(r"[\x00-\x08\x0e-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069\ud800-\udfff]")


def format_reply(content: Content) -> str:
    """Return a reply without control codes, with a line for each attachment."""
    lines = [content.text, *map(_format_attachment, content.attachments)]
    return strip_terminal_codes("\n".join(line for line in lines if line))


def strip_terminal_codes(text: str) -> str:
    """Remove control and bidirectional characters and ANSI sequences; line ends and tabs stay."""
    return _CONTROL.sub("", _LINE_END.sub("\n", ANSI_SEQUENCE.sub("", text)))


def save_file(file: Attachment, folder: Path = Path()) -> str:
    """Write a file that only this user may read, under a free name; return a line with its path, or with the error."""
    name = Path(re.sub(r"[^\w.-]", "_", file.name).lstrip(".") or "file")
    for number in count(1):
        path = folder / (name if number == 1 else name.with_stem(f"{name.stem}-{number}"))
        try:
            with open(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as written:
                written.write(file.data or b"")
        except FileExistsError:
            continue
        except OSError as error:
            return translate_message(f"{path} cannot be written: {error.strerror}")
        return translate("saved as {path}", path=path.resolve())
    raise AssertionError  # `count` does not end


def _format_attachment(attachment: Attachment) -> str:
    name = attachment.title or attachment.name or attachment.description
    label = ": ".join(part for part in (attachment.kind.value.lower(), name) if part)
    return f"[{label}] {attachment.url}".rstrip()


ERASE_LINE = "\r\x1b[K"
STREAM_INTERVAL = 0.05


class ConsoleAdapter(bp.Adapter):
    """Connects one user with one agent through file descriptors.

    In a terminal it shows a prompt, the speaker's name, and replies while they are written; elsewhere only
    the replies. The caller reads lines with `read_line` and submits them with `send_message`.
    """

    platform = PLATFORM
    sends_response_files = True
    is_trusted_audience = True

    def __init__(
        self, handle: bp.AgentHandle, *, input_lines: PipedInput | InteractiveInput, output: int | None
    ) -> None:
        self._handle = handle
        self._input = input_lines
        self._output = output
        self._user = handle.settings.load(ConsoleSettings).console_user
        self._written_ids: set[str] = set()
        self._changed = asyncio.Condition()
        self._is_output_closed = output is None
        self._shows_typing = False
        self._partial_reply: tuple[UUID, str] | None = None  # a streamed reply that is shown in part

    @property
    def is_interactive(self) -> bool:
        """Whether input and output are a terminal."""
        return isinstance(self._input, InteractiveInput)

    def session(self) -> bp.TerminalSession:
        """Return this adapter as the session with the terminal's user."""
        return self

    async def read_line(self) -> str | None:
        """Wait for the next line; None at the end. Raises BrokenPipeError if stdout is closed."""
        if self._is_output_closed:
            raise BrokenPipeError("the reader of stdout has gone")
        return await run_in_daemon_thread(self._input)

    async def send_message(self, text: str) -> Receipt:
        """Submit a message; return its final receipt once all replies are written."""
        inbound = build_inbound_message(
            text, agent_id=self._handle.agent_id, user=self._user, message_id=new_id(), sent_at=system_clock()
        )
        return await self._wait_written(await self._handle.submit(inbound))

    async def run_command(self, line: str) -> str:
        """Run a command and save its files; return the text to show once all replies are written."""
        invocation = build_command_invocation(
            line, agent_id=self._handle.agent_id, user=self._user, sent_at=system_clock()
        )
        response = await self._handle.run_command(invocation)
        if response.receipt is not None:
            await self._wait_written(response.receipt)
        saved = [await asyncio.to_thread(save_file, file) for file in response.attachments]
        return "\n".join([response.text, *saved])

    async def _wait_written(self, receipt: Receipt) -> Receipt:
        """Return the final receipt once all replies are written."""
        receipt = await self._handle.wait_outcome(receipt.id)
        turn_ids = [receipt.turn_id] if receipt.turn_id is not None else []
        turn_ids += [bp.referral_turn_id(receipt.memory_id)] if bp.REFERRAL_NOTE in receipt.notes else []
        deliveries = [item for turn_id in turn_ids for item in await self._handle.conversations.deliveries(turn_id)]
        if delivery_ids := {delivery.id for delivery in deliveries}:
            async with self._changed:
                await self._changed.wait_for(lambda: delivery_ids <= self._written_ids)
        self._written_ids.clear()
        return receipt

    async def show(self, text: str) -> None:
        """Write a text that is not a reply."""
        await self._write(f"{strip_terminal_codes(text)}\n")

    async def deliver(self, delivery: bp.Delivery) -> str:
        """Write a reply. Raises Undeliverable if the output is closed."""
        text = f"{format_reply(delivery.content)}\n"
        is_notice = delivery.kind is bp.DeliveryKind.NOTICE
        if isinstance(self._input, InteractiveInput):
            text = f"{self._clear_typing()}{text}" if is_notice else self._remaining_text(delivery.memory_id, text)
            self._partial_reply = None
            if self._input.is_waiting:
                text = f"{ERASE_LINE}{text}{self._input.prompt_line()}"
        try:
            await self._write(text)
        except OSError as error:
            raise bp.Undeliverable(f"the reader of stdout has gone: {error}") from None
        finally:
            async with self._changed:
                self._written_ids.add(delivery.id)
                self._changed.notify_all()
        return delivery.id

    def shows_greeting(self, room: Room) -> bool:
        """Return that every conversation in the terminal begins with a greeting."""
        return self.is_interactive

    async def show_greeting(self) -> None:
        """Write the character's first greeting, if there is one and nothing has been said yet."""
        place = build_inbound_message(
            "", agent_id=self._handle.agent_id, user=self._user, message_id=new_id(), sent_at=system_clock()
        )
        greeting = self._handle.character.greet(place.author.name)
        if greeting and not await self._handle.conversations.messages(place.room.id, 1):
            await self.show(f"{self._handle.character.name}: {greeting}")

    def render_notice(self, text: str) -> str:
        """Return the line in brackets: it is nothing that the character says."""
        return f"[{text}]"

    def stream_interval(self, room: Room) -> float | None:
        """Return the interval between updates of a streamed reply; None outside of a terminal."""
        return STREAM_INTERVAL if self.is_interactive else None

    async def preview(self, delivery: bp.Delivery) -> None:
        """Write the new text of a streamed reply, unless the user is typing."""
        if isinstance(self._input, InteractiveInput) and self._input.is_waiting:
            return
        text = format_reply(delivery.content)
        if text:
            added_text = self._remaining_text(delivery.memory_id, text)
            self._partial_reply = (delivery.memory_id, text)
            await self._write(added_text)
        elif self._partial_reply is not None:
            self._partial_reply = None
            await self._write("\n")

    @property
    def _can_show_typing(self) -> bool:
        return self.is_interactive and os.environ.get("TERM", "dumb") != "dumb"

    async def show_model_busy(self, room: Room) -> None:
        """Show in place of the typing indicator that the model is called again; without a terminal on stderr."""
        if not self._can_show_typing:
            print(f"bot: {user_text('notices.model_busy')}", file=sys.stderr, flush=True)
        elif self._partial_reply is None:
            await self._write(f"{self._clear_typing()}{user_text('notices.model_busy')} …")
            self._shows_typing = True

    async def set_typing(self, room: Room, active: bool) -> None:
        """Show or remove the typing indicator in a terminal."""
        if not self._can_show_typing:
            return
        if active:
            self._shows_typing = True
            await self._write(translate("{name} is writing …", name=self._handle.character.name))
        elif erase_code := self._clear_typing():
            await self._write(erase_code)

    def restore_terminal(self) -> None:
        """Restore the terminal's state."""
        if isinstance(self._input, InteractiveInput):
            self._input.restore_terminal()

    def _remaining_text(self, message_id: UUID, text: str) -> str:
        """Return the text to write to show a reply: only the rest if it is shown in part."""
        partial_id, partial_text = self._partial_reply or (None, "")
        if partial_id == message_id and text.startswith(partial_text):
            return text.removeprefix(partial_text)
        end = "\n" if partial_id is not None else ""
        return f"{self._clear_typing()}{end}{self._handle.character.name}: {text}"

    def _clear_typing(self) -> str:
        """Return the control sequence that removes the typing indicator, if it is shown."""
        is_shown, self._shows_typing = self._shows_typing, False
        return ERASE_LINE if is_shown else ""

    async def _write(self, text: str) -> None:
        if self._output is None:
            raise BrokenPipeError("stdout is closed")
        try:
            await run_in_daemon_thread(partial(write_all, self._output, text.encode("utf-8", "replace")))
        except OSError:
            self._is_output_closed = True
            raise


def open_console(handles: Sequence[bp.AgentHandle]) -> ConsoleAdapter:
    """Return the adapter for this process's stdin and stdout. Raises ConfigError for several agents."""
    if len(handles) != 1:
        raise ConfigError(f"the console supports one character at a time, not {len(handles)}")
    [handle] = handles
    stdin, stdout = _descriptor(sys.__stdin__), _descriptor(sys.__stdout__)
    if stdin is not None and stdout is not None and os.isatty(stdin) and os.isatty(stdout):
        prompt = translate("to {name}> ", name=strip_terminal_codes(handle.character.name))
        return ConsoleAdapter(handle, input_lines=InteractiveInput(prompt), output=stdout)
    return ConsoleAdapter(handle, input_lines=PipedInput(stdin), output=stdout)


def _descriptor(stream: TextIO | None) -> int | None:
    try:
        return None if stream is None else stream.fileno()
    except (OSError, ValueError):
        return None
