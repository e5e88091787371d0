"""The conversation of `bot chat`, with a scripted terminal."""

from collections.abc import Sequence
from datetime import UTC, datetime
from uuid import UUID

import pytest

from bot.cli.commands.chat import Conversation
from bot.commands.dispatcher import format_unknown_command
from bot.domain.ledger import EventKey, Outcome, Receipt

NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)


def receipt(outcome: Outcome = Outcome.ANSWERED, rule: str = "room type DM") -> Receipt:
    key = EventKey("console", "a", "e", UUID(int=1), "m")
    return Receipt(UUID(int=2), key, UUID(int=1), UUID(int=3), UUID(int=4), NOON, outcome, "because", rule=rule)


class ListedTerminal:
    """A terminal session with these lines as input; records messages and notices."""

    def __init__(self, lines: Sequence[str], *, is_interactive: bool, rules: Sequence[str] = ()) -> None:
        self.is_interactive = is_interactive
        self.messages: list[str] = []
        self.notices: list[str] = []
        self._lines = list(lines)
        self._rules = list(rules)

    async def read_line(self) -> str | None:
        return self._lines.pop(0) if self._lines else None

    async def send_message(self, text: str) -> Receipt:
        self.messages.append(text)
        return receipt(Outcome.FAILED, self._rules.pop(0)) if self._rules else receipt()

    async def run_command(self, line: str) -> str:
        return format_unknown_command(line[1:]) if line[1:] in ("qiut", "sing") else f"the agent is asked {line}"

    async def show(self, text: str) -> None:
        self.notices.append(text)

    async def show_greeting(self) -> None:
        """Show none: the character has no greeting."""

    def restore_terminal(self) -> None:
        """Do nothing."""


async def run_conversation(
    lines: Sequence[str], *, is_interactive: bool = True, rules: Sequence[str] = ()
) -> ListedTerminal:
    terminal = ListedTerminal(lines, is_interactive=is_interactive, rules=rules)
    await Conversation("Ada").run(terminal)
    return terminal


async def test_blank_lines_are_skipped_and_the_others_are_sent_in_order() -> None:
    terminal = await run_conversation(["one", "", "  \t", "\u200b", "two"], is_interactive=False)
    assert (terminal.messages, terminal.notices) == (["one", "two"], [])


@pytest.mark.parametrize("is_interactive", [True, False])
async def test_commands_are_recognised_in_a_terminal_and_in_piped_input(is_interactive: bool) -> None:
    terminal = await run_conversation(["/help", "hello", "/quit", "after"], is_interactive=is_interactive)
    assert terminal.messages == ["hello"]
    assert "the agent is asked /help\n/quit  End the conversation; Ctrl-D does the same." in terminal.notices


async def test_why_explains_the_last_message() -> None:
    terminal = await run_conversation(["/why", "hello", "/why"])
    _, before, after, _ = terminal.notices
    assert before == "there has been no message yet"
    assert after.splitlines()[:2] == ["answered: because", "decided by: room type DM"]


async def test_any_other_command_goes_to_the_agent() -> None:
    terminal = await run_conversation(["/mute", "/help"])
    assert terminal.notices[1] == "the agent is asked /mute"
    assert terminal.notices[2] == "the agent is asked /help\n/quit  End the conversation; Ctrl-D does the same."
    assert terminal.messages == []


async def test_an_unknown_command_that_is_nearly_quit_suggests_it() -> None:
    terminal = await run_conversation(["/qiut", "/sing", "/quiz"])
    assert terminal.notices[1:4] == [
        "There is no command /qiut. Did you mean /quit?",
        "There is no command /sing. /help lists all commands.",
        "the agent is asked /quiz",
    ]


@pytest.mark.parametrize(
    ("lines", "rules", "code"),
    [
        ([], [], 0),
        (["a"], [], 0),
        (["a", "b"], ["ModelUnavailable", "ModelUnavailable"], 75),
        (["a", "b"], ["ModelUnavailable"], 75),
        (["a"], ["ModelRefused"], 78),
        (["a", "b"], ["ModelRefused", "ModelUnavailable"], 75),
        (["a", "b"], ["ModelRefused", "PromptTooLong"], 78),
        (["a", "b"], ["PromptTooLong", "ModelUnavailable"], 75),
        (["a"], ["internal error"], 75),
    ],
)
async def test_the_exit_code_is_an_error_if_a_message_got_no_answer(
    lines: list[str], rules: list[str], code: int, capsys: pytest.CaptureFixture[str]
) -> None:
    talk = Conversation("Ada")
    await talk.run(ListedTerminal(lines, is_interactive=False, rules=rules))
    assert talk.exit_code == code
    assert capsys.readouterr().err == "bot: not answered: because\n" * len(rules)
