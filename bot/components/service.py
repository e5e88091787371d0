"""Services: what runs beside the conversation as long as the agent lives."""

from types import TracebackType
from typing import ClassVar, Self

from bot.agent import Agent


class Service:
    """Something opened with the agent and closed with it: a session, a socket, a cache.

    Built from the agent; entering starts it, leaving stops it. `capability` is one sentence on what
    it lets the character do.
    """

    capability: ClassVar[str] = ""

    def __init__(self, agent: Agent) -> None:
        self.agent = agent

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Stop."""
