"""Commands: what users ask the bot itself, the same on every platform."""

import re
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from inspect import ismethod
from types import MethodType
from typing import Any, Concatenate, Generic, ParamSpec

from pydantic import BaseModel
from pydantic.errors import PydanticUserError

from bot.agent import Agent
from bot.domain.component_specs import CommandSpec
from bot.domain.environment import Role
from bot.domain.inbound import CommandInvocation, CommandResponse
from bot.errors import PluginError
from bot.plugin_system.action import build_arguments_model, check_async

P = ParamSpec("P")
CommandResult = str | CommandResponse | None
NAME_PATTERN = re.compile(r"[a-z][a-z0-9-]{0,31}")


@dataclass(frozen=True, slots=True)
class CommandContext:
    """The first argument of a command handler: the agent, the invocation, and the sender's current role."""

    agent: Agent
    invocation: CommandInvocation
    role: Role

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
        validated = self.arguments.model_validate(invocation.arguments or self._split_text(invocation.text))
        fields = self.arguments.model_fields
        return {field.alias or name: getattr(validated, name) for name, field in fields.items()}

    async def run(self, context: CommandContext, arguments: Mapping[str, Any]) -> CommandResponse:
        """Call the function and return its response."""
        handler: Callable[..., Awaitable[CommandResult]] = self.handler
        answer = await handler(context, **arguments)
        return answer if isinstance(answer, CommandResponse) else CommandResponse(answer or "", self.is_ephemeral)

    def _split_text(self, text: str) -> dict[str, str]:
        """Assign each word of a text to one parameter, and the rest to the last."""
        names = [field.alias or name for name, field in self.arguments.model_fields.items()]
        return dict(zip(names, text.split(None, max(len(names) - 1, 0)), strict=False)) if names else {}


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
        if not NAME_PATTERN.fullmatch(name):
            raise PluginError(f"command {name!r}: a command's name is lower-case, as in roll-dice")
        check_async(handler, name, "command")
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
    """Return the arguments model of a function or method and its JSON schema."""
    handler = MethodType(function, function) if is_method else function
    arguments = build_arguments_model(handler, name, kind="command")
    return arguments, arguments.model_json_schema()
