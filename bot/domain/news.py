"""What a platform tells of places and people without anybody having written anything."""

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import timedelta
from uuid import UUID

from bot.domain.people import Entity
from bot.domain.places import Role, Room, World

MOST_ROOMS, MOST_PEOPLE = 2_000, 10_000
REMEMBERED = timedelta(days=30)


@dataclass(frozen=True, slots=True)
class Notice:
    """What is told of one world: some of its rooms, some of its people.

    `event_id` is the platform's own name for what has happened, where it has one; whoever is told of the
    same event again changes nothing. With `is_leaving` these people are in none of the world's rooms.
    """

    world: World
    rooms: tuple[Room, ...] = ()
    people: tuple[Entity, ...] = ()
    event_id: str = ""
    is_leaving: bool = False

    @property
    def key(self) -> str:
        """The name under which the event is remembered; blank where it has none."""
        return f"news:{self.world.platform}:{self.world.id}:{self.event_id}" if self.event_id else ""


@dataclass(frozen=True, slots=True)
class Noticed:
    """What a notice has changed: the world as it was kept before, and whoever was new or reads differently.

    Not `is_new` is an event that was told before.
    """

    is_new: bool = True
    before: World | None = None
    rooms: frozenset[UUID] = frozenset()
    new_people: frozenset[UUID] = frozenset()
    people: frozenset[UUID] = frozenset()

    def has_changed(self, person: Entity, world: World) -> bool:
        """Tell whether what is kept of somebody, or their role, is another one now."""
        before = self.before.roles if self.before is not None else {}
        told = world.roles.get(person.id)
        known = before.get(person.id, Role.MEMBER)
        return person.id in self.people or (told is not None and told is not known)


def without_role(world: World, people: Iterable[Entity]) -> dict[UUID, Role]:
    """Give the roles that a world's platform knows once these people have left it."""
    return {**world.roles, **{one.id: Role.MEMBER for one in people}}
