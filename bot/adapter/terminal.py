"""`TerminalSession`: what `bot chat` needs of an adapter for a terminal."""

from typing import Protocol

from bot.domain.ledger import Receipt


class TerminalSession(Protocol):
    """The conversation with the user of a terminal, driven line by line; owned by its adapter."""

    @property
    def is_interactive(self) -> bool:
        """Whether input and output are a terminal."""

    async def read_line(self) -> str | None:
        """Wait for the next line; None at the end of the input."""

    async def send_message(self, text: str) -> Receipt:
        """Submit a message; return its final receipt once all replies are written."""

    async def run_command(self, line: str) -> str:
        """Run a command; return the text to show once all replies are written."""

    async def show(self, text: str) -> None:
        """Write a text that is not a reply."""

    async def show_greeting(self) -> None:
        """Write the character's first greeting, if there is one and nothing has been said yet."""

    def restore_terminal(self) -> None:
        """Restore the terminal's state."""
