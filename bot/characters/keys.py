"""Which keys a character file may have, and the field that each one fills."""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from bot.domain.character import Character, Style

_ALIASES: Final = {field.alias or name: name for name, field in Character.model_fields.items()}

KEYS: Final = tuple(_ALIASES)
STYLE_KEYS: Final = tuple(Style.model_fields)
FIELDS: Final[Mapping[str, str]] = MappingProxyType(
    {**{name: name for name in _ALIASES.values()}, **_ALIASES, "clients": "adapters"}
)
FREE_FIELDS: Final = frozenset({"settings", "secrets", "client_config", "twitter_profile", "nft"})
"""Fields whose contents the file's author names, so that names there tell what is a secret."""
