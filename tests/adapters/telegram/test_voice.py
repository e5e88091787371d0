"""Voice messages in a group: heard before it is decided whether they are answered."""

import pytest

from bot import Agent, Outcome, Plugin, model
from bot.domain.ledger import Rule
from bot.models import ModelType, Purpose, TextRequest, TextResult, TranscriptionRequest, Usage
from bot.testing import model_answer
from tests.adapters.telegram.conftest import OpenHarness

SILENCE = "<response><reasoning>not for me</reasoning><action>IGNORE</action></response>"


def build_ear(transcript: str) -> Plugin:
    """Return a plugin that hears this sentence in every recording."""

    @model(ModelType.TRANSCRIPTION)
    async def listen(agent: Agent, request: TranscriptionRequest) -> TextResult:
        return TextResult(transcript, "ear", Usage())

    return Plugin("ear", models=[listen])


def answer(request: TextRequest) -> str:
    """Be silent where the small model decides."""
    return SILENCE if request.purpose is Purpose.SHOULD_RESPOND else model_answer("I hear you.")


@pytest.mark.failure("B-16")
@pytest.mark.parametrize(
    ("transcript", "outcome", "rule"),
    [
        ("Ada, please call me.", Outcome.ANSWERED, Rule.NAME_CALLED),
        ("Close the window.", Outcome.IGNORED, Rule.DECIDED_IGNORE),
    ],
)
async def test_a_voice_message_in_a_group_is_judged_by_what_is_said(
    open_harness: OpenHarness, transcript: str, outcome: Outcome, rule: Rule
) -> None:
    async with open_harness(answer, plugins=(build_ear(transcript),)) as harness:
        alice = harness.people.add_user("Alice")
        group = harness.people.add_group("The group", alice)
        voice = harness.people.store_file(b"OggS\0 sound", duration=3, mime_type="audio/ogg")
        harness.people.say(group, alice, voice=voice)
        [receipt] = await harness.wait_receipts()
        requests = harness.model.requests
    gate_prompts = [request.prompt for request in requests if request.purpose is Purpose.SHOULD_RESPOND]
    assert (receipt.outcome, receipt.rule) == (outcome, rule)
    assert all(transcript in prompt for prompt in gate_prompts)
    assert bool(gate_prompts) is (outcome is Outcome.IGNORED)
