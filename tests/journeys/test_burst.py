"""M14: a burst is answered together with one model call, and typing is shown immediately."""

from bot import Outcome
from bot.models import Purpose, TextRequest
from bot.testing import RecordingAdapter, ScriptedModel, model_answer, running_agent


async def test_a_burst_is_answered_with_a_single_model_call() -> None:
    async with running_agent(settings={"BURST_PAUSE": "500"}) as harness:
        receipts = [await harness.submit(text) for text in ("Hello", "I mean", "how are you?")]
        ends = [await harness.agent_runtime.inbox.wait_outcome(receipt.id) for receipt in receipts]
        await harness.agent.outbox.drain(5.0)
        assert [end.outcome for end in ends] == [Outcome.SUPERSEDED, Outcome.SUPERSEDED, Outcome.ANSWERED]
        [asked] = harness.model.requests_for(Purpose.REPLY)
        assert all(text in asked.prompt.partition("Nobody has answered")[2] for text in ("Hello", "I mean"))
        assert harness.texts == ["Hello."]


async def test_typing_is_shown_before_a_model_is_called() -> None:
    adapter = RecordingAdapter()
    seen: list[bool] = []

    def write(request: TextRequest) -> str:
        seen.append(("lobby", True) in adapter.typing_calls)
        return model_answer("Hello.")

    async with running_agent(model=ScriptedModel(write), adapter=adapter) as harness:
        await harness.send("Hello")
    assert seen == [True]
    assert adapter.typing_calls == [("lobby", True), ("lobby", False)]
