"""Sharing of an opened resource between users of one key."""

from contextlib import AsyncExitStack

import pytest

from bot.store.sql.core.base import SharedResource


class Resource:
    def __init__(self) -> None:
        self.is_closed = False

    async def close(self) -> None:
        self.is_closed = True


async def test_users_of_a_key_share_a_resource_and_the_last_user_closes_it() -> None:
    shared = SharedResource[str, Resource]()
    async with AsyncExitStack() as first:
        resource = await first.enter_async_context(shared.use("a", Resource))
        async with shared.use("a", Resource) as same, shared.use("b", Resource) as other:
            assert same is resource
            assert other is not resource
        assert other.is_closed
        assert not resource.is_closed
    assert resource.is_closed

    async with shared.use("a", Resource) as new:
        assert new is not resource


async def test_a_resource_is_closed_if_its_only_user_fails() -> None:
    shared = SharedResource[str, Resource]()
    with pytest.raises(ValueError, match="broken"):
        async with shared.use("a", Resource) as resource:
            raise ValueError("broken")
    assert resource.is_closed
