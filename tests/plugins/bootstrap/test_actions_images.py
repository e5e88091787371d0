"""Rules of pictures: drawn where a model draws, shown as attachments, and no picture costs an answer."""

import pytest

from bot import Agent, MediaKind, Outcome, Plugin, model
from bot.models import ImageRequest, ImageResult, ModelType, ModelUnavailable
from bot.testing import AgentHarness, running_agent
from tests.plugins.bootstrap.obeying import Obedient


def painter(asked: list[ImageRequest], *, drawn: ImageResult | None) -> Plugin:
    @model(ModelType.IMAGE)
    async def draw(agent: Agent, request: ImageRequest) -> ImageResult:
        asked.append(request)
        if drawn is None:
            raise ModelUnavailable("painter: out of paint")
        return drawn

    return Plugin("painter", "Paints.", models=[draw])


@pytest.mark.parametrize(
    "drawn", [ImageResult(data=b"png", model="p"), ImageResult(url="https://example.org/engine.png")]
)
async def test_a_picture_is_described_by_the_small_model_drawn_and_shown(drawn: ImageResult) -> None:
    asked: list[ImageRequest] = []
    obedient = Obedient("GENERATE_IMAGE", subject="a steam engine")
    async with running_agent(painter(asked, drawn=drawn), model=obedient.model) as stage:
        receipt = await stage.send("draw me a steam engine")
        [picture] = [one for part in stage.adapter.sent for one in part.content.attachments]
        prompts = [one.prompt for one in stage.model.requests if "a steam engine" in one.prompt]
    assert receipt.outcome is Outcome.ANSWERED
    assert (picture.kind, picture.data, picture.url) == (MediaKind.IMAGE, drawn.data, drawn.url)
    assert any(prompt.startswith("Describe a picture") for prompt in prompts)
    assert len(asked) == 1


async def test_without_a_model_that_draws_there_is_no_such_action(agent_harness: AgentHarness) -> None:
    await agent_harness.send("draw me a steam engine")
    assert "GENERATE_IMAGE" not in agent_harness.model.requests[-1].prompt


@pytest.mark.parametrize("drawn", [None, ImageResult()])
async def test_a_picture_that_fails_is_told_and_the_words_are_said(drawn: ImageResult | None) -> None:
    obedient = Obedient("GENERATE_IMAGE", subject="a steam engine")
    async with running_agent(painter([], drawn=drawn), model=obedient.model) as stage:
        receipt = await stage.send("draw me a steam engine")
        assert stage.texts == ["Very well."]
    assert receipt.outcome is Outcome.ANSWERED
    assert any("could not be drawn" in note for note in receipt.notes)
