"""Runs providers, renders prompts, and fits a prompt to the model's context window."""

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any, TypeGuard
from uuid import UUID

from bot.concurrency.tasks import Failure, log_failure, run_isolated
from bot.domain.character import ProviderKind, ProviderSpec, Shortening
from bot.domain.content import Content, MediaKind
from bot.domain.ledger import ProviderFailure, ProviderResult, State
from bot.errors import ModelError, PromptTooLong, TemplateError
from bot.models.handler import count_prompt_bytes
from bot.models.types import ModelType, Purpose, TextRequest, TextResult
from bot.plugin_system.components import Provider
from bot.plugin_system.registry import Registry
from bot.prompts.template_language import render_template
from bot.prompts.templates import CARE_RULE, IDENTITY_RULE, NO_ROMANCE_RULE, SYSTEM, find_field_conditions, request_json
from bot.receipts import ALL_PROVIDERS, SEPARATOR, NotedAnswer
from bot.settings import MinorRule
from bot.text import grapheme_boundary_before, truncate_history
from bot.turn import Turn
from bot.user_texts import translate

logger = logging.getLogger(__name__)

MAX_TEXT_LENGTH = 262_144
PROVIDER_OUTCOMES = (ProviderResult, Failure)
# The types of nearly all results: these need no closer look.
CONTEXT_KINDS = (ProviderKind.PARTICIPANTS, ProviderKind.WORLD)
MAX_TRIES = (
    4  # for a prompt whose length a server refuses; it is halved where the server does not say how long it may be
)
MIN_MESSAGE_LENGTH = 200  # characters of a message to answer, in the smallest prompt
# Which texts are shortened first, and what remains of each: a part of the longest prompt.
FITTING_STEPS = (
    (Shortening.TAIL, 1 / 3),
    (Shortening.HEAD, 1 / 8),
    (Shortening.DROP, 0.0),
    (Shortening.TAIL, 1 / 6),
    (Shortening.HEAD, 0.0),
    (Shortening.KEEP, 1 / 8),
)


class Composer:
    """Composes a turn's state from the registry's providers and renders prompts from it."""

    def __init__(self, registry: Registry) -> None:
        self.registry = registry
        self._has_shortened = False

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

    def context_providers(self, turn: Turn) -> list[str]:
        """Return the providers of every answer beside the default ones: people, place, and files of its messages."""
        contents = (item.message.content for item in turn.inputs)
        with_files = (content for content in contents if content.attachments or content.quotation is not None)
        files = (item for content in with_files for item in content.all_attachments if item.kind is not MediaKind.LINK)
        kinds = (*CONTEXT_KINDS, ProviderKind.ATTACHMENTS) if any(files) else CONTEXT_KINDS
        return self.registry.provider_names(*kinds)

    def compose_text(self, turn: Turn) -> None:
        """Build text, values and `data["providers"]` of the state from the providers composed last."""
        state = turn.state
        results = [state.results[name] for name in state.composed_providers]
        state.text = SEPARATOR.join(result.text for result in results if result.text)
        turn.trace.composed = (state.composed_providers, results, state.text)
        state.values = {**turn.template_values(), "providers": state.text}
        for result in results:
            state.values.update(result.values)
        state.data["providers"] = dict(zip(state.composed_providers, results, strict=True))

    def note_shortening(self, turn: Turn, names: str, max_bytes: int) -> None:
        """Note in the receipt, and log once, that a prompt was shortened."""
        turn.notes.append(f"the prompt was too long for the model; it was asked with less of {names}")
        if not self._has_shortened:
            self._has_shortened = True
            logger.warning(
                "prompts are shortened to the %d bytes that the model can read: less of %s",
                max_bytes,
                names,
                extra={"once": True},
            )

    def missing_providers(self, turn: Turn, names: Iterable[str]) -> list[str]:
        """Return those of `names` that are available to a model and have not run in this turn."""
        providers = (self.registry.find_provider(name) for name in names)
        results = turn.state.results
        specs = [provider.spec for provider in providers if provider is not None]
        return [spec.name for spec in specs if not spec.is_hidden and spec.name not in results]

    def render(self, turn: Turn, template: str, **values: Any) -> str:
        """Render a template of the turn's world or agent with the values composed last."""
        return render_template(turn.find_template(template), {**_values_of(turn), **values})

    def build_request(self, turn: Turn, template: str, purpose: Purpose, kind: ModelType, **values: Any) -> TextRequest:
        """Return the request of a template's answer: as JSON with its schema where the model's server writes such, else
        in the form of the template.
        """
        values, schema = {**_values_of(turn), **values}, None
        model = turn.model_name if kind is turn.reply_model else ""
        source = turn.find_template(template)
        if turn.agent.models.can_write_json(kind):
            known = frozenset(name for name in find_field_conditions(source) if values.get(name))
            source, schema = request_json(source, known) or (source, None)
        prompt = render_template(source, values)
        return TextRequest(prompt, purpose=purpose, system=self.render_system(turn), schema=schema, model=model)

    def render_notice(self, turn: Turn, template: str) -> Content | None:
        """Render a notice that no model writes, in the current language if it is a default; None without a template."""
        if not template:
            return None
        return Content(text=render_template(translate(turn.find_template(template)), _values_of(turn)))

    def render_system(self, turn: Turn) -> str:
        """Render the character's system prompt, or the default one, followed by the instructions of the room and what
        holds for every character.
        """
        rules, values = [IDENTITY_RULE], _values_of(turn)
        if turn.has_minor and MinorRule.NO_ROMANCE in turn.minor_rules:
            rules.append(NO_ROMANCE_RULE)
        if turn.is_care:
            rules.append(CARE_RULE)
        source = turn.agent.character.system or turn.find_template(SYSTEM)
        try:
            source = render_template(source, values)
        except TemplateError:  # `system` of a character may hold any braces; the check of its file tells
            logger.debug("the system prompt of %s is used as it is", turn.agent.name)
        return "\n".join(filter(None, [source, turn.instructions.text, *rules]))

    def _select_providers(self, include: Collection[str], *, only_included: bool) -> list[Provider]:
        providers, find_provider = self.registry.providers, self.registry.find_provider
        included = [providers.get(name) or find_provider(name) for name in include]
        included_names = {provider.spec.name for provider in included if provider is not None}
        return [
            provider
            for provider in self.registry.prompt_providers
            if provider.spec.name in included_names
            or not (only_included or provider.spec.is_dynamic or provider.spec.is_hidden)
        ]

    async def _run_providers(self, turn: Turn, providers: Sequence[Provider]) -> None:
        """Run plain providers one by one, then the async ones concurrently, each within its timeout."""
        results: dict[str, object] = {}
        for provider in providers:
            name = provider.spec.name
            try:
                results[name] = provider.handler(turn)
            except BaseException as error:  # plugin code may raise anything, SystemExit included
                results[name] = log_failure(error, label=f"provider {name}")
        pending: dict[str, Awaitable[ProviderResult]] = {}
        timeouts = {provider.spec.name: provider.spec.timeout for provider in providers}
        for name, result in results.items():
            if not isinstance(result, PROVIDER_OUTCOMES) and isinstance(result, Awaitable):
                pending[name] = result
            else:
                _store_result(turn.state, name, result)
        if not pending:
            return
        tasks: dict[str, asyncio.Task[ProviderResult | Failure]] = {}
        timed_out: set[str] = set()
        loop, timers = asyncio.get_running_loop(), []
        for seconds in {timeouts[name] for name in pending}:  # nearly always one
            names = [name for name in pending if timeouts[name] == seconds]
            timers.append(loop.call_later(seconds, _cancel_tasks, names, tasks, timed_out))
        try:
            async with asyncio.TaskGroup() as group:
                for name, awaitable in pending.items():
                    tasks[name] = group.create_task(self._await_provider(turn, name, awaitable))
        finally:
            for timer in timers:
                timer.cancel()
        for name, task in tasks.items():
            failure = _timeout_failure(name, timeouts[name] if name in timed_out else 0.0) if task.cancelled() else None
            _store_result(turn.state, name, failure or task.result())

    async def _await_provider(
        self, turn: Turn, name: str, awaitable: Awaitable[ProviderResult]
    ) -> ProviderResult | Failure:
        provider = self.registry.providers.get(name)
        trusted = provider is not None and id(provider) in self.registry.trusted_ids
        started = time.monotonic()
        result: ProviderResult | Failure
        if trusted:
            try:
                result = await awaitable
            except Exception as error:  # as in `run_isolated`, where code may also swallow its cancellation
                result = log_failure(error, label=f"provider {name}")
        else:
            result = await run_isolated(awaitable, label=f"provider {name}", timeout=None)
        cause = result.cause if isinstance(result, Failure) else ""
        turn.trace.spans.append(("provider", name, started, time.monotonic(), cause))
        return result


def _values_of(turn: Turn) -> Mapping[str, Any]:
    """Return the values composed last, which have those of every template, else the latter."""
    state = turn.state
    return state.values if state.composed_providers else {**turn.template_values(), **state.values}


def _cancel_tasks(names: Iterable[str], tasks: Mapping[str, asyncio.Task[Any]], timed_out: set[str]) -> None:
    timed_out.update(name for name in names if tasks[name].cancel())


def _timeout_failure(name: str, seconds: float) -> Failure:
    """Return the failure of a provider that took so many seconds; of one that cancelled itself where they are 0."""
    cause = f"no answer within {seconds:g} s" if seconds else "it cancelled itself"
    return log_failure(TimeoutError(cause), label=f"provider {name}", cause=cause)


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
        if not isinstance(result, Failure):  # which is logged already
            logger.warning("provider %s failed: %s", name, problem)


def _find_problem(result: object) -> str:
    if isinstance(result, Failure):
        return result.cause
    if not isinstance(result, ProviderResult):
        return f"it gave {type(result).__name__}"
    if not (result.authors is None or are_authors(result.authors)):
        return "its authors are no collection of the ids of people"
    if not isinstance(result.text, str):
        return f"its text is {type(result.text).__name__}"
    if not (isinstance(result.values, Mapping) and isinstance(result.data, Mapping)):
        return "its values or data are no mapping"
    return ""


def are_authors(value: object) -> TypeGuard[Collection[UUID]]:
    """Return whether something that a plugin gave as authors is a collection of ids."""
    return isinstance(value, Collection) and all(isinstance(author, UUID) for author in value)


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


async def generate_text(
    turn: Turn, composer: Composer, request: Callable[[], TextRequest], kind: ModelType
) -> TextResult:
    """Generate a text; the prompt is shortened to the model's context window, and where a server refuses its length.

    `request` builds the request from the state. Raises PromptTooLong if shortening is impossible or not
    enough, and the errors of the router.
    """
    models, state, trace = turn.agent.models, turn.state, turn.trace
    built = request()
    profile = await models.profile(kind)
    max_bytes = profile.max_prompt_bytes(built) if profile is not None else None
    outcome: TextResult | ModelError | asyncio.CancelledError | None = None
    try:
        for tries_left in reversed(range(MAX_TRIES)):
            if max_bytes is not None and count_prompt_bytes(built) > max_bytes:
                built = fit_prompt(turn, composer, request, max_bytes)
            try:
                outcome = await models.text(built, kind)
                return outcome
            except PromptTooLong:
                if not tries_left:
                    raise
                learned = profile.max_prompt_bytes(built) if profile is not None else None
                max_bytes = learned if learned != max_bytes else count_prompt_bytes(built) // 2
        raise AssertionError  # the last try returns or raises
    except (ModelError, asyncio.CancelledError) as error:
        outcome = error
        raise
    finally:
        if outcome is not None:
            noted = NotedAnswer(built, trace.composed, state.is_shortened, state.max_message_length, outcome)
            trace.answers.append(noted)


def fit_prompt(turn: Turn, composer: Composer, request: Callable[[], TextRequest], max_bytes: int) -> TextRequest:
    """Return the request with texts of providers shortened, as each `ProviderSpec.shorten` says, until it fits.

    If that is not enough, the messages to answer are shortened too. Raises PromptTooLong if nothing was shortened.
    """
    state, shortened = turn.state, dict[str, None]()
    specs = {spec.name: spec for spec in turn.agent.catalog.providers}
    state.is_shortened = True  # from here on the messages to answer are listed apart
    built = request()
    for kind, share in FITTING_STEPS:
        names = [name for name in state.composed_providers if _shortening(specs.get(name)) is kind]
        for name in sorted(names, key=lambda name: -len(state.results[name].text)):
            excess = count_prompt_bytes(built) - max_bytes
            if excess <= 0:
                break
            result = _shorten_result(state.results[name], kind, excess, int(share * max_bytes))
            if result != state.results[name]:
                state.results[name] = result
                shortened[name] = None
                composer.compose_text(turn)
                built = request()
    if (excess := count_prompt_bytes(built) - max_bytes) > 0:
        length = max(map(len, (turn_input.message.content.render_text() for turn_input in turn.inputs)))
        state.max_message_length = max(MIN_MESSAGE_LENGTH, min(length, max_bytes) - excess)
        built = request()
    if not shortened:
        raise PromptTooLong(
            f"the prompt has {count_prompt_bytes(built)} bytes, and {max_bytes} fit; nothing in it can be shortened"
        )
    composer.note_shortening(turn, ", ".join(shortened), max_bytes)
    return built


def _shortening(spec: ProviderSpec | None) -> Shortening:
    return spec.shorten if spec is not None else Shortening.HEAD


def _shorten_result(result: ProviderResult, kind: Shortening, excess: int, least: int) -> ProviderResult:
    """Return a result with its text shorter by `excess` bytes, but no shorter than `least` characters."""

    def shorten(text: str) -> str:
        share = 1 - excess / max(1, len(text.encode("utf-8", "surrogatepass")))
        length = max(least, int(len(text) * share))
        if kind is Shortening.DROP or length <= 0:
            return ""
        if kind is Shortening.TAIL:
            text = truncate_history(text, max_length=length)
        return text if length >= len(text) else text[: grapheme_boundary_before(text, length)]

    values = {name: shorten(value) if isinstance(value, str) else value for name, value in result.values.items()}
    return replace(result, text=shorten(result.text), values=values)
