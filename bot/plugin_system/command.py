"""Commands: what people may ask the bot itself, on every platform alike."""

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
from bot.plugin_system.action import build_arguments_model

P = ParamSpec("P")
CommandResult = str | CommandResponse | None
NAME_PATTERN = re.compile(r"[a-z][a-z0-9-]{0,31}")


@dataclass(frozen=True, slots=True)
class CommandContext:
    """One command being answered: who asks what, where, and with which role as it is known just now."""

    agent: Agent
    invocation: CommandInvocation
    role: Role

    @property
    def is_room_admin(self) -> bool:
        """Whether this person decides about the room: they are alone in it, or an admin of its world."""
        return self.invocation.room.type.is_direct or self.role.is_at_least(Role.ADMIN)


@dataclass(frozen=True, slots=True)
class Command(Generic[P]):
    """A command: what it is, what it takes, and the function that answers."""

    spec: CommandSpec
    handler: Callable[Concatenate[CommandContext, P], Awaitable[CommandResult]]
    arguments: type[BaseModel]
    is_ephemeral: bool = True

    async def __call__(self, context: CommandContext, /, *args: P.args, **kwargs: P.kwargs) -> CommandResult:
        return await self.handler(context, *args, **kwargs)

    def is_allowed(self, context: CommandContext) -> bool:
        """Tell whether somebody may give it here."""
        is_open = self.spec.is_open_in_direct_chat and context.invocation.room.type.is_direct
        return is_open or context.role.is_at_least(self.spec.role)

    def parse_arguments(self, invocation: CommandInvocation) -> dict[str, Any]:
        """Check what was given against the signature; raises pydantic's ValidationError."""
        validated = self.arguments.model_validate(invocation.arguments or self._split_text(invocation.text))
        fields = self.arguments.model_fields
        return {field.alias or name: getattr(validated, name) for name, field in fields.items()}

    async def run(self, context: CommandContext, arguments: Mapping[str, Any]) -> CommandResponse:
        """Answer, and say for whom the answer is."""
        handler: Callable[..., Awaitable[CommandResult]] = self.handler
        answer = await handler(context, **arguments)
        return (
            answer
            if isinstance(answer, CommandResponse)
            else CommandResponse(answer or "", self.is_ephemeral)
        )

    def _split_text(self, text: str) -> dict[str, str]:
        """Give each word of a text to one parameter, and the rest to the last."""
        names = [field.alias or name for name, field in self.arguments.model_fields.items()]
        return dict(zip(names, text.split(None, max(len(names) - 1, 0)), strict=False)) if names else {}


def command(
    name: str,
    description: str,
    *,
    role: Role = Role.NONE,
    open_in_direct: bool = False,
    ephemeral: bool = True,
) -> Callable[[Callable[Concatenate[CommandContext, P], Awaitable[CommandResult]]], Command[P]]:
    """Make a command of an async function whose first parameter is what is being asked.

    The other parameters are what the person gives: text, numbers, yes or no, or one of a `Literal`. `role`
    says who may give it; with `free_alone` so may anybody who is alone with the bot. Where `private`, only
    they see the answer, as far as the platform can. Raises PluginError for a name that is not
    lower-case-with-hyphens, of at most 32 characters, or a parameter that nobody could give.
    """

    def decorate(handler: Callable[Concatenate[CommandContext, P], Awaitable[CommandResult]]) -> Command[P]:
        if not NAME_PATTERN.fullmatch(name):
            raise PluginError(f"command {name!r}: a command's name is lower-case, as in roll-dice")
        try:
            function = handler.__func__ if ismethod(handler) else handler
            arguments, schema = _read_signature(function, name, is_method=ismethod(handler))
        except (NameError, TypeError, PydanticUserError) as error:
            raise PluginError(f"command {name}: its parameters cannot be described: {error}") from error
        spec = CommandSpec(name, description, schema, role, open_in_direct)
        return Command(spec, handler, arguments, ephemeral)

    return decorate


@lru_cache(maxsize=256)  # the commands that every bot has are methods of one class
def _read_signature(
    function: Callable[..., Any], name: str, *, is_method: bool
) -> tuple[type[BaseModel], dict[str, Any]]:
    """Read what a command takes off its function, or off a method's, whoever it is bound to."""
    handler = MethodType(function, function) if is_method else function
    arguments = build_arguments_model(handler, name, kind="command")
    return arguments, arguments.model_json_schema()
