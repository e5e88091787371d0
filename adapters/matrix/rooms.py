"""Rooms of one account as the homeserver describes them: state, members, roles, and the world that each belongs to."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any
from uuid import UUID

from adapters.matrix.client import Json
from adapters.matrix.config import PLATFORM
from bot import ChannelType, Entity, Role, Room, World, derived_id
from bot.platform import BoundedDict

MAX_NAMES = 2_000
OWNER_LEVEL, ADMIN_LEVEL = 100, 50
PRIVILEGED_CREATORS = frozenset({"12"})  # versions of rooms whose creators have power without a level


@dataclass(frozen=True, slots=True)
class Identity:
    """The bot's account on Matrix and the agent that it represents."""

    agent_id: UUID
    user_id: str

    def entity_id(self, user_id: str) -> UUID:
        """Return the entity id of a user, which is the same for all bots; for the bot itself the agent's id."""
        return self.agent_id if user_id == self.user_id else derived_id(PLATFORM, "user", user_id)


@dataclass(frozen=True, slots=True)
class RoomTarget:
    """Where a message goes: a room, and in it a thread, by the id of the event that began it."""

    room_id: str
    thread_id: str = ""

    @classmethod
    def parse(cls, text: str) -> "RoomTarget":
        """Parse the output of `str`."""
        room_id, separator, event_id = text.partition("/$")
        return cls(room_id, f"${event_id}" if separator else "")

    def __str__(self) -> str:
        return f"{self.room_id}/{self.thread_id}" if self.thread_id else self.room_id


@dataclass(slots=True)
class RoomState:
    """The state of one room, by the type and key of its state events, and the names of members that wrote lately."""

    room_id: str
    events: dict[tuple[str, str], Json] = field(default_factory=dict)
    names: BoundedDict[str, str] = field(default_factory=lambda: BoundedDict(MAX_NAMES))
    member_count: int | None = None  # joined and invited; None where it is to be asked for
    is_direct: bool = False  # the inviter meant it as a conversation of two
    is_reported: bool = False  # the agent knows it

    def apply(self, event: Json) -> None:
        """Take up a state event."""
        kind, key = text_at(event, "type"), text_at(event, "state_key")
        if kind != "m.room.member":
            self.events[kind, key] = event
            return
        content = event.get("content")
        content = content if isinstance(content, dict) else {}
        is_joined = content.get("membership") == "join"
        if not is_joined or key not in self.names:
            self.member_count = None
        self.names.pop(key, None)
        if is_joined:
            self.names[key] = text_at(content, "displayname")

    def content(self, kind: str, key: str = "") -> Json:
        """Return the content of a state event; empty without one."""
        content = self.events.get((kind, key), {}).get("content")
        return content if isinstance(content, dict) else {}

    @property
    def name(self) -> str:
        """The name or the main address of the room; blank without one."""
        return text_at(self.content("m.room.name"), "name") or text_at(self.content("m.room.canonical_alias"), "alias")

    @property
    def is_space(self) -> bool:
        """Whether it is a space, which contains rooms."""
        return self.content("m.room.create").get("type") == "m.space"

    @property
    def needs_member_count(self) -> bool:
        """Whether it depends on the number of its members if it is a conversation of two."""
        return self.member_count is None and (self.is_direct or not self.name) and not self.is_space

    @property
    def is_private_chat(self) -> bool:
        """Whether the bot has one conversation partner there."""
        return (self.is_direct or not self.name) and self.member_count is not None and self.member_count <= 2

    def display_name(self, user_id: str) -> str:
        """Return the name of a member; blank if it is not known."""
        return self.names.get(user_id, "")

    def role_of(self, user_id: str) -> Role:
        """Return the role of a user by the power level: 100 is an owner, 50 an admin."""
        levels, version = self.content("m.room.power_levels"), self.content("m.room.create").get("room_version")
        if user_id in self._creators() and (version in PRIVILEGED_CREATORS or not levels):
            return Role.OWNER
        level: Any = self._powers().get(user_id, levels.get("users_default", 0))
        try:
            level = int(level)
        except (TypeError, ValueError):
            return Role.MEMBER
        return Role.OWNER if level >= OWNER_LEVEL else Role.ADMIN if level >= ADMIN_LEVEL else Role.MEMBER

    def privileged_users(self) -> set[str]:
        """Return the users that may have a power level of their own."""
        return {*self._powers(), *self._creators()}

    def _powers(self) -> Json:
        users = self.content("m.room.power_levels").get("users")
        return users if isinstance(users, dict) else {}

    def _creators(self) -> set[str]:
        others = self.content("m.room.create").get("additional_creators")
        users = [
            self.events.get(("m.room.create", ""), {}).get("sender"),
            *(others if isinstance(others, list) else ()),
        ]
        return {user for user in users if isinstance(user, str)}


def text_at(content: Mapping[str, Any], name: str) -> str:
    """Return the text under a name; blank if there is none."""
    value = content.get(name)
    return value if isinstance(value, str) else ""


def build_entity(identity: Identity, user_id: str, name: str = "", *, is_bot: bool = False) -> Entity:
    """Return the entity of a user."""
    names = tuple(dict.fromkeys(filter(None, (name, user_id))))
    return Entity(identity.entity_id(user_id), PLATFORM, user_id, names, is_bot)


class RoomDirectory:
    """All joined rooms of one account, by their ids."""

    def __init__(self, identity: Identity) -> None:
        self._identity = identity
        self._rooms: dict[str, RoomState] = {}
        self.is_complete = False  # all rooms that the bot is in are known

    def get(self, room_id: str) -> RoomState:
        """Return the state of a room, empty if nothing is known of it."""
        return self._rooms.setdefault(room_id, RoomState(room_id))

    def remove(self, room_id: str) -> None:
        """Forget a room that the bot has left."""
        self._rooms.pop(room_id, None)

    def world_of(self, state: RoomState) -> World:
        """Return the space of a room, or a world of its own.

        A room belongs to a space if both say so: either alone may be set by a stranger, and what is remembered in a
        world is known in all of its rooms. The bot must have joined the space.
        """
        holder = next(iter(self._spaces_of(state)), state)
        user_ids = set() if holder.is_private_chat else holder.privileged_users() - {self._identity.user_id}
        roles = {self._identity.entity_id(user_id): holder.role_of(user_id) for user_id in user_ids}
        world_id = derived_id(PLATFORM, self._identity.user_id, "world", holder.room_id)
        return World(world_id, PLATFORM, holder.room_id, holder.name, roles)

    def room_of(self, state: RoomState, thread_id: str = "") -> Room:
        """Return a room, or the room of one of its threads."""
        target = RoomTarget(state.room_id, thread_id)
        kind = ChannelType.DM if state.is_private_chat else ChannelType.GROUP
        return Room(
            id=self.room_id(target),
            world_id=self.world_of(state).id,
            type=ChannelType.THREAD if thread_id and kind is ChannelType.GROUP else kind,
            platform=PLATFORM,
            external_id=str(target),
            account=self._identity.user_id,
            name="" if thread_id else state.name,
            parent_id=self.room_id(RoomTarget(state.room_id)) if thread_id else None,
        )

    def room_id(self, target: RoomTarget) -> UUID:
        """Return the id of the room of a target, as seen by this account."""
        return derived_id(PLATFORM, self._identity.user_id, "room", str(target))

    def _spaces_of(self, state: RoomState) -> list[RoomState]:
        """Return the spaces that list the room and that it lists, the canonical one first."""
        parents = {key: state.content(kind, key) for kind, key in state.events if kind == "m.space.parent"}
        spaces = [
            space
            for key, content in parents.items()
            if content.get("via")
            and (space := self._rooms.get(key)) is not None
            and space.is_space
            and space.content("m.space.child", state.room_id).get("via")
        ]
        return sorted(spaces, key=lambda space: (parents[space.room_id].get("canonical") is not True, space.room_id))
