"""Who and where: worlds, rooms and people as Telegram names them; pure."""

from collections.abc import Mapping
from dataclasses import dataclass
from uuid import UUID

from telegram import Chat, Message, User

from bot import ChannelType, Entity, Role, Room, World, derived_id

PLATFORM = "telegram"
CHANNEL_TYPES = {
    Chat.PRIVATE: ChannelType.DM,
    Chat.CHANNEL: ChannelType.BROADCAST,
}
Roles = Mapping[int, Role]


@dataclass(frozen=True, slots=True)
class BotIdentity:
    """The bot itself, as Telegram knows it, and the agent that it is."""

    agent_id: UUID
    account: str
    username: str = ""

    @property
    def id(self) -> int:
        """The bot's user id."""
        return int(self.account)


@dataclass(frozen=True, slots=True)
class ChatTarget:
    """Where a message goes: a chat and, in a forum, one of its topics."""

    chat_id: int
    thread_id: int | None = None

    @classmethod
    def parse(cls, text: str) -> "ChatTarget":
        """Read it as `str` writes it; raises ValueError for anything else."""
        chat_id, _, thread_id = text.partition("/")
        return cls(int(chat_id), int(thread_id) if thread_id else None)

    def __str__(self) -> str:
        return f"{self.chat_id}/{self.thread_id}" if self.thread_id is not None else str(self.chat_id)

    @property
    def is_group(self) -> bool:
        """Whether it is a group, a supergroup or a channel: their ids are negative."""
        return self.chat_id < 0


@dataclass(frozen=True, slots=True)
class ChatLocation:
    """A chat's world and the room in it."""

    world: World
    room: Room
    target: ChatTarget


def thread_id_of(message: Message) -> int | None:
    """Give a message's topic; a thread of replies in an ordinary group is none."""
    return message.message_thread_id if message.is_topic_message else None


def build_location(
    identity: BotIdentity, chat: Chat, thread_id: int | None = None, roles: Roles | None = None
) -> ChatLocation:
    """Make a chat's world, and the room that it, or one of its topics, is."""
    target = ChatTarget(chat.id, thread_id)
    world_roles = {derive_user_id(user_number): role for user_number, role in (roles or {}).items()}
    name = chat.title or chat.full_name or chat.username or ""
    world = World(
        derived_id(PLATFORM, identity.account, "world", str(chat.id)),
        PLATFORM,
        str(chat.id),
        name,
        world_roles,
        {"type": chat.type, "username": chat.username or ""},
    )
    room = Room(
        id=derive_room_id(identity.account, target),
        world_id=world.id,
        type=ChannelType.THREAD if thread_id is not None else CHANNEL_TYPES.get(chat.type, ChannelType.GROUP),
        platform=PLATFORM,
        external_id=str(target),
        account=identity.account,
        name=name if thread_id is None else "",
        parent_id=None if thread_id is None else derive_room_id(identity.account, ChatTarget(chat.id)),
    )
    return ChatLocation(world, room, target)


def derive_room_id(account: str, target: ChatTarget) -> UUID:
    """Name the room that a chat, or one of its topics, is for one of our bots."""
    return derived_id(PLATFORM, account, "room", str(target))


def derive_user_id(user_number: int) -> UUID:
    """Name a person; the same for all of our bots."""
    return derived_id(PLATFORM, "user", str(user_number))


def build_entity(user: User, identity: BotIdentity) -> Entity:
    """Make the entity of a user; of ourselves, that of the agent."""
    names = tuple(filter(None, (user.full_name.strip(), user.username)))
    metadata = {"username": user.username or "", "language": user.language_code or ""}
    entity_id = identity.agent_id if user.id == identity.id else derive_user_id(user.id)
    return Entity(entity_id, PLATFORM, str(user.id), names, bool(user.is_bot), metadata)


def build_chat_entity(chat: Chat) -> Entity:
    """Make the entity of a chat that writes under its own name: a channel, or administrators unnamed."""
    names = tuple(filter(None, (chat.title or "", chat.username)))
    return Entity(derive_user_id(chat.id), PLATFORM, str(chat.id), names)


def author_of(message: Message, identity: BotIdentity) -> tuple[Entity, Role | None]:
    """Tell who wrote a message, and the role that Telegram itself vouches for."""
    sender = message.sender_chat
    if sender is not None:
        is_unnamed_admin = sender.id == message.chat.id and message.chat.type != Chat.CHANNEL
        return build_chat_entity(sender), Role.ADMIN if is_unnamed_admin else None
    if message.from_user is not None:
        return build_entity(message.from_user, identity), None
    return build_chat_entity(message.chat), None
