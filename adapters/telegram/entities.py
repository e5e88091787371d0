"""Conversion of chats, topics and users to worlds, rooms and entities; pure."""

from collections.abc import Mapping
from dataclasses import dataclass
from uuid import UUID

from telegram import Chat, Message, User

from bot import ChannelType, Entity, Role, Room, World, derived_id

PLATFORM = "telegram"
CHANNEL_TYPES = {Chat.PRIVATE: ChannelType.DM, Chat.CHANNEL: ChannelType.BROADCAST}
DIRECT_PREFIX = "direct-"  # of the topics of a channel's direct messages
Roles = Mapping[int, Role]


@dataclass(frozen=True, slots=True)
class BotIdentity:
    """The bot's account on Telegram and the agent that it represents."""

    agent_id: UUID
    account: str
    username: str = ""

    @property
    def id(self) -> int:
        """The bot's user id."""
        return int(self.account)


@dataclass(frozen=True, slots=True)
class ChatTarget:
    """The destination of a message: a chat and, in a forum, a topic; or the only answer to a question as a guest.

    In the direct messages of a channel, `direct_topic_id` is the topic of one person.
    """

    chat_id: int
    thread_id: int | None = None
    guest_query_id: str = ""
    direct_topic_id: int | None = None

    @classmethod
    def parse(cls, text: str) -> "ChatTarget":
        """Parse the output of `str`. Raises ValueError for any other text."""
        chat, _, guest_query_id = text.partition("?")
        chat_id, _, thread_id = chat.partition("/")
        if thread_id.startswith(DIRECT_PREFIX):
            return cls(int(chat_id), direct_topic_id=int(thread_id.removeprefix(DIRECT_PREFIX)))
        return cls(int(chat_id), int(thread_id) if thread_id else None, guest_query_id)

    def __str__(self) -> str:
        if self.direct_topic_id is not None:
            return f"{self.chat_id}/{DIRECT_PREFIX}{self.direct_topic_id}"
        chat = f"{self.chat_id}/{self.thread_id}" if self.thread_id is not None else str(self.chat_id)
        return f"{chat}?{self.guest_query_id}" if self.guest_query_id else chat

    @property
    def topic_id(self) -> int | None:
        """The topic of a forum, or of the direct messages of a channel."""
        return self.thread_id if self.direct_topic_id is None else self.direct_topic_id

    @property
    def is_group(self) -> bool:
        """Whether it is a group, a supergroup or a channel, whose ids are negative, or any chat as a guest."""
        return (self.chat_id < 0 and self.direct_topic_id is None) or bool(self.guest_query_id)


@dataclass(frozen=True, slots=True)
class ChatLocation:
    """The world and the room of a chat or topic."""

    world: World
    room: Room
    target: ChatTarget


def thread_id_of(message: Message) -> int | None:
    """Return the topic of a message; None for a reply thread in an ordinary group."""
    return message.message_thread_id if message.is_topic_message else None


def direct_topic_id_of(message: Message) -> int | None:
    """Return the topic of a message in the direct messages of a channel; None elsewhere."""
    topic = message.direct_messages_topic
    return topic.topic_id if topic is not None else None


def build_location(
    identity: BotIdentity,
    chat: Chat,
    thread_id: int | None = None,
    roles: Roles | None = None,
    *,
    guest_query_id: str = "",
    direct_topic_id: int | None = None,
) -> ChatLocation:
    """Build the world of a chat and the room of the chat or of one of its topics.

    A question as a guest is a room of its own, in another world: its chat may have the id of a chat of the bot. What a
    person writes to a channel directly is a world of its own too: others who do so may not learn it.
    """
    target = ChatTarget(chat.id, None if guest_query_id else thread_id, guest_query_id)
    if direct_topic_id is not None:
        target = ChatTarget(chat.id, direct_topic_id=direct_topic_id)
    thread_id = target.thread_id
    world_name = f"{chat.id}?guest" if guest_query_id else str(chat.id)
    if direct_topic_id is not None:
        world_name = str(target)
    world_roles = {derive_user_id(user_number): role for user_number, role in (roles or {}).items()}
    name = chat.title or name_of(chat) or chat.username or ""
    world = World(
        derived_id(PLATFORM, identity.account, "world", world_name),
        PLATFORM,
        world_name,
        name,
        world_roles,
        {"type": chat.type, "username": chat.username or ""},
    )
    room = Room(
        id=derive_room_id(identity.account, target),
        world_id=world.id,
        type=_channel_type_of(target, chat),
        platform=PLATFORM,
        external_id=str(target),
        account=identity.account,
        name=name if thread_id is None else "",
        parent_id=None if thread_id is None else derive_room_id(identity.account, ChatTarget(chat.id)),
    )
    return ChatLocation(world, room, target)


def _channel_type_of(target: ChatTarget, chat: Chat) -> ChannelType:
    if target.guest_query_id:
        return ChannelType.GROUP
    if target.direct_topic_id is not None:
        return ChannelType.DM
    return ChannelType.THREAD if target.thread_id is not None else CHANNEL_TYPES.get(chat.type, ChannelType.GROUP)


def derive_room_id(account: str, target: ChatTarget) -> UUID:
    """Return the id of the room of a chat or topic, as seen by one bot."""
    return derived_id(PLATFORM, account, "room", str(target))


def derive_user_id(user_number: int) -> UUID:
    """Return the entity id of a user, which is the same for all bots."""
    return derived_id(PLATFORM, "user", str(user_number))


def name_of(person: User | Chat) -> str:
    """Return the name of a user or of a private chat; blank without one, as that of a deleted account."""
    return " ".join(filter(None, (person.first_name, person.last_name))).strip()


def build_entity(user: User, identity: BotIdentity) -> Entity:
    """Build the entity of a user; for the bot itself, with the agent's id."""
    names = tuple(filter(None, (name_of(user), user.username)))
    metadata = {"username": user.username or "", "language": user.language_code or ""}
    entity_id = identity.agent_id if user.id == identity.id else derive_user_id(user.id)
    return Entity(entity_id, PLATFORM, str(user.id), names, bool(user.is_bot), metadata)


def build_chat_entity(chat: Chat) -> Entity:
    """Build the entity of a chat that writes as itself: a channel, or an anonymous administrator."""
    names = tuple(filter(None, (chat.title or "", chat.username)))
    return Entity(derive_user_id(chat.id), PLATFORM, str(chat.id), names)


def author_of(message: Message, identity: BotIdentity) -> tuple[Entity, Role | None]:
    """Return the author of a message, and ADMIN for an anonymous administrator."""
    sender = message.sender_chat
    if sender is not None:
        is_unnamed_admin = sender.id == message.chat.id and message.chat.type != Chat.CHANNEL
        return build_chat_entity(sender), Role.ADMIN if is_unnamed_admin else None
    if message.from_user is not None:
        return build_entity(message.from_user, identity), None
    return build_chat_entity(message.chat), None
