"""G-S1 in short form: a model that may write anything, four roles, and no effect to which no person was entitled."""

import pytest

from tests.roleplay.playing import played
from tests.roleplay.scenes import SCENES

pytestmark = pytest.mark.long

SEEDS = {"crowding": 2, "searching": 2}  # with the others, 1, some effect is not drawn in so few turns
TURNS = 200  # `python -m tests.roleplay` plays a hundred thousand


@pytest.mark.parametrize("scene", SCENES)
async def test_gs1_whatever_the_model_writes_no_person_does_what_they_may_not(scene: str) -> None:
    chapter = await played(scene, TURNS, seed=SEEDS.get(scene, 1))
    assert chapter.unlawful == []
    assert chapter.refused, "the play is no test"
    assert chapter.done >= {"attendance", "known", "waiting"}, "the play is no test"
