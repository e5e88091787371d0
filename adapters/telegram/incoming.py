"""Parsing of messages, commands, buttons and reactions into inbound values.

Conversion of chats, topics and users to worlds, rooms and entities; pure.

Mentions, replies, commands and forwards of a message, by Telegram's entities; pure.

Text, entities and files of messages that the library would not find: of rich messages (Bot API 10.1); pure.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from functools import partial
from typing import Any
from uuid import UUID

import telegram

import bot.platform as bp
from adapters.telegram.client import MAX_UPDATE_DEPTH, field_names, find_mentions
from adapters.telegram.config import bot_id_of
from bot import Attachment, ChannelType, Content, Entity, MediaKind, Role, Room, World, derived_id

PLATFORM = "telegram"
FORUM_KEY = "is_forum"  # in the metadata of the rooms of a group with topics
CHANNEL_TYPES = {telegram.Chat.PRIVATE: ChannelType.DM, telegram.Chat.CHANNEL: ChannelType.BROADCAST}
DIRECT_PREFIX = "direct-"  # of the topics of a channel's direct messages
Roles = Mapping[int, Role]


@dataclass(frozen=True, slots=True)
class BotIdentity:
    """The bot's account on Telegram and the agent that it represents.

    Where several agents share the bot, the account of all but the first has the agent's id after the bot's.
    """

    agent_id: UUID
    account: str
    username: str = ""

    @property
    def id(self) -> int:
        """The bot's user id."""
        return int(self.bot_id)

    @property
    def bot_id(self) -> str:
        """The bot's user id as text."""
        return bot_id_of(self.account)


INLINE_QUERY = "inline"  # in place of the id of a query of a guest, which is a number


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
    def is_inline(self) -> bool:
        """Whether it stands for the chats, which are unknown, in which people send answers to inline questions."""
        return self.guest_query_id == INLINE_QUERY

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


def thread_id_of(message: telegram.Message) -> int | None:
    """Return the topic of a message; None for a reply thread in an ordinary group."""
    return message.message_thread_id if message.is_topic_message else None


def direct_topic_id_of(message: telegram.Message) -> int | None:
    """Return the topic of a message in the direct messages of a channel; None elsewhere."""
    topic = message.direct_messages_topic
    return topic.topic_id if topic is not None else None


def build_location(
    identity: BotIdentity,
    chat: telegram.Chat,
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
        derive_world_id(identity.account, world_name),
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
        metadata={FORUM_KEY: True} if chat.is_forum and not guest_query_id else {},
    )
    return ChatLocation(world, room, target)


def _channel_type_of(target: ChatTarget, chat: telegram.Chat) -> ChannelType:
    if target.guest_query_id:
        return ChannelType.GROUP
    if target.direct_topic_id is not None:
        return ChannelType.DM
    return ChannelType.THREAD if target.thread_id is not None else CHANNEL_TYPES.get(chat.type, ChannelType.GROUP)


def derive_world_id(account: str, name: str) -> UUID:
    """Return the id of the world with this external id, as seen by one bot."""
    return derived_id(PLATFORM, account, "world", name)


def derive_room_id(account: str, target: ChatTarget) -> UUID:
    """Return the id of the room of a chat or topic, as seen by one bot."""
    return derived_id(PLATFORM, account, "room", str(target))


def derive_user_id(user_number: int) -> UUID:
    """Return the entity id of a user, which is the same for all bots."""
    return derived_id(PLATFORM, "user", str(user_number))


def name_of(person: telegram.User | telegram.Chat) -> str:
    """Return the name of a user or of a private chat; blank without one, as that of a deleted account."""
    return " ".join(filter(None, (person.first_name, person.last_name))).strip()


def build_entity(user: telegram.User, identity: BotIdentity) -> Entity:
    """Build the entity of a user; for the bot itself, with the agent's id."""
    names = tuple(filter(None, (name_of(user), user.username)))
    metadata = {"username": user.username or "", "language": user.language_code or ""}
    entity_id = identity.agent_id if user.id == identity.id else derive_user_id(user.id)
    return Entity(entity_id, PLATFORM, str(user.id), names, bool(user.is_bot), metadata)


def build_chat_entity(chat: telegram.Chat) -> Entity:
    """Build the entity of a chat that writes as itself: a channel, or an anonymous administrator."""
    names = tuple(filter(None, (chat.title or "", chat.username)))
    return Entity(derive_user_id(chat.id), PLATFORM, str(chat.id), names)


def author_of(message: telegram.Message, identity: BotIdentity) -> tuple[Entity, Role | None]:
    """Return the author of a message, and ADMIN for an anonymous administrator."""
    sender = message.sender_chat
    if sender is not None:
        is_unnamed_admin = sender.id == message.chat.id and message.chat.type != telegram.Chat.CHANNEL
        return build_chat_entity(sender), Role.ADMIN if is_unnamed_admin else None
    if message.from_user is not None:
        return build_entity(message.from_user, identity), None
    return build_chat_entity(message.chat), None


COMMAND_PATTERN = re.compile(r"/([\w-]+)(?:@(\w+))?")  # Telegram's own entity ends at a hyphen
UNKNOWN_USER = "an unknown user"
PERSON_ENTITIES: list[str | None] = [telegram.MessageEntity.MENTION, telegram.MessageEntity.TEXT_MENTION]


@dataclass(frozen=True, slots=True)
class ParsedCommand:
    """A command at the start of a message; `bot` is the addressed bot, blank if none is named."""

    name: str
    bot: str
    text: str


def find_command(message: telegram.Message) -> ParsedCommand | None:
    """Return the command that a message begins with; None in forwarded and inline-bot text."""
    if describe_origin(message):
        return None
    for entity in message.entities:
        if entity.type == telegram.MessageEntity.BOT_COMMAND and entity.offset == 0 and message.text:
            match = COMMAND_PATTERN.match(message.text)
            if match is not None:
                name, bot = match[1].lower().replace("-", "_"), match[2] or ""
                return ParsedCommand(name, bot.lower(), message.text[match.end() :].strip())
    return None


def is_mention(message: telegram.Message, identity: BotIdentity) -> bool:
    """Return whether a message mentions the bot by @name, linked name or addressed command."""
    if message.forward_origin is not None:  # forwarded text addresses the other members
        return False
    entities = [*message.parse_entities().items(), *message.parse_caption_entities().items()]
    return any(_names_bot(entity, text, identity) for entity, text in entities)


def mentions_others(message: telegram.Message, identity: BotIdentity) -> bool:
    """Return whether the sender mentions others than the bot, by @name or linked name."""
    if message.forward_origin is not None:
        return False
    entities = [
        *message.parse_entities(PERSON_ENTITIES).items(),
        *message.parse_caption_entities(PERSON_ENTITIES).items(),
    ]
    return any(not _names_bot(entity, text, identity) for entity, text in entities)


def find_replied_author(message: telegram.Message, context: "IncomingContext") -> UUID | None:
    """Return the author of the message that it replies to.

    What only stands in a topic or below a channel's post is no reply.
    """
    replied = message.reply_to_message
    if replied is None or replied.forum_topic_created is not None or replied.is_automatic_forward:
        return None
    if thread_id_of(message) is not None and replied.message_id == message.message_thread_id:
        return None
    return replied_author_of(replied, context).id


def replied_author_of(replied: telegram.Message, context: "IncomingContext") -> Entity:
    """Return the author of a message to which another replies: of one of the bot, the character that wrote it."""
    author, _ = author_of(replied, context.identity)
    if context.addressing is None or author.id != context.identity.agent_id:
        return author
    return context.addressing.cast.entity_of(context.addressing.author_or_first, context.identity.agent_id)


def build_metadata(message: telegram.Message) -> dict[str, object]:
    """Return metadata: ids of the message, its chat and the replied message, and its origin."""
    metadata: dict[str, object] = {"message_id": message.message_id, "chat": str(message.chat.id)}
    if (replied := message.reply_to_message) is not None:
        metadata["reply_to"] = str(replied.message_id)
    if message.via_bot is not None:
        metadata["via_bot"] = message.via_bot.username or str(message.via_bot.id)
    return metadata


def chat_names(target: ChatTarget, username: str | None) -> tuple[str, ...]:
    """Return the names of a chat in settings, the most specific first."""
    names = (str(target), str(target.chat_id), f"@{username}" if username else "", username or "")
    return tuple(dict.fromkeys(filter(None, names)))


def _names_bot(entity: telegram.MessageEntity, text: str, identity: BotIdentity) -> bool:
    own_mention = f"@{identity.username}".lower()
    if entity.type == telegram.MessageEntity.MENTION:
        return bool(identity.username) and text.lower() == own_mention
    if entity.type == telegram.MessageEntity.TEXT_MENTION:
        return entity.user is not None and entity.user.id == identity.id
    if entity.type == telegram.MessageEntity.BOT_COMMAND:
        return bool(identity.username) and text.lower().endswith(own_mention)
    return False


def describe_origin(message: telegram.Message) -> str:
    """Return how the text of another author came into a message; empty if the sender wrote it."""
    if message.forward_origin is not None:
        return f"forwarded from {original_author(message.forward_origin)}"
    if message.via_bot is not None:  # the sender of an inline result sees little more than its title
        return f"written by the bot @{message.via_bot.username or message.via_bot.id}"
    return ""


def forwarded_author(origin: telegram.MessageOrigin, identity: BotIdentity) -> UUID | None:
    """Return the entity id of who wrote a message that was forwarded; None if Telegram does not tell."""
    user, chat = getattr(origin, "sender_user", None), getattr(origin, "sender_chat", None)
    if user is not None:
        return build_entity(user, identity).id
    return build_chat_entity(chat).id if chat is not None else None


def original_author(origin: telegram.MessageOrigin) -> str:
    """Return the name of the original author of a message that was forwarded, or is in another chat."""
    user, chat = getattr(origin, "sender_user", None), getattr(origin, "sender_chat", None)
    chat = chat or getattr(origin, "chat", None)
    if user is not None:
        return name_of(user) or UNKNOWN_USER
    if chat is not None:
        return str(chat.title or chat.username or chat.id)
    return str(getattr(origin, "sender_user_name", "") or UNKNOWN_USER)


ALLOWED_CHATS_RULE, CHANNEL_POSTS_RULE = "TELEGRAM_ALLOWED_CHATS", "TELEGRAM_ANSWER_CHANNEL_POSTS"
REVISION_STEP = 1 << 20  # edits within one second differ by their update id
ENVELOPE_FIELDS = field_names(
    "message_id message_thread_id direct_messages_topic from sender_chat sender_boost_count sender_tag date "
    "edit_date chat "
    "is_topic_message is_automatic_forward is_from_offline is_paid_post reply_to_message external_reply "
    "quote via_bot has_protected_content media_group_id author_signature entities caption_entities "
    "link_preview_options effect_id reply_markup"
)


@dataclass(frozen=True, slots=True)
class Addressing:
    """Which of the characters that share the bot speak in a room, and which wrote the message that is answered.

    That is the one to which a message replies, or whose button is pressed; `author` is None for one of anyone else.
    """

    cast: bp.Cast
    members: Sequence[bp.AgentHandle]
    author: bp.AgentHandle | None = None

    @property
    def author_or_first(self) -> bp.AgentHandle:
        """The author, or the first character of the bot."""
        return self.author or self.cast.first

    def apply(
        self, message: telegram.Message, mention: bp.MentionContext, context: "IncomingContext"
    ) -> bp.MentionContext:
        """Return how a message addresses the agent of a context, where `mention` says how it addresses the bot."""
        me = next((handle for handle in self.members if handle.agent_id == context.identity.agent_id), None)
        if me is None:
            return mention
        text = message.text or message.caption or ""
        is_reply = mention.replies_to is not None and self.author is not None
        return self.cast.address(
            self.members,
            me,
            re.sub(rf"@{re.escape(context.identity.username)}\b", "", text, flags=re.IGNORECASE).strip(),
            mention,
            replied=self.author.agent_id if is_reply and self.author is not None else None,
            is_direct=message.chat.type == telegram.Chat.PRIVATE or message.direct_messages_topic is not None,
        )


@dataclass(frozen=True, slots=True)
class IncomingContext:
    """What parsing needs besides the update: own identity, rules, allowed chats, administrators.

    `former_chat_ids` are the ids that supergroups had as groups; rules that name those still hold.
    """

    identity: BotIdentity
    rules: bp.RoomRules
    allowed_chats: tuple[str, ...] = ()
    roles: Roles | None = None
    former_chat_ids: dict[int, int] = field(default_factory=dict)
    answers_channel_posts: bool = False
    addressing: Addressing | None = None  # of one message, where several characters share the bot

    @property
    def is_absent(self) -> bool:
        """Whether others speak in the room, and not this agent."""
        members = self.addressing.members if self.addressing is not None else ()
        return bool(members) and all(handle.agent_id != self.identity.agent_id for handle in members)

    def find_message_denial(self, location: ChatLocation, message: telegram.Message, mention: bp.MentionContext) -> str:
        """Return the rule that forbids an answer to a message; blank if none does."""
        denial = self.find_denial(location, message.chat, mention)
        if not denial and is_channel_post(message) and not self.answers_channel_posts:
            return CHANNEL_POSTS_RULE
        return denial

    def find_denial(self, location: ChatLocation, chat: telegram.Chat, mention: bp.MentionContext) -> str:
        """Return the rule that forbids an answer; blank if none does."""
        names = self._names_of(location, chat)
        allowed = {name.lower() for name in self.allowed_chats}
        if allowed and allowed.isdisjoint(name.lower() for name in names):
            return ALLOWED_CHATS_RULE
        rule = self.rules.find(PLATFORM, *names)
        return rule.refusal_for(mention, is_direct=location.room.type.is_direct)

    def is_addressed(self, command: ParsedCommand) -> bool:
        """Return whether a command is for this bot."""
        return command.bot in ("", self.identity.username.lower())

    def is_ignored(self, location: ChatLocation, chat: telegram.Chat) -> bool:
        """Return whether messages of this chat are not even stored."""
        return self.rules.find(PLATFORM, *self._names_of(location, chat)).is_ignored

    def _names_of(self, location: ChatLocation, chat: telegram.Chat) -> tuple[str, ...]:
        former_id = self.former_chat_ids.get(chat.id)
        return (*chat_names(location.target, chat.username), *([str(former_id)] if former_id else []))


def is_channel_post(message: telegram.Message) -> bool:
    """Return whether a channel wrote a message: a post, its copy in the linked group, or one of its direct messages."""
    if message.chat.type == telegram.Chat.CHANNEL or message.is_automatic_forward:
        return True
    return message.direct_messages_topic is not None and message.sender_chat is not None


def locate_message(message: telegram.Message, context: IncomingContext) -> ChatLocation:
    """Return the location of a message with known roles, always including that of its author."""
    author, role = author_of(message, context.identity)
    location = build_location(
        context.identity,
        message.chat,
        thread_id_of(message),
        context.roles,
        guest_query_id=message.guest_query_id or "",
        direct_topic_id=direct_topic_id_of(message),
    )
    if role is None and context.roles is None:
        return location
    roles = dict(location.world.roles)
    roles.setdefault(author.id, role or Role.MEMBER)  # a former administrator
    return replace(location, world=replace(location.world, roles=roles))


def parse_message(
    message: telegram.Message, update_id: int, context: IncomingContext, location: ChatLocation | None = None
) -> bp.InboundMessage:
    """Convert a message or its edited version; `location` is that of `locate_message`, if it is known already."""
    identity, location = context.identity, location or locate_message(message, context)
    author, _ = author_of(message, identity)
    text, attachments = text_of(message), tuple(attachments_of(message, identity.bot_id))
    content = Content(
        text=text or ("" if attachments else f"[{content_kind_of(message)}]"),
        source=PLATFORM,
        url=message.link or "",
        attachments=attachments,
        mention=_build_mention(
            message, context, location, is_service=not (text or attachments or _is_of_new_kind(message))
        ),
        quotation=build_quotation(message, context),
        metadata=_forward_metadata(message, identity),
    )
    return bp.InboundMessage.build(
        location.world,
        location.room,
        author,
        content,
        created_at=message.date,
        message_id=str(message.message_id),
        event_id=str(update_id),
        revision=_revision_of(message, update_id),
        metadata=build_metadata(message),
    )


def parse_command(
    message: telegram.Message, update_id: int, context: IncomingContext, command_names: Sequence[str]
) -> bp.CommandInvocation | None:
    """Return the command if it is for this bot and allowed here; None for any other message."""
    command = find_command(message)
    if command is None or command.name not in command_names or not context.is_addressed(command):
        return None
    location = locate_message(message, context)
    if context.find_message_denial(location, message, bp.MentionContext(is_mention=True)):
        return None
    author, _ = author_of(message, context.identity)
    return bp.CommandInvocation(
        command.name,
        location.world,
        location.room,
        author,
        event_id=str(update_id),
        created_at=message.date,
        text=command.text,
        message_id=str(message.message_id),
    )


def parse_choice(
    query: telegram.CallbackQuery, context: IncomingContext, created_at: datetime
) -> bp.ChoiceSelection | None:
    """Return the pressed choice; None without a message or where answers are not allowed."""
    message = query.message
    if message is None or not query.data:
        return None
    thread_id, direct_topic_id = None, None
    if isinstance(message, telegram.Message):
        thread_id, direct_topic_id = thread_id_of(message), direct_topic_id_of(message)
    location = build_location(context.identity, message.chat, thread_id, context.roles, direct_topic_id=direct_topic_id)
    if context.find_denial(location, message.chat, bp.MentionContext(is_mention=True)):
        return None
    return bp.ChoiceSelection(
        location.world,
        location.room,
        build_entity(query.from_user, context.identity),
        query.data,
        event_id=query.id,
        created_at=created_at,
    )


def locate_reaction(
    update: telegram.MessageReactionUpdated, context: IncomingContext, topic_id: int | None
) -> ChatLocation:
    """Return the location of a message with a reaction, of which only the known topic tells the room."""
    is_direct = bool(update.chat.is_direct_messages)
    return build_location(
        context.identity,
        update.chat,
        None if is_direct else topic_id,
        context.roles,
        direct_topic_id=topic_id if is_direct else None,
    )


def parse_reactions(
    update: telegram.MessageReactionUpdated, context: IncomingContext, topic_id: int | None
) -> tuple[list[bp.Reaction], list[bp.Reaction]]:
    """Return the reactions that a user added and those that they removed."""
    location = locate_reaction(update, context, topic_id)
    if update.user is not None:
        author = build_entity(update.user, context.identity)
    else:
        author = build_chat_entity(update.actor_chat or update.chat)
    old_keys = [_reaction_key(reaction) for reaction in update.old_reaction]
    new_keys = [_reaction_key(reaction) for reaction in update.new_reaction]
    build_reaction = partial(
        bp.Reaction, location.world, location.room, author, str(update.message_id), created_at=update.date
    )
    added = [build_reaction(emoji=reaction) for reaction in new_keys if reaction not in old_keys]
    return added, [build_reaction(emoji=reaction) for reaction in old_keys if reaction not in new_keys]


def _build_mention(
    message: telegram.Message, context: IncomingContext, location: ChatLocation, *, is_service: bool
) -> bp.MentionContext:
    command = find_command(message)
    replied_author = find_replied_author(message, context)
    mention = bp.MentionContext(
        is_mention=bool(message.guest_query_id) or is_mention(message, context.identity),
        is_reply=replied_author == context.identity.agent_id,
        is_thread=location.target.thread_id is not None,
        replies_to=replied_author,
        mentions_others=mentions_others(message, context.identity),
    )
    if context.addressing is not None:
        mention = context.addressing.apply(message, mention, context)
    denial = mention.denied_by or context.find_message_denial(location, message, mention)
    if not denial and command is not None and not context.is_addressed(command):
        denial = "a command for another bot"
    if not denial and is_service:
        denial = "service message"
    return replace(mention, denied_by=denial) if denial else mention


def _revision_of(message: telegram.Message, update_id: int) -> int:
    if message.edit_date is None:
        return 0
    return int(message.edit_date.timestamp()) * REVISION_STEP + update_id % REVISION_STEP


def _reaction_key(reaction: telegram.ReactionType) -> str:
    custom = getattr(reaction, "custom_emoji_id", None)
    return str(getattr(reaction, "emoji", "") or (f"custom emoji {custom}" if custom else reaction.type))


def content_kind_of(message: telegram.Message) -> str:
    """Return the kind of content that is neither text nor file, such as "pinned message"."""
    names = (name for name, value in message.to_dict().items() if value and name not in ENVELOPE_FIELDS)
    return next(names, "message").replace("_", " ")


def text_of(message: telegram.Message) -> str:
    """Return the text or caption and a description of other content, quoted if another author wrote it."""
    body = "\n".join(filter(None, [message.text or message.caption or "", " ".join(_describe_content(message))]))
    origin = describe_origin(message)
    if not origin:
        return body
    attributed = f"[{_neutralize(origin)}]\n{body}"
    return "\n".join(f"> {line}" for line in attributed.splitlines() if line.strip())


def _forward_metadata(message: telegram.Message, identity: BotIdentity) -> dict[str, str]:
    origin = message.forward_origin
    author_id = forwarded_author(origin, identity) if origin is not None else None
    return bp.build_forward_metadata(origin.date, author_id=author_id) if origin is not None and author_id else {}


def build_quotation(message: telegram.Message, context: IncomingContext) -> bp.Quotation | None:
    """Return text and files of the replied message: the conversation in the prompt may not reach back to it.

    In privacy mode a message of another user was not even received. Of a message in another chat Telegram tells no
    more than the files and the part that its reply quotes.
    """
    identity, replied, external = context.identity, message.reply_to_message, message.external_reply
    excerpt = message.quote.text if message.quote is not None else ""
    if replied is not None:
        if replied.forum_topic_created is not None or replied.message_id == thread_id_of(message):  # it begins a topic
            return None
        author = replied_author_of(replied, context)
        attachments = tuple(attachments_of(replied, identity.bot_id))
        is_of_bot = replied.from_user is not None and replied.from_user.id == identity.id
        own_name = f"{author.name}: " if context.addressing is not None and is_of_bot else ""
        text = (
            excerpt
            or text_of(replied).removeprefix(own_name)
            or ("" if attachments else f"[{content_kind_of(replied)}]")
        )
        name, author_id = author.name or UNKNOWN_USER, author.id
        if replied.forward_origin and (original_id := forwarded_author(replied.forward_origin, identity)):
            name, author_id = original_author(replied.forward_origin), original_id
        return bp.Quotation(text, name, author_id, str(replied.message_id), attachments)
    if external is not None:
        user = getattr(external.origin, "sender_user", None)
        return bp.Quotation(
            "\n".join(filter(None, [excerpt, " ".join(_describe_content(external))])) or "[a message in another chat]",
            original_author(external.origin),
            build_entity(user, identity).id if user is not None else None,
            attachments=tuple(attachments_of(external, identity.bot_id)),
        )
    if message.reply_to_story is not None:
        chat = message.reply_to_story.chat
        return bp.Quotation("[story]", chat.effective_name or UNKNOWN_USER, build_chat_entity(chat).id)
    return bp.Quotation(excerpt, UNKNOWN_USER) if excerpt.strip() else None


def _is_of_new_kind(message: telegram.Message) -> bool:
    """Return whether a private message has content that the library does not know yet: such is not met by silence."""
    return message.chat.type == telegram.Chat.PRIVATE and not ENVELOPE_FIELDS.issuperset(message.api_kwargs)


def _describe_content(message: telegram.Message | telegram.ExternalReplyInfo) -> Iterator[str]:
    if message.sticker:
        yield f"[sticker {message.sticker.emoji or ''}]".replace(" ]", "]")
    if message.venue:
        yield f"[place: {_neutralize(message.venue.title)}, {_neutralize(message.venue.address)}]"
    if message.location:
        yield f"[location: {message.location.latitude:.5f}, {message.location.longitude:.5f}]"
    if message.contact:
        name = f"{message.contact.first_name} {message.contact.last_name or ''}".strip()
        yield f"[contact: {_neutralize(name)}, {_neutralize(message.contact.phone_number)}]"
    if message.poll:
        options = "; ".join(_neutralize(option.text) for option in message.poll.options)
        yield f"[poll: {_neutralize(message.poll.question)} {options}]"
    if message.dice:
        yield f"[dice {message.dice.emoji}: {message.dice.value}]"
    if message.game:
        yield f"[game: {_neutralize(message.game.title)}]"
    if message.story:
        yield "[story]"
    yield from _describe_offer(message)


def _describe_offer(message: telegram.Message | telegram.ExternalReplyInfo) -> Iterator[str]:
    """Describe what waits for a deed of its reader: tasks, a payment, a giveaway."""
    if message.checklist:
        tasks = (f"{_neutralize(task.text)}{' (done)' * _is_done(task)}" for task in message.checklist.tasks)
        yield f"[checklist: {_neutralize(message.checklist.title)}: {'; '.join(tasks)}]"
    if message.paid_media:
        hidden = sum(
            not isinstance(media, telegram.PaidMediaPhoto | telegram.PaidMediaVideo)
            for media in message.paid_media.paid_media
        )
        note = f", {hidden} of its files cannot be seen" if hidden else ""
        yield f"[paid media for {message.paid_media.star_count} stars{note}]"
    if message.invoice:
        yield f"[invoice: {_neutralize(message.invoice.title)}]"
    if message.giveaway or message.giveaway_winners:
        yield "[giveaway]"


def _is_done(task: telegram.ChecklistTask) -> bool:
    return task.completion_date is not None


def _neutralize(text: str) -> str:
    """Replace brackets, so that a user's text cannot end the bracket around it."""
    return " ".join(text.split()).replace("[", "(").replace("]", ")")


def attachments_of(message: telegram.Message | telegram.ExternalReplyInfo, account: str) -> Iterator[Attachment]:
    """Build an attachment for each file; its URL is meaningful to this adapter only and has no token."""
    yield from _pictures_of(message, account)
    if message.animation:
        yield _build_attachment(account, message.animation, MediaKind.VIDEO, "video/mp4", "animation.mp4")
    elif message.document:
        kind = MediaKind.of_content_type(message.document.mime_type or "")
        yield _build_attachment(account, message.document, kind, "application/octet-stream", "document")
    if message.voice:
        yield _build_attachment(account, message.voice, MediaKind.AUDIO, "audio/ogg", "voice.ogg")
    if message.audio:
        yield _build_attachment(account, message.audio, MediaKind.AUDIO, "audio/mpeg", message.audio.title or "audio")
    if message.video:
        yield _build_attachment(account, message.video, MediaKind.VIDEO, "video/mp4", "video.mp4")
    if message.video_note:
        yield _build_attachment(account, message.video_note, MediaKind.VIDEO, "video/mp4", "video note")


def _pictures_of(message: telegram.Message | telegram.ExternalReplyInfo, account: str) -> Iterator[Attachment]:
    """Build an attachment for each picture and sticker, and for the media that are to be paid for."""
    if message.photo:
        yield _build_photo(account, message.photo)
    elif message.live_photo:
        yield _build_attachment(account, message.live_photo, MediaKind.VIDEO, "video/mp4", "live photo")
    if message.sticker and not (message.sticker.is_animated or message.sticker.is_video):
        yield _build_attachment(account, message.sticker, MediaKind.IMAGE, "image/webp", "sticker.webp")
    for media in message.paid_media.paid_media if message.paid_media else ():
        if isinstance(media, telegram.PaidMediaPhoto) and media.photo:
            yield _build_photo(account, media.photo)
        elif isinstance(media, telegram.PaidMediaVideo):
            yield _build_attachment(account, media.video, MediaKind.VIDEO, "video/mp4", "video.mp4")


def _build_photo(account: str, sizes: Sequence[telegram.PhotoSize]) -> Attachment:
    largest = max(sizes, key=lambda size: size.width * size.height)
    return _build_attachment(account, largest, MediaKind.IMAGE, "image/jpeg", "photo.jpg")


def _build_attachment(account: str, file: Any, kind: MediaKind, content_type: str, name: str) -> Attachment:
    return Attachment(
        id=str(file.file_unique_id),
        kind=kind,
        url=f"{PLATFORM}:{account}/{file.file_id}",
        content_type=getattr(file, "mime_type", None) or content_type,
        name=getattr(file, "file_name", None) or name,
        size=getattr(file, "file_size", None),
    )


MAX_RICH_DEPTH = 100
TEXT_FIELDS = ("text", "alternative_text", "expression")
ENTITY_FIELDS: Mapping[str, Sequence[str]] = {  # formats that are entities of a text too, and what those hold
    "mention": (),
    "text_mention": ("user",),
    "bot_command": (),
    "code": (),
    "pre": (),
}
FILE_FIELDS = {"photo": "photo", "video": "video", "animation": "animation", "audio": "audio", "voice_note": "voice"}


def with_rich_text(value: Any, depth: int = 0) -> Any:
    """Return an update in which a rich message has a text, entities, and the first file of each kind instead.

    What the message has besides stays. Blocks and formats of unknown types are read for the texts that they hold.
    A text without the field of its entities gets those of the @names in it, which Telegram always marks.
    """
    if depth > MAX_UPDATE_DEPTH:
        return value
    if isinstance(value, list):
        return [with_rich_text(item, depth + 1) for item in value]
    if not isinstance(value, Mapping):
        return value
    message = {name: with_rich_text(item, depth + 1) for name, item in value.items() if name != "rich_message"}
    if "chat" in message and isinstance(text := message.get("text"), str) and "@" in text:
        message["entities"] = find_mentions(text) if message.get("entities") is None else message["entities"]
    if (rich_message := value.get("rich_message")) is None:
        return message
    reader = _RichTextReader()
    reader.read(rich_message)
    if reader.text.strip() and not message.get("text"):
        message |= {"text": reader.text.rstrip(), "entities": reader.entities}
    found = {**reader.files, **message}
    return found if len(found) > len(value) - 1 else {**found, "rich_message": rich_message}


class _RichTextReader:
    """Collects the text of a rich message, its entities and its files; offsets are in UTF-16 units."""

    def __init__(self) -> None:
        self.text = ""
        self.entities: list[dict[str, Any]] = []
        self.files: dict[str, Any] = {}
        self._length = 0  # of the text
        self._label_end = 0  # of the label of the item that is read

    def read(self, value: Any, depth: int = 0) -> None:
        """Read a text, a block, or a list of them."""
        if depth > MAX_RICH_DEPTH:
            return
        if isinstance(value, str):
            self._add(value)
        elif isinstance(value, list):
            for item in value:
                self.read(item, depth + 1)
        elif isinstance(value, Mapping):
            self._read_part(value, depth + 1)

    def _read_part(self, part: Mapping[str, Any], depth: int) -> None:
        if isinstance(label := part.get("label"), str):
            self._begin_line()
            self._add(f"{label} ")
            self._label_end = self._length
        self._read_line(part.get("summary"), depth)
        start = self._length
        for name in TEXT_FIELDS:
            self.read(part.get(name), depth)
        kind = part.get("type")
        if isinstance(kind, str) and kind in ENTITY_FIELDS and self._length > start:
            place = {"type": kind, "offset": start, "length": self._length - start}
            self.entities.append({**place, **{name: part.get(name) for name in ENTITY_FIELDS[kind]}})
        for name in ("items", "blocks", "cells"):
            children = part.get(name)
            for child in children if isinstance(children, list) else ():
                self._read_line(_join_cells(child) if name == "cells" else child, depth)
        for name in ("caption", "credit"):
            self._read_line(part.get(name), depth)
        for name, kind in FILE_FIELDS.items():
            if part.get(name):
                self.files.setdefault(kind, part[name])

    def _read_line(self, value: Any, depth: int) -> None:
        if value:
            self._begin_line()
            self.read(value, depth)
            self._begin_line()

    def _begin_line(self) -> None:
        if self.text and not self.text.endswith("\n") and self._length != self._label_end:
            self._add("\n")

    def _add(self, text: str) -> None:
        self.text += text
        self._length += len(text.encode("utf-16-le", "surrogatepass")) // 2


def _join_cells(row: Any) -> Any:
    return [part for cell in row for part in (cell, " | ")][:-1] if isinstance(row, list) else row
