"""The filter MODERATION over the wire: what the endpoint flags, thresholds, prices, and a server that fails."""

from typing import Any

import pytest

from bot import ConfigError, Outcome, Settings
from bot.settings import FilterSettings, Layer
from bot.testing import running_agent
from tests.plugins.loopback import Answer, Asked, Loopback, loopback
from tests.plugins.openai.wire import completion, open_harness

ON = {"FILTER_MODERATION": "on", "OPENAI_MODERATION_MODEL": "omni-moderation-latest"}
PATH = "/v1/moderations"
HARM = "the harmful text"


def judge(text: str) -> dict[str, Any]:
    """Make the answer of the endpoint: a text with HARM is flagged as hate."""
    is_harmful = HARM in text
    scores = {"hate": 0.9 if is_harmful else 0.2, "violence": 0.3}
    result = {"flagged": is_harmful, "categories": {"hate": is_harmful, "violence": False}, "category_scores": scores}
    return {"id": "m1", "model": "omni-moderation-latest", "results": [result]}


def answer_with(reply: str, moderation: Answer | None = None) -> Any:
    def answer(asked: Asked) -> Answer:
        if asked.path == PATH:
            return moderation or Answer(judge(asked.json["input"]))
        return Answer(completion(f"<response><text>{reply}</text></response>"))

    return answer


def moderated(api: Loopback) -> list[Any]:
    return [asked.json for asked in api.asked if asked.path == PATH]


async def test_messages_and_replies_are_checked_and_their_calls_are_in_the_receipt() -> None:
    async with loopback() as api:
        api.answers = answer_with("Hello.")
        async with open_harness(api.url, **ON) as harness:
            receipt = await harness.send("hello")
            assert harness.texts == ["Hello."]
    model = "omni-moderation-latest"
    assert moderated(api) == [{"model": model, "input": "hello"}, {"model": model, "input": "Hello."}]
    calls = [call for call in receipt.model_calls if call.purpose == "moderation"]
    assert [(call.model, call.cost) for call in calls] == [(model, 0.0), (model, 0.0)]


async def test_a_flagged_message_is_ignored_and_the_receipt_names_the_categories() -> None:
    async with loopback() as api:
        api.answers = answer_with("Hello.")
        async with open_harness(api.url, **ON) as harness:
            receipt = await harness.send(HARM)
            assert harness.texts == []
    assert (receipt.outcome, receipt.rule) == (Outcome.IGNORED, "filter")
    assert receipt.reason == "filter MODERATION stopped the text: the model finds hate"
    assert [asked.path for asked in api.asked] == [PATH]


async def test_a_flagged_reply_is_not_sent() -> None:
    async with loopback() as api:
        api.answers = answer_with(HARM)
        async with open_harness(api.url, **ON) as harness:
            receipt = await harness.send("hello")
            assert harness.texts == []
    assert receipt.reason == "filter MODERATION stopped the text: the model finds hate"


@pytest.mark.parametrize(
    ("thresholds", "is_stopped"),
    [("violence=0.3", True), ("violence=0.4", False), ("violence", False), ("hate=0.1", True), ("unknown=0.1", False)],
)
async def test_thresholds_decide_in_place_of_the_flags(thresholds: str, *, is_stopped: bool) -> None:
    async with loopback() as api:
        api.answers = answer_with("Hello.")
        async with open_harness(api.url, **ON, FILTER_MODERATION_THRESHOLDS=thresholds) as harness:
            receipt = await harness.send("hello")
    assert (receipt.rule == "filter") is is_stopped


async def test_a_call_has_the_price_that_the_operator_names() -> None:
    async with loopback() as api:
        api.answers = answer_with("Hello.")
        prices = {"MODEL_PRICES": "omni-moderation-latest=2/call"}
        async with open_harness(api.url, **ON, **prices) as harness:
            receipt = await harness.send(HARM)
    assert receipt.cost is not None
    assert receipt.cost > 1


@pytest.mark.parametrize(
    "failure", [Answer({"error": {"message": "down"}}, status=503), Answer({"results": []}), Answer([]), Answer("no")]
)
@pytest.mark.parametrize("mode", ["open", "closed"])
async def test_an_endpoint_that_fails_counts_as_set(failure: Answer, mode: str) -> None:
    async with loopback() as api:
        api.answers = answer_with("Hello.", failure)
        async with open_harness(api.url, **ON, FILTER_MODERATION_FAILURE=mode) as harness:
            receipt = await harness.send("hello")
            assert harness.texts == (["Hello."] if mode == "open" else [])
    [note] = [note for note in receipt.notes if "MODERATION" in note]
    assert note.startswith("filter MODERATION failed (")
    assert note.endswith(f"which counts as {mode}")


async def test_without_a_model_for_moderation_the_agent_does_not_start() -> None:
    with pytest.raises(ConfigError, match="FILTER_MODERATION is on, and Ada has no model for it: set OPENAI_API_KEY"):
        async with running_agent(settings={"FILTER_MODERATION": "on"}):
            pass


@pytest.mark.parametrize("value", ["hate=2", "hate=high", "=0.5"])
def test_a_threshold_that_is_none_is_refused(value: str) -> None:
    settings = Settings([Layer("the test", {"FILTER_MODERATION_THRESHOLDS": value})])
    with pytest.raises(ConfigError, match=r"write it as in hate=0\.4"):
        settings.load(FilterSettings)
