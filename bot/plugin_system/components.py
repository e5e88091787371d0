"""The other components of a plugin: Provider, Evaluator, Listener, Model, Service, Worker."""

import inspect
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import Any, ClassVar, Generic, Protocol, Self, TypeVar

from bot.agent import Agent
from bot.domain.component_specs import EvaluatorSpec, ProviderKind, ProviderSpec, Shortening
from bot.domain.events import Event
from bot.domain.results import ProviderResult
from bot.domain.task import Task
from bot.errors import PluginError
from bot.models.types import ModelInfo, ModelResult, ModelType
from bot.plugin_system.action import TurnCondition, check_async, check_name
from bot.settings import Settings
from bot.turn import Turn

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
) -> Callable[[ProviderHandler], Provider]:
    """Return a decorator that makes a provider of a function, async or plain, that takes the turn.

    `position` orders the texts in the prompt: a text that rarely changes belongs first, so that a model
    provider's prompt cache hits. A dynamic provider is composed when the model asks for it. A hidden one is
    composed only where code asks for it by name: the model is not told of it. It was called private, but its
    text is no more secret than any other. `kind` says what the text is for, `shorten` what remains of it in a
    prompt that is too long (default: nothing of a dynamic one, else its beginning). `trusted_content` of earlier
    versions is kept in the catalog; who wrote a text is
    said by `ProviderResult.authors`. Raises PluginError for a name that is not UPPER_SNAKE.
    """

    def decorate(handler: ProviderHandler) -> Provider:
        check_name(name, "provider")
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
        return Evaluator(EvaluatorSpec(name, description, tuple(similes), always_run), handler, when)

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

    An async function runs in the background. A plain one is called immediately and must return quickly.
    """

    def decorate(handler: ListenerHandler[E]) -> Listener[E]:
        return Listener(kind, handler, is_immediate=not inspect.iscoroutinefunction(handler))

    return decorate


ModelFunction = Callable[[Agent, Any], Awaitable[ModelResult]]


SettingsCondition = Callable[[Settings], bool]


def _is_always_available(settings: Settings) -> bool:
    return True


def _is_never_available(settings: Settings) -> bool:
    return False


@dataclass(frozen=True, slots=True)
class Model:
    """A model handler: the model type it serves, its priority, and the function that asks the model.

    It is registered for an agent if `when` holds for its settings, which also decide whether it calls tools.
    `has_tools_now`, if set, can say no later, when the server has told what its model can do.
    """

    type: ModelType
    handler: ModelFunction
    priority: int = 0
    can_call_tools: SettingsCondition = _is_never_available
    when: SettingsCondition = _is_always_available
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
    when: SettingsCondition = _is_always_available,
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
    supports_tools = (
        can_call_tools
        if callable(can_call_tools)
        else (_is_always_available if can_call_tools else _is_never_available)
    )

    def decorate(handler: ModelFunction) -> Model:
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
        cls.capability = next(filter(None, (getattr(cls, name, "") for name in names)), "")

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
    of a run. `deadline` is in seconds: a run is stopped shortly before, and after a crash it is repeated then at
    the latest. If `validate` returns false, a repeating task waits for its next time,
    and another is checked again after a minute. Raises PluginError for a name that is not UPPER_SNAKE.
    """

    def decorate(handler: WorkerHandler) -> Worker:
        check_name(name, "worker")
        check_async(handler, name, "worker")
        return Worker(name, handler, deadline, validate)

    return decorate
