"""Parsing of messages, commands, buttons and reactions into inbound values."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from functools import partial
from typing import Any

from telegram import (
    CallbackQuery,
    Chat,
    ChecklistTask,
    ExternalReplyInfo,
    Message,
    MessageReactionUpdated,
    PaidMediaPhoto,
    PaidMediaVideo,
    PhotoSize,
    ReactionType,
)

from adapters.telegram.entities import (
    PLATFORM,
    BotIdentity,
    ChatLocation,
    Roles,
    author_of,
    build_chat_entity,
    build_entity,
    build_location,
    direct_topic_id_of,
    thread_id_of,
)
from adapters.telegram.mentions import (
    UNKNOWN_USER,
    ParsedCommand,
    build_metadata,
    chat_names,
    describe_origin,
    find_command,
    find_replied_author,
    forwarded_author,
    is_mention,
    mentions_others,
    original_author,
)
from adapters.telegram.validation import field_names
from bot import Attachment, Content, MediaKind, Role
from bot.platform import (
    ChoiceSelection,
    CommandInvocation,
    InboundMessage,
    MentionContext,
    Quotation,
    Reaction,
    RoomRules,
    build_forward_metadata,
)

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
class IncomingContext:
    """What parsing needs besides the update: own identity, rules, allowed chats, administrators.

    `former_chat_ids` are the ids that supergroups had as groups; rules that name those still hold.
    """

    identity: BotIdentity
    rules: RoomRules
    allowed_chats: tuple[str, ...] = ()
    roles: Roles | None = None
    former_chat_ids: dict[int, int] = field(default_factory=dict)
    answers_channel_posts: bool = False

    def find_message_denial(self, location: ChatLocation, message: Message, mention: MentionContext) -> str:
        """Return the rule that forbids an answer to a message; blank if none does."""
        denial = self.find_denial(location, message.chat, mention)
        if not denial and is_channel_post(message) and not self.answers_channel_posts:
            return CHANNEL_POSTS_RULE
        return denial

    def find_denial(self, location: ChatLocation, chat: Chat, mention: MentionContext) -> str:
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

    def is_ignored(self, location: ChatLocation, chat: Chat) -> bool:
        """Return whether messages of this chat are not even stored."""
        return self.rules.find(PLATFORM, *self._names_of(location, chat)).is_ignored

    def _names_of(self, location: ChatLocation, chat: Chat) -> tuple[str, ...]:
        former_id = self.former_chat_ids.get(chat.id)
        return (*chat_names(location.target, chat.username), *([str(former_id)] if former_id else []))


def is_channel_post(message: Message) -> bool:
    """Return whether a channel wrote a message: a post, its copy in the linked group, or one of its direct messages."""
    if message.chat.type == Chat.CHANNEL or message.is_automatic_forward:
        return True
    return message.direct_messages_topic is not None and message.sender_chat is not None


def locate_message(message: Message, context: IncomingContext) -> ChatLocation:
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
    message: Message, update_id: int, context: IncomingContext, location: ChatLocation | None = None
) -> InboundMessage:
    """Convert a message or its edited version; `location` is that of `locate_message`, if it is known already."""
    identity, location = context.identity, location or locate_message(message, context)
    author, _ = author_of(message, identity)
    text, attachments = text_of(message), tuple(attachments_of(message, identity.account))
    content = Content(
        text=text or ("" if attachments else f"[{content_kind_of(message)}]"),
        source=PLATFORM,
        url=message.link or "",
        attachments=attachments,
        mention=_build_mention(
            message, context, location, is_service=not (text or attachments or _is_of_new_kind(message))
        ),
        quotation=build_quotation(message, identity),
        metadata=_forward_metadata(message, identity),
    )
    return InboundMessage.build(
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
    message: Message, update_id: int, context: IncomingContext, command_names: Sequence[str]
) -> CommandInvocation | None:
    """Return the command if it is for this bot and allowed here; None for any other message."""
    command = find_command(message)
    if command is None or command.name not in command_names or not context.is_addressed(command):
        return None
    location = locate_message(message, context)
    if context.find_message_denial(location, message, MentionContext(is_mention=True)):
        return None
    author, _ = author_of(message, context.identity)
    return CommandInvocation(
        command.name,
        location.world,
        location.room,
        author,
        event_id=str(update_id),
        created_at=message.date,
        text=command.text,
        message_id=str(message.message_id),
    )


def parse_choice(query: CallbackQuery, context: IncomingContext, created_at: datetime) -> ChoiceSelection | None:
    """Return the pressed choice; None without a message or where answers are not allowed."""
    message = query.message
    if message is None or not query.data:
        return None
    thread_id, direct_topic_id = None, None
    if isinstance(message, Message):
        thread_id, direct_topic_id = thread_id_of(message), direct_topic_id_of(message)
    location = build_location(context.identity, message.chat, thread_id, context.roles, direct_topic_id=direct_topic_id)
    if context.find_denial(location, message.chat, MentionContext(is_mention=True)):
        return None
    return ChoiceSelection(
        location.world,
        location.room,
        build_entity(query.from_user, context.identity),
        query.data,
        event_id=query.id,
        created_at=created_at,
    )


def locate_reaction(update: MessageReactionUpdated, context: IncomingContext, topic_id: int | None) -> ChatLocation:
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
    update: MessageReactionUpdated, context: IncomingContext, topic_id: int | None
) -> tuple[list[Reaction], list[Reaction]]:
    """Return the reactions that a user added and those that they removed."""
    location = locate_reaction(update, context, topic_id)
    if update.user is not None:
        author = build_entity(update.user, context.identity)
    else:
        author = build_chat_entity(update.actor_chat or update.chat)
    old_keys = [_reaction_key(reaction) for reaction in update.old_reaction]
    new_keys = [_reaction_key(reaction) for reaction in update.new_reaction]
    build_reaction = partial(
        Reaction, location.world, location.room, author, str(update.message_id), created_at=update.date
    )
    added = [build_reaction(emoji=reaction) for reaction in new_keys if reaction not in old_keys]
    return added, [build_reaction(emoji=reaction) for reaction in old_keys if reaction not in new_keys]


def _build_mention(
    message: Message, context: IncomingContext, location: ChatLocation, *, is_service: bool
) -> MentionContext:
    command = find_command(message)
    replied_author = find_replied_author(message, context.identity)
    mention = MentionContext(
        is_mention=bool(message.guest_query_id) or is_mention(message, context.identity),
        is_reply=replied_author == context.identity.agent_id,
        is_thread=location.target.thread_id is not None,
        replies_to=replied_author,
        mentions_others=mentions_others(message, context.identity),
    )
    denial = context.find_message_denial(location, message, mention)
    if not denial and command is not None and not context.is_addressed(command):
        denial = "a command for another bot"
    if not denial and is_service:
        denial = "service message"
    return replace(mention, denied_by=denial) if denial else mention


def _revision_of(message: Message, update_id: int) -> int:
    if message.edit_date is None:
        return 0
    return int(message.edit_date.timestamp()) * REVISION_STEP + update_id % REVISION_STEP


def _reaction_key(reaction: ReactionType) -> str:
    custom = getattr(reaction, "custom_emoji_id", None)
    return str(getattr(reaction, "emoji", "") or (f"custom emoji {custom}" if custom else reaction.type))


def content_kind_of(message: Message) -> str:
    """Return the kind of content that is neither text nor file, such as "pinned message"."""
    names = (name for name, value in message.to_dict().items() if value and name not in ENVELOPE_FIELDS)
    return next(names, "message").replace("_", " ")


def text_of(message: Message) -> str:
    """Return the text or caption and a description of other content, quoted if another author wrote it."""
    body = "\n".join(filter(None, [message.text or message.caption or "", " ".join(_describe_content(message))]))
    origin = describe_origin(message)
    if not origin:
        return body
    attributed = f"[{_neutralize(origin)}]\n{body}"
    return "\n".join(f"> {line}" for line in attributed.splitlines() if line.strip())


def _forward_metadata(message: Message, identity: BotIdentity) -> dict[str, str]:
    origin = message.forward_origin
    author_id = forwarded_author(origin, identity) if origin is not None else None
    return build_forward_metadata(origin.date, author_id=author_id) if origin is not None and author_id else {}


def build_quotation(message: Message, identity: BotIdentity) -> Quotation | None:
    """Return text and files of the replied message: the conversation in the prompt may not reach back to it.

    In privacy mode a message of another user was not even received. Of a message in another chat Telegram tells no
    more than the files and the part that its reply quotes.
    """
    replied, external = message.reply_to_message, message.external_reply
    excerpt = message.quote.text if message.quote is not None else ""
    if replied is not None:
        if replied.forum_topic_created is not None or replied.message_id == thread_id_of(message):  # it begins a topic
            return None
        author, _ = author_of(replied, identity)
        attachments = tuple(attachments_of(replied, identity.account))
        text = excerpt or text_of(replied) or ("" if attachments else f"[{content_kind_of(replied)}]")
        name, author_id = author.name or UNKNOWN_USER, author.id
        if replied.forward_origin and (original_id := forwarded_author(replied.forward_origin, identity)):
            name, author_id = original_author(replied.forward_origin), original_id
        return Quotation(text, name, author_id, str(replied.message_id), attachments)
    if external is not None:
        user = getattr(external.origin, "sender_user", None)
        return Quotation(
            "\n".join(filter(None, [excerpt, " ".join(_describe_content(external))])) or "[a message in another chat]",
            original_author(external.origin),
            build_entity(user, identity).id if user is not None else None,
            attachments=tuple(attachments_of(external, identity.account)),
        )
    if message.reply_to_story is not None:
        chat = message.reply_to_story.chat
        return Quotation("[story]", chat.effective_name or UNKNOWN_USER, build_chat_entity(chat).id)
    return Quotation(excerpt, UNKNOWN_USER) if excerpt.strip() else None


def _is_of_new_kind(message: Message) -> bool:
    """Return whether a private message has content that the library does not know yet: such is not met by silence."""
    return message.chat.type == Chat.PRIVATE and not ENVELOPE_FIELDS.issuperset(message.api_kwargs)


def _describe_content(message: Message | ExternalReplyInfo) -> Iterator[str]:
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


def _describe_offer(message: Message | ExternalReplyInfo) -> Iterator[str]:
    """Describe what waits for a deed of its reader: tasks, a payment, a giveaway."""
    if message.checklist:
        tasks = (f"{_neutralize(task.text)}{' (done)' * _is_done(task)}" for task in message.checklist.tasks)
        yield f"[checklist: {_neutralize(message.checklist.title)}: {'; '.join(tasks)}]"
    if message.paid_media:
        hidden = sum(not isinstance(media, PaidMediaPhoto | PaidMediaVideo) for media in message.paid_media.paid_media)
        note = f", {hidden} of its files cannot be seen" if hidden else ""
        yield f"[paid media for {message.paid_media.star_count} stars{note}]"
    if message.invoice:
        yield f"[invoice: {_neutralize(message.invoice.title)}]"
    if message.giveaway or message.giveaway_winners:
        yield "[giveaway]"


def _is_done(task: ChecklistTask) -> bool:
    return task.completion_date is not None


def _neutralize(text: str) -> str:
    """Replace brackets, so that a user's text cannot end the bracket around it."""
    return " ".join(text.split()).replace("[", "(").replace("]", ")")


def attachments_of(message: Message | ExternalReplyInfo, account: str) -> Iterator[Attachment]:
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


def _pictures_of(message: Message | ExternalReplyInfo, account: str) -> Iterator[Attachment]:
    """Build an attachment for each picture and sticker, and for the media that are to be paid for."""
    if message.photo:
        yield _build_photo(account, message.photo)
    elif message.live_photo:
        yield _build_attachment(account, message.live_photo, MediaKind.VIDEO, "video/mp4", "live photo")
    if message.sticker and not (message.sticker.is_animated or message.sticker.is_video):
        yield _build_attachment(account, message.sticker, MediaKind.IMAGE, "image/webp", "sticker.webp")
    for media in message.paid_media.paid_media if message.paid_media else ():
        if isinstance(media, PaidMediaPhoto) and media.photo:
            yield _build_photo(account, media.photo)
        elif isinstance(media, PaidMediaVideo):
            yield _build_attachment(account, media.video, MediaKind.VIDEO, "video/mp4", "video.mp4")


def _build_photo(account: str, sizes: Sequence[PhotoSize]) -> Attachment:
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
