"""Random kills: the short version of `make chaos`, one platform of each kind (A-22)."""

from pathlib import Path

import pytest

from tests.chaos.adapter import Unclear
from tests.chaos.campaign import Plan, run_plan
from tests.chaos.loopback import Ability
from tests.chaos.program import ForkServer

pytestmark = pytest.mark.long

PLANS = (
    Plan(Ability.NONCE, messages=70, kills=5, seed=1),
    Plan(Ability.REFUSING, messages=70, kills=5, seed=2),
    Plan(Ability.NEITHER, messages=70, kills=5, seed=3),
    Plan(Ability.NEITHER, messages=70, kills=5, seed=4, unclear=Unclear.HOLD),
)


@pytest.mark.failure("A-22")
@pytest.mark.parametrize("plan", PLANS, ids=lambda plan: f"{plan.title}, seed {plan.seed}")
async def test_nothing_is_lost_doubled_or_out_of_order_after_random_kills(
    plan: Plan, fork_server: ForkServer, tmp_path: Path
) -> None:
    report = await run_plan(plan, tmp_path, fork_server)
    assert report.verdict.complaints == []
    assert report.verdict.messages == plan.messages
    if plan.ability is not Ability.NEITHER or plan.unclear is Unclear.HOLD:
        assert report.verdict.explained == 0
