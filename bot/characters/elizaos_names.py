"""Known keys, v0 keys, platform and adapter names of elizaOS."""

import re
from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from bot.domain.character import Character, KnowledgeItem, Style

PATH_STARTS: Final = (".", "/", "~")  # of names of plugins and adapters that are paths
V0_KEYS: Final = frozenset(
    {"clients", "modelProvider", "lore", "people", "clientConfig", "twitterProfile", "nft", "extends"}
)

WITHOUT_EFFECT: Final[Mapping[str, str]] = MappingProxyType(
    {
        "imageModelProvider": "images come from whichever model plugin offers them",
        "imageVisionModelProvider": "pictures are described by whichever model plugin offers it",
        "modelEndpointOverride": "set OPENAI_BASE_URL in settings instead",
        "twitterProfile": "the account of the X keys is used",
        "instagramProfile": "there is no Instagram here",
        "simsaiProfile": "there is no SimsAI here",
        "twitterSpaces": "there is no voice on X here",
        "nft": "there is no wallet here",
        "people": "people are stored when they first write",
        "extends": "a character cannot extend another; copy the fields that it should inherit",
        "voice": "set VOICE_REPLIES, and the voice of the model plugin, such as OPENAI_TTS_VOICE",
    }
)

SETTINGS_WITHOUT_EFFECT: Final[Mapping[str, str]] = MappingProxyType(
    {
        "voice": "set VOICE_REPLIES, and the voice of the model plugin, such as OPENAI_TTS_VOICE",
        "model": "set the model plugin's own name, such as OPENAI_LARGE_MODEL and OPENAI_SMALL_MODEL",
        "embeddingModel": "the model plugin chooses it",
        "modelConfig": "the model plugin chooses them",
        "imageSettings": "set the model plugin's own names",
        "ragKnowledge": "knowledge in the file itself is always in the prompt",
        "chains": "there is no wallet here",
        "intiface": "there is no such client here",
        "buttplug": "there is no such client here",
    }
)

PLATFORM_SETTINGS: Final[Mapping[tuple[str, str], str]] = MappingProxyType(
    {
        ("discord", "shouldIgnoreBotMessages"): "DISCORD_SHOULD_IGNORE_BOT_MESSAGES",
        ("discord", "shouldIgnoreDirectMessages"): "DISCORD_SHOULD_IGNORE_DIRECT_MESSAGES",
        ("discord", "shouldRespondOnlyToMentions"): "DISCORD_SHOULD_RESPOND_ONLY_TO_MENTIONS",
        ("discord", "allowedChannelIds"): "CHANNEL_IDS",
        ("telegram", "allowedGroupIds"): "TELEGRAM_ALLOWED_CHATS",
    }
)

ADAPTER_ALIASES: Final[Mapping[str, str]] = MappingProxyType({"twitter": "x", "direct": "web", "rest": "web"})
_PACKAGE: Final = re.compile(r"(?:@[\w-]+/)?(?:client-|plugin-|adapter-)?", re.ASCII)
_ALIASES: Final = {field.alias or name: name for name, field in Character.model_fields.items()}
KEYS: Final = tuple(_ALIASES)
KNOWLEDGE_ALIASES: Final = {field.alias or name: name for name, field in KnowledgeItem.model_fields.items()}
STYLE_KEYS: Final = tuple(Style.model_fields)
FIELDS: Final[Mapping[str, str]] = MappingProxyType(
    {**{name: name for name in _ALIASES.values()}, **_ALIASES, "clients": "adapters"}
)
# The file's author names the contents of these fields, so that names decide what is a secret.
FREE_FIELDS: Final = frozenset({"settings", "secrets", "client_config", "twitter_profile", "nft"})


def to_adapter_name(client: str) -> str:
    """Return the adapter name of a v0 client: `twitter`, `@elizaos/client-twitter` -> `x`; a path as it is."""
    name = client.strip()
    if name.startswith(PATH_STARTS):
        return name
    name = name.lower()
    name = name[match.end() :] if (match := _PACKAGE.match(name)) else name
    return ADAPTER_ALIASES.get(name, name)
