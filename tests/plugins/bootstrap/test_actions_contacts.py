"""Rules of contacts: what a person says about themselves is kept as such, and no other person can say it for them."""

from typing import Any

import pytest

from bot import ChannelType, Role, derived_id
from bot.testing import AgentHarness, running_agent
from tests.plugins.bootstrap.obeying import Obedient, code, decisions, run_due

GROUP = ChannelType.GROUP
ALICE = derived_id("test", "entity", "Alice")


async def known(harness: AgentHarness, kind: str = "CONTACT") -> list[Any]:
    return [dict(is_allowed.data) for is_allowed in await harness.agent.store.entities.components(ALICE, kind)]


async def test_what_a_person_states_of_themselves_is_kept_piece_by_piece_and_can_be_forgotten() -> None:
    obedient = Obedient()
    async with running_agent(model=obedient.model) as harness:
        obedient.does("UPDATE_CONTACT", kind="email", value="alice@example.org")
        await harness.send("Ada, my mail is alice@example.org", kind=GROUP)
        obedient.does("UPDATE_ENTITY", kind="handle", value="telegram:alice")
        await harness.send("I am alice on Telegram")
        assert await known(harness) == [{"email": "alice@example.org", "handle": "telegram:alice"}]

        obedient.does("UPDATE_CONTACT", kind="email", value="")
        await harness.send("forget my mail")
        assert await known(harness) == [{"handle": "telegram:alice"}]


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
    async with running_agent(model=obedient.model) as harness:
        await harness.send("Ada, note that")
        assert await known(harness) == []
        assert await known(harness, "MESSAGES") == []


@pytest.mark.parametrize("role", list(Role))
async def test_of_others_only_admins_have_something_kept_and_only_for_their_world(role: Role) -> None:
    obedient = Obedient()
    async with running_agent(model=obedient.model) as harness:
        await harness.send("hello", kind=GROUP)
        obedient.does("UPDATE_CONTACT", kind="email", value="alice@example.org", person="Alice")
        await harness.send("Ada, the mail of Alice is alice@example.org", author="Bob", role=role, kind=GROUP)
        found = await harness.agent.store.entities.components(ALICE, "CONTACT")
        allowed = role.is_at_least(Role.ADMIN)
        assert [is_allowed.world_id is not None for is_allowed in found] == ([True] if allowed else [])
        assert [is_allowed for is_allowed, _ in await decisions(harness, "UPDATE_CONTACT")] == [allowed]


@pytest.mark.failure("O-08")
@pytest.mark.parametrize("role", [Role.MEMBER, Role.OWNER])
async def test_consent_to_messages_is_given_by_oneself_and_in_private(role: Role) -> None:
    obedient = Obedient()
    async with running_agent(model=obedient.model) as harness:
        await harness.send("hello", kind=GROUP)
        obedient.does("UPDATE_CONTACT", kind="messages", value="yes", person="Alice")
        await harness.send("Ada, Alice wants messages", author="Bob", role=role, kind=GROUP)
        await harness.send("Ada, Alice wants messages", author="Bob", role=role, room="bob")
        obedient.does("UPDATE_CONTACT", kind="messages", value="yes")
        await harness.send("Ada, I want messages", kind=GROUP)
        assert await known(harness, "MESSAGES") == []

        await harness.send("others may have you write to me", room="alice")
        assert await known(harness, "MESSAGES") == []  # said is not confirmed: the model may have made it up
        await harness.send("yes, do", room="alice")
        obedient.does("CHOOSE_OPTION", option="confirm")
        await harness.send(f"confirm {await code(harness)}", room="alice")
        await run_due(harness)
        assert await known(harness, "MESSAGES") == [{"messages": "yes"}]
