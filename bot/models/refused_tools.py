"""Find the tools that a provider refuses, and leave them out of requests."""

import json
import logging
import re
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import replace

from bot.errors import ToolsRefused
from bot.models.handler import R
from bot.models.types import TextRequest, Tool

logger = logging.getLogger(__name__)

MAX_CALLS = 24  # of one search
INDEX = re.compile(r"(?:tools|functions?|function_?declarations)\W{1,4}(\d+)", re.IGNORECASE)


class RefusedTools:
    """The tools that the provider behind one handler refuses; they are left out of all later requests.

    A provider refuses a whole request for the schema of one tool, and does not always say which one it is.
    """

    def __init__(self, provider: str) -> None:
        self._provider = provider
        self._refused: set[str] = set()

    async def call(self, request: TextRequest, send: Callable[[TextRequest], Awaitable[R]]) -> R:
        """Return what `send` returns for the request without the tools that are refused.

        Those not known yet are found by halving: n tools, one of which is refused, take at most log2 n + 2 calls.
        After `MAX_CALLS` calls, all tools that no successful call contained are left out. Raises as `send` does;
        ToolsRefused if a request without tools is refused too.
        """
        tools = {key: tool for tool in request.tools if (key := _identify(tool)) not in self._refused}
        trial: list[str] = list(tools)
        accepted: list[str] = []
        suspects: list[str] = []
        result: R | None = None
        cause = ""
        for _ in range(MAX_CALLS):
            named: list[str] = []
            try:
                result = await send(replace(request, tools=tuple(tools[key] for key in trial)))
            except ToolsRefused as error:
                if not trial:
                    raise
                cause = str(error)
                suspects = [key for key in trial if key not in accepted]
                named = [key for key in _find_named(cause, trial, tools) if key in suspects]
            else:
                accepted, suspects = trial, [key for key in suspects if key not in trial]
            if len(suspects) == 1:
                self._leave_out([tools.pop(suspects.pop())], cause)
            if result is not None and len(accepted) == len(tools):
                return result
            trial = [*accepted, *_reduce(suspects, named)] if suspects else list(tools)
        self._leave_out([tool for key, tool in tools.items() if key not in accepted], cause)
        return result if result is not None else await send(replace(request, tools=()))

    def _leave_out(self, tools: Iterable[Tool], cause: str) -> None:
        for tool in tools:
            self._refused.add(_identify(tool))
            logger.warning(
                "%s refuses the tool %s, which is left out from now on: %s",
                self._provider,
                tool.name,
                cause,
                extra={"once": True},
            )


def _identify(tool: Tool) -> str:
    return f"{tool.name} {json.dumps(dict(tool.parameters), sort_keys=True)}"


def _find_named(cause: str, sent: Sequence[str], tools: Mapping[str, Tool]) -> list[str]:
    """Return the tools that the cause of a refusal names, or the one whose index it names."""
    named = [key for key in sent if re.search(rf"(?<![\w-]){re.escape(tools[key].name)}(?![\w-])", cause)]
    indexes = [int(index) for index in INDEX.findall(cause) if int(index) < len(sent)]
    return named or [sent[index] for index in indexes[-1:]]


def _reduce(suspects: Sequence[str], named: Sequence[str]) -> Sequence[str]:
    """Return the suspects to try next: all but the named ones, else half of them."""
    others = [key for key in suspects if key not in named]
    return others if 0 < len(others) < len(suspects) else suspects[: len(suspects) // 2]
