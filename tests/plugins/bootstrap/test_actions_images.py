"""Rules of pictures: drawn where a model draws, shown as attachments, and no picture costs an answer."""

from dataclasses import replace

import pytest

from bot import Agent, Character, MediaKind, Outcome, Plugin, model
from bot.fetch.response import FetchedBody
from bot.models import ImageRequest, ImageResult, ModelType, ModelUnavailable
from bot.testing import AgentHarness, ScriptedModel, make_turn, running_agent
from plugins.bootstrap.actions.messages import generate_image
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
    "drawn", [ImageResult(data=b"png", model="p"), ImageResult(url="http://127.0.0.1:9/engine.png")]
)
async def test_a_picture_is_described_by_the_small_model_drawn_and_shown(drawn: ImageResult) -> None:
    asked: list[ImageRequest] = []
    obedient = Obedient("GENERATE_IMAGE", subject="a steam engine")
    async with running_agent(painter(asked, drawn=drawn), model=obedient.model) as harness:
        receipt = await harness.send("draw me a steam engine")
        [picture] = [is_allowed for part in harness.adapter.sent for is_allowed in part.content.attachments]
        prompts = [is_allowed.prompt for is_allowed in harness.model.requests if "a steam engine" in is_allowed.prompt]
    assert receipt.outcome is Outcome.ANSWERED
    assert (picture.kind, picture.data, picture.url) == (MediaKind.IMAGE, drawn.data, drawn.url)
    assert any(prompt.startswith("Describe a picture") for prompt in prompts)
    assert len(asked) == 1


@pytest.mark.parametrize(
    "answer",
    [
        "<response>\n  <prompt>An engine of brass.</prompt>\n</response>",
        "<output><response><thought>Hm.</thought><prompt>An engine of brass.</prompt></response></output>",
        '```json\n{"prompt": "An engine of brass."}\n```',
        "<think>Brass?</think>An engine of brass.",
        "An engine of brass.",
    ],
)
async def test_the_description_of_a_picture_is_read_in_the_forms_that_templates_request(answer: str) -> None:
    asked: list[ImageRequest] = []
    templates = {"imageGenerationTemplate": "<task>An image prompt for {{agentName}}</task>"}
    who, model = Character(name="Ada", templates=templates), ScriptedModel(answer)
    async with running_agent(painter(asked, drawn=ImageResult(data=b"png")), model=model, character=who) as harness:
        await generate_image(make_turn(harness.agent, "draw me a steam engine"), subject="a steam engine")
        prompt = harness.model.requests[0].prompt
    assert [request.prompt for request in asked] == ["An engine of brass."]
    assert prompt.startswith("<task>An image prompt for Ada</task>")
    assert "a steam engine" in prompt


class Gallery:
    """A fetcher that has one picture."""

    async def get(self, url: str, *, max_bytes: int | None = None, trusted_origin: str = "") -> FetchedBody:
        return FetchedBody(url, "text/html" if url.endswith(".html") else "image/webp", b"webp")


@pytest.mark.parametrize(("name", "is_kept"), [("engine.webp", True), ("expired.html", False)])
async def test_a_picture_that_has_an_address_is_fetched_and_kept(name: str, is_kept: bool) -> None:
    drawn = ImageResult(url=f"https://example.org/{name}")
    async with running_agent(painter([], drawn=drawn), model=ScriptedModel("An engine.")) as harness:
        turn = make_turn(replace(harness.agent, fetcher=Gallery()), "draw me a steam engine")
        await generate_image(turn, subject="a steam engine")
        [picture] = turn.replies[0].content.attachments
    expected = (b"webp", "", "image/webp") if is_kept else (None, drawn.url, "image/png")
    assert (picture.data, picture.url, picture.content_type) == expected


async def test_without_a_model_that_draws_there_is_no_such_action(agent_harness: AgentHarness) -> None:
    await agent_harness.send("draw me a steam engine")
    assert "GENERATE_IMAGE" not in agent_harness.model.requests[-1].prompt


@pytest.mark.parametrize("drawn", [None, ImageResult()])
async def test_a_picture_that_fails_is_reported_and_the_words_are_sent(drawn: ImageResult | None) -> None:
    obedient = Obedient("GENERATE_IMAGE", subject="a steam engine")
    async with running_agent(painter([], drawn=drawn), model=obedient.model) as harness:
        receipt = await harness.send("draw me a steam engine")
        assert harness.texts == ["Very well."]
    assert receipt.outcome is Outcome.ANSWERED
    assert any("could not be drawn" in note for note in receipt.notes)
