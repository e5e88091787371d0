"""`bot scene`: exit codes and the forms of its results, recording, and scenes of what happened."""

import asyncio
import json
import subprocess
import sys
from pathlib import Path
from xml.etree import ElementTree

import pytest
import yaml

from bot.cli.characters import load_character_config
from bot.cli.main import entry
from bot.domain.environment import ChannelType
from bot.runtime.runtime import Runtime
from bot.testing import RecordingAdapter, make_message
from tests.scenes.conftest import WriteScene

ROOT = Path(__file__).parents[2]
Out = pytest.CaptureFixture[str]
HELLO = '  - say: "Ada, hello"\n    expect: reply\n'
ANSWER = "  - {step: 1, answer: Good day.}\n"


def test_the_exit_code_says_whether_scenes_passed_failed_could_not_be_run_or_were_not_there(
    write_scene: WriteScene, capsys: Out
) -> None:
    assert entry(["scene", "run"]) == 3
    write_scene(HELLO, ANSWER)
    assert entry(["scene", "run"]) == 0
    write_scene(HELLO, name="two")
    assert entry(["scene", "run"]) == 1
    write_scene("  - {shout: x}\n", name="three")
    assert entry(["scene", "run"]) == 2
    out = capsys.readouterr().out
    assert "ok   scenes/one.yaml" in out
    assert "fail scenes/two.yaml:4: step 1: there is no recorded answer" in out
    assert "fail scenes/three.yaml:4: steps.1.shout: Extra inputs are not permitted" in out
    assert entry(["scene", "run", "nowhere"]) == 2


def test_results_are_printed_as_json_and_annotations_and_written_for_junit(
    write_scene: WriteScene, capsys: Out, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_scene(HELLO, ANSWER)
    write_scene(HELLO, name="two")
    assert entry(["scene", "run", "--json", "--junit", "junit.xml"]) == 1
    document = json.loads(capsys.readouterr().out)
    assert [(scene["file"], scene["outcome"]) for scene in document["scenes"]] == [
        ("scenes/one.yaml", "passed"),
        ("scenes/two.yaml", "failed"),
    ]
    assert document["coverage"]["rules"]["used"]
    suite = ElementTree.parse("junit.xml").getroot()
    assert (suite.get("tests"), suite.get("failures")) == ("2", "1")
    monkeypatch.setenv("GITHUB_ACTIONS", "true")
    assert entry(["scene", "run"]) == 1
    assert "::error file=scenes/two.yaml,line=4::step 1: there is no recorded" in capsys.readouterr().out


def test_the_model_of_the_settings_is_recorded_and_its_scene_then_passes(write_scene: WriteScene, capsys: Out) -> None:
    write_scene(HELLO)
    assert entry(["scene", "record"]) == 0
    assert "wrote scenes/one.answers.yaml" in capsys.readouterr().out
    assert entry(["scene", "run", "--strict"]) == 0
    assert entry(["scene", "run", "--live", "2", "--json"]) == 0


def test_a_scene_cannot_send_the_requests_of_a_recording_elsewhere(
    write_scene: WriteScene, capsys: Out, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "sk-of-the-operator")
    path = write_scene(HELLO)
    text = path.read_text(encoding="utf-8").replace(
        "settings: {", "settings: {OPENAI_BASE_URL: 'http://127.0.0.1:9/v1', "
    )
    path.write_text(text, encoding="utf-8")
    assert entry(["scene", "record"]) == 2
    assert "OPENAI_BASE_URL: a scene cannot set this where a model is asked" in capsys.readouterr().out


@pytest.mark.long
def test_scenes_run_without_the_packages_of_the_test_kit() -> None:
    code = "import sys; sys.modules.update(pytest=None, anyio=None); import bot.cli.commands.scene"
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60, env={"PYTHONPATH": str(ROOT)})


def test_a_changed_character_makes_recorded_answers_stale(write_scene: WriteScene, capsys: Out) -> None:
    write_scene(HELLO)
    entry(["scene", "record"])
    character = json.loads(Path("ada.json").read_text(encoding="utf-8"))
    Path("ada.json").write_text(json.dumps({**character, "system": "You are another one."}), encoding="utf-8")
    assert entry(["scene", "run"]) == 0
    assert "is stale" in capsys.readouterr().out
    assert entry(["scene", "run", "--strict"]) == 1


async def talk() -> str:
    """Write messages to the stored character; return the id of the last receipt."""
    config = load_character_config(Path("ada.json")).agent_config
    async with Runtime([config]) as runtime:
        await runtime.connect(RecordingAdapter())
        for number, (author, text) in enumerate(
            [("Zoltan Berg", "Ada, hello"), ("Quirin", "Ada, ask Zoltan about the key sk-" + "aB3dE5fG7h" * 4)]
        ):
            inbound = make_message(
                text, sent_at=config.clock(), author=author, kind=ChannelType.GROUP, message_id=f"n{number}"
            )
            receipt = await runtime.handles[0].submit(inbound)
            await runtime.handles[0].wait_outcome(receipt.id)
    return str(receipt.id)


@pytest.mark.long
def test_a_scene_of_what_happened_passes_and_names_no_person_and_no_secret(
    write_scene: WriteScene, capsys: Out
) -> None:
    receipt_id = asyncio.run(talk())
    assert entry(["scene", "from", receipt_id, "-c", "ada.json", "--to", "scenes/complaint.yaml"]) == 0
    text = Path("scenes/complaint.yaml").read_text(encoding="utf-8")
    answers = Path("scenes/complaint.answers.yaml").read_text(encoding="utf-8")
    assert not [word for word in ("Zoltan", "Berg", "Quirin", "aB3dE5fG7h") if word in text + answers]
    steps = yaml.safe_load(text)["steps"]
    assert [(step.get("by"), step.get("expect")) for step in steps] == [("Alice", None), (None, None), ("Ben", "reply")]
    assert steps[2]["say"].startswith("Ada, ask Alice about the key ")
    capsys.readouterr()
    code = entry(["scene", "run", "scenes/complaint.yaml"])
    assert (code, capsys.readouterr().out.splitlines()[0]) == (0, "ok   scenes/complaint.yaml")


@pytest.mark.long
def test_a_scene_of_a_room_has_its_last_messages_and_replaces_no_file(write_scene: WriteScene, capsys: Out) -> None:
    asyncio.run(talk())
    command = ["scene", "from", "--room", "lobby", "--last", "2", "-c", "ada.json", "--to", "scenes/room.yaml"]
    assert entry(command) == 0
    steps = yaml.safe_load(Path("scenes/room.yaml").read_text(encoding="utf-8"))["steps"]
    assert ["say" in step for step in steps] == [False, False, True]
    assert entry(command) == 78
    assert "there is such a file already" in capsys.readouterr().err
    assert entry(["scene", "from", "--room", "cellar", "-c", "ada.json"]) == 78
    assert entry(["scene", "from", "-c", "ada.json"]) == 2


def test_a_new_character_brings_three_scenes_that_pass(workdir: Path, capsys: Out) -> None:
    assert entry(["character", "new", "robin.json", "--name", 'Robin "R" Hood']) == 0
    assert entry(["scene", "run"]) == 0
    assert "3 passed" in capsys.readouterr().out


@pytest.mark.long
def test_pytest_collects_the_scenes_of_a_folder_called_scenes(write_scene: WriteScene) -> None:
    write_scene(HELLO, ANSWER)
    write_scene(HELLO, name="two")
    Path("scenes/compose.yaml").write_text("services: {}\n", encoding="utf-8")
    command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "scenes"]
    environment = {"PYTHONPATH": str(ROOT), "PATH": "/usr/bin:/bin"}
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, env=environment, check=False)
    assert "1 failed, 1 passed" in done.stdout
    assert "two.yaml:4: step 1: there is no recorded answer" in done.stdout
    assert "Traceback" not in done.stdout
