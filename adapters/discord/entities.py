"""Discord's guilds, channels and users as worlds, rooms and entities. Pure functions."""

from collections.abc import Iterable
from uuid import UUID

import discord

from adapters.discord.config import PLATFORM
from bot import ChannelType, Entity, Role, Room, World, derived_id

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
    """Maps the objects of one account to worlds, rooms and entities with stable ids."""

    def __init__(self, agent_id: UUID, bot_id: int = 0) -> None:
        self.agent_id = agent_id
        self.bot_id = bot_id

    @property
    def account(self) -> str:
        """The account name stored in rooms and event keys."""
        return str(self.agent_id)

    def world_id(self, guild_id: int) -> UUID:
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
        )

    def to_entity(self, user: discord.abc.User, *, is_webhook: bool = False) -> Entity:
        """Return the entity of a user: nickname first, then the names by which it can be found."""
        names = (user.display_name, getattr(user, "global_name", None) or "", user.name)
        return Entity(
            id=self.entity_id(user.id),
            platform=PLATFORM,
            external_id=str(user.id),
            names=tuple(dict.fromkeys(name for name in names if name)),
            is_bot=bool(user.bot or is_webhook),
            metadata={"username": user.name},
        )


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


def build_lineage(channel: object, guild_id: int | None) -> list[str]:
    """Return the ids that a rule may name for a channel, most specific first: thread, channel, guild."""
    ids = [getattr(channel, "id", 0), getattr(channel, "parent_id", None), guild_id]
    return [str(item_id) for item_id in ids if item_id]
