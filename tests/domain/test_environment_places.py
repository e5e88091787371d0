"""Channel types, and roles in a world."""

import pytest

from bot.domain.environment import ChannelType, Role, World
from bot.domain.ids import new_id


@pytest.mark.parametrize("kind", list(ChannelType))
def test_a_channel_type_is_parsed_in_any_case(kind: ChannelType) -> None:
    assert ChannelType(kind.value.lower()) is kind
    assert ChannelType(f" {kind.value.title()} ") is kind


@pytest.mark.parametrize("name", ["", "DMS", "VOICE DM", "D", None, 3])
def test_an_unknown_channel_type_is_refused(name: object) -> None:
    with pytest.raises(ValueError, match="is not a valid ChannelType"):
        ChannelType(name)


@pytest.mark.parametrize("name", ["owner", "Owner", "SUPERUSER", "", "ОWNER"])
def test_a_role_is_parsed_exactly(name: str) -> None:
    with pytest.raises(ValueError, match="is not a valid Role"):
        Role(name)


def test_a_role_is_at_least_every_lower_role() -> None:
    ranked = [Role.OWNER, Role.ADMIN, Role.MEMBER, Role.NONE]

    for place, role in enumerate(ranked):
        assert [role.is_at_least(needed) for needed in ranked] == [place <= below for below in range(4)]


def test_an_entity_without_a_role_is_a_member() -> None:
    banned = new_id()
    world = World(new_id(), "test", "w", roles={banned: Role.NONE})

    assert world.role_of(new_id()) is Role.MEMBER
    assert world.role_of(banned) is Role.NONE


def test_a_grant_overrides_the_platform_role_except_of_an_owner() -> None:
    owner, admin, heir = new_id(), new_id(), new_id()
    roles = {owner: Role.OWNER, admin: Role.ADMIN}
    world = World(new_id(), "test", "w", roles=roles, grants={owner: Role.NONE, admin: Role.MEMBER, heir: Role.OWNER})

    assert [world.role_of(entity) for entity in (owner, admin, heir)] == [Role.OWNER, Role.MEMBER, Role.OWNER]
    assert world.owners == {owner, heir}


def test_a_direct_room_has_a_single_conversation_partner_and_a_private_chat_a_single_reader() -> None:
    direct = {kind for kind in ChannelType if kind.is_direct}
    assert direct == {ChannelType.DM, ChannelType.VOICE_DM, ChannelType.SELF, ChannelType.API}
    assert {kind for kind in ChannelType if kind.is_private_chat} == direct - {ChannelType.API}
