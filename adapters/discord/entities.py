"""From Discord's servers, channels and people to worlds, rooms and entities; pure."""

from collections.abc import Iterable
from uuid import UUID

import discord

from bot import ChannelType, Entity, Role, Room, World, derived_id

PLATFORM = "discord"

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


class EntityMapper:
    """Names worlds, rooms and people for one agent: the same thing of Discord always gets the same id."""

    def __init__(self, agent_id: UUID, bot_id: int = 0) -> None:
        self.agent_id = agent_id
        self.bot_id = bot_id

    @property
    def account(self) -> str:
        """What the rooms and keys of this agent call its account."""
        return str(self.agent_id)

    def world_id(self, guild_id: int) -> UUID:
        """Name a server's world; a conversation between two is a world of its own, by its channel."""
        return derived_id(self.agent_id, PLATFORM, "world", str(guild_id))

    def room_id(self, channel_id: int | str) -> UUID:
        """Name a channel's room."""
        return derived_id(self.agent_id, PLATFORM, "room", str(channel_id))

    def entity_id(self, user_id: int) -> UUID:
        """Name a person; our own account is the agent."""
        return self.agent_id if user_id == self.bot_id else derived_id(PLATFORM, "user", str(user_id))

    def to_direct_world(self, channel_id: int) -> World:
        """Make the world of a conversation between two: what is said there is nobody else's business."""
        return World(self.world_id(channel_id), PLATFORM, str(channel_id), "Direct messages")

    def to_world(self, guild: discord.Guild, members: Iterable[object] = ()) -> World:
        """Make the world of a server, with what Discord says of its owner and of these members."""
        roles = {
            self.entity_id(member.id): role_of(member)
            for member in members
            if isinstance(member, discord.Member)
        }
        if guild.owner_id:
            roles[self.entity_id(guild.owner_id)] = Role.OWNER
        return World(self.world_id(guild.id), PLATFORM, str(guild.id), guild.name or "", roles)

    def to_room(self, channel: object, guild_id: int | None = None) -> Room:
        """Make the room of a channel, a thread, a forum or a conversation between two."""
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
            name=str(getattr(channel, "name", None) or ""),
            parent_id=self.room_id(parent_id) if parent_id else None,
        )

    def to_entity(self, user: discord.abc.User, *, is_webhook: bool = False) -> Entity:
        """Make the entity of a person: nickname first, then the names by which they are found."""
        names = (user.display_name, getattr(user, "global_name", None) or "", user.name)
        return Entity(
            id=self.entity_id(user.id),
            platform=PLATFORM,
            external_id=str(user.id),
            names=tuple(dict.fromkeys(name for name in names if name)),
            is_bot=bool(user.bot or is_webhook),
        )


def channel_type_of(channel: object, guild_id: int | None) -> ChannelType:
    """Tell what kind of room a channel is; one that is not known yet goes by whether it has a server."""
    if isinstance(channel, discord.PartialMessageable):
        return ChannelType.GROUP if guild_id else ChannelType.DM
    discord_type = getattr(channel, "type", None)
    return (
        CHANNEL_TYPES.get(discord_type, ChannelType.GROUP)
        if isinstance(discord_type, discord.ChannelType)
        else ChannelType.GROUP
    )


def role_of(member: discord.Member) -> Role:
    """Tell what Discord's own permissions make of a member."""
    if member.id == member.guild.owner_id:
        return Role.OWNER
    if member.guild.default_role is None:  # of a server that is out of order nothing is known
        return Role.MEMBER
    permissions = member.guild_permissions
    return Role.ADMIN if permissions.administrator or permissions.manage_guild else Role.MEMBER


def build_lineage(channel: object, guild_id: int | None) -> list[str]:
    """List what a rule may name for a channel, the nearest first: thread, channel, category, server."""
    ids = [getattr(channel, "id", 0), getattr(channel, "parent_id", None), guild_id]
    return [str(item_id) for item_id in ids if item_id]
