"""An empty working directory, and a small character with scenes."""

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Annotated

import pytest

from bot import ActionResult, Character, Effect, Plugin, Turn, action
from bot.runtime.character_reload import AgentConfig
from bot.settings import Layer, Settings
from bot.testing import ScriptedModel
from bot.testing.harness import add_required
from tests.cli.conftest import workdir

__all__ = ["workdir"]

WriteScene = Callable[..., Path]
ADA = {
    "name": "Ada",
    "style": {"chat": ["no hashtags"]},
    "messageExamples": [[{"name": "Ada", "content": {"text": "It is only a clock."}}]],
}


@pytest.fixture
def write_scene(workdir: Path) -> WriteScene:
    """Return a function that writes a scene of Ada, and its recorded answers if there are any."""
    (workdir / "ada.json").write_text(json.dumps(ADA), encoding="utf-8")
    (workdir / "scenes").mkdir()

    def write(steps: str, answers: str = "", name: str = "one", head: str = "") -> Path:
        path = workdir / "scenes" / f"{name}.yaml"
        lines = f'character: ../ada.json\nsettings: {{AI_NOTICE: "off"}}\n{head}steps:\n{steps}'
        path.write_text(lines, encoding="utf-8")
        if answers:
            path.with_name(f"{name}.answers.yaml").write_text(f"answers:\n{answers}", encoding="utf-8")
        return path

    return write


@action("FORECAST", "Tell the weather.", effect=Effect.PURE)
async def forecast(turn: Turn, city: Annotated[str, "The city"], days: Annotated[int, "How many"] = 1) -> ActionResult:
    """Tell the weather."""
    await turn.reply(f"{city}: mild.")
    return ActionResult(text="mild")


def load_ada(
    model: ScriptedModel | None = None, settings: Mapping[str, str] | None = None
) -> Callable[[Path], AgentConfig]:
    """Return a function that returns Ada's configuration, with a model in place of those of the settings."""
    plugins = add_required([Plugin("weather", actions=[forecast]), *([model.plugin] if model is not None else [])])
    config = AgentConfig(Character.model_validate(ADA), tuple(plugins), Settings([Layer("the test", settings or {})]))
    return lambda path: config
