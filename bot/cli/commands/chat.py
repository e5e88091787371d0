"""Talk with the character here in the terminal; piped in, one message a line, each reply on stdout."""

import argparse
import asyncio
import sys
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, ExitStack, asynccontextmanager, redirect_stdout
from dataclasses import replace
from typing import Protocol, runtime_checkable

from bot.cli.characters import Part, add_character_option, read_part, tell_notes
from bot.cli.message_report import explain
from bot.cli.process.exit_codes import Exit
from bot.cli.process.shutdown import aside, stoppable, swept
from bot.domain.ledger import Outcome, Receipt
from bot.errors import ModelRefused, ModelUnavailable, PluginError, PromptTooLong, StoreRefused
from bot.inbound.agent_handle import AdapterSpec
from bot.logs import harmless, logging_to_stderr
from bot.plugin_system.loading import find_adapter
from bot.plugin_system.plugin import schemas_of, storage_of
from bot.runtime.agent_runtime import Blueprint
from bot.runtime.runtime import Runtime
from bot.settings import CoreSettings
from bot.store.inmemory import InMemoryStore
from bot.text import is_blank

CONSOLE = "console"
FINISHING = "finishing the message under way; Ctrl-C again ends at once"
# The rules of receipts whose message no model could answer.
REFUSED = frozenset(one.__name__ for one in (ModelRefused, PromptTooLong))
UNANSWERED = REFUSED | {ModelUnavailable.__name__}
QUIT = "/quit  End the talk; so does Ctrl-D."


@runtime_checkable
class Terminal(Protocol):
    """What the console adapter has beside an adapter's own duties."""

    @property
    def is_interactive(self) -> bool:
        """Whether a person sits at a terminal."""

    async def read(self) -> str | None:
        """Wait for the next line; None at the end."""

    async def say(self, text: str) -> Receipt:
        """Give the agent a line; back when the replies are written."""

    async def command(self, line: str) -> str:
        """Give the agent a command; back with what to show, when all that is said to it is written."""

    async def show(self, text: str) -> None:
        """Write something that is no reply."""

    def restore(self) -> None:
        """Give the terminal back as it was found."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare what the command takes."""
    add_character_option(parser)


def run(args: argparse.Namespace) -> int:
    """Talk until the input ends."""
    part = read_part(args.character)
    spec = _console()
    tell_notes([part])
    core = part.settings.load(CoreSettings)
    level = part.settings.get("LOG_LEVEL") or "WARNING"
    with logging_to_stderr(level=level, format=core.log_format, secrets=part.secrets):
        return asyncio.run(_talk(part, spec))


async def _talk(part: Part, spec: AdapterSpec) -> int:
    talk = Talk(part.name)
    with stoppable(talk.note_end) as stop, ExitStack() as stack:
        async with swept(), _kept(part) as plan, Runtime([plan], [spec]) as runtime:
            [terminal] = runtime.adapters
            if not isinstance(terminal, Terminal):
                raise PluginError("the console adapter found here is not the one this command needs")
            stack.callback(terminal.restore)
            if not terminal.is_interactive:
                stack.enter_context(redirect_stdout(sys.stderr))  # stdout is for replies alone
            await talk.hold(terminal)
    return stop.code or talk.code


@asynccontextmanager
async def _kept(part: Part) -> AsyncIterator[Blueprint]:
    """Open what keeps the talk; memory, and a word about it, where another process has that."""
    plan, storage, schemas = part.blueprint, storage_of(part.plugins), schemas_of(part.plugins)
    async with AsyncExitStack() as stack:
        if storage is not None:
            try:
                store = await stack.enter_async_context(storage.open(plan.agent_id, plan.settings, schemas))
            except StoreRefused as error:
                aside(harmless(f"this talk is forgotten at its end: {error}"))
                store = InMemoryStore(plan.clock)
            plan = replace(plan, store=store)
        yield plan


class Talk:
    """One conversation at a terminal, and how it went."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._last: Receipt | None = None
        self._failures: list[str] = []
        self._count = 0
        self._farewell: str | None = None

    @property
    def code(self) -> int:
        """The exit code: a fault only where no message at all could be answered by the model."""
        if not self._count or len(self._failures) < self._count:
            return Exit.OK
        if REFUSED.issuperset(self._failures):
            return Exit.CONFIG
        return Exit.TRY_AGAIN if UNANSWERED.issuperset(self._failures) else Exit.OK

    async def hold(self, terminal: Terminal) -> None:
        """Take line after line, each once the former has its outcome."""
        if terminal.is_interactive:
            await terminal.show(f"You are talking to {self._name}. /help tells what else there is.")
        while True:
            self._farewell = "" if terminal.is_interactive else None
            line = await terminal.read()
            self._farewell = FINISHING
            if line is None or (terminal.is_interactive and line.strip() == "/quit"):
                break
            if terminal.is_interactive and line.startswith("/"):
                if shown := await self._answered(terminal, line.strip()):
                    await terminal.show(shown)
            elif not is_blank(line):
                self._note(await terminal.say(line))
        if terminal.is_interactive and line is None:
            await terminal.show("")

    def note_end(self) -> None:
        """Say that a signal was heard, and leave the prompt's line."""
        if self._farewell is not None:
            aside(self._farewell)

    async def _answered(self, terminal: Terminal, line: str) -> str:
        if line == "/why":  # told in full: whoever sits here runs the bot
            return "\n".join(explain(self._last)) if self._last else "there has been no message yet"
        shown = await terminal.command(line)
        return f"{shown}\n{QUIT}" if line == "/help" else shown

    def _note(self, receipt: Receipt) -> None:
        self._last = receipt
        self._count += 1
        if receipt.outcome is Outcome.FAILED:
            self._failures.append(receipt.rule)
            aside(harmless(f"bot: not answered: {receipt.reason}"))


def _console() -> AdapterSpec:
    found = find_adapter(CONSOLE)
    if isinstance(found, str):
        raise PluginError(found)
    return found
