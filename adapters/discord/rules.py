"""Which of the operator's rules forbids an answer, and which a message's being remembered at all; pure."""

from collections.abc import Sequence
from dataclasses import replace

from adapters.discord.config import DiscordSettings
from bot import MentionContext, RoomRule


def denied(
    mention: MentionContext,
    lineage: Sequence[str],
    settings: DiscordSettings,
    room_rule: RoomRule,
    *,
    is_direct: bool,
) -> MentionContext:
    """Write into a mention the name of the first rule that forbids an answer, if one does.

    `lineage` names where it was said, the nearest first; a thread is under the rules of its channel.
    """
    rule = _direct_rule(settings) if is_direct else _rule(mention, lineage, settings)
    rule = rule or room_rule.denies(mention, is_direct=is_direct)
    return replace(mention, denied_by=rule) if rule else mention


def is_ignored(settings: DiscordSettings, *, is_bot: bool) -> bool:
    """Tell whether a message of such an author is not to be kept."""
    return is_bot and settings.discord_should_ignore_bot_messages


def _direct_rule(settings: DiscordSettings) -> str:
    return "DISCORD_SHOULD_IGNORE_DIRECT_MESSAGES" if settings.discord_should_ignore_direct_messages else ""


def _rule(mention: MentionContext, lineage: Sequence[str], settings: DiscordSettings) -> str:
    if settings.channel_ids and not set(lineage) & set(settings.channel_ids):
        return "CHANNEL_IDS"
    if set(lineage) & set(settings.discord_listen_channel_ids):
        return "DISCORD_LISTEN_CHANNEL_IDS"
    is_called = mention.is_mention or mention.is_reply
    if settings.discord_should_respond_only_to_mentions and not is_called:
        return "DISCORD_SHOULD_RESPOND_ONLY_TO_MENTIONS"
    return ""
