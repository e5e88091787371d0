"""The other components of a plugin: Provider, Evaluator, Filter, Listener, Model, Service, Worker.

Actions: functions that the model calls like tools.

Commands: what users ask the bot itself, the same on every platform.

HTTP routes of plugins: the decorator, static folders, and webhooks that are signed.
"""

import asyncio
import hmac
import inspect
import logging
import mimetypes
import re
from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import Enum
from functools import lru_cache
from inspect import ismethod
from pathlib import Path
from types import MethodType, TracebackType
from typing import (
    Annotated,
    Any,
    ClassVar,
    Concatenate,
    Generic,
    ParamSpec,
    Protocol,
    Self,
    TypeVar,
    get_args,
    get_origin,
    get_type_hints,
)

from pydantic import BaseModel, ConfigDict, Field, create_model
from pydantic.errors import PydanticUserError
from pydantic.json_schema import GenerateJsonSchema

from bot.domain.character import (
    DEFAULT_AUTHORITY,
    MAX_DEADLINE,
    ActionSpec,
    CommandSpec,
    Confirmation,
    Effect,
    EvaluatorSpec,
    ExampleLine,
    FilterSpec,
    ProviderKind,
    ProviderSpec,
    Shortening,
)
from bot.domain.environment import Authority, Role, Room, World
from bot.domain.events import Event
from bot.domain.filters import Direction, FilterDecision, FilterInput, OnFailure
from bot.domain.inbound import CommandInvocation, CommandResponse
from bot.domain.ledger import ActionPreview, ActionResult, ProviderResult
from bot.domain.task import Task
from bot.errors import PluginError
from bot.http import DEFAULT_BODY_BYTES, MAX_BODY_BYTES, RouteRequest, RouteResponse, RouteScope
from bot.models.types import ModelInfo, ModelResult, ModelType
from bot.settings import Settings
from bot.turn import Agent, Turn

P = ParamSpec("P")
TurnCondition = Callable[[Turn], Awaitable[bool] | bool]
Preview = Callable[..., Awaitable[ActionPreview | ActionResult]]
PURE_AUTHORITY = replace(Authority.harmless("it changes nothing"), is_default=True)
ACTION_NAME_PATTERN = re.compile(r"[A-Z][A-Z0-9_]*")


@dataclass(frozen=True, slots=True)
class Action(Generic[P]):
    """An action: its description, the model of its arguments, and its function.

    `preview` returns what a call would do, for the people who confirm it.
    """

    spec: ActionSpec
    handler: Callable[Concatenate[Turn, P], Awaitable[ActionResult | bool | None]]
    arguments: type[BaseModel]
    when: TurnCondition | None = None
    preview: Preview | None = None

    async def __call__(self, turn: Turn, /, *args: P.args, **kwargs: P.kwargs) -> ActionResult | bool | None:
        return await self.handler(turn, *args, **kwargs)

    async def run(self, turn: Turn, arguments: Mapping[str, Any]) -> ActionResult | bool | None:
        """Validate the arguments and call the function.

        Raises pydantic's ValidationError, before the call, if they do not fit the signature.
        """
        handler: Callable[..., Awaitable[ActionResult | bool | None]] = self.handler
        return await handler(turn, **self.validate(arguments))

    def validate(self, arguments: Mapping[str, Any]) -> dict[str, Any]:
        """Return all arguments, converted and with their defaults. Raises pydantic's ValidationError."""
        validated = self.arguments.model_validate(dict(arguments))
        fields = self.arguments.model_fields
        return {field.alias or name: getattr(validated, name) for name, field in fields.items()}


def action(
    name: str,
    description: str,
    *,
    similes: Sequence[str] = (),
    when: TurnCondition | None = None,
    role: Role = Role.NONE,
    effect: Effect = Effect.UNSAFE,
    critical: bool = False,
    examples: Sequence[Sequence[ExampleLine]] = (),
    authority: Authority | None = None,
    preview: Preview | None = None,
    confirm: Confirmation = "answer",
    deadline: float | None = None,
) -> Callable[[Callable[Concatenate[Turn, P], Awaitable[ActionResult | bool | None]]], Action[P]]:
    """Return a decorator that makes an action of an async function whose first parameter is the turn.

    The other parameters are the arguments that the model gives; `Annotated[str, "The city's name"]` describes
    one. `when`, plain or async, returns whether the action is available now; `role` is the role it needs;
    `effect` says what repeating it does; the failure of a `critical` one ends the chain. `authority` says what
    must be known before it runs: by default nothing for a PURE one; any other must be named in the asker's own
    message with all its arguments, or be confirmed, if the prompt contains words of people with less authority.
    `preview`, async and with the same parameters, returns what a call would do as an ActionPreview, or a failed
    ActionResult to refuse it. With `confirm="code"` a confirmation takes the button or the code of the question, in
    private chats too: for roles, money and deletion. `deadline` is in seconds, at most 1,800 and by default 60: an
    action that takes longer fails. After five seconds the room is told that it is under way, and
    `Turn.report_progress` edits that message. Raises PluginError for a name that is not UPPER_SNAKE, for a parameter
    without a type or of a type unknown to JSON, and for another deadline.
    """

    def decorate(handler: Callable[Concatenate[Turn, P], Awaitable[ActionResult | bool | None]]) -> Action[P]:
        check_name(name, "action")
        check_async(handler, name, "action")
        what = f"action {name}"
        check_types(what, description=(description, str), similes=(similes, Sequence), examples=(examples, Sequence))
        check_types(what, role=(role, Role), effect=(effect, Effect), deadline=(deadline, NUMBER | None))
        check_types(what, authority=(authority, Authority | None), when=(when, CONDITION), preview=(preview, CONDITION))
        if deadline is not None and not 0 < deadline <= MAX_DEADLINE:
            raise PluginError(f"action {name}: its deadline is {deadline:g} s; give it at most {MAX_DEADLINE:g} s")
        try:
            arguments = build_arguments_model(handler, name)
            schema = arguments.model_json_schema(schema_generator=_SchemaWithoutTitles)
            schema.pop("title", None)
        except (NameError, TypeError, PydanticUserError) as error:
            raise PluginError(f"action {name}: its parameters cannot be described: {error}") from error
        spec = ActionSpec(
            name=name,
            description=description,
            similes=tuple(similes),
            parameters=schema,
            role=role,
            effect=effect,
            is_critical=critical,
            examples=tuple(tuple(lines) for lines in examples),
            authority=authority or (PURE_AUTHORITY if effect is Effect.PURE else DEFAULT_AUTHORITY),
            confirm=confirm,
            deadline=deadline,
        )
        return Action(spec, handler, arguments, when, preview)

    return decorate


class _SchemaWithoutTitles(GenerateJsonSchema):
    """Builds schemas without titles: they repeat the names and cost tokens in every prompt."""

    def field_title_should_be_set(self, schema: object) -> bool:
        return False


NUMBER: Any = int | float
CONDITION: Any = Callable | None
TYPE_NAMES: Mapping[Any, str] = {
    type: "a class",
    type(None): "None",
    Callable: "a function",
    Sequence: "a list",
    Mapping: "a dictionary",
}


def check_types(label: str, **given: tuple[object, Any]) -> None:
    """Raise PluginError for the first value that is not of its type; a text does not count as a list."""
    for name, (value, kind) in given.items():
        if isinstance(value, kind) and not (kind is Sequence and isinstance(value, str)):
            continue
        kinds = get_args(kind) or (kind,)
        members = [f", such as {item.__name__}.{[*item][-1].name}" for item in kinds if issubclass(item, Enum)]
        expected = " or ".join(TYPE_NAMES.get(item, item.__name__) for item in kinds) + "".join(members)
        raise PluginError(f"{label}: {name} is {value!r:.80}: it must be {expected}")


def check_async(handler: Callable[..., Any], name: str, kind: str) -> None:
    """Raise PluginError for the function of a component that is not async: its result would be awaited."""
    candidates = (handler, inspect.unwrap(handler), type(handler).__call__)
    if not any(map(inspect.iscoroutinefunction, candidates)):
        raise PluginError(f"{kind} {name}: its function must be async: write `async def`")


def check_name(name: str, kind: str) -> None:
    """Raise PluginError for a component's name that is not UPPER_SNAKE."""
    if not ACTION_NAME_PATTERN.fullmatch(name):
        raise PluginError(f"{kind} {name!r}: a component's name is UPPER_SNAKE, as in FOLLOW_ROOM")


def build_arguments_model(handler: Callable[..., Any], name: str, *, kind: str = "action") -> type[BaseModel]:
    """Return the pydantic model of a handler's parameters after its context. Raises PluginError.

    Fields are numbered and have the parameters' names as aliases, because a parameter may have the name of
    an attribute of pydantic's models.
    """
    hints = get_type_hints(handler, include_extras=True)
    fields: dict[str, Any] = {}
    parameters = list(inspect.signature(handler).parameters.values())
    if not parameters:
        raise PluginError(f"{kind} {name}: it needs a first parameter for its context, and it has none")
    for number, parameter in enumerate(parameters[1:]):
        if parameter.kind not in (parameter.POSITIONAL_OR_KEYWORD, parameter.KEYWORD_ONLY):
            raise PluginError(f"{kind} {name}: parameter {parameter} cannot be given by name")
        if parameter.name not in hints:
            raise PluginError(f"{kind} {name}: parameter {parameter.name!r} needs a type")
        default = ... if parameter.default is parameter.empty else parameter.default
        hint = hints[parameter.name]
        details = get_args(hint)[1:] if get_origin(hint) is Annotated else ()
        description = next((detail for detail in details if isinstance(detail, str)), None)
        field = Field(default, alias=parameter.name, description=description)
        fields[f"parameter_{number}"] = (hint, field)
    return create_model(name, __config__=ConfigDict(extra="forbid", title=name), **fields)


MAX_PROVIDER_TIMEOUT = 15.0
ProviderHandler = Callable[[Turn], Awaitable[ProviderResult] | ProviderResult]
E = TypeVar("E", bound=Event)


@dataclass(frozen=True, slots=True)
class Provider:
    """A provider: its description, and the function that returns its text and values."""

    spec: ProviderSpec
    handler: ProviderHandler

    async def __call__(self, turn: Turn, /) -> ProviderResult:
        result = self.handler(turn)
        return await result if isinstance(result, Awaitable) else result


def provider(
    name: str,
    description: str,
    *,
    position: int = 0,
    dynamic: bool = False,
    hidden: bool = False,
    kind: ProviderKind = ProviderKind.OTHER,
    shorten: Shortening | None = None,
    trusted_content: bool = False,
    timeout: float = 5.0,
) -> Callable[[ProviderHandler], Provider]:
    """Return a decorator that makes a provider of a function, async or plain, that takes the turn.

    `position` orders the texts in the prompt: a text that rarely changes belongs first, so that a model
    provider's prompt cache hits. A dynamic provider is composed when the model asks for it. A hidden one is
    composed only where code asks for it by name: the model is not told of it. It was called private, but its
    text is no more secret than any other. `kind` says what the text is for, `shorten` what remains of it in a
    prompt that is too long (default: nothing of a dynamic one, else its beginning). `timeout` is in seconds, at most
    15: every answer may have to wait for so long. `trusted_content` of earlier
    versions is kept in the catalog; who wrote a text is
    said by `ProviderResult.authors`. Raises PluginError for a name that is not UPPER_SNAKE.
    """

    def decorate(handler: ProviderHandler) -> Provider:
        check_name(name, "provider")
        check_types(
            f"provider {name}",
            description=(description, str),
            position=(position, NUMBER),
            kind=(kind, ProviderKind),
            shorten=(shorten, Shortening | None),
            timeout=(timeout, NUMBER),
        )
        if not 0 < timeout <= MAX_PROVIDER_TIMEOUT:
            raise PluginError(
                f"provider {name}: its timeout is {timeout:g} s; give it at most {MAX_PROVIDER_TIMEOUT:g} s"
            )
        shortening = shorten or (Shortening.DROP if dynamic else Shortening.HEAD)
        spec = ProviderSpec(
            name,
            description,
            is_dynamic=dynamic,
            is_hidden=hidden,
            position=position,
            kind=kind,
            shorten=shortening,
            is_trusted_content=trusted_content,
            timeout=timeout,
        )
        return Provider(spec, handler)

    return decorate


EvaluatorHandler = Callable[[Turn], Awaitable[None]]


@dataclass(frozen=True, slots=True)
class Evaluator:
    """An evaluator: its description, its condition, and its function."""

    spec: EvaluatorSpec
    handler: EvaluatorHandler
    when: TurnCondition | None = None

    async def __call__(self, turn: Turn, /) -> None:
        await self.handler(turn)


def evaluator(
    name: str,
    description: str,
    *,
    similes: Sequence[str] = (),
    when: TurnCondition | None = None,
    always_run: bool = False,
) -> Callable[[EvaluatorHandler], Evaluator]:
    """Return a decorator that makes an evaluator of an async function that takes the finished turn.

    It runs after the reply if `when`, plain or async, returns true; with `always_run` also for messages
    without an answer.
    Raises PluginError for a name that is not UPPER_SNAKE.
    """

    def decorate(handler: EvaluatorHandler) -> Evaluator:
        check_name(name, "evaluator")
        check_async(handler, name, "evaluator")
        check_types(
            f"evaluator {name}", description=(description, str), similes=(similes, Sequence), when=(when, CONDITION)
        )
        return Evaluator(EvaluatorSpec(name, description, tuple(similes), always_run), handler, when)

    return decorate


MAX_FILTER_TIMEOUT = 10.0
FilterAnswer = FilterDecision | None
FilterHandler = Callable[[Agent, FilterInput], Awaitable[FilterAnswer] | FilterAnswer]
FilterCondition = Callable[[Agent, Room, World], bool]


@dataclass(frozen=True, slots=True)
class Filter:
    """A filter: its description, its condition, and the function that decides about a text."""

    spec: FilterSpec
    handler: FilterHandler
    when: FilterCondition | None = None

    async def __call__(self, agent: Agent, given: FilterInput, /) -> FilterAnswer:
        answer = self.handler(agent, given)
        return await answer if isinstance(answer, Awaitable) else answer


def filter(
    direction: Direction,
    name: str = "",
    description: str = "",
    *,
    on_failure: OnFailure = "open",
    timeout: float = 2.0,
    when: FilterCondition | None = None,
) -> Callable[[FilterHandler], Filter]:
    """Return a decorator that makes a filter of a function, async or plain, that takes the agent and a text.

    An `in` filter checks each message before it is decided whether to answer, an `out` filter each reply and post
    before it is committed. The function returns a `FilterDecision`, or None where the text passes. Name and
    description are by default those of the function and its docstring. `timeout` is in seconds, at most 10. If the
    function fails or gives no answer in time, the text passes, or is stopped with `on_failure="closed"`. `when`, a
    plain function, returns whether the filter is used in a room; where an `out` filter is, nothing is streamed. Raises
    PluginError for a name that is not UPPER_SNAKE, and for another direction, timeout or `on_failure`.
    """

    def decorate(handler: FilterHandler) -> Filter:
        own_name = name or handler.__name__.upper()
        check_name(own_name, "filter")
        if direction not in get_args(Direction) or on_failure not in get_args(OnFailure):
            problem = f"{direction!r} and on_failure={on_failure!r}"
            raise PluginError(f'filter {own_name}: {problem}: use "in" or "out", and "open" or "closed"')
        check_types(f"filter {own_name}", timeout=(timeout, NUMBER), when=(when, CONDITION))
        if not 0 < timeout <= MAX_FILTER_TIMEOUT:
            raise PluginError(
                f"filter {own_name}: its timeout is {timeout:g} s; give it at most {MAX_FILTER_TIMEOUT:g} s"
            )
        summary = description or (inspect.getdoc(handler) or "").partition("\n")[0]
        return Filter(FilterSpec(own_name, summary, direction, on_failure, timeout), handler, when)

    return decorate


ListenerHandler = Callable[[Agent, E], Awaitable[None] | None]


@dataclass(frozen=True, slots=True)
class Listener(Generic[E]):
    """A listener: the event class and the function that is called.

    An immediate listener is a plain function called before `emit` returns; others run in the background.
    """

    kind: type[E]
    handler: ListenerHandler[E]
    is_immediate: bool = False

    def __call__(self, agent: Agent, event: E, /) -> Any:
        return self.handler(agent, event)


def on(kind: type[E]) -> Callable[[ListenerHandler[E]], Listener[E]]:
    """Return a decorator that makes a listener of a function that takes the agent and an event of this class.

    An async function runs in the background. A plain one is called immediately and must return quickly. Raises
    PluginError for anything but a class of events.
    """

    if not (isinstance(kind, type) and issubclass(kind, Event)):
        raise PluginError(f"a listener of {kind!r:.80}: write the class of an event, such as MessageReceived")

    def decorate(handler: ListenerHandler[E]) -> Listener[E]:
        return Listener(kind, handler, is_immediate=not inspect.iscoroutinefunction(handler))

    return decorate


ModelFunction = Callable[[Agent, Any], Awaitable[ModelResult]]


SettingsCondition = Callable[[Settings], bool]


@dataclass(frozen=True, slots=True)
class Model:
    """A model handler: the model type it serves, its priority, and the function that asks the model.

    It is registered for an agent if `when` holds for its settings, which also decide whether it calls tools.
    `has_tools_now`, if set, can say no later, when the server has told what its model can do.
    """

    type: ModelType
    handler: ModelFunction
    priority: int = 0
    can_call_tools: SettingsCondition = lambda settings: False
    when: SettingsCondition = lambda settings: True
    has_tools_now: Callable[[Agent], bool] | None = None
    can_write_json: Callable[[Agent], bool] | None = None
    describe_model: Callable[[Agent], Awaitable[ModelInfo]] | None = None

    async def __call__(self, agent: Agent, request: Any, /) -> ModelResult:
        return await self.handler(agent, request)


def model(
    kind: ModelType,
    *,
    priority: int = 0,
    can_call_tools: bool | SettingsCondition = False,
    when: SettingsCondition = lambda settings: True,
    has_tools_now: Callable[[Agent], bool] | None = None,
    can_write_json: Callable[[Agent], bool] | None = None,
    describe_model: Callable[[Agent], Awaitable[ModelInfo]] | None = None,
) -> Callable[[ModelFunction], Model]:
    """Return a decorator that makes a model handler of an async function that takes the agent and a request.

    The function raises ModelBusy to be asked again, ModelRefused where a retry cannot help, ModelError for
    the rest; then the handler with the next priority is asked. With `can_call_tools` it receives the tools of
    a request and may return calls, unless `has_tools_now` says for the running agent that its model cannot.
    `can_write_json` says for the running agent whether its server makes the model write JSON that fits the schema of
    a request; then such answers are requested in that form. `describe_model` returns for the running agent what is
    known of the model that will answer, such as its context window, to which prompts are fitted; it is awaited before
    each call.
    """
    supports_tools = can_call_tools if callable(can_call_tools) else lambda settings: bool(can_call_tools)

    def decorate(handler: ModelFunction) -> Model:
        check_types("a model handler", kind=(kind, ModelType), priority=(priority, NUMBER), when=(when, Callable))
        check_async(handler, str(kind.value), "model")
        return Model(kind, handler, priority, supports_tools, when, has_tools_now, can_write_json, describe_model)

    return decorate


class ServiceScope(Protocol):
    """What the runtime lends to a service while it runs: it owns the service's tasks and registrations."""

    def start_task(self, work: Coroutine[Any, Any, None]) -> None:
        """Run work in a task that is cancelled before the service stops."""

    def register(self, component: object) -> Callable[[], None]:
        """Register a component that is removed when the service stops."""


class Service:
    """An async context manager opened and closed with the agent: a session, a socket, a cache.

    Built by `start`, with the agent as its argument. `capability` is one sentence on what it lets the character do.
    It starts after the services of the classes in `uses`, or derived from them, and stops before they do. One
    that `uses_models` starts after the services of the plugins that bring models. `scope` is set by the runtime
    before it starts the service.
    """

    capability: ClassVar[str] = ""
    uses: ClassVar[tuple[type, ...]] = ()
    uses_models: ClassVar[bool] = False

    scope: ServiceScope | None = None

    def __init_subclass__(cls, **details: Any) -> None:
        """Take the capability from its name in elizaOS, too."""
        super().__init_subclass__(**details)
        names = ("capability", "capabilityDescription", "capability_description")
        capabilities = (getattr(cls, name, "") for name in names)
        cls.capability = next((capability for capability in capabilities if capability), "")

    def __init__(self, agent: Agent) -> None:
        self.agent = agent

    @classmethod
    async def start(cls, agent: Agent) -> Self:
        """Return the service for an agent. It has no tasks and components before it is entered."""
        return cls(agent)

    async def stop(self) -> None:
        """Stop; called by `__aexit__`, so that a service that is no context manager needs no other method."""

    def start_task(self, work: Coroutine[Any, Any, None]) -> None:
        """Run work in the background while the service runs.

        If it raises, the service is stopped and started again, after a delay that grows. Raises PluginError
        outside of an agent.
        """
        self._require_scope().start_task(work)

    def register(self, component: object) -> Callable[[], None]:
        """Register an action, provider, evaluator, worker or listener while the service runs.

        The returned function removes it earlier. Raises PluginError as `Components.register` does.
        """
        return self._require_scope().register(component)

    def _require_scope(self) -> ServiceScope:
        if self.scope is None:
            raise PluginError(f"service {type(self).__name__} is not run by an agent: it has no tasks and components")
        return self.scope

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Stop."""
        await self.stop()


MAX_WORKER_DEADLINE = 86_400.0
WorkerHandler = Callable[[Agent, Task], Awaitable[None]]
TaskCondition = Callable[[Agent, Task], Awaitable[bool]]


async def _always_run(agent: Agent, task: Task) -> bool:
    return True


@dataclass(frozen=True, slots=True)
class Worker:
    """A worker: the name of its tasks, its timeout in seconds, and the function that runs a task.

    `validate` decides before each run whether the task runs now.
    """

    name: str
    handler: WorkerHandler
    deadline: float = 300.0
    validate: TaskCondition = _always_run

    async def __call__(self, agent: Agent, task: Task, /) -> None:
        await self.handler(agent, task)


def worker(
    name: str, *, deadline: float = 300.0, validate: TaskCondition = _always_run
) -> Callable[[WorkerHandler], Worker]:
    """Return a decorator that makes a worker of an async function that takes the agent and the task.

    A task may run again after a crash: `task.attempts` counts, and `task.run_key` is the same in all attempts
    of a run. `deadline` is in seconds, at most a day: a run is stopped shortly before, and after a crash it is
    repeated then at the latest. If `validate` returns false, a repeating task waits for its next time,
    and another is checked again after a minute. Raises PluginError for a name that is not UPPER_SNAKE, and for
    another deadline.
    """

    def decorate(handler: WorkerHandler) -> Worker:
        check_name(name, "worker")
        check_async(handler, name, "worker")
        check_types(f"worker {name}", deadline=(deadline, NUMBER), validate=(validate, Callable))
        if not 0 < deadline <= MAX_WORKER_DEADLINE:
            raise PluginError(f"worker {name}: its deadline is {deadline:g} s; give it at most a day")
        return Worker(name, handler, deadline, validate)

    return decorate


CommandResult = str | CommandResponse | None
COMMAND_NAME_PATTERN = re.compile(r"[a-z][a-z0-9-]{0,31}")


@dataclass(frozen=True, slots=True)
class CommandContext:
    """The first argument of a command handler: the agent, the invocation, and the sender's current role.

    `account_commands` are the commands that the platform has beside those of every bot.
    """

    agent: Agent
    invocation: CommandInvocation
    role: Role
    account_commands: tuple[CommandSpec, ...] = ()

    @property
    def is_room_admin(self) -> bool:
        """Whether the sender may change settings of the room: a direct chat, or an admin of its world."""
        return self.invocation.room.type.is_direct or self.role.is_at_least(Role.ADMIN)


@dataclass(frozen=True, slots=True)
class Command(Generic[P]):
    """A command: its description, the model of its arguments, and its function."""

    spec: CommandSpec
    handler: Callable[Concatenate[CommandContext, P], Awaitable[CommandResult]]
    arguments: type[BaseModel]
    is_ephemeral: bool = True

    async def __call__(self, context: CommandContext, /, *args: P.args, **kwargs: P.kwargs) -> CommandResult:
        return await self.handler(context, *args, **kwargs)

    def is_allowed(self, context: CommandContext) -> bool:
        """Whether the sender may use the command here."""
        is_open = self.spec.is_open_in_direct_chat and context.invocation.room.type.is_direct
        return is_open or context.role.is_at_least(self.spec.role)

    def parse_arguments(self, invocation: CommandInvocation) -> dict[str, Any]:
        """Return the validated arguments of an invocation. Raises pydantic's ValidationError."""
        fields = self.arguments.model_fields
        names = [field.alias or name for name, field in fields.items()]
        words = invocation.text.split(None, max(len(names) - 1, 0)) if names else []  # the last one gets the rest
        validated = self.arguments.model_validate(invocation.arguments or dict(zip(names, words, strict=False)))
        return {field.alias or name: getattr(validated, name) for name, field in fields.items()}

    async def run(self, context: CommandContext, arguments: Mapping[str, Any]) -> CommandResponse:
        """Call the function and return its response. Raises TypeError if that is neither a text nor a response."""
        handler: Callable[..., Awaitable[CommandResult]] = self.handler
        answer = await handler(context, **arguments)
        response = answer if isinstance(answer, CommandResponse) else CommandResponse(answer or "", self.is_ephemeral)
        if not isinstance(response.text, str):
            raise TypeError(f"it returned {type(answer).__name__}, not a text or a CommandResponse")
        return response


def command(
    name: str, description: str, *, role: Role = Role.NONE, open_in_direct: bool = False, ephemeral: bool = True
) -> Callable[[Callable[Concatenate[CommandContext, P], Awaitable[CommandResult]]], Command[P]]:
    """Return a decorator that makes a command of an async function whose first parameter is the context.

    The other parameters are given by the user: text, numbers, booleans, or one of a `Literal`. `role` is the
    role it needs, except in a direct chat if `open_in_direct`. An `ephemeral` response is shown only to the
    sender, if the platform can do that. Raises PluginError for a name that is not lower-case-with-hyphens or
    has more than 32 characters, and for a parameter that no user could give.
    """

    def decorate(handler: Callable[Concatenate[CommandContext, P], Awaitable[CommandResult]]) -> Command[P]:
        if not COMMAND_NAME_PATTERN.fullmatch(name):
            raise PluginError(f"command {name!r}: a command's name is lower-case, as in roll-dice")
        check_async(handler, name, "command")
        check_types(f"command {name}", description=(description, str), role=(role, Role))
        try:
            function = handler.__func__ if ismethod(handler) else handler
            arguments, schema = _read_signature(function, name, is_method=ismethod(handler))
        except (NameError, TypeError, PydanticUserError) as error:
            raise PluginError(f"command {name}: its parameters cannot be described: {error}") from error
        spec = CommandSpec(name, description, schema, role, open_in_direct)
        return Command(spec, handler, arguments, ephemeral)

    return decorate


@lru_cache(maxsize=256)  # the built-in commands are methods of one class
def _read_signature(
    function: Callable[..., Any], name: str, *, is_method: bool
) -> tuple[type[BaseModel], dict[str, Any]]:
    handler = MethodType(function, function) if is_method else function
    arguments = build_arguments_model(handler, name, kind="command")
    return arguments, arguments.model_json_schema()


logger = logging.getLogger(__name__)
METHODS = frozenset({"GET", "POST", "PUT", "PATCH", "DELETE"})
MAX_STATIC_BYTES = 16 * 1024 * 1024
RouteHandler = Callable[[Agent, RouteRequest], Awaitable[RouteResponse]]


@dataclass(frozen=True, slots=True)
class WebhookSignature:
    """How a service signs what it sends to a public route: the HMAC-SHA256 of the body, in hexadecimal.

    `setting` names the variable with the secret that both share; `header` is where the signature comes, behind
    `prefix`. With a `timestamp_header`, which holds seconds since 1970, timestamp, full stop and body are signed,
    and a request that is more than `tolerance` seconds old or early is refused, so that none can be repeated later.
    """

    setting: str
    header: str = "X-Signature"
    prefix: str = ""
    timestamp_header: str = ""
    tolerance: float = 300.0

    def sign(self, secret: str, body: bytes, timestamp: str = "") -> str:
        """Return the value of the header for a body."""
        signed = f"{timestamp}.".encode() + body if self.timestamp_header else body
        return self.prefix + hmac.new(secret.encode(), signed, "sha256").hexdigest()

    def accepts(self, secret: str, request: RouteRequest, now: float) -> bool:
        """Return whether a request is signed with the secret, in constant time; `now` is in seconds since 1970."""
        timestamp = request.headers.get(self.timestamp_header, "") if self.timestamp_header else ""
        if self.timestamp_header:
            is_number = timestamp.isascii() and timestamp.isdigit() and len(timestamp) <= 12
            if not is_number or abs(now - int(timestamp)) > self.tolerance:
                return False
        given = request.headers.get(self.header, "").encode("utf-8", "surrogateescape")
        return hmac.compare_digest(given, self.sign(secret, request.body, timestamp).encode())


@dataclass(frozen=True, slots=True)
class Route:
    """An HTTP route: method, path, who may call it, what it accepts, and the function that responds."""

    method: str
    path: str
    handler: RouteHandler
    scope: RouteScope = RouteScope.OPERATOR
    max_body_bytes: int = DEFAULT_BODY_BYTES
    accepts_files: bool = False
    signature: WebhookSignature | None = None

    @property
    def is_public(self) -> bool:
        """Whether the route needs no token."""
        return self.scope is RouteScope.PUBLIC

    async def __call__(self, agent: Agent, request: RouteRequest, /) -> RouteResponse:
        if self.signature is not None:
            secret = agent.settings.get(self.signature.setting)
            if not secret:
                logger.error(
                    "%s %s: set %s, the secret of the signature", self.method, self.path, self.signature.setting
                )
                return _problem(503, "not_configured", "the secret of this webhook is not set")
            if not self.signature.accepts(secret, request, agent.clock().timestamp()):
                return _problem(401, "bad_signature", "the signature is missing, wrong or too old")
        return await self.handler(agent, request)


def route(
    method: str,
    path: str,
    *,
    public: bool = False,
    scope: RouteScope | str | None = None,
    max_body_bytes: int = DEFAULT_BODY_BYTES,
    files: bool = False,
    signature: WebhookSignature | None = None,
) -> Callable[[RouteHandler], Route]:
    """Return a decorator that makes a route of an async function that takes the agent and the request.

    A part of the path in braces is a parameter: `/builds/{id}`. `scope` says which token may call it: by default
    one that may read for GET, else the operator's. With `files` a form is read into the request's `form` and
    `files`. A route with a `signature` is public, and refuses what is not signed. Raises PluginError for an unknown
    method, scope or size, and for a path that does not begin with a slash.
    """
    label = f"route {method} {path!r}"
    if method.upper() not in METHODS or not path.startswith("/") or ".." in path:
        raise PluginError(f"{label}: use one of {sorted(METHODS)} and a path like /status")
    if scope is None:
        default = RouteScope.READ_ONLY if method.upper() == "GET" else RouteScope.OPERATOR
        scope = RouteScope.PUBLIC if public or signature is not None else default
    if scope not in set(RouteScope):
        raise PluginError(f"{label}: its scope {scope!r} is none of {', '.join(RouteScope)}")
    scope = RouteScope(scope)
    is_public = scope is RouteScope.PUBLIC
    if (signature is not None and not is_public) or (public and not is_public):
        raise PluginError(f"{label}: a public or signed route needs no token: leave out the scope {scope.value!r}")
    if not 0 < max_body_bytes <= MAX_BODY_BYTES or (is_public and max_body_bytes > DEFAULT_BODY_BYTES):
        limit = DEFAULT_BODY_BYTES if is_public else MAX_BODY_BYTES
        raise PluginError(f"{label}: max_body_bytes is at most {limit}{' for a public route' if is_public else ''}")

    def decorate(handler: RouteHandler) -> Route:
        check_async(handler, f"{method} {path!r}", "route")
        return Route(method.upper(), path, handler, scope, max_body_bytes, files, signature)

    return decorate


def static_folder(path: str, folder: Path, *, scope: RouteScope | str = RouteScope.READ_ONLY) -> Route:
    """Return a route that serves the files of a folder under a path, `index.html` for a folder.

    Hidden files, links that lead outside and files of more than 16 MiB are not served.
    """
    root = folder.resolve()
    if not root.is_dir():
        raise PluginError(f"the static folder {folder} does not exist")

    @route("GET", f"{path.rstrip('/')}/{{file:.*}}", scope=scope)
    async def serve_file(agent: Agent, request: RouteRequest) -> RouteResponse:
        """Return a file of the folder."""
        return await asyncio.to_thread(_read_static, root, request.parameters["file"])

    return serve_file


def _read_static(root: Path, name: str) -> RouteResponse:
    missing = _problem(404, "not_found", "there is no such file")
    if "\0" in name or "\\" in name or any(part.startswith(".") for part in name.split("/")):
        return missing
    try:
        target = (root / name.lstrip("/")).resolve()
        if target.is_dir():
            target /= "index.html"
        if not target.resolve().is_relative_to(root) or not target.is_file():
            return missing
        with target.open("rb") as file:
            body = file.read(MAX_STATIC_BYTES + 1)
    except (OSError, ValueError):
        return missing
    if len(body) > MAX_STATIC_BYTES:
        return missing
    content_type = mimetypes.guess_type(target.name)[0] or "application/octet-stream"
    return RouteResponse(body=body, content_type=content_type)


def _problem(status: int, code: str, message: str) -> RouteResponse:
    return RouteResponse(status, json={"error": {"code": code, "message": message}})
