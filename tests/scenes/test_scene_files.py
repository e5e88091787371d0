"""The files of scenes: limits, errors with file, line and key, and the schema."""

import json
from datetime import timedelta
from pathlib import Path

import jsonschema
import pytest
import yaml

from bot.scenes.scene import (
    Assertion,
    AssertionType,
    Expectation,
    Scene,
    SceneError,
    answers_path,
    find_scene_files,
    parse_duration,
    read_scene,
)

SCENES = Path(__file__).parents[2] / "characters" / "scenes"
STEP = "character: ada.json\nsteps:\n  - say: hello\n"


def read(folder: Path, text: str) -> Scene:
    path = folder / "one.yaml"
    path.write_text(text, encoding="utf-8")
    return read_scene(path)[0]


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        (STEP + "    expects: reply\n", "one.yaml:4: steps.1.expects: Extra inputs are not permitted"),
        (STEP + "    expect: sulk\n", "one.yaml:4: steps.1.expect.1: 'sulk' cannot be expected"),
        (STEP + "    expect: action NAME(1)\n", "write an action as"),
        (STEP + "    assert: [{sounds-like: x}]\n", "'sounds-like' is no assertion"),
        (STEP + "  - {react: x, to: nothing}\n", "step 2: no earlier step has the id 'nothing'"),
        (STEP + "  - {wait: soon}\n", "one.yaml:4: steps.2.wait: write it as 30s, 10m, 3h or 2d"),
        (STEP + "  - {by: Alice}\n", "a step has one of say"),
        (STEP + "    say: again\n", "one.yaml:4: a key stands twice"),
        ("a: &all [1]\nb: *all\n", "one.yaml:2: aliases are not allowed here"),
        ("a: " + "[" * 50, "too many levels"),
        ("a: !!python/name:os.system\n", "one.yaml:1: could not determine a constructor"),
        ("steps: []\n", "one.yaml:1: character: Field required"),
        ("a: {\n", "one.yaml:2:"),
        ("", "character: Field required"),
        ("#" * (2**20 + 1), "it is larger than 1 MB"),
    ],
)
def test_a_scene_that_cannot_be_used_names_file_line_and_key(tmp_path: Path, text: str, problem: str) -> None:
    with pytest.raises(SceneError) as raised:
        read(tmp_path, text)
    assert problem in str(raised.value)


def test_words_that_are_truth_values_in_yaml_are_words(tmp_path: Path) -> None:
    scene = read(tmp_path, f"settings: {{AI_NOTICE: off, A: true, B: 2026-01-02, C: 3}}\n{STEP}")
    assert scene.settings == {"AI_NOTICE": "off", "A": True, "B": "2026-01-02", "C": 3}


def test_an_assertion_has_a_short_form_and_that_of_promptfoo() -> None:
    short, long = Assertion.model_validate({"not-icontains": "x"}), {"type": "not-icontains", "value": "x"}
    assert short == Assertion.model_validate(long)
    assert (short.type, short.is_negated, short.name) == (AssertionType.ICONTAINS, True, "not-icontains")
    assert Assertion.model_validate({"latency": 200}).threshold == 200


def test_an_expected_action_may_name_its_arguments() -> None:
    expected = Expectation.model_validate("action FORECAST(city='Rome', days=2)")
    assert (expected.action, expected.arguments) == ("FORECAST", {"city": "Rome", "days": 2})


def test_a_duration_may_have_several_units() -> None:
    assert parse_duration("1h 30m") == timedelta(minutes=90)


@pytest.mark.long
def test_the_schema_in_the_repository_accepts_the_bundled_scenes() -> None:
    schema = json.loads((SCENES / "scene.schema.json").read_text(encoding="utf-8"))
    assert schema == Scene.model_json_schema(by_alias=True)
    for path in find_scene_files([SCENES]):
        jsonschema.validate(yaml.safe_load(path.read_text(encoding="utf-8")), schema)


def test_a_folder_of_scenes_has_no_scene_in_the_files_of_answers() -> None:
    files = find_scene_files([SCENES])
    assert any(answers_path(path).exists() for path in files)
    assert not any(path.name.endswith(".answers.yaml") for path in files)
