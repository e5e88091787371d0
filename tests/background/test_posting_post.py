"""Rules of writing a post: in the character's voice, none over again, three attempts and no more."""

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta

import pytest

from bot import Character, Memory, MemoryKind, derived_id
from bot.background.posting import MAX_ATTEMPTS, MAX_POST_LENGTH, Post, is_similar, write_post
from bot.domain.content import Content
from bot.events import PostGenerated
from bot.models import ModelError, ModelUnavailable, Purpose
from bot.models.types import TextRequest
from bot.testing import AgentHarness, ScriptedModel, running_agent

START = datetime(2026, 5, 4, 12, tzinfo=UTC)
KNOT = "A knot is a decision that a rope remembers."
FOG = "Fog is just weather minding its own business."
TAMSIN = Character.model_validate(
    {
        "name": "Tamsin",
        "bio": ["Tamsin keeps an almanac."],
        "topics": ["tides", "rope"],
        "adjectives": ["wry"],
        "postExamples": ["The heron caught nothing, with enormous dignity."],
        "style": {"post": ["Write in pencil."], "chat": ["Answer kindly."]},
    }
)


def written(text: str, image: str = "") -> str:
    return f"<response><thought>t</thought><post>{text}</post><imagePrompt>{image}</imagePrompt></response>"


def earlier(harness: AgentHarness, texts: Sequence[str]) -> list[Memory]:
    room = derived_id("feed")
    return [
        Memory(
            derived_id(text),
            MemoryKind.MESSAGE,
            harness.agent.id,
            room,
            room,
            Content(text=text),
            START + timedelta(minutes=number),
        )
        for number, text in enumerate(texts)
    ]


async def write(
    *script: str, recent: Sequence[str] = (), character: Character = TAMSIN
) -> tuple[Post, list[TextRequest]]:
    async with running_agent(model=ScriptedModel(script), character=character) as harness:
        post = await write_post(harness.agent, harness.agent_runtime.registry, earlier(harness, recent))
        return post, harness.model.requests


async def test_a_post_is_written_in_the_style_of_posts() -> None:
    post, [request] = await write(written(KNOT, "a rope"))
    assert post == Post(KNOT, "a rope")
    assert request.purpose is Purpose.POST
    assert "Tamsin keeps an almanac." in request.prompt
    assert "Write in pencil." in request.prompt
    assert "The heron caught nothing" in request.prompt
    assert "Answer kindly." not in request.prompt


async def test_the_model_sees_the_recent_posts_and_another_topic_each_time() -> None:
    _, [first] = await write(written(KNOT))
    _, [second] = await write(written(KNOT), recent=[FOG])
    assert "It may be about tides, in a mood that is wry." in first.prompt
    assert "It may be about rope, in a mood that is wry." in second.prompt
    assert f"[12:00] Tamsin (you): {FOG}" in second.prompt
    assert "Recent posts" not in first.prompt


async def test_prompts_begin_alike_whatever_was_posted() -> None:
    _, [first] = await write(written(KNOT))
    _, [second] = await write(written(KNOT), recent=[FOG])
    assert first.prompt.split("It is ")[0] == second.prompt.split("It is ")[0]
    assert len(first.prompt.split("It is ")[0]) > 0.6 * len(first.prompt)


@pytest.mark.parametrize(
    "again", [FOG, FOG.upper(), "“Fog is just weather, minding its own business!”", FOG.replace("just", "only")]
)
async def test_what_was_posted_before_is_not_posted_again(again: str) -> None:
    post, requests = await write(written(again), written(KNOT), recent=[FOG])
    assert post.text == KNOT
    assert "could not be used" not in requests[0].prompt
    assert "is too like an earlier post" in requests[1].prompt


async def test_after_three_attempts_there_is_none() -> None:
    with pytest.raises(ModelError, match=r"3 attempts gave no post .* is too like an earlier post"):
        await write(written(FOG), recent=[FOG])
    asked: list[TextRequest] = []

    def script(request: TextRequest) -> str:
        asked.append(request)
        return written(FOG)

    async with running_agent(model=ScriptedModel(script)) as harness:
        with pytest.raises(ModelError):
            await write_post(harness.agent, harness.agent_runtime.registry, earlier(harness, [FOG]))
    assert len(asked) == MAX_ATTEMPTS


async def test_a_post_that_is_too_long_or_empty_is_no_post() -> None:
    post, requests = await write(written("long " * 60), "<response></response>", written(KNOT))
    assert post.text == KNOT
    assert f"has 299 characters, and {MAX_POST_LENGTH} are the most" in requests[1].prompt
    assert "(nothing): holds no text" in requests[2].prompt


async def test_a_post_is_not_refused_for_a_word_in_it() -> None:
    text = "I can't be more explicit: as an almanac, I am sorry for the fog."
    post, requests = await write(written(text))
    assert (post.text, len(requests)) == (text, 1)


@pytest.mark.parametrize(
    ("raw", "text"),
    [
        (KNOT, KNOT),
        (f"<post>{KNOT}</post>", KNOT),
        (f'{{"post": "{KNOT}"}}', KNOT),
        (written(f'"{KNOT}"'), KNOT),
        (written(f"„{KNOT}“"), KNOT),
        (written('"Slack" is a word for "wait"'), '"Slack" is a word for "wait"'),
        (written("<think>leak</think>Slack."), "Slack."),
    ],
)
async def test_a_post_is_read_with_or_without_tags_and_quotation_marks(raw: str, text: str) -> None:
    post, _ = await write(raw)
    assert post.text == text


async def test_what_was_written_is_shown() -> None:
    heard: list[PostGenerated] = []

    async def hear(event: PostGenerated) -> None:
        heard.append(event)

    async with running_agent(model=ScriptedModel(written(KNOT))) as harness:
        harness.agent.events.subscribe(PostGenerated, hear)
        await write_post(harness.agent, harness.agent_runtime.registry)
    assert [event.text for event in heard] == [KNOT]


async def test_without_a_model_there_is_no_post() -> None:
    def script(request: TextRequest) -> str:
        raise ModelUnavailable("gone")

    async with running_agent(model=ScriptedModel(script)) as harness:
        with pytest.raises(ModelUnavailable, match="gone"):
            await write_post(harness.agent, harness.agent_runtime.registry)
        assert len(harness.model.requests) == 1


async def test_a_character_s_own_template_is_used() -> None:
    templates = {"postCreationTemplate": "{{agentName}} on {{topic}}:"}
    who = TAMSIN.model_copy(update={"templates": templates})
    post, [request] = await write(KNOT, character=who)
    assert request.prompt.startswith("Tamsin on tides:\n")
    assert "Tamsin keeps an almanac." in request.prompt  # what it lacks is appended
    assert "<post>" in request.prompt
    assert post.text == KNOT


def test_posts_that_say_something_else_are_not_alike() -> None:
    assert not is_similar(KNOT, FOG)
    assert not is_similar("The tide is out.", "The ferry is late again, and nobody minds.")


@pytest.mark.failure("O-12")
def test_the_same_sentences_in_another_order_are_alike() -> None:
    assert is_similar(f"{KNOT} {FOG}", f"{FOG} {KNOT}")
    assert is_similar(f"{KNOT} {FOG}", f"Today: {FOG}")
