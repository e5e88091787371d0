"""The recorded conversation of `make bench`: model calls and prompt sizes stay within limits."""

import pytest

from benchmarks.conversation import RecordedCall, load_recording, measure_conversation, run_conversation
from bot.models import Purpose


@pytest.mark.long
async def test_a_group_conversation_needs_few_calls_and_prompts_share_a_prefix() -> None:
    lines = load_recording()
    calls = await run_conversation(lines)
    assert len(lines) == 40
    assert counted(calls, Purpose.SHOULD_RESPOND) / len(lines) <= 0.3
    assert counted(calls, Purpose.REPLY) == sum(1 for line in lines if line.reply)
    assert max(call.size for call in calls if call.purpose is Purpose.REPLY) <= 10_240
    assert sum(call.shared for call in calls) / sum(call.size for call in calls) >= 0.8


def counted(calls: list[RecordedCall], purpose: Purpose) -> int:
    return sum(call.purpose is purpose for call in calls)


@pytest.mark.long
def test_the_benchmark_reports_calls_bytes_and_the_shared_prefix() -> None:
    figures = dict(measure_conversation())
    assert "model calls a message" in figures["a group's 40 messages"]
    assert "a message" in figures["prompt bytes"]
    assert "% of all bytes" in figures["the same beginning as the prompt before"]
