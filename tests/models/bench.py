"""A router with scripted handlers and a clock that needs no waiting."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

from bot.concurrency.clock import TimeSource
from bot.domain.ledger import ModelCall
from bot.models.handler import CallPolicy, ModelHandler, PendingCall, Record
from bot.models.router import ModelRouter
from bot.models.types import ModelRequest, ModelType, TextResult, Usage

NO_JITTER = 0.0


class RouterBench:
    """A router that records its calls, the called handlers and the delays between attempts.

    Without a `time`, a sleep moves its clock at once.
    """

    def __init__(
        self,
        *,
        first: float = 120.0,
        pause: float = 30.0,
        token: float = 2.0,
        retries: int = 0,
        random_fraction: Callable[[], float] = lambda: NO_JITTER,
        time: TimeSource | None = None,
        **router: Any,
    ) -> None:
        self.calls: list[ModelCall] = []
        self.handler_calls: list[str] = []
        self.waits: list[float] = []
        self.now = 0.0
        time = time or TimeSource(monotonic=lambda: self.now, sleep=self._sleep)
        policy = CallPolicy(first, pause, token, retries, random_fraction, time)
        self.router = ModelRouter(**{"reserve": self._reserve, "policy": policy, **router})

    async def _reserve(self, handler: ModelHandler, pending: PendingCall[Any]) -> tuple[Record, ModelRequest]:
        return self.calls.append, pending.request

    async def _sleep(self, seconds: float) -> None:
        self.waits.append(seconds)
        self.now += seconds
        await asyncio.sleep(0)

    def serve(
        self,
        answer: Any,
        *,
        kind: ModelType = ModelType.TEXT_LARGE,
        name: str = "first",
        priority: int = 0,
        can_call_tools: bool = False,
    ) -> None:
        """Register a handler that gives this answer, raises it, or calls it.

        Of a list it takes one after another, the last again and again.
        """
        answers = list(answer) if isinstance(answer, list) else [answer]

        async def handle(request: Any) -> Any:
            self.handler_calls.append(name)
            result = answers.pop(0) if len(answers) > 1 else answers[0]
            if isinstance(result, BaseException):
                raise result
            return await result(request) if callable(result) else result

        self.router.register(ModelHandler(kind, handle, name, priority, can_call_tools))


def build_result(text: str = "Hello.", usage: Usage | None = None) -> TextResult:
    """Return a text result."""
    return TextResult(text, "a-model", usage or Usage(3, 2))


async def answer_never(request: Any = None) -> TextResult:
    """Wait without end."""
    await asyncio.Event().wait()
    return build_result()


class Sink:
    """A sink that stores its pieces; `None` stands for a restart."""

    def __init__(self) -> None:
        self.pieces: list[str | None] = []

    async def write(self, text: str) -> None:
        """Store a piece."""
        self.pieces.append(text)

    async def restart(self) -> None:
        """Store the restart."""
        self.pieces.append(None)


def stream_pieces(*pieces: str, then: Sequence[BaseException] = ()) -> Callable[[Any], Awaitable[TextResult]]:
    """Return a handler that streams these pieces, and then raises if it has an error."""

    async def write(request: Any) -> TextResult:
        for piece in pieces:
            await request.sink.write(piece)
        for error in then:
            raise error
        return build_result("".join(pieces))

    return write
