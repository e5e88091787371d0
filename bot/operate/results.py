"""`Result`: base of what operators get: the HTTP API responds with it, and commands print it."""

from collections.abc import Callable
from functools import cache
from typing import Self

from pydantic import BaseModel, ConfigDict

from bot.domain.environment import Room

NameRoom = Callable[[Room], str]


@cache
def _required_names(model: type[BaseModel]) -> tuple[str, ...]:
    return tuple(name for name, field in model.model_fields.items() if field.is_required())


class Result(BaseModel):
    """What an operation returns; its fields are those of the HTTP API."""

    model_config = ConfigDict(frozen=True, defer_build=True, from_attributes=True)

    @classmethod
    def build(cls, source: object, **fields: object) -> Self:
        """Return the model with these fields; the other required ones are attributes of the source."""
        missing = {name: getattr(source, name) for name in _required_names(cls) if name not in fields}
        return cls.model_validate(missing | fields)


def name_room(room: Room) -> str:
    """Return the name of a room, or the platform's id of it."""
    return room.name or room.external_id
