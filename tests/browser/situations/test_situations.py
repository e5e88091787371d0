"""The cause of whatever keeps a bot from answering is found from the overview in at most three clicks."""

import pytest

from tests.browser.situations.__main__ import GROUPS
from tests.browser.situations.finding import look_for_causes
from tests.browser.situations.running import Group

pytestmark = pytest.mark.long


@pytest.mark.parametrize("group", GROUPS, ids=[group.name for group in GROUPS])
async def test_a_cause_is_at_most_three_clicks_from_the_overview(group: Group) -> None:
    findings = [finding async for finding in look_for_causes(group)]
    assert [f"{item.situation.name}: {item.problem}" for item in findings if not item.is_good] == []
