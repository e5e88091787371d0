"""Runs providers, renders prompts, and shortens a prompt once if it is too long."""

import asyncio
import time
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from types import MappingProxyType
from typing import Any

from bot.concurrency.isolation import Failure, call_plugin, log_failure, run_isolated
from bot.domain.component_specs import ProviderKind, Shortening
from bot.domain.content import Content
from bot.domain.results import ProviderFailure, ProviderResult, State
from bot.errors import PromptTooLong, TemplateError
from bot.models.types import ModelType, Purpose, TextRequest, TextResult
from bot.plugin_system.components import Provider
from bot.plugin_system.registry import Registry
from bot.prompts.answer_form import request_json
from bot.prompts.history import MAX_OPEN_MESSAGE_LENGTH, truncate_history
from bot.prompts.template_parser import render_template
from bot.prompts.templates import SYSTEM
from bot.receipts.trace import ALL_PROVIDERS, SEPARATOR
from bot.text import grapheme_boundary_before, sanitize_name, truncate_line
from bot.turn import Turn

PROVIDER_TIMEOUT = 5.0
MAX_TEXT_LENGTH = 262_144
PROVIDER_OUTCOMES = (ProviderResult, Failure)
# The types of nearly all results: these need no closer look.
USUAL_TYPES = frozenset((str, dict, dict, authors) for authors in (type(None), frozenset, tuple))
CONTEXT_KINDS = (ProviderKind.PARTICIPANTS, ProviderKind.WORLD)
MAX_SHORTENED_LENGTH = 4_000  # characters that remain of a shortened text


class Composer:
    """Composes a turn's state from the registry's providers and renders prompts from it."""

    def __init__(self, registry: Registry, *, timeout: float = PROVIDER_TIMEOUT) -> None:
        self.registry = registry
        self._timeout = timeout

    async def compose(self, turn: Turn, include: Collection[str] = (), *, only_included: bool = False) -> State:
        """Run the default providers and those in `include`, or only the latter; return the turn's state.

        A provider runs once a turn. If it fails or is too slow, its text is missing and `state.failures`
        names it.
        """
        state = turn.state
        selected = self._select_providers(include, only_included=only_included)
        missing = [provider for provider in selected if provider.spec.name not in state.results]
        if missing:
            started = time.monotonic()
            await self._run_providers(turn, missing)
            turn.trace.spans.append(("provider", ALL_PROVIDERS, started, time.monotonic(), ""))
        state.result_authors = frozenset(turn.result_authors)
        state.composed_providers = tuple(provider.spec.name for provider in selected)
        self.compose_text(turn)
        return state

    def compose_text(self, turn: Turn) -> None:
        """Build text and values of the state from the providers composed last."""
        state = turn.state
        results = [state.results[name] for name in state.composed_providers]
        state.text = SEPARATOR.join(result.text for result in results if result.text)
        turn.trace.composed = (state.composed_providers, results, state.text)
        state.values = {**_default_values(turn), "providers": state.text}
        for result in results:
            state.values.update(result.values)

    def missing_providers(self, turn: Turn, names: Iterable[str]) -> list[str]:
        """Return those of `names` that are available to a model and have not run in this turn."""
        providers = (self.registry.find_provider(name) for name in names)
        results = turn.state.results
        specs = [provider.spec for provider in providers if provider is not None]
        return [spec.name for spec in specs if not spec.is_hidden and spec.name not in results]

    def render(self, turn: Turn, template: str, **values: Any) -> str:
        """Render a template of the turn's world or agent with the values composed last."""
        return render_template(turn.find_template(template), {**_default_values(turn), **turn.state.values, **values})

    def build_request(self, turn: Turn, template: str, purpose: Purpose, kind: ModelType, **values: Any) -> TextRequest:
        """Return the request of a template's answer: as JSON with its schema where the model's server writes such, else
        in the form of the template.
        """
        source, schema = turn.find_template(template), None
        if turn.agent.models.can_write_json(kind) and (as_json := request_json(source)):
            source, schema = as_json
        prompt = render_template(source, {**_default_values(turn), **turn.state.values, **values})
        return TextRequest(prompt, purpose=purpose, system=self.render_system(turn), schema=schema)

    def render_notice(self, turn: Turn, template: str) -> Content | None:
        """Render a notice that no model writes; None without a template."""
        return Content(text=self.render(turn, template)) if template else None

    def render_system(self, turn: Turn) -> str:
        """Render the character's system prompt, or the default one."""
        source = turn.agent.character.system or turn.find_template(SYSTEM)
        try:
            return render_template(source, turn.state.values or _default_values(turn))
        except TemplateError:  # `system` of a character may hold any braces; the check of its file tells
            return source

    def _select_providers(self, include: Collection[str], *, only_included: bool) -> list[Provider]:
        included_names = {
            provider.spec.name for name in include if (provider := self.registry.find_provider(name)) is not None
        }
        return [
            provider
            for provider in self.registry.prompt_providers
            if provider.spec.name in included_names
            or not (only_included or provider.spec.is_dynamic or provider.spec.is_hidden)
        ]

    async def _run_providers(self, turn: Turn, providers: Sequence[Provider]) -> None:
        """Run plain providers one by one, then the async ones concurrently within the timeout."""
        pending: dict[str, Awaitable[ProviderResult]] = {}
        for provider in providers:
            name = provider.spec.name
            result = call_plugin(partial(provider.handler, turn), label=f"provider {name}")
            if not isinstance(result, PROVIDER_OUTCOMES) and isinstance(result, Awaitable):
                pending[name] = result
            else:
                _store_result(turn.state, name, result)
        if not pending:
            return
        tasks: dict[str, asyncio.Task[ProviderResult | Failure]] = {}
        timed_out: set[str] = set()
        timer = asyncio.get_running_loop().call_later(self._timeout, _cancel_tasks, tasks, timed_out)
        try:
            async with asyncio.TaskGroup() as group:
                for name, result in pending.items():
                    tasks[name] = group.create_task(self._await_provider(turn, name, result))
        finally:
            timer.cancel()
        for name, task in tasks.items():
            result = self._timeout_failure(name, timed_out) if task.cancelled() else task.result()
            _store_result(turn.state, name, result)

    async def _await_provider(
        self, turn: Turn, name: str, awaitable: Awaitable[ProviderResult]
    ) -> ProviderResult | Failure:
        provider = self.registry.providers.get(name)
        trusted = provider is not None and self.registry.is_trusted(provider)
        started = time.monotonic()
        result = await run_isolated(awaitable, label=f"provider {name}", timeout=None, trusted=trusted)
        cause = result.cause if isinstance(result, Failure) else ""
        turn.trace.spans.append(("provider", name, started, time.monotonic(), cause))
        return result

    def _timeout_failure(self, name: str, timed_out: Collection[str]) -> Failure:
        cause = f"no answer within {self._timeout:g} s" if name in timed_out else "it cancelled itself"
        return log_failure(TimeoutError(cause), label=f"provider {name}", cause=cause)


def _cancel_tasks(tasks: Mapping[str, asyncio.Task[Any]], timed_out: set[str]) -> None:
    for name, task in tasks.items():
        if task.cancel():
            timed_out.add(name)


def _store_result(state: State, name: str, result: object) -> None:
    """Store the result of a provider, bounded; anything but a ProviderResult counts as a failure."""
    if not (problem := _find_problem(result)):
        assert isinstance(result, ProviderResult)
        is_long = len(result.text) > MAX_TEXT_LENGTH
        state.results[name] = _limit_result(result) if is_long or result.values else result
        if is_long:
            problem = f"its text was cut: {len(result.text)} characters, and {MAX_TEXT_LENGTH} are read"
    else:
        state.results[name] = ProviderResult()
    if problem:
        state.failures.append(ProviderFailure(name, problem))


def _find_problem(result: object) -> str:
    if isinstance(result, Failure):
        return result.cause
    if not isinstance(result, ProviderResult):
        return f"it gave {type(result).__name__}"
    if (type(result.text), type(result.values), type(result.data), type(result.authors)) in USUAL_TYPES:
        return ""
    if not isinstance(result.text, str):
        return f"its text is {type(result.text).__name__}"
    if not (isinstance(result.values, Mapping) and isinstance(result.data, Mapping)):
        return "its values or data are no mapping"
    if not (result.authors is None or isinstance(result.authors, Collection)):
        return "its authors are no collection of ids"
    return ""


def _limit_result(result: ProviderResult) -> ProviderResult:
    for text in (result.text, *result.values.values()):
        if isinstance(text, str) and len(text) > MAX_TEXT_LENGTH:
            break
    else:
        return result
    values = {key: _truncate(value) for key, value in result.values.items()}
    return replace(result, text=_truncate(result.text), values=values)


def _truncate(value: Any) -> Any:
    return value[:MAX_TEXT_LENGTH] if isinstance(value, str) else value


def _default_values(turn: Turn) -> dict[str, Any]:
    """Return the variables that every template can use, with or without providers; names are sanitized."""
    message, character = turn.message, turn.agent.character
    return {
        "agentName": sanitize_name(character.name),
        "characterBio": " ".join(character.background),
        "messageText": truncate_line(message.content.render_text(), MAX_OPEN_MESSAGE_LENGTH),
        "userName": sanitize_name(turn.author.name),
        "roomId": str(turn.room.id),
        "roomName": sanitize_name(turn.room.name) if turn.room.name else "",
        "worldContext": sanitize_name(turn.world.name) if turn.world.name else "",
        "actionNames": ", ".join(spec.name for spec in turn.actions),
        "relevantKnowledge": "",
        "recentMessages": "",
        "openMessages": "",
        "draftText": "",
        "actionResults": turn.state.data.get("actionResultsText", ""),
    }


Shortener = Callable[[str], str]


async def generate_text(
    turn: Turn, composer: Composer, request: Callable[[], TextRequest], kind: ModelType
) -> TextResult:
    """Generate a text; if the prompt is too long for the model, shorten it and try once more.

    `request` builds the request from the state. Raises PromptTooLong if shortening is impossible or not
    enough, and the errors of the router.
    """
    models = turn.agent.models
    try:
        return await models.text(request(), kind)
    except PromptTooLong:
        shortened_names = shorten_prompt(turn)
        if not shortened_names:
            raise
    turn.notes.append(f"the prompt was too long for the model; it was asked with less of {', '.join(shortened_names)}")
    composer.compose_text(turn)
    return await models.text(request(), kind)


def shorten_prompt(turn: Turn) -> list[str]:
    """Shorten the composed texts as each `ProviderSpec.shorten` says; return the names of those shortened."""
    state, shortened_names = turn.state, []
    specs = {spec.name: spec for spec in turn.agent.catalog.providers}
    for name in state.composed_providers:
        spec = specs.get(name)
        shortener = SHORTENERS.get(spec.shorten if spec is not None else Shortening.HEAD)
        if shortener is None:
            continue
        result = _shorten_result(state.results[name], shortener)
        if result != state.results[name]:
            state.results[name] = result
            shortened_names.append(name)
    state.is_shortened |= bool(shortened_names)
    return shortened_names


def _shorten_result(result: ProviderResult, shortener: Shortener) -> ProviderResult:
    values = {name: shortener(value) if isinstance(value, str) else value for name, value in result.values.items()}
    return replace(result, text=shortener(result.text), values=values)


def _keep_start(text: str) -> str:
    return text[: grapheme_boundary_before(text, MAX_SHORTENED_LENGTH)]


def _drop_text(text: str) -> str:
    return ""


_keep_newest = partial(truncate_history, max_length=MAX_SHORTENED_LENGTH)
SHORTENERS: Mapping[Shortening, Shortener] = MappingProxyType(
    {Shortening.HEAD: _keep_start, Shortening.TAIL: _keep_newest, Shortening.DROP: _drop_text}
)
