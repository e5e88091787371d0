"""Random kills: the short version of `make chaos`, one platform of each kind (A-22)."""

from pathlib import Path

import pytest

from tests.chaos.adapter import Unsure
from tests.chaos.campaign import Plan, carried_out
from tests.chaos.loopback import Ability
from tests.chaos.program import Nursery

PLANS = (
    Plan(Ability.NONCE, messages=70, kills=5, seed=1),
    Plan(Ability.REFUSING, messages=70, kills=5, seed=2),
    Plan(Ability.NEITHER, messages=70, kills=5, seed=3),
    Plan(Ability.NEITHER, messages=70, kills=5, seed=4, unclear=Unsure.HOLD),
)


@pytest.mark.failure("A-22")
@pytest.mark.parametrize("plan", PLANS, ids=lambda plan: f"{plan.title}, seed {plan.seed}")
async def test_nothing_is_lost_doubled_or_out_of_order_after_random_kills(
    plan: Plan, nursery: Nursery, tmp_path: Path
) -> None:
    report = await carried_out(plan, tmp_path, nursery)
    assert report.verdict.complaints == []
    assert report.verdict.messages == plan.messages
    if plan.ability is not Ability.NEITHER or plan.unclear is Unsure.HOLD:
        assert report.verdict.explained == 0
