"""Which characters connect to a platform, and that no two of them share an account."""

from dataclasses import dataclass

import pytest

from bot.adapter.adapter import Account, AccountAdapter, lists_platform, select_accounts
from bot.domain.character import Character
from bot.domain.ledger import Delivery
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


class SmallAccount(Account):
    """An account that can be opened unless it is broken."""

    def __init__(self, name: str, *, is_broken: bool = False) -> None:
        self.keys, self.is_broken, self.calls = (name,), is_broken, list[str]()

    async def open(self) -> None:
        self.calls.append("open")
        if self.is_broken:
            raise ConfigError(f"{self.keys[0]} cannot be opened")

    async def close(self) -> None:
        self.calls.append("close")


class SmallAdapter(AccountAdapter[SmallAccount]):
    platform = "small"

    async def deliver(self, delivery: Delivery) -> str:
        return self.account_for(delivery).keys[0]


async def test_where_an_account_cannot_be_opened_all_are_closed_and_its_error_is_raised() -> None:
    accounts = [SmallAccount("a"), SmallAccount("b", is_broken=True), SmallAccount("c")]
    with pytest.raises(ConfigError, match="b cannot be opened"):
        async with SmallAdapter(accounts):
            pytest.fail("the adapter is not entered")
    assert [account.calls for account in accounts] == [["open", "close"], ["open", "close"], ["close"]]


async def test_accounts_are_closed_once_when_their_adapter_ends() -> None:
    accounts = [SmallAccount("a"), SmallAccount("b")]
    async with SmallAdapter(accounts) as adapter:
        assert [adapter.find_account(key) for key in ("a", "b", "c")] == [*accounts, None]
    assert [account.calls for account in accounts] == [["open", "close"]] * 2
