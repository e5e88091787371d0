"""Talk with the character in the terminal; with piped input, one message a line, replies on stdout."""

import asyncio
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, ExitStack, asynccontextmanager, redirect_stdout
from dataclasses import replace
from functools import partial
from typing import TypeVar

import bot.store
from bot.adapter.adapter import TerminalSession
from bot.cli import characters
from bot.cli.commands.why import explain_receipt
from bot.cli.options import CharacterFile, announce_start, examples, new_command
from bot.cli.process import shutdown
from bot.cli.process.watchdog import run_watchdog
from bot.cli.running_bot import open_store
from bot.commands.dispatcher import format_unknown_command
from bot.concurrency.tasks import TaskSet
from bot.domain.ledger import Outcome, Receipt
from bot.errors import ModelRefused, PluginError, PromptTooLong, StoreInaccessible
from bot.inbound.agent_handle import AdapterSpec
from bot.plugin_system.loading import find_adapter
from bot.plugin_system.plugin import find_storage
from bot.runtime.character_reload import AgentConfig
from bot.text import find_closest, is_blank, translate, translate_message

CONSOLE = "console"
STOP_COMMAND = "/stop"
STOP_NOTICE = "finishing the current message; a second Ctrl-C exits at once"
# Rules of receipts whose message no model will answer, however often it is sent.
PERMANENT_FAILURES = frozenset(error_type.__name__ for error_type in (ModelRefused, PromptTooLong))
T = TypeVar("T")
QUIT = "/quit"
QUIT_HELP = "/quit  End the conversation; Ctrl-D does the same."


chat_app = new_command()


@chat_app.command(epilog=examples("bot chat", "bot chat -c mine.json", "echo hello | bot chat -c mine.json"))
def chat(character: CharacterFile = None) -> int:
    """Talk with the character here in the terminal; Ctrl-C stops an answer, and ends the chat between answers.

    With piped input, each line is a message, and the replies are printed to stdout.
    """
    announce_start("the conversation")
    config = characters.load_character_config(character)
    spec = find_adapter(CONSOLE)
    if isinstance(spec, str):
        raise PluginError(spec)
    characters.check_settings([config], [spec])
    characters.print_notes([config])
    characters.print_plugin_notices([config])
    with characters.log_as_configured([config], default_level="WARNING"), shutdown.never_wait_for_readers("stderr"):
        return asyncio.run(_run_chat(config, spec))


async def _run_chat(config: characters.CharacterConfig, spec: AdapterSpec) -> int:
    from bot.runtime.runtime import Runtime  # here, because help needs no pipeline

    conversation = Conversation(config.name)
    with (
        shutdown.handle_stop_signals(conversation.announce_stop, interrupt=conversation.interrupt) as stop_request,
        ExitStack() as stack,
    ):
        stack.enter_context(run_watchdog(stop_request, only_reports=True))
        async with (
            shutdown.stop_remaining_tasks(),
            _with_store(config) as agent_config,
            Runtime([agent_config], [spec]) as runtime,
        ):
            [adapter] = runtime.adapters
            terminal = adapter.session()
            if terminal is None:
                raise PluginError("the installed console adapter has no terminal session")
            stack.callback(terminal.restore_terminal)
            if not terminal.is_interactive:
                stack.enter_context(redirect_stdout(sys.stderr))  # stdout is for replies only
            await conversation.run(terminal)
    return stop_request.exit_code or conversation.exit_code


@asynccontextmanager
async def _with_store(config: characters.CharacterConfig) -> AsyncIterator[AgentConfig]:
    """Open the store; use memory, with a notice, if another process uses the database."""
    agent_config = config.agent_config
    async with AsyncExitStack() as stack:
        if find_storage(config.plugins) is not None:
            try:
                store = await stack.enter_async_context(open_store(config))
            except StoreInaccessible as error:
                shutdown.print_notice(translate("this conversation is not stored: {cause}", cause=error))
                store = bot.store.InMemoryStore(agent_config.clock)
            agent_config = replace(agent_config, store=store)
        yield agent_config


class Conversation:
    """One conversation in the terminal, and its result."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._last_receipt: Receipt | None = None
        self._failures: list[str] = []
        self._stop_notice: str | None = None
        self._stop_answer: Callable[[], object] | None = None
        self._stopping = TaskSet("stopping an answer")

    @property
    def exit_code(self) -> int:
        """The exit code: an error if a message got no answer, and 78 if trying again is of no use."""
        if not self._failures:
            return shutdown.Exit.OK
        return shutdown.Exit.CONFIG if PERMANENT_FAILURES.issuperset(self._failures) else shutdown.Exit.TRY_AGAIN

    async def run(self, terminal: TerminalSession) -> None:
        """Read and send line by line, each after the outcome of the one before."""
        if terminal.is_interactive:
            await terminal.show(translate("You are talking to {name}. /help lists the commands.", name=self._name))
            await terminal.show_greeting()
        while True:
            self._stop_notice = "" if terminal.is_interactive else None
            line = await terminal.read_line()
            self._stop_notice = STOP_NOTICE
            if line is None or line.strip() == QUIT:
                break
            if line.startswith("/"):
                if response := await self._await_answer(terminal, self._run_command(terminal, line.strip())):
                    await terminal.show(response)
            elif not is_blank(line):
                self._last_receipt = receipt = await self._await_answer(terminal, terminal.send_message(line))
                if receipt.outcome is Outcome.FAILED:
                    self._failures.append(receipt.rule)
                    shutdown.print_notice(translate("bot: not answered: {cause}", cause=receipt.reason))
        if terminal.is_interactive and line is None:
            await terminal.show("")

    def interrupt(self) -> bool:
        """Stop the answer in progress, once; return whether there is one. A signal's handler may call it."""
        stop_answer, self._stop_answer = self._stop_answer, None
        if stop_answer is None:
            return False
        stop_answer()
        return True

    async def _await_answer(self, terminal: TerminalSession, answer: Awaitable[T]) -> T:
        """Return the result of what answers a line, which the user of a terminal can interrupt."""
        loop = asyncio.get_running_loop()

        async def stop() -> None:
            response = await terminal.run_command(STOP_COMMAND)
            await terminal.show(f"\n{response}")

        if terminal.is_interactive:
            self._stop_answer = partial(loop.call_soon_threadsafe, lambda: self._stopping.start(stop()))
        try:
            result = await answer
        finally:
            self._stop_answer = None
        await self._stopping.wait()
        return result

    def announce_stop(self) -> None:
        """Print that a signal was received, and end the line of the prompt."""
        if self._stop_notice is not None:
            shutdown.print_notice(translate(self._stop_notice))

    async def _run_command(self, terminal: TerminalSession, line: str) -> str:
        if line == "/why":  # in full: the user of the terminal is the operator
            lines = (
                explain_receipt(self._last_receipt)
                if self._last_receipt
                else [translate("there has been no message yet")]
            )
            return "\n".join(map(translate_message, lines))
        response = await terminal.run_command(line)
        if line == "/help":
            return f"{response}\n{translate(QUIT_HELP)}"
        name = line[1:].partition(" ")[0]
        is_unknown = response == format_unknown_command(name) and find_closest(name, [QUIT[1:]])
        return format_unknown_command(name, QUIT[1:]) if is_unknown else response
