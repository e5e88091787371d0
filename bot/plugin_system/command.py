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
from bot.domain.environment import ChannelType, Role
from bot.domain.inbound import Asked, Shown
from bot.errors import PluginError
from bot.plugin_system.action import arguments_of

P = ParamSpec("P")
Answer = str | Shown | None
NAME = re.compile(r"[a-z][a-z0-9-]{0,31}")
ALONE = frozenset({ChannelType.DM, ChannelType.VOICE_DM, ChannelType.SELF, ChannelType.API})


@dataclass(frozen=True, slots=True)
class Asking:
    """One command being answered: who asks what, where, and with which role as it is known just now."""

    agent: Agent
    asked: Asked
    role: Role

    @property
    def decides_here(self) -> bool:
        """Whether this person decides about the room: they are alone in it, or an admin of its world."""
        return self.asked.room.type in ALONE or self.role.reaches(Role.ADMIN)


@dataclass(frozen=True, slots=True)
class Command(Generic[P]):
    """A command: what it is, what it takes, and the function that answers."""

    spec: CommandSpec
    handler: Callable[Concatenate[Asking, P], Awaitable[Answer]]
    arguments: type[BaseModel]
    is_private: bool = True

    async def __call__(self, asking: Asking, /, *args: P.args, **kwargs: P.kwargs) -> Answer:
        return await self.handler(asking, *args, **kwargs)

    def allows(self, asking: Asking) -> bool:
        """Tell whether somebody may give it here."""
        is_free = self.spec.is_free_alone and asking.asked.room.type in ALONE
        return is_free or asking.role.reaches(self.spec.role)

    def read(self, asked: Asked) -> dict[str, Any]:
        """Check what was given against the signature; raises pydantic's ValidationError."""
        checked = self.arguments.model_validate(asked.arguments or self._given(asked.text))
        fields = self.arguments.model_fields
        return {field.alias or name: getattr(checked, name) for name, field in fields.items()}

    async def run(self, asking: Asking, arguments: Mapping[str, Any]) -> Shown:
        """Answer, and say for whom the answer is."""
        handler: Callable[..., Awaitable[Answer]] = self.handler
        answer = await handler(asking, **arguments)
        return answer if isinstance(answer, Shown) else Shown(answer or "", self.is_private)

    def _given(self, text: str) -> dict[str, str]:
        """Give each word of a text to one parameter, and the rest to the last."""
        names = [field.alias or name for name, field in self.arguments.model_fields.items()]
        return dict(zip(names, text.split(None, max(len(names) - 1, 0)), strict=False)) if names else {}


def command(
    name: str,
    description: str,
    *,
    role: Role = Role.NONE,
    free_alone: bool = False,
    private: bool = True,
) -> Callable[[Callable[Concatenate[Asking, P], Awaitable[Answer]]], Command[P]]:
    """Make a command of an async function whose first parameter is what is being asked.

    The other parameters are what the person gives: text, numbers, yes or no, or one of a `Literal`. `role`
    says who may give it; with `free_alone` so may anybody who is alone with the bot. Where `private`, only
    they see the answer, as far as the platform can. Raises PluginError for a name that is not
    lower-case-with-hyphens, of at most 32 characters, or a parameter that nobody could give.
    """

    def decorate(handler: Callable[Concatenate[Asking, P], Awaitable[Answer]]) -> Command[P]:
        if not NAME.fullmatch(name):
            raise PluginError(f"command {name!r}: a command's name is lower-case, as in roll-dice")
        try:
            function = handler.__func__ if ismethod(handler) else handler
            arguments, schema = _taken(function, name, is_method=ismethod(handler))
        except (NameError, TypeError, PydanticUserError) as error:
            raise PluginError(f"command {name}: its parameters cannot be described: {error}") from error
        spec = CommandSpec(name, description, schema, role, free_alone)
        return Command(spec, handler, arguments, private)

    return decorate


@lru_cache(maxsize=256)  # the commands that every bot has are methods of one class
def _taken(
    function: Callable[..., Any], name: str, *, is_method: bool
) -> tuple[type[BaseModel], dict[str, Any]]:
    """Read what a command takes off its function, or off a method's, whoever it is bound to."""
    handler = MethodType(function, function) if is_method else function
    arguments = arguments_of(handler, name, kind="command")
    return arguments, arguments.model_json_schema()
