"""Actions: functions that the model calls like tools."""

import inspect
import re
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Annotated, Any, Concatenate, Generic, ParamSpec, get_args, get_origin, get_type_hints

from pydantic import BaseModel, ConfigDict, Field, create_model
from pydantic.errors import PydanticUserError
from pydantic.json_schema import GenerateJsonSchema

from bot.domain.authority import Authority
from bot.domain.component_specs import DEFAULT_AUTHORITY, MAX_DEADLINE, ActionSpec, Confirmation, Effect, ExampleLine
from bot.domain.environment import Role
from bot.domain.results import ActionPreview, ActionResult
from bot.errors import PluginError
from bot.turn import Turn

P = ParamSpec("P")
TurnCondition = Callable[[Turn], Awaitable[bool] | bool]
Preview = Callable[..., Awaitable[ActionPreview | ActionResult]]
PURE_AUTHORITY = replace(Authority.harmless("it changes nothing"), is_default=True)
NAME_PATTERN = re.compile(r"[A-Z][A-Z0-9_]*")


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


def check_async(handler: Callable[..., Any], name: str, kind: str) -> None:
    """Raise PluginError for the function of a component that is not async: its result would be awaited."""
    candidates = (handler, inspect.unwrap(handler), type(handler).__call__)
    if not any(map(inspect.iscoroutinefunction, candidates)):
        raise PluginError(f"{kind} {name}: its function must be async: write `async def`")


def check_name(name: str, kind: str) -> None:
    """Raise PluginError for a component's name that is not UPPER_SNAKE."""
    if not NAME_PATTERN.fullmatch(name):
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
        field = Field(default, alias=parameter.name, description=_find_description(hint))
        fields[f"parameter_{number}"] = (hint, field)
    return create_model(name, __config__=ConfigDict(extra="forbid", title=name), **fields)


def _find_description(hint: Any) -> str | None:
    if get_origin(hint) is not Annotated:
        return None
    return next((extra for extra in get_args(hint)[1:] if isinstance(extra, str)), None)
