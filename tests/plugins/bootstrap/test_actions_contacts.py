"""Rules of contacts: what somebody says of themselves is kept as what it is, and nobody says it for them."""

from typing import Any

import pytest

from bot import ChannelType, Role, derived_id
from bot.testing import AgentHarness, running_agent
from tests.plugins.bootstrap.obeying import Obedient, code, decisions, run_due

GROUP = ChannelType.GROUP
ALICE = derived_id("test", "entity", "Alice")


async def known(stage: AgentHarness, kind: str = "CONTACT") -> list[Any]:
    return [dict(one.data) for one in await stage.agent.store.entities.components(ALICE, kind)]


async def test_what_somebody_tells_of_themselves_is_kept_piece_by_piece_and_can_be_forgotten() -> None:
    obedient = Obedient()
    async with running_agent(model=obedient.model) as stage:
        obedient.does("UPDATE_CONTACT", kind="email", value="alice@example.org")
        await stage.send("Ada, my mail is alice@example.org", kind=GROUP)
        obedient.does("UPDATE_ENTITY", kind="handle", value="telegram:alice")
        await stage.send("I am alice on Telegram")
        assert await known(stage) == [{"email": "alice@example.org", "handle": "telegram:alice"}]

        obedient.does("UPDATE_CONTACT", kind="email", value="")
        await stage.send("forget my mail")
        assert await known(stage) == [{"handle": "telegram:alice"}]


@pytest.mark.parametrize(
    ("kind", "value"),
    [
        ("email", "alice"),
        ("email", "a@b c.d"),
        ("phone", "call me"),
        ("website", "javascript:alert(1)"),
        ("handle", "alice"),
        ("messages", "perhaps"),
        ("email", "a" * 300 + "@example.org"),
        ("password", "secret"),
        ("role", "OWNER"),
    ],
)
async def test_what_is_not_of_its_kind_is_not_kept(kind: str, value: str) -> None:
    obedient = Obedient("UPDATE_CONTACT", kind=kind, value=value)
    async with running_agent(model=obedient.model) as stage:
        await stage.send("Ada, note that")
        assert await known(stage) == []
        assert await known(stage, "MESSAGES") == []


@pytest.mark.parametrize("role", list(Role))
async def test_of_others_only_admins_have_something_kept_and_only_for_their_world(role: Role) -> None:
    obedient = Obedient()
    async with running_agent(model=obedient.model) as stage:
        await stage.send("hello", kind=GROUP)
        obedient.does("UPDATE_CONTACT", kind="email", value="alice@example.org", person="Alice")
        await stage.send("Ada, the mail of Alice is alice@example.org", author="Bob", role=role, kind=GROUP)
        found = await stage.agent.store.entities.components(ALICE, "CONTACT")
        allowed = role.is_at_least(Role.ADMIN)
        assert [one.world_id is not None for one in found] == ([True] if allowed else [])
        assert [one for one, _ in await decisions(stage, "UPDATE_CONTACT")] == [allowed]


@pytest.mark.failure("O-08")
@pytest.mark.parametrize("role", [Role.MEMBER, Role.OWNER])
async def test_consent_to_messages_is_given_by_oneself_and_in_private(role: Role) -> None:
    obedient = Obedient()
    async with running_agent(model=obedient.model) as stage:
        await stage.send("hello", kind=GROUP)
        obedient.does("UPDATE_CONTACT", kind="messages", value="yes", person="Alice")
        await stage.send("Ada, Alice wants messages", author="Bob", role=role, kind=GROUP)
        await stage.send("Ada, Alice wants messages", author="Bob", role=role, room="bob")
        obedient.does("UPDATE_CONTACT", kind="messages", value="yes")
        await stage.send("Ada, I want messages", kind=GROUP)
        assert await known(stage, "MESSAGES") == []

        await stage.send("others may have you write to me", room="alice")
        assert await known(stage, "MESSAGES") == []  # said is not confirmed: the model may have made it up
        await stage.send("yes, do", room="alice")
        obedient.does("CHOOSE_OPTION", option="confirm")
        await stage.send(f"confirm {await code(stage)}", room="alice")
        await run_due(stage)
        assert await known(stage, "MESSAGES") == [{"messages": "yes"}]
