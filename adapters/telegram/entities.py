"""Who and where: worlds, rooms and people as Telegram names them; pure."""

from collections.abc import Mapping
from dataclasses import dataclass
from uuid import UUID

from telegram import Chat, Message, User

from bot import ChannelType, Entity, Role, Room, World, derived_id

PLATFORM = "telegram"
TYPES = {
    Chat.PRIVATE: ChannelType.DM,
    Chat.CHANNEL: ChannelType.BROADCAST,
}
Roles = Mapping[int, Role]


@dataclass(frozen=True, slots=True)
class Me:
    """The bot itself, as Telegram knows it, and the agent that it is."""

    agent_id: UUID
    account: str
    username: str = ""

    @property
    def id(self) -> int:
        """The bot's user id."""
        return int(self.account)


@dataclass(frozen=True, slots=True)
class Target:
    """Where a message goes: a chat and, in a forum, one of its topics."""

    chat: int
    thread: int | None = None

    @classmethod
    def read(cls, text: str) -> "Target":
        """Read it as `str` writes it; raises ValueError for anything else."""
        chat, _, thread = text.partition("/")
        return cls(int(chat), int(thread) if thread else None)

    def __str__(self) -> str:
        return f"{self.chat}/{self.thread}" if self.thread is not None else str(self.chat)

    @property
    def is_group(self) -> bool:
        """Whether it is a group, a supergroup or a channel: their ids are negative."""
        return self.chat < 0


@dataclass(frozen=True, slots=True)
class Place:
    """A chat's world and the room in it."""

    world: World
    room: Room
    target: Target


def thread_of(message: Message) -> int | None:
    """Give a message's topic; a thread of replies in an ordinary group is none."""
    return message.message_thread_id if message.is_topic_message else None


def place_of(me: Me, chat: Chat, thread: int | None = None, roles: Roles | None = None) -> Place:
    """Make a chat's world, and the room that it, or one of its topics, is."""
    target = Target(chat.id, thread)
    given = {user_id(one): role for one, role in (roles or {}).items()}
    name = chat.title or chat.full_name or chat.username or ""
    world = World(
        derived_id(PLATFORM, me.account, "world", str(chat.id)),
        PLATFORM,
        str(chat.id),
        name,
        given,
        {"type": chat.type, "username": chat.username or ""},
    )
    room = Room(
        id=room_id(me.account, target),
        world_id=world.id,
        type=ChannelType.THREAD if thread is not None else TYPES.get(chat.type, ChannelType.GROUP),
        platform=PLATFORM,
        external_id=str(target),
        account=me.account,
        name=name if thread is None else "",
        parent_id=None if thread is None else room_id(me.account, Target(chat.id)),
    )
    return Place(world, room, target)


def room_id(account: str, target: Target) -> UUID:
    """Name the room that a chat, or one of its topics, is for one of our bots."""
    return derived_id(PLATFORM, account, "room", str(target))


def user_id(number: int) -> UUID:
    """Name a person; the same for all of our bots."""
    return derived_id(PLATFORM, "user", str(number))


def person(user: User, me: Me) -> Entity:
    """Make the entity of a user; of ourselves, that of the agent."""
    names = tuple(filter(None, (user.full_name.strip(), user.username)))
    metadata = {"username": user.username or "", "language": user.language_code or ""}
    entity_id = me.agent_id if user.id == me.id else user_id(user.id)
    return Entity(entity_id, PLATFORM, str(user.id), names, bool(user.is_bot), metadata)


def chat_as_person(chat: Chat) -> Entity:
    """Make the entity of a chat that writes under its own name: a channel, or administrators unnamed."""
    names = tuple(filter(None, (chat.title or "", chat.username)))
    return Entity(user_id(chat.id), PLATFORM, str(chat.id), names)


def author_of(message: Message, me: Me) -> tuple[Entity, Role | None]:
    """Tell who wrote a message, and the role that Telegram itself vouches for."""
    sender = message.sender_chat
    if sender is not None:
        is_unnamed_admin = sender.id == message.chat.id and message.chat.type != Chat.CHANNEL
        return chat_as_person(sender), Role.ADMIN if is_unnamed_admin else None
    if message.from_user is not None:
        return person(message.from_user, me), None
    return chat_as_person(message.chat), None
