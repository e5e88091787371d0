"""Which characters have an account on a platform."""

from collections.abc import Callable, Collection, Hashable, Iterable
from typing import Protocol, TypeVar

from bot.domain.character import Character
from bot.errors import ConfigError
from bot.settings import Settings

K = TypeVar("K", bound=Hashable)


class Owner(Protocol):
    """A character with its settings, such as an `AgentHandle`."""

    @property
    def character(self) -> Character: ...
    @property
    def settings(self) -> Settings: ...


H = TypeVar("H", bound=Owner)


def lists_platform(character: Character, platform: str) -> bool:
    """Return whether a character's file allows a platform: its `adapters` name it, or are empty."""
    return not character.adapters or platform in character.adapters


def select_accounts(
    owners: Iterable[H], platform: str, needs: Collection[str], key: Callable[[H], K], *, label: str = ""
) -> dict[K, H]:
    """Return the owners that have every setting in `needs` and list the platform, by their account's key.

    `key` finds what no two accounts may share, such as the token; `label` is the variable that holds it, by
    default the first of `needs`. Raises ConfigError, naming both characters, where two share it.
    """
    accounts: dict[K, H] = {}
    for owner in owners:
        if not lists_platform(owner.character, platform) or not all(name in owner.settings for name in needs):
            continue
        other = accounts.setdefault(key(owner), owner)
        if other is not owner:
            raise ConfigError(
                f"{other.character.name} and {owner.character.name} have the same "
                f"{label or next(iter(needs))}: give each a value of its own in its file's secrets, or other "
                "`adapters` in the file of one"
            )
    return accounts
