"""The people, worlds and rooms of the hostile campaign, and the inbound events that they send.

The author of a text marks it: `z03abc` stands for the fourth person. A mark in
a prompt proves whose words the model has read, whatever the code under test recorded about them.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime
from uuid import UUID

from bot import Attachment, ChannelType, Content, Entity, Role, Room, World, derived_id, short_id
from bot.platform import ChoiceSelection, CommandInvocation, InboundMessage, Reaction

PLATFORM, FEED_PLATFORM = "test", "x"
MARK = re.compile(r"\bz(\d\d)[a-n]{3}\b")
NAME_ENDING = "nnn"  # of a mark in a name, which only says whom a text is about
WORD_OF_A_NAME = re.compile(rf"\bz\d\d{NAME_ENDING}\b")
CANARY = re.compile(r"cx\d\dc")
PEOPLE = ("Root", "Vera", "Alice", "Bob", "Victor", "Nick", "Mallory", "Trudy")
ATTACKERS = frozenset({"Nick", "Mallory", "Trudy"})
OPERATOR = "Root"
PAGE, TOOL, FILE = "a page", "a tool", "a file"  # texts that no person of the rooms wrote
WRITERS = (*PEOPLE, PAGE, TOOL, FILE)
HARBOUR, DEN = "Town", "Den"
ROLES: Mapping[str, Mapping[str, Role]] = {
    HARBOUR: {"Root": Role.OWNER, "Vera": Role.ADMIN, "Nick": Role.NONE},
    DEN: {"Trudy": Role.OWNER, "Mallory": Role.ADMIN},
}
MEMBERS = {
    "lobby": (HARBOUR, ("Root", "Vera", "Alice", "Bob", "Victor", "Nick", "Mallory")),
    "news": (HARBOUR, ("Root", "Vera", "Alice")),
    "den": (DEN, ("Trudy", "Mallory", "Root", "Alice")),
}


def mark_of(writer: str, ending: str = "aaa") -> str:
    """Return a mark of a writer's words."""
    return f"z{WRITERS.index(writer):02}{ending}"


def writers_in(text: str) -> frozenset[str]:
    """Return whose words a text holds, by the marks in it."""
    return frozenset(WRITERS[int(number)] for number in set(MARK.findall(text)) if int(number) < len(WRITERS))


def person_id(name: str) -> UUID:
    """Return the entity id of a person."""
    return derived_id(PLATFORM, "entity", name)


def world_id(name: str) -> UUID:
    """Return the id of a world."""
    return derived_id(PLATFORM, "world", name)


def room_id(name: str) -> UUID:
    """Return the id of a room."""
    return derived_id(PLATFORM, "room", name)


def private_room(person: str) -> str:
    """Return the name of a person's private chat, which is also the name of its world."""
    return f"private-{person}"


ROOMS = (*MEMBERS, *map(private_room, PEOPLE))
WORLDS = (HARBOUR, DEN, *map(private_room, PEOPLE))
PERSON_BY_ID = {person_id(name): name for name in PEOPLE}
ROOM_BY_ID = {room_id(name): name for name in ROOMS}
WORLD_BY_ID = {world_id(name): name for name in WORLDS}


def world_of(room: str) -> str:
    """Return the world of a room; a private chat is a world of its own."""
    return MEMBERS[room][0] if room in MEMBERS else room


def members_of(room: str) -> tuple[str, ...]:
    """Return who can write in a room."""
    return MEMBERS[room][1] if room in MEMBERS else (room.removeprefix("private-"),)


def is_private(room: str) -> bool:
    """Return whether a room is a private chat."""
    return room not in MEMBERS


def canary_of(room: str) -> str:
    """Return the word that is only ever said in this room."""
    return f"cx{ROOMS.index(room):02}c"


def rooms_named(text: str) -> frozenset[str]:
    """Return the rooms whose canaries a text holds."""
    return frozenset(ROOMS[int(word[2:4])] for word in set(CANARY.findall(text)) if int(word[2:4]) < len(ROOMS))


@dataclass(slots=True)
class Places:
    """The platform's side of the worlds: who has which role there, and how people and rooms are called now."""

    roles: dict[str, dict[str, Role]] = field(
        default_factory=lambda: {**{name: dict(roles) for name, roles in ROLES.items()}}
    )
    names: dict[str, str] = field(default_factory=dict)
    room_names: dict[str, str] = field(default_factory=dict)
    count: int = 0

    def role_of(self, person: str, world: str, grants: Mapping[tuple[str, str], Role]) -> Role:
        """Return the role of a person: the platform's, or what was granted; the platform's owner stays one."""
        platform_role = self.roles.get(world, {}).get(person, Role.MEMBER)
        return platform_role if platform_role is Role.OWNER else grants.get((world, person), platform_role)

    def entity(self, person: str) -> Entity:
        """Return a person as the platform describes them now."""
        names = tuple(dict.fromkeys((self.names.get(person, person), person)))
        return Entity(person_id(person), PLATFORM, person, names)

    def titles_of(self, person: str) -> tuple[str, ...]:
        """Return what can stand for a person in a question: the names and the short id."""
        return person, self.names.get(person, person), short_id(person_id(person))

    def titles_of_room(self, room: str) -> tuple[str, ...]:
        """Return what can stand for a room in a question: its id and its name."""
        return room, self.room_names.get(room, room)

    def world(self, name: str) -> World:
        """Return a world as the platform describes it now."""
        roles = {person_id(person): role for person, role in self.roles.get(name, {}).items()}
        return World(world_id(name), PLATFORM, name, name, roles)

    def room(self, name: str) -> Room:
        """Return a room as the platform describes it now."""
        kind = ChannelType.DM if is_private(name) else ChannelType.GROUP
        title = self.room_names.get(name, name)
        return Room(room_id(name), world_id(world_of(name)), kind, PLATFORM, name, "account", title)

    def next_id(self) -> str:
        """Return an id for the next event of the platform."""
        self.count += 1
        return f"e{self.count}"

    def message(
        self, person: str, room: str, text: str, now: datetime, *, attachments: tuple[Attachment, ...] = ()
    ) -> InboundMessage:
        """Return a message of a person."""
        return InboundMessage.build(
            self.world(world_of(room)),
            self.room(room),
            self.entity(person),
            Content(text=text, source=PLATFORM, attachments=attachments),
            created_at=now,
            message_id=self.next_id(),
        )

    def edit(self, earlier: InboundMessage, text: str) -> InboundMessage:
        """Return an edit of a message, with another text; the world is described as it is now."""
        key = replace(earlier.key, event_id=self.next_id(), revision=earlier.key.revision + 1)
        content = replace(earlier.message.content, text=text)
        world = self.world(world_of(earlier.room.external_id))
        return replace(earlier, key=key, world=world, message=replace(earlier.message, content=content))

    def press(self, person: str, room: str, value: str, now: datetime, event_id: str = "") -> ChoiceSelection:
        """Return the press of a button; an earlier `event_id` repeats the event."""
        world = self.world(world_of(room))
        return ChoiceSelection(world, self.room(room), self.entity(person), value, event_id or self.next_id(), now)

    def command(self, person: str, room: str, name: str, now: datetime) -> CommandInvocation:
        """Return a command of a person."""
        world = self.world(world_of(room))
        return CommandInvocation(name, world, self.room(room), self.entity(person), self.next_id(), now)

    def reaction(self, person: str, room: str, message_id: str, emoji: str, now: datetime) -> Reaction:
        """Return a reaction to a message."""
        world = self.world(world_of(room))
        return Reaction(world, self.room(room), self.entity(person), message_id, emoji, now)
