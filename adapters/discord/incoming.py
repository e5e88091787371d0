"""Discord messages as InboundMessage: text, files, and the rules that forbid an answer. Pure functions.

Discord's guilds, channels and users as worlds, rooms and entities. Pure functions.
"""

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from datetime import datetime
from typing import Any
from uuid import UUID

import discord

import bot.platform as bp
from adapters.discord.config import PLATFORM, DiscordSettings
from bot import Attachment, ChannelType, Content, Entity, MediaKind, Role, Room, World, derived_id
from bot.text import shorten

CHANNEL_TYPES = {
    discord.ChannelType.private: ChannelType.DM,
    discord.ChannelType.public_thread: ChannelType.THREAD,
    discord.ChannelType.private_thread: ChannelType.THREAD,
    discord.ChannelType.news_thread: ChannelType.THREAD,
    discord.ChannelType.forum: ChannelType.FORUM,
    discord.ChannelType.media: ChannelType.FORUM,
    discord.ChannelType.voice: ChannelType.VOICE_GROUP,
    discord.ChannelType.stage_voice: ChannelType.VOICE_GROUP,
}


BOLD_NAME = re.compile(r"\*\*(.{1,80}?):\*\* ")  # where a character has no webhook, its text begins with its name
QUOTED_LINE = re.compile(r"> \[[^\]\n]*\]\(<?https://[^\s)]+\)[^\n]*\n")  # above a reply of a webhook


class EntityMapper:
    """Maps the objects of one account to worlds, rooms and entities with stable ids.

    `cast` are the characters that share the account, if several do; `agent_id` is one of them.
    """

    def __init__(self, agent_id: UUID, bot_id: int = 0) -> None:
        self.agent_id = agent_id
        self.account = str(agent_id)  # the account name stored in rooms and event keys
        self.bot_id = bot_id
        self.application_id = 0
        self.cast: bp.Cast | None = None

    def face_of(self, message: discord.Message) -> bp.AgentHandle | None:
        """Return which of the characters that share the account wrote a message; None for any other author."""
        if self.cast is None or message.interaction_metadata is not None:
            return None
        if message.webhook_id:
            is_own = bool(self.application_id) and message.application_id == self.application_id
            return self.cast.find(message.author.name) if is_own else None
        if message.author.id != self.bot_id:
            return None
        name = BOLD_NAME.match(message.content)
        return (self.cast.find(name[1]) if name else None) or self.cast.first

    async def members(self, channel: object, guild_id: int | None) -> Sequence[bp.AgentHandle]:
        """Return who speaks in a channel; empty where the account has one character."""
        if self.cast is None:
            return ()
        return await self.cast.members(EntityMapper(self.cast.first.agent_id).to_room(channel, guild_id))

    async def is_absent(self, channel: object, guild_id: int | None) -> bool:
        """Return whether others speak in a channel, and not this mapper's agent."""
        members = await self.members(channel, guild_id)
        return bool(members) and all(handle.agent_id != self.agent_id for handle in members)

    def author_of(self, message: discord.Message) -> Entity:
        """Return the entity of a message's author."""
        face = self.face_of(message)
        if face is None:
            return self.to_entity(message.author, is_webhook=message.webhook_id is not None)
        assert self.cast is not None, "only a cast has faces"
        return self.cast.entity_of(face, self.agent_id)

    def world_id(self, guild_id: int | str) -> UUID:
        """Return the id of a guild's world; a direct channel is a world of its own."""
        return derived_id(self.agent_id, PLATFORM, "world", str(guild_id))

    def room_id(self, channel_id: int | str) -> UUID:
        """Return the id of a channel's room."""
        return derived_id(self.agent_id, PLATFORM, "room", str(channel_id))

    def entity_id(self, user_id: int) -> UUID:
        """Return the id of a user's entity; the bot's own account is the agent."""
        return self.agent_id if user_id == self.bot_id else derived_id(PLATFORM, "user", str(user_id))

    def to_world(self, guild: discord.Guild, members: Iterable[object] = ()) -> World:
        """Return the world of a guild, with the roles of its owner and of these members."""
        roles = {self.entity_id(member.id): role_of(member) for member in members if isinstance(member, discord.Member)}
        if guild.owner_id:
            roles[self.entity_id(guild.owner_id)] = Role.OWNER
        return World(self.world_id(guild.id), PLATFORM, str(guild.id), guild.name or "", roles)

    def world_of(
        self, guild_id: int | None, guild: discord.Guild | None, channel_id: int, members: Iterable[object] = ()
    ) -> World:
        """Return the world of a direct channel or of a guild, without name and roles if it is not cached yet."""
        if not guild_id:
            return World(self.world_id(channel_id), PLATFORM, str(channel_id), "Direct messages")
        if guild is None:
            return World(self.world_id(guild_id), PLATFORM, str(guild_id))
        return self.to_world(guild, members)

    def to_room(self, channel: object, guild_id: int | None = None, person: Entity | None = None) -> Room:
        """Return the room of a channel, thread, forum or direct channel, which has the name of the person there."""
        channel_id = getattr(channel, "id", 0)
        guild = getattr(channel, "guild", None)
        guild_id = guild.id if guild is not None else guild_id
        parent_id = getattr(channel, "parent_id", None) if isinstance(channel, discord.Thread) else None
        return Room(
            id=self.room_id(channel_id),
            world_id=self.world_id(guild_id or channel_id),
            type=channel_type_of(channel, guild_id),
            platform=PLATFORM,
            external_id=str(channel_id),
            account=self.account,
            name=str(getattr(channel, "name", None) or ("" if guild_id or person is None else person.name)),
            parent_id=self.room_id(parent_id) if parent_id else None,
            is_age_restricted=_is_age_restricted(channel),
        )

    def user_of(self, interaction: discord.Interaction[Any]) -> Entity:
        """Return the entity of who gave a command or pressed a button, with the language of their Discord."""
        return self.to_entity(interaction.user, language=interaction.locale.value)

    def to_entity(self, user: discord.abc.User, *, is_webhook: bool = False, language: str = "") -> Entity:
        """Return the entity of a user: nickname first, then the names by which it can be found.

        Without the `language` of an interaction it is that of a community server.
        """
        if not language and (guild := getattr(user, "guild", None)) is not None and "COMMUNITY" in guild.features:
            language = guild.preferred_locale.value
        names = (user.display_name, getattr(user, "global_name", None) or "", user.name)
        return Entity(
            id=self.entity_id(user.id),
            platform=PLATFORM,
            external_id=str(user.id),
            names=tuple(dict.fromkeys(name for name in names if name)),
            is_bot=bool(user.bot or is_webhook),
            metadata={"username": user.name, **({"language": language} if language else {})},
        )


def _is_age_restricted(channel: object) -> bool:
    """Return whether Discord lets only adults into a channel; a thread is under the rule of its channel."""
    is_nsfw = getattr(channel, "is_nsfw", None)
    return bool(is_nsfw and is_nsfw())


def channel_type_of(channel: object, guild_id: int | None) -> ChannelType:
    """Return the room type of a channel; an unknown channel is judged by whether it has a guild."""
    if isinstance(channel, discord.PartialMessageable):
        return ChannelType.GROUP if guild_id else ChannelType.DM
    return CHANNEL_TYPES.get(getattr(channel, "type", discord.ChannelType.text), ChannelType.GROUP)


def role_of(member: discord.Member) -> Role:
    """Return the role that Discord's permissions give a member."""
    if member.id == member.guild.owner_id:
        return Role.OWNER
    if member.guild.default_role is None:  # the roles of an unavailable guild are unknown
        return Role.MEMBER
    permissions = member.guild_permissions
    return Role.ADMIN if permissions.administrator or permissions.manage_guild else Role.MEMBER


def has_ignored_role(member: discord.Member, settings: DiscordSettings) -> bool:
    """Return whether a member has one of the roles in IGNORED_ROLES."""
    if not settings.ignored_roles:
        return False
    ignored = {name.removeprefix("@").casefold() for name in settings.ignored_roles}
    return any(str(role.id) in ignored or role.name.casefold() in ignored for role in member.roles)


def build_lineage(channel: object, guild_id: int | None) -> list[str]:
    """Return the ids that a rule may name for a channel, most specific first: thread, channel, guild."""
    ids = [getattr(channel, "id", 0), getattr(channel, "parent_id", None), guild_id]
    return [str(item_id) for item_id in ids if item_id]


USER_MESSAGE_TYPES = (  # Discord itself announces joins and pins
    discord.MessageType.default,
    discord.MessageType.reply,
    discord.MessageType.chat_input_command,
    discord.MessageType.context_menu_command,
)
UNREADABLE = "[a message that cannot be read]"


def build_mention(message: discord.Message, mapper: EntityMapper) -> bp.MentionContext:
    """Return how a message addresses the bot by Discord's own entities; its text does not count.

    A reply to the bot lists it among the mentioned, unless its author has turned that off; it counts as a mention if
    the text mentions the bot too.
    """
    bot_id = mapper.bot_id
    referenced = message.reference.resolved if message.reference is not None else None
    replied_id = referenced.author.id if isinstance(referenced, discord.Message) else None
    is_listed = any(user.id == bot_id for user in message.mentions)
    return bp.MentionContext(
        is_mention=(is_listed and (replied_id != bot_id or bot_id in message.raw_mentions))
        or any(role.tags is not None and role.tags.bot_id == bot_id for role in message.role_mentions),
        is_reply=replied_id == bot_id,
        is_thread=isinstance(message.channel, discord.Thread),
        replies_to=mapper.author_of(referenced).id if isinstance(referenced, discord.Message) else None,
        mentions_others=any(user.id not in (bot_id, replied_id) for user in message.mentions),
    )


def build_reaction(
    payload: discord.RawReactionActionEvent,
    channel: object,
    guild: discord.Guild | None,
    mapper: EntityMapper,
    *,
    timestamp: datetime,
) -> bp.Reaction:
    """Build the reaction that a user has added to a message."""
    member = payload.member
    author = (
        mapper.to_entity(member)
        if member is not None
        else Entity(mapper.entity_id(payload.user_id), PLATFORM, str(payload.user_id))
    )
    room = mapper.to_room(channel, payload.guild_id)
    world = mapper.world_of(payload.guild_id, guild, payload.channel_id, [member])
    return bp.Reaction(world, room, author, str(payload.message_id), str(payload.emoji), timestamp)


def address_members(
    message: discord.Message, mapper: EntityMapper, members: Sequence[bp.AgentHandle], mention: bp.MentionContext
) -> bp.MentionContext:
    """Return how a message addresses the mapper's agent, where several characters share the account."""
    if mapper.cast is None:
        return mention
    if mapper.face_of(message) is not None:
        return replace(mention, denied_by=bp.OF_ANOTHER)
    me = next(handle for handle in members if handle.agent_id == mapper.agent_id)
    referenced = message.reference.resolved if message.reference is not None else None
    replied = mapper.face_of(referenced) if isinstance(referenced, discord.Message) else None
    return mapper.cast.address(
        members,
        me,
        re.sub(rf"<@!?{mapper.bot_id}>", "", message.content).strip(),
        mention,
        replied=replied.agent_id if replied is not None else None,
        is_direct=guild_id_of(message) is None,
    )


def guild_id_of(message: discord.Message) -> int | None:
    """Return the id of a message's guild; None in a direct channel."""
    guild = message.guild or getattr(message.channel, "guild", None)
    guild_id: int | None = guild.id if guild is not None else getattr(message.channel, "guild_id", None)
    return guild_id


async def find_mention(
    message: discord.Message, mapper: EntityMapper, settings: DiscordSettings, room_rules: bp.RoomRules
) -> bp.MentionContext | None:
    """Return how a message addresses the bot and what forbids an answer; None if it is not stored."""
    if not _is_stored(message, mapper, settings):
        return None
    guild_id = guild_id_of(message)
    lineage_ids = build_lineage(message.channel, guild_id)
    rule = room_rules.find(PLATFORM, *lineage_ids)
    if rule.is_ignored or await mapper.is_absent(message.channel, guild_id):
        return None
    members = await mapper.members(message.channel, guild_id)
    mention = address_members(message, mapper, members, build_mention(message, mapper))
    return apply_rules(mention, lineage_ids, settings, rule, is_direct=guild_id is None)


def _is_stored(message: discord.Message, mapper: EntityMapper, settings: DiscordSettings) -> bool:
    """Return whether a message is stored: not the agent's own, nor one of Discord itself or of an ignored bot."""
    is_own_webhook = message.webhook_id and mapper.application_id and message.application_id == mapper.application_id
    face = mapper.face_of(message)
    is_of_account = message.author.id == mapper.bot_id or is_own_webhook
    is_own = is_of_account and (face is None or face.agent_id == mapper.agent_id)
    if is_own or message.type not in USER_MESSAGE_TYPES:
        return False
    is_bot = bool(message.author.bot or message.webhook_id)
    return face is not None or not (is_bot and settings.discord_should_ignore_bot_messages)


def to_inbound_message(
    message: discord.Message,
    mapper: EntityMapper,
    mention: bp.MentionContext,
    *,
    edited_at: datetime | None = None,
    is_backfill: bool = False,
) -> bp.InboundMessage:
    """Build the inbound message; `mention` already contains the rule that forbids an answer.

    The time of an edit is its revision.
    """
    revision = int(edited_at.timestamp() * 1000) if edited_at else 0
    author = mapper.author_of(message)
    room = mapper.to_room(message.channel, guild_id_of(message), author)
    content = Content(
        text=_text_of_author(message, mapper),
        attachments=attachments_of(message),
        source=PLATFORM,
        url=message.jump_url,
        mention=mention,
        metadata=_reply_metadata(message),
        quotation=build_quotation(message, mapper),
    )
    world = mapper.world_of(guild_id_of(message), message.guild, message.channel.id, [message.author])
    return bp.InboundMessage.build(
        world,
        room,
        author,
        content,
        created_at=message.created_at,
        message_id=str(message.id),
        event_id=f"MU:{message.id}:{revision}" if edited_at else f"MC:{message.id}",
        revision=revision,
        is_backfill=is_backfill,
    )


def _text_of_author(message: discord.Message, mapper: EntityMapper) -> str:
    """Return the text of a message without the name and the quoted line that a shared account writes before it."""
    text = text_of(message)
    if mapper.face_of(message) is None:
        return text
    return QUOTED_LINE.sub("", text, count=1) if message.webhook_id else BOLD_NAME.sub("", text, count=1)


def _reply_metadata(message: discord.Message) -> dict[str, str]:
    reference = message.reference
    if reference is None or not reference.message_id:
        return {}
    if message.message_snapshots:
        snapshot = message.message_snapshots[0]
        return bp.build_forward_metadata(snapshot.created_at, message_id=str(reference.message_id))
    return {"replies_to": str(reference.message_id)}


def text_of(message: discord.Message) -> str:
    """Return the text of a message with embeds, stickers and poll, one per line."""
    return _join_lines(_text_lines(message, _own_embeds(message)))


def attachments_of(message: discord.Message) -> tuple[Attachment, ...]:
    """Return the files of a message and of those it forwards, and the pictures of embeds."""
    return tuple(_attachments(message, _own_embeds(message)))


def _own_embeds(message: discord.Message) -> Sequence[discord.Embed]:
    """Return the embeds that the author wrote: those in a person's message are previews of links."""
    return message.embeds if message.author.bot or message.webhook_id else ()


def _attachments(message: discord.Message, embeds: Sequence[discord.Embed]) -> Iterator[Attachment]:
    yield from map(_to_attachment, message.attachments)
    yield from _embedded_pictures(message.id, embeds)
    for snapshot in message.message_snapshots:
        yield from map(_to_attachment, snapshot.attachments)
        yield from _embedded_pictures(message.id, snapshot.embeds)


def _embedded_pictures(message_id: int, embeds: Sequence[discord.Embed]) -> Iterator[Attachment]:
    for embed in embeds:
        is_picture = embed.type in ("image", "gifv")  # a linked one; the thumbnail of others is an ornament
        picture = embed.image if embed.image.url or not is_picture else embed.thumbnail
        url = picture.proxy_url or picture.url or ""
        if url.startswith(("https://", "http://")):  # others name a file of the message
            yield Attachment(f"{message_id}-{url}", MediaKind.IMAGE, url=url, title=shorten(embed.title or "", 100))


def _join_lines(lines: Iterable[str]) -> str:
    return "\n".join(line for line in lines if line.strip())


def _text_lines(message: discord.Message, embeds: Sequence[discord.Embed]) -> Iterator[str]:
    yield message.clean_content
    for snapshot in message.message_snapshots:
        stickers = map(_sticker_text, snapshot.stickers)
        texts = [snapshot.content, *_component_texts(snapshot.components)]
        forwarded = _join_lines([*texts, *map(_embed_text, snapshot.embeds), *stickers])
        if not forwarded and not snapshot.attachments:
            forwarded = UNREADABLE
        yield "\n".join(f"> {line}" for line in f"[forwarded] {forwarded}".splitlines())  # quoted: written elsewhere
    yield from _component_texts(message.components)
    yield from map(_embed_text, embeds)
    yield from map(_sticker_text, message.stickers)
    if message.activity is not None:
        yield "[an invitation to a shared activity]"
    if message.poll is not None:
        answers = " / ".join(answer.text for answer in message.poll.answers)
        yield f"[poll] {message.poll.question}: {answers}"


def build_quotation(message: discord.Message, mapper: EntityMapper) -> bp.Quotation | None:
    """Return text and files of the message that is replied to, with previews of its links; None where it is gone."""
    referenced = message.reference.resolved if message.reference is not None else None
    return quote(referenced, mapper) if isinstance(referenced, discord.Message) else None


def quote(referenced: discord.Message, mapper: EntityMapper) -> bp.Quotation:
    """Return text and files of a message, with previews of its links."""
    author, attachments = referenced.author, tuple(_attachments(referenced, referenced.embeds))
    text = _join_lines(_text_lines(referenced, referenced.embeds))
    if not text and not attachments:
        kind = referenced.type
        text = UNREADABLE if kind in USER_MESSAGE_TYPES else f"[{kind.name.replace('_', ' ')}]"
    author_id = mapper.author_of(referenced).id
    return bp.Quotation(text, author.display_name, author_id, str(referenced.id), attachments)


def _component_texts(components: Iterable[discord.Component]) -> Iterator[str]:
    """Yield the texts of a message that a bot has laid out of components; they stand in the place of its text."""
    for component in components:
        if isinstance(component, discord.TextDisplay):
            yield component.content
        elif isinstance(component, discord.Container | discord.SectionComponent):
            yield from _component_texts(component.children)


def _sticker_text(sticker: discord.StickerItem) -> str:
    return f"[sticker: {sticker.name}]"


def _embed_text(embed: discord.Embed) -> str:
    parts = [
        embed.author.name,
        embed.title,
        embed.description,
        *(f"{field.name}: {field.value}" for field in embed.fields),
        embed.footer.text,
        embed.url,
    ]
    text = "\n".join(str(part) for part in parts if part)
    return f"[embed] {text}" if text else ""


def _to_attachment(file: discord.Attachment) -> Attachment:
    return Attachment(
        id=str(file.id),
        kind=MediaKind.AUDIO if file.is_voice_message() else MediaKind.of_content_type(file.content_type or ""),
        url=file.url,
        content_type=file.content_type or "",
        name=file.filename,
        title=file.title or file.description or file.filename,
        size=file.size,
    )


def apply_rules(
    mention: bp.MentionContext,
    lineage_ids: Sequence[str],
    settings: DiscordSettings,
    room_rule: bp.RoomRule,
    *,
    is_direct: bool,
) -> bp.MentionContext:
    """Return the mention with the name of the first rule that forbids an answer, if one does.

    `lineage_ids` are the ids of the channel, most specific first; a thread is under the rules of its channel.
    """
    if is_direct:
        rule = "DISCORD_SHOULD_IGNORE_DIRECT_MESSAGES" if settings.discord_should_ignore_direct_messages else ""
    else:
        rule = _guild_rule(mention, lineage_ids, settings)
    rule = rule or room_rule.refusal_for(mention, is_direct=is_direct)
    return replace(mention, denied_by=rule) if rule else mention


def _guild_rule(mention: bp.MentionContext, lineage_ids: Sequence[str], settings: DiscordSettings) -> str:
    if settings.channel_ids and not set(lineage_ids) & set(settings.channel_ids):
        return "CHANNEL_IDS"
    if set(lineage_ids) & set(settings.discord_listen_channel_ids):
        return "DISCORD_LISTEN_CHANNEL_IDS"
    is_addressed = mention.is_mention or mention.is_reply
    if settings.discord_should_respond_only_to_mentions and not is_addressed:
        return "DISCORD_SHOULD_RESPOND_ONLY_TO_MENTIONS"
    return ""
