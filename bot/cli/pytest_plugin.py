"""Collects the scenes in folders called `scenes` as tests; loaded through the entry point `greenroom-scenes`."""

import asyncio
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

from bot.cli.characters import load_character_config
from bot.runtime.character_reload import AgentConfig
from bot.scenes.runner import SceneOptions, run_scene
from bot.scenes.scene import ANSWERS_SUFFIX

SCENES_FOLDER = "scenes"


class SceneFailed(Exception):
    """A scene that has failed, or could not be run."""


class SceneItem(pytest.Item):
    """The test of one scene."""

    def runtest(self) -> None:
        """Run the scene with its recorded answers. Raises SceneFailed."""
        options = SceneOptions(allows_python=True)  # the tests beside it run as well
        report = asyncio.run(run_scene(self.path, _load, options))
        lines = [f"{item.line}: step {item.step}: {item.message}" for item in report.failures]
        if problems := [*([report.error] if report.error else []), *(f"{self.path.name}:{line}" for line in lines)]:
            raise SceneFailed("\n".join(problems))

    def repr_failure(self, excinfo: pytest.ExceptionInfo[BaseException], style: object = None) -> str:
        """Return what is wrong with the scene, without a traceback."""
        return str(excinfo.value) if isinstance(excinfo.value, SceneFailed) else str(excinfo.getrepr())


class SceneFile(pytest.File):
    """The file of a scene."""

    def collect(self) -> Iterator[pytest.Item]:
        """Yield the test of the scene."""
        yield SceneItem.from_parent(self, name=self.path.stem)


def pytest_collect_file(file_path: Path, parent: pytest.Collector) -> SceneFile | None:
    """Return the scene in a file: YAML in a folder called `scenes` that names a character and has steps."""
    if file_path.suffix != ".yaml" or file_path.name.endswith(ANSWERS_SUFFIX) or SCENES_FOLDER not in file_path.parts:
        return None
    lines = file_path.read_text(encoding="utf-8", errors="replace").splitlines()
    keys = {line.partition(":")[0] for line in lines}
    return SceneFile.from_parent(parent, path=file_path) if {"character", "steps"} <= keys else None


@cache
def _load(path: Path) -> AgentConfig:
    return load_character_config(path, is_isolated=True).agent_config
