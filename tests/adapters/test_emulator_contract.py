"""The bundled adapters obey the contract of adapters with their own emulators."""

import pytest

from bot.inbound.agent_handle import AdapterSpec
from bot.plugin_system.loading import find_adapter
from bot.testing import check_adapter_contract

pytestmark = pytest.mark.long


@pytest.mark.parametrize("name", ["farcaster", "mastodon", "matrix", "telegram", "x"])
async def test_a_bundled_adapter_obeys_the_contract(name: str) -> None:
    spec = find_adapter(name)
    assert isinstance(spec, AdapterSpec)
    results = await check_adapter_contract(spec)
    assert {result.rule: result.problems for result in results if result.problems} == {}
