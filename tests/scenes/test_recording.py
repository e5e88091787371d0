"""Recorded answers: which call an answer belongs to, what is wrong with a recording, and how one is made."""

from pathlib import Path

from bot.models import ModelRefused, TextRequest
from bot.models.types import TextResult, Usage
from bot.scenes.recording import read_recording
from bot.scenes.runner import RunMode, SceneOptions, SceneReport, run_scene
from bot.testing import ScriptedModel
from tests.scenes.conftest import WriteScene, load_ada

HELLO = '  - say: "Ada, hello"\n    expect: reply\n'
ANSWER = "  - {step: 1, answer: Good day.}\n"
RUN = SceneOptions()
RECORD = SceneOptions(RunMode.RECORD)


async def run(path: Path, options: SceneOptions = RUN, model: ScriptedModel | None = None) -> SceneReport:
    return await run_scene(path, load_ada(model), options)


def messages(report: SceneReport) -> list[str]:
    return [failure.message for failure in report.failures]


async def test_a_recorded_answer_is_given_and_no_model_is_asked(write_scene: WriteScene) -> None:
    model = ScriptedModel()
    report = await run(write_scene(HELLO, ANSWER), model=model)
    assert (report.outcome, model.requests) == ("passed", [])


async def test_a_missing_answer_names_the_nearest_and_the_difference(write_scene: WriteScene) -> None:
    answers = '  - {step: 1, messages: ["Alice: Ada, goodbye"], answer: Bye.}\n'
    [first] = messages(await run(write_scene(HELLO, answers)))
    assert first.startswith("there is no recorded answer to call 1 for reply in step 1; the nearest is that of step 1")
    assert first.endswith("first difference: message 1 was 'Alice: Ada, goodbye' and is 'Alice: Ada, hello'")


async def test_an_answer_that_nothing_has_asked_for_is_a_failure(write_scene: WriteScene) -> None:
    [unused] = messages(await run(write_scene(HELLO, f"{ANSWER}  - {{step: 2, answer: Bye.}}\n")))
    assert unused.startswith("the recorded answer to call 1 for reply in step 2 was not asked for")


async def test_other_offered_actions_are_another_call(write_scene: WriteScene) -> None:
    answers = "  - {step: 1, actions: [FLY], answer: Bye.}\n"
    [first] = messages(await run(write_scene(HELLO, answers)))
    assert "the offered actions differ: +" in first
    assert "-FLY" in first


async def test_two_answers_that_fit_are_a_failure(write_scene: WriteScene) -> None:
    first, *_ = messages(await run(write_scene(HELLO, ANSWER * 2)))
    assert first == "2 recorded answers fit call 1 for reply in step 1: delete all but one of them"


async def test_an_answer_to_another_wording_is_stale_and_fails_if_strict(write_scene: WriteScene) -> None:
    path = write_scene(HELLO, "  - {step: 1, wording: 0123456789ab, answer: Good day.}\n")
    report = await run(path)
    assert (report.outcome, len(report.warnings)) == ("passed", 1)
    strict = await run(path, SceneOptions(is_strict=True))
    assert (
        messages(strict)
        == report.warnings
        == ["the answer to call 1 for reply in step 1 is stale: the wording of the prompt has changed"]
    )


async def test_what_a_model_answers_is_recorded_and_then_given_without_it(write_scene: WriteScene) -> None:
    path = write_scene(HELLO + "  - say: anyone here?\n    expect: silence\n")
    answers = [TextResult("Good day.", "m", Usage(10, 2)), TextResult("IGNORE", "m", Usage(10, 2))]
    recorded = await run(path, RECORD, ScriptedModel(answers, can_call_tools=True))
    assert recorded.outcome == "passed"
    recording = read_recording(path)
    assert recording.written_by == "model"
    assert [(item.step, item.purpose, item.messages) for item in recording.answers] == [
        (1, "reply", ("Alice: Ada, hello",)),
        (2, "should_respond", ("Alice: anyone here?",)),
    ]
    replayed = await run(path, SceneOptions(is_strict=True))
    assert (replayed.outcome, replayed.failures) == ("passed", [])


async def test_only_missing_answers_are_recorded_if_so_asked(write_scene: WriteScene) -> None:
    path = write_scene(HELLO + '  - say: "Ada, and now?"\n', ANSWER)
    model = ScriptedModel("Now what?", can_call_tools=True)
    await run(path, SceneOptions(RunMode.RECORD_MISSING), model)
    assert len(model.requests) == 1
    recording = read_recording(path)
    assert (recording.written_by, [item.answer for item in recording.answers]) == ("hand", ["Good day.", "Now what?"])


async def test_secrets_are_removed_from_what_is_recorded(write_scene: WriteScene) -> None:
    path = write_scene(HELLO)
    secret = "sk-proj-" + "aB3dE5fG7h" * 4
    load = load_ada(ScriptedModel(f"The key is {secret}."), {"OPENAI_API_KEY": secret})
    await run_scene(path, load, RECORD)
    text = path.with_name("one.answers.yaml").read_text(encoding="utf-8")
    assert "The key is" in text
    assert secret not in text


async def test_the_verdict_of_a_judge_is_recorded_with_its_reason(write_scene: WriteScene) -> None:
    def write(request: TextRequest) -> str:
        is_judge = "<criterion>" in request.prompt
        return '{"reason": "It greets.", "pass": true, "score": 0.9}' if is_judge else "Good day."

    path = write_scene(HELLO + "    assert: [{llm-rubric: greets}]\n")
    recorded = await run(path, RECORD, ScriptedModel(write))
    assert messages(recorded) == []
    [verdict] = read_recording(path).verdicts
    assert (verdict.output, verdict.passed, verdict.reason) == ("Good day.", True, "It greets.")
    assert (await run(path)).outcome == "passed"


async def test_a_text_without_a_recorded_verdict_fails(write_scene: WriteScene) -> None:
    path = write_scene(HELLO + "    assert: [{llm-rubric: greets}]\n", ANSWER)
    [message] = messages(await run(path))
    assert message.startswith("llm-rubric: no verdict on this text is recorded")


async def test_similar_texts_are_compared_by_vectors_which_a_verdict_replaces(write_scene: WriteScene) -> None:
    path = write_scene(HELLO + "    assert: [{similar: Good day!, threshold: 0.9}]\n")
    model = ScriptedModel("Good day.", can_embed=True)
    assert messages(await run(path, RECORD, model)) == []
    assert (await run(path)).outcome == "passed"


async def test_a_scene_whose_model_fails_keeps_its_recording(write_scene: WriteScene) -> None:
    def refuse(request: TextRequest) -> str:
        raise ModelRefused("no credit")

    path = write_scene(HELLO, ANSWER)
    report = await run(path, RECORD, ScriptedModel(refuse))
    assert "no credit" in messages(report)[0]
    assert [item.answer for item in read_recording(path).answers] == ["Good day."]


async def test_a_live_run_asks_the_model_and_writes_nothing(write_scene: WriteScene) -> None:
    path = write_scene(HELLO, ANSWER)
    model = ScriptedModel("Hello there.")
    report = await run(path, SceneOptions(RunMode.LIVE), model)
    assert (report.outcome, len(model.requests), report.recorded) == ("passed", 1, None)
