"""Which characters connect to a platform, and that no two of them share an account."""

from dataclasses import dataclass

import pytest

from bot.adapter.adapter import lists_platform, select_accounts
from bot.domain.character import Character
from bot.errors import ConfigError
from bot.settings import Layer, Settings


@dataclass(frozen=True)
class Owner:
    character: Character
    settings: Settings


def _owner(name: str, *, adapters: tuple[str, ...] = (), **values: str) -> Owner:
    character = Character(name=name, bio=("a person",), adapters=adapters)
    return Owner(character, Settings([Layer("test", values)]))


def _token(owner: Owner) -> str:
    return owner.settings.require("TOKEN")


def test_a_character_connects_where_it_has_every_setting_and_lists_the_platform() -> None:
    ada = _owner("Ada", TOKEN="1", KEY="k")
    bo = _owner("Bo", TOKEN="2")
    cy = _owner("Cy", TOKEN="3", KEY="k", adapters=("web",))
    dee = _owner("Dee", TOKEN="4", KEY="k", adapters=("chat", "web"))

    selected = select_accounts([ada, bo, cy, dee], "chat", ("TOKEN", "KEY"), _token)

    assert selected == {"1": ada, "4": dee}
    assert lists_platform(cy.character, "web")
    assert not lists_platform(cy.character, "chat")


def test_two_characters_with_the_same_account_are_refused_by_name() -> None:
    owners = [_owner("Ada", TOKEN="1"), _owner("Bo", TOKEN="1")]
    with pytest.raises(ConfigError, match="Ada and Bo have the same TOKEN"):
        select_accounts(owners, "chat", ("TOKEN",), _token)
    with pytest.raises(ConfigError, match="Ada and Bo have the same ACCOUNT"):
        select_accounts(owners, "chat", ("TOKEN",), _token, label="ACCOUNT")
