"""What a scene checks: steps, expectations, assertions, coverage."""

import asyncio
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from bot.cli.characters import load_character_config
from bot.scenes.runner import SceneOptions, SceneReport, run_scene, wilson_interval
from bot.scenes.scene import find_scene_files
from tests.scenes.conftest import WriteScene, load_ada

ROOT = Path(__file__).parents[2]
BUNDLED = find_scene_files([ROOT / "characters" / "scenes"])
HELLO = '  - say: "Ada, hello"\n'
ANSWER = "  - {step: 1, answer: Good day.}\n"
# Runs all bundled scenes in a random order and with another time; prints what failed.
SHUFFLED = """
import asyncio, random, sys
from datetime import timedelta
from pathlib import Path
from bot.cli.characters import load_character_config
from bot.scenes.runner import SceneOptions, run_scene
from bot.testing.manual_clock import START, ManualClock

def load(path):
    return load_character_config(path, is_isolated=True).agent_config

async def main(seed, files):
    chosen = random.Random(seed)
    chosen.shuffle(files)
    for file in files:
        moved = START + timedelta(minutes=chosen.randrange(500_000))
        options = SceneOptions(is_strict=True, make_clock=lambda: ManualClock(moved))
        report = await run_scene(Path(file), load, options)
        if report.outcome != "passed":
            print(report.to_json())

asyncio.run(main(int(sys.argv[1]), sys.argv[2:]))
"""


def run(path: Path, *, allows_python: bool = False) -> SceneReport:
    return asyncio.run(run_scene(path, load_ada(), SceneOptions(allows_python=allows_python)))


def check(write_scene: WriteScene, assertion: str, answer: str = "Good day.") -> list[str]:
    """Return why an assertion does not hold for an answer."""
    path = write_scene(f"{HELLO}    assert: [{assertion}]\n", f"  - {{step: 1, answer: {json.dumps(answer)}}}\n")
    report = run(path)
    assert not report.error
    return [failure.message for failure in report.failures]


@pytest.mark.matrix(3)
@pytest.mark.parametrize(
    "assertion",
    [
        "{equals: Good day.}", "{contains: day}", "{icontains: GOOD}", "{starts-with: Good}", "{regex: 'd.y'}",
        "{not-is-json: true}", "{not-icontains: night}", "{rule: name called}", "{calls: 1}", "{calls: '≤ 2'}",
        "{calls: '>= 1'}", "{prompt-contains: 'Ada, hello'}", "{never-says: [night, evening]}", "{in-voice: true}",
        "{latency: 0}", "{type: icontains, value: good}",
    ],
)  # fmt: skip
def test_an_assertion_that_holds_reports_nothing(write_scene: WriteScene, assertion: str) -> None:
    assert check(write_scene, assertion) == []


@pytest.mark.parametrize(
    ("assertion", "problem"),
    [
        ("{equals: Good}", "equals: 'Good' does not hold for 'Good day.'"),
        ("{not-contains: day}", "not-contains: 'day' holds for 'Good day.'"),
        ("{rule: mention}", "rule: the rule was 'name called'"),
        ("{calls: 0}", "calls: 1 model calls, and 0 were expected"),
        ("{prompt-contains: umbrella}", "prompt-contains: 'umbrella' is in none of 1 prompts"),
        ("{never-says: [DAY]}", "never-says: 'DAY' is in 'Good day.'"),
        ("{cost: 1}", "cost: it is not known: the answers name no model with a price"),
        ("{is-json: true}", "is-json: 'True' does not hold for 'Good day.'"),
    ],
)
def test_an_assertion_that_does_not_hold_says_why(write_scene: WriteScene, assertion: str, problem: str) -> None:
    assert check(write_scene, assertion) == [problem]


def test_a_text_against_the_style_or_unlike_the_examples_is_not_in_the_voice(write_scene: WriteScene) -> None:
    assert "more than twice its longest example" in check(write_scene, "{in-voice: true}", "tick " * 20)[0]
    assert "it breaks the rule of its style: no hashtags" in check(write_scene, "{in-voice: true}", "A #clock")[0]
    assert "it has emoji" in check(write_scene, "{in-voice: true}", "Tick \U0001f600")[0]


def test_a_latency_is_that_of_the_recorded_answers(write_scene: WriteScene) -> None:
    steps = f"{HELLO}    assert: [{{latency: 1500}}]\n"
    [failure] = run(write_scene(steps, "  - {step: 1, answer: Hi., seconds: 2}\n")).failures
    assert failure.message == "latency: the models took 2000 ms"


@pytest.mark.parametrize(
    ("expected", "answer", "problem"),
    [
        ("silence", "Hi.", "expected silence, but Ada said: 'Hi.' (name called: "),
        ("draft", "Hi.", "expected a draft, but Ada said: 'Hi.'"),
        ("notice", "Hi.", "expected a notice, but there was none"),
        ("action MUTE_ROOM", "Hi.", "expected action MUTE_ROOM, but no action ran; Ada said: 'Hi.'"),
        ("reply", "<response><actions>IGNORE</actions></response>", "expected a reply, but Ada said nothing (IGNORE"),
    ],
)
def test_what_was_not_expected_is_a_failure_with_the_line_of_its_step(
    write_scene: WriteScene, expected: str, answer: str, problem: str
) -> None:
    steps = f"  - join: Ben\n{HELLO}    expect: {expected}\n"
    [failure] = run(write_scene(steps, f"  - {{step: 2, answer: {answer}}}\n")).failures
    assert (failure.line, failure.step) == (5, 2)
    assert failure.message.startswith(problem)


def test_an_action_is_expected_with_its_arguments(write_scene: WriteScene) -> None:
    answers = "  - {step: 1, calls: [{name: FORECAST, arguments: {city: Rome}}]}\n"
    right = run(write_scene(f"{HELLO}    expect: action FORECAST(city='Rome', days=1)\n", answers))
    wrong = run(write_scene(f"{HELLO}    expect: action FORECAST(city='Oslo')\n", answers))
    assert right.failures == []
    assert wrong.failures[0].message.startswith(
        "expected action FORECAST(city='Oslo'), but FORECAST(city='Rome', days=1) ran; Ada said: "
    )


@pytest.mark.parametrize("is_possible", [True, False])
def test_a_scene_expects_a_thread_where_its_room_has_them(write_scene: WriteScene, is_possible: bool) -> None:
    steps = "  - {say: \"Ada, a thread, please\", by: Olga, expect: [action OPEN_THREAD(name='Tides'), reply]}\n"
    answers = "  - {step: 1, answer: Here., calls: [{name: OPEN_THREAD, arguments: {name: Tides}}]}\n"
    answers += "" if is_possible else "  - {step: 1, purpose: summary, answer: No.}\n"
    head = f"people: {{Olga: owner}}\nroom: {{threads: {str(is_possible).lower()}}}\n"
    messages = [failure.message for failure in run(write_scene(steps, answers, head=head)).failures]
    assert [message[:36] for message in messages] == ([] if is_possible else ["expected action OPEN_THREAD(name='Ti"])


def test_python_runs_only_where_it_is_allowed_and_only_from_the_scenes_folder(write_scene: WriteScene) -> None:
    path = write_scene(f"{HELLO}    assert: [{{python: 'checks.py:is_short'}}]\n", ANSWER)
    code = "def is_short(text, context):\n    return {'pass': len(text) < 5, 'reason': context['rule']}\n"
    (path.parent / "checks.py").write_text(code, encoding="utf-8")
    refused = run(path)
    assert (refused.outcome, "--allow-python" in refused.error) == ("error", True)
    [failure] = run(path, allows_python=True).failures
    assert failure.message == "python: checks.py:is_short returned False for 'Good day.' name called"
    (path.parent.parent / "outside.py").write_text(code, encoding="utf-8")
    outside = run(
        write_scene(f"{HELLO}    assert: [{{python: '../outside.py:is_short'}}]\n", ANSWER), allows_python=True
    )
    assert "is no file in the scene's folder" in outside.error


def test_settings_of_this_machine_have_no_effect_on_a_scene(
    write_scene: WriteScene, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("APPROVAL", "all")
    path = write_scene(f"{HELLO}    expect: reply\n", ANSWER)
    report = asyncio.run(run_scene(path, lambda path: load_character_config(path, is_isolated=True).agent_config))
    assert report.outcome == "passed"


def test_a_scene_reports_the_rules_actions_and_templates_that_it_uses(write_scene: WriteScene) -> None:
    coverage = run(write_scene(HELLO, ANSWER)).coverage.to_json()
    assert coverage["rules"]["used"] == ["name called"]
    assert "messageHandlerTemplate" in coverage["templates"]["used"]
    assert "MUTE_ROOM" in coverage["actions"]["unused"]


def test_a_rate_has_its_wilson_interval() -> None:
    assert [round(bound, 3) for bound in wilson_interval(8, 10)] == [0.49, 0.943]
    assert [round(bound, 3) for bound in wilson_interval(10, 10)] == [0.722, 1.0]


@pytest.mark.matrix(3)
@pytest.mark.parametrize("path", BUNDLED, ids=lambda path: f"{path.parent.name}/{path.stem}")
def test_a_scene_of_a_bundled_character_passes(path: Path) -> None:
    report = asyncio.run(run_scene(path, lambda path: load_character_config(path, is_isolated=True).agent_config))
    assert (report.error, report.failures, report.warnings) == ("", [], [])


@pytest.mark.parametrize("name", ["default", "poster", "support"])
def test_each_bundled_character_has_ten_scenes(name: str) -> None:
    assert sum(path.parent.name == name for path in BUNDLED) >= 10


def run_shuffled(seed: int) -> None:
    arguments = [sys.executable, "-c", SHUFFLED, str(seed), *map(str, BUNDLED)]
    environment = {**os.environ, "PYTHONHASHSEED": str(seed), "PYTHONPATH": str(ROOT)}
    done = subprocess.run(arguments, capture_output=True, text=True, timeout=120, env=environment, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


@pytest.mark.long
def test_the_order_the_time_and_the_hash_seed_change_no_outcome() -> None:
    run_shuffled(1)


@pytest.mark.long
@pytest.mark.parametrize("seed", range(2, 22))
def test_twenty_orders_times_and_hash_seeds_change_no_outcome(seed: int) -> None:
    run_shuffled(seed)
