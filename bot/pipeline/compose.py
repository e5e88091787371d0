"""Runs providers, renders prompts, shortens them once if too long."""

import asyncio
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from bot.concurrency.isolation import Failure, begun, contained, failed
from bot.domain.results import ProviderFailure, ProviderResult, State
from bot.errors import PromptTooLong
from bot.models.types import ModelType, TextRequest, TextResult
from bot.plugin_system.components import Provider
from bot.plugin_system.registry import Registry
from bot.prompts.history import LONGEST_OPEN, last_lines
from bot.prompts.template_parser import render
from bot.prompts.templates import SYSTEM
from bot.text import clean_name, cut_line, last_break
from bot.turn import Turn

PROVIDER_DEADLINE = 5.0
LARGEST_TEXT = 262_144


class Composer:
    """Composes a turn's state from the registry's providers and renders prompts from it."""

    def __init__(self, registry: Registry, *, deadline: float = PROVIDER_DEADLINE) -> None:
        self._registry = registry
        self._deadline = deadline

    async def compose(self, turn: Turn, include: Collection[str] = (), *, only: bool = False) -> State:
        """Ask the providers that are always composed, and those in `include`; with `only` just these.

        A provider that has answered in this turn is not asked again. One that fails or is slow costs
        its own text and nothing else; the state tells which did.
        """
        state = turn.state
        chosen = self._chosen(include, only=only)
        missing = [one for one in chosen if one.spec.name not in state.results]
        if missing:
            await self._ask(turn, missing)
        state.composed = tuple(one.spec.name for one in chosen)
        self.put_together(turn)
        return state

    def put_together(self, turn: Turn) -> None:
        """Make text and values of what was composed last."""
        state = turn.state
        results = [state.results[name] for name in state.composed]
        state.text = "\n\n".join(result.text for result in results if result.text)
        state.values = {**_values(turn), "providers": state.text}
        for result in results:
            state.values.update(result.values)

    def wanting(self, turn: Turn, names: Iterable[str]) -> list[str]:
        """List, of the providers a model asks for, those it may have and that were not asked yet."""
        found = (self._registry.provider(name) for name in names)
        asked = turn.state.results
        specs = [one.spec for one in found if one is not None]
        return [spec.name for spec in specs if not spec.is_private and spec.name not in asked]

    def render(self, turn: Turn, template: str, **values: Any) -> str:
        """Render one of the agent's templates with what was composed last."""
        return render(turn.agent.templates[template], {**_values(turn), **turn.state.values, **values})

    def system(self, turn: Turn) -> str:
        """Render the character's system prompt, or the default one where it has none."""
        source = turn.agent.character.system or turn.agent.templates[SYSTEM]
        return render(source, turn.state.values or _values(turn))

    def _chosen(self, include: Collection[str], *, only: bool) -> list[Provider]:
        wanted = {one.spec.name for name in include if (one := self._registry.provider(name)) is not None}
        return [
            one
            for one in self._registry.in_prompt
            if one.spec.name in wanted or not (only or one.spec.is_dynamic or one.spec.is_private)
        ]

    async def _ask(self, turn: Turn, providers: Sequence[Provider]) -> None:
        """Ask providers: plain ones first, then side by side those that have to wait for something."""
        waiting: dict[str, Awaitable[ProviderResult]] = {}
        for one in providers:
            name = one.spec.name
            given = begun(partial(one.handler, turn), what=f"provider {name}")
            if not isinstance(given, ProviderResult | Failure) and isinstance(given, Awaitable):
                waiting[name] = given
            else:
                _take(turn.state, name, given)
        if not waiting:
            return
        tasks: dict[str, asyncio.Task[ProviderResult | Failure]] = {}
        late: set[str] = set()
        limit = asyncio.get_running_loop().call_later(self._deadline, _stop, tasks, late)
        try:
            async with asyncio.TaskGroup() as group:
                for name, given in waiting.items():
                    tasks[name] = group.create_task(_waited_for(name, given))
        finally:
            limit.cancel()
        for name, task in tasks.items():
            _take(turn.state, name, self._stopped(name, late) if task.cancelled() else task.result())

    def _stopped(self, name: str, late: Collection[str]) -> Failure:
        cause = f"no answer within {self._deadline:g} s" if name in late else "it cancelled itself"
        return failed(TimeoutError(cause), what=f"provider {name}", cause=cause)


async def _waited_for(name: str, given: Awaitable[ProviderResult]) -> ProviderResult | Failure:
    return await contained(given, what=f"provider {name}", deadline=None)


def _stop(tasks: Mapping[str, asyncio.Task[Any]], late: set[str]) -> None:
    for name, task in tasks.items():
        if task.cancel():
            late.add(name)


def _take(state: State, name: str, given: object) -> None:
    """Keep what a provider gave, bounded; whatever else it gave instead counts as nothing."""
    if not (problem := _problem_with(given)):
        assert isinstance(given, ProviderResult)
        state.results[name] = _bounded(given)
        if len(given.text) > LARGEST_TEXT:
            problem = f"its text was cut: {len(given.text)} characters, and {LARGEST_TEXT} are read"
    else:
        state.results[name] = ProviderResult()
    if problem:
        state.failures.append(ProviderFailure(name, problem))


def _problem_with(given: object) -> str:
    if isinstance(given, Failure):
        return given.cause
    if not isinstance(given, ProviderResult):
        return f"it gave {type(given).__name__}"
    if not isinstance(given.text, str):
        return f"its text is {type(given.text).__name__}"
    if not (isinstance(given.values, dict | Mapping) and isinstance(given.data, dict | Mapping)):
        return "its values or data are no mapping"
    return ""


def _bounded(given: ProviderResult) -> ProviderResult:
    values = {key: _cut(value) for key, value in given.values.items()} if given.values else given.values
    is_short = len(given.text) <= LARGEST_TEXT and values == given.values
    return given if is_short else ProviderResult(_cut(given.text), values, given.data)


def _cut(value: Any) -> Any:
    return value[:LARGEST_TEXT] if isinstance(value, str) else value


def _values(turn: Turn) -> dict[str, Any]:
    """The variables that every template may use, whichever providers there are; all of them harmless."""
    message, character = turn.message, turn.agent.character
    return {
        "agentName": clean_name(character.name),
        "characterBio": " ".join(character.background),
        "messageText": cut_line(message.content.text, LONGEST_OPEN),
        "userName": clean_name(turn.author.name),
        "roomId": str(turn.room.id),
        "roomName": clean_name(turn.room.name) if turn.room.name else "",
        "worldContext": clean_name(turn.world.name) if turn.world.name else "",
        "actionNames": ", ".join(spec.name for spec in turn.actions),
        "relevantKnowledge": "",
        "recentMessages": "",
        "openMessages": "",
        "actionResults": turn.state.data.get("actionResultsText", ""),
    }


HISTORY = "RECENT_MESSAGES"
WHOLE = frozenset({"CHARACTER", "ACTIONS"})
OPEN = frozenset({"ATTACHMENTS"})  # asked for on demand, and yet of the messages that are to be answered
LONGEST_LEFT = 4_000  # characters of each text that is neither whole nor gone

Cut = Callable[[str], str]


async def ask(
    turn: Turn, composer: Composer, request: Callable[[], TextRequest], kind: ModelType
) -> TextResult:
    """Have a text written; where no model can read so long a prompt, once more with a shorter one.

    `request` makes the request from what is composed. Raises PromptTooLong where there is nothing to
    leave out, or that was not enough, and as the router does.
    """
    models = turn.agent.models
    try:
        return await models.text(request(), kind)
    except PromptTooLong:
        cut = lessen(turn)
        if not cut:
            raise
    turn.notes.append(f"the prompt was too long for the model; it was asked with less of {', '.join(cut)}")
    composer.put_together(turn)
    return await models.text(request(), kind)


def lessen(turn: Turn) -> list[str]:
    """Cut what is composed, and name what was cut: what is on demand goes, the oldest of the history goes.

    Of the rest a beginning stays; all of the character, of the actions and of the open messages does.
    """
    state, cut = turn.state, []
    on_demand = {spec.name for spec in turn.agent.catalog.providers if spec.is_dynamic} - OPEN
    for name in state.composed:
        if name in WHOLE:
            continue
        shorter = _last if name == HISTORY else _nothing if name in on_demand else _first
        result = _shortened(state.results[name], shorter)
        if result != state.results[name]:
            state.results[name] = result
            cut.append(name)
    state.is_short |= bool(cut)
    return cut


def _shortened(result: ProviderResult, cut: Cut) -> ProviderResult:
    values = {name: cut(value) if isinstance(value, str) else value for name, value in result.values.items()}
    return replace(result, text=cut(result.text), values=values)


def _first(text: str) -> str:
    return text[: last_break(text, LONGEST_LEFT)]


def _nothing(text: str) -> str:
    return ""


_last = partial(last_lines, limit=LONGEST_LEFT)
