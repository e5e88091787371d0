"""Runs scenes for `bot scene`, and prints what came of them: lines, annotations, JUnit XML."""

import re
from collections.abc import Collection, Sequence
from enum import IntEnum
from functools import lru_cache
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

from bot.characters.voice import VoiceMeasures, measure_voice
from bot.cli.characters import load_character_config
from bot.cli.options import colour_state
from bot.cli.process.shutdown import UsageError, print_line
from bot.logs import configure_logging
from bot.runtime.character_reload import AgentConfig
from bot.scenes.conversion import FoundScene, write_scene
from bot.scenes.runner import Coverage, RunMode, SceneOptions, SceneReport, run_scene, wilson_interval
from bot.scenes.scene import SceneError, find_scene_files
from bot.text import strip_terminal_codes

DEFAULT_FOLDERS = (Path("scenes"), Path("characters/scenes"))
MIN_PASS_RATE = 0.5  # of `--live`; a scene that passes less often has failed


class SceneExit(IntEnum):
    """The exit codes of `bot scene run`."""

    PASSED = 0
    FAILED = 1
    ERROR = 2
    NOTHING_RAN = 3


def find_scenes(paths: Sequence[Path] | None) -> list[Path]:
    """Return the files of scenes among these paths, by default those of the working directory. Raises UsageError."""
    try:
        return find_scene_files(paths or [folder for folder in DEFAULT_FOLDERS if folder.is_dir()][:1])
    except SceneError as error:
        raise UsageError(str(error)) from None


def load_isolated(path: Path) -> AgentConfig:
    """Return the configuration of a character without the settings of this machine."""
    return load_character_config(path, is_isolated=True).agent_config


def write_found(found: FoundScene, to: Path | None, character: Path, secrets: Collection[str]) -> list[str]:
    """Write a scene that was made of stored messages; return what it does not expect, and how to run it, as lines."""
    path = to or Path("scenes") / f"{found.name}.yaml"
    written = write_scene(path, found, character, secrets)
    lines = [*found.notes, *(f"wrote {file}" for file in written), f"run it with: bot scene run {path}"]
    return [strip_terminal_codes(line) for line in lines]


async def run_scenes(files: Sequence[Path], options: SceneOptions, count: int) -> list[list[SceneReport]]:
    """Run each scene `count` times; return its reports."""
    is_isolated = options.mode is RunMode.RUN

    @lru_cache
    def load(path: Path) -> AgentConfig:
        return load_isolated(path) if is_isolated else load_character_config(path).agent_config

    with configure_logging(level="CRITICAL"):  # what goes wrong is in the reports
        return [[await run_scene(file, load, options) for _ in range(count)] for file in files]


def exit_code(runs: Sequence[Sequence[SceneReport]]) -> SceneExit:
    """Return the exit code of the runs of some scenes."""
    outcomes = [report.outcome for repeated in runs for report in repeated]
    if not outcomes:
        return SceneExit.NOTHING_RAN
    if "error" in outcomes:
        return SceneExit.ERROR
    rates = [sum(report.outcome == "passed" for report in repeated) / len(repeated) for repeated in runs]
    return SceneExit.PASSED if all(share >= MIN_PASS_RATE for share in rates) else SceneExit.FAILED


def rate(repeated: Sequence[SceneReport]) -> dict[str, Any]:
    """Return how often a scene has passed, with the Wilson interval of its rate."""
    passed = sum(report.outcome == "passed" for report in repeated)
    low, high = wilson_interval(passed, len(repeated))
    return {"passed": passed, "runs": len(repeated), "low": round(low, 3), "high": round(high, 3)}


def print_runs(repeated: Sequence[SceneReport], *, is_live: bool) -> None:
    """Print what came of the runs of one scene, each problem once."""
    if is_live:
        found = rate(repeated)
        share = f"{found['passed']} of {found['runs']} passed, 95 % interval {found['low']:.0%} to {found['high']:.0%}"
        print_line(f"{repeated[0].path}: {share}")
    messages = dict.fromkeys(line for report in repeated for line in _list_lines(report, is_live=is_live))
    for line in messages:
        print(colour_state(strip_terminal_codes(line, allowed="\n")))


def _list_lines(report: SceneReport, *, is_live: bool) -> list[str]:
    lines = [] if is_live or report.outcome != "passed" else [f"ok   {report.path}"]
    lines += [f"fail {report.error}"] if report.error else []
    lines += [f"fail {report.path}:{item.line}: step {item.step}: {item.message}" for item in report.failures]
    return lines + [f"warn {report.path}: {text}" for text in report.warnings]


def print_summary(reports: Sequence[SceneReport], coverage: Coverage) -> None:
    """Print how many scenes have passed, and of several what they have used."""
    outcomes = [report.outcome for report in reports]
    steps = sum(report.step_count for report in reports)
    if not reports:
        print("no scene was found: name a file or a folder, or write one: docs/scenes.md")
        return
    numbers = ", ".join(f"{outcomes.count(name)} {name}" for name in ("passed", "failed", "error") if name in outcomes)
    print(f"{numbers}; {steps} {'step' if steps == 1 else 'steps'} in {sum(item.seconds for item in reports):.1f} s")
    if len(reports) == 1:
        return
    document = coverage.to_json()
    for kind, names in document.items():
        total = len(names["used"]) + len(names["unused"])
        print_line(f"{kind}: {len(names['used'])} of {total} used: {', '.join(names['used']) or '-'}")
    for name, voice in measure_voices(reports).items():
        print_line(f"voice of {name}: {voice.describe()}")


def measure_voices(reports: Sequence[SceneReport]) -> dict[str, VoiceMeasures]:
    """Return how the replies of all scenes of a character keep its voice, by its name."""
    found: dict[str, list[SceneReport]] = {}
    for report in reports:
        if report.character is not None:
            found.setdefault(report.character.name, []).append(report)
    return {
        name: measure_voice(character, [text for report in named for text in report.replies])
        for name, named in found.items()
        if (character := named[0].character) is not None
    }


def print_annotations(reports: Sequence[SceneReport]) -> None:
    """Print each problem as GitHub Actions shows it beside the line of its file."""
    for report in reports:
        name = _escape(str(report.path)).replace(":", "%3A").replace(",", "%2C")
        if report.error:
            print(f"::error file={name},line=1::{_escape(report.error)}")
        for item in report.failures:
            print(f"::error file={name},line={item.line}::{_escape(f'step {item.step}: {item.message}')}")
        for text in report.warnings:
            print(f"::warning file={name},line=1::{_escape(text)}")


def _escape(text: str) -> str:
    return strip_terminal_codes(text, allowed="\n").replace("%", "%25").replace("\n", "%0A")


def to_junit(reports: Sequence[SceneReport]) -> bytes:
    """Return the reports as JUnit XML."""
    suite = ElementTree.Element("testsuite", {"name": "scenes", "tests": str(len(reports))})
    for name, outcome in (("failures", "failed"), ("errors", "error")):
        suite.set(name, str(sum(report.outcome == outcome for report in reports)))
    for report in reports:
        path = str(report.path)
        case = ElementTree.SubElement(
            suite, "testcase", name=path, classname="scenes", file=path, time=f"{report.seconds:.3f}"
        )
        problems = [("failure", f"{path}:{item.line}: step {item.step}: {item.message}") for item in report.failures]
        for kind, message in [*problems, *([("error", report.error)] if report.error else [])]:
            ElementTree.SubElement(case, kind, message=re.sub(r"[^\t\n\x20-\ud7ff\ue000-\ufffd]", "?", message))
    document: bytes = ElementTree.tostring(suite, encoding="utf-8", xml_declaration=True)
    return document
