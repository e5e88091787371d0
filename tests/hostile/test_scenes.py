"""Requests in good faith are done, and few of them ask for a confirmation; prints the figures."""

import pytest

from tests.hostile.scenes import describe, play_all, read_scenes

pytestmark = pytest.mark.long


async def test_benign_scenes_are_done_and_hardly_ever_ask_for_a_confirmation(
    capsys: pytest.CaptureFixture[str],
) -> None:
    figures = await play_all()
    with capsys.disabled():
        print(describe(figures))  # noqa: T201  # the figures are the point of it
    assert figures.is_good, describe(figures)


def test_there_are_two_hundred_scenes_of_every_action_with_an_effect() -> None:
    scenes = read_scenes()
    assert len(scenes) >= 200
    assert len({scene.text for scene in scenes}) >= 195
    assert {scene.place for scene in scenes} == {"group", "private", "private file"}
