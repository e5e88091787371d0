"""Run scenes with recorded answers, record them, and make them of what really happened."""

import asyncio
import json
import re
from collections.abc import Sequence
from enum import IntEnum
from functools import lru_cache
from pathlib import Path
from typing import Annotated, Any
from xml.etree import ElementTree

import typer

from bot.cli.characters import load_character_config
from bot.cli.options import AsJson, CharacterFile, colour_state, examples, new_group, print_json
from bot.cli.process.shutdown import Exit, UsageError
from bot.cli.running_bot import read_store
from bot.logs import configure_logging
from bot.runtime.character_reload import AgentConfig
from bot.scenes.conversion import SceneSource, read_source, write_scene
from bot.scenes.runner import Coverage, RunMode, SceneOptions, SceneReport, run_scene, wilson_interval
from bot.scenes.scene import Scene, SceneError, find_scene_files
from bot.text import strip_terminal_codes

DEFAULT_FOLDERS = (Path("scenes"), Path("characters/scenes"))
MIN_PASS_RATE = 0.5  # of `--live`; a scene that passes less often has failed
MAX_LIVE_RUNS = 1000


class SceneExit(IntEnum):
    """The exit codes of `bot scene run`."""

    PASSED = 0
    FAILED = 1
    ERROR = 2
    NOTHING_RAN = 3


app = new_group("Run scenes with recorded answers, record them, and make them of what really happened.")
Paths = Annotated[
    list[Path] | None, typer.Argument(metavar="PATH...", help="Scenes, or folders of them (default: ./scenes).")
]
OtherCharacter = Annotated[
    Path | None, typer.Option("-c", "--character", metavar="FILE", help="Another character than the scenes name.")
]
AllowPython = Annotated[bool, typer.Option("--allow-python", help="Run the functions that `python:` names.")]


@app.command(epilog=examples("bot scene run", "bot scene run scenes/greeting.yaml --strict", "bot scene run --live 20"))
def run(
    paths: Paths = None,
    character: OtherCharacter = None,
    is_strict: Annotated[bool, typer.Option("--strict", help="Fail where a prompt's wording has changed.")] = False,
    live: Annotated[
        int, typer.Option(metavar="N", min=0, max=MAX_LIVE_RUNS, help="Ask the model of the settings, N times each.")
    ] = 0,
    junit: Annotated[Path | None, typer.Option(metavar="FILE", help="Write the results as JUnit XML.")] = None,
    has_annotations: Annotated[
        bool, typer.Option("--annotations", envvar="GITHUB_ACTIONS", help="Print annotations of GitHub Actions.")
    ] = False,
    allows_python: AllowPython = False,
    as_json: AsJson = False,
) -> int:
    """Run scenes with their recorded answers; no model is asked, but with --live.

    The exit code is 0 if all passed, 1 if one failed, 2 if one could not be run, 3 if there was none.
    """
    mode = RunMode.LIVE if live else RunMode.RUN
    options = SceneOptions(mode, is_strict, allows_python, character)
    runs = asyncio.run(_run_all(_find(paths), options, max(1, live)))
    reports = [report for repeated in runs for report in repeated]
    coverage = Coverage()
    for report in reports:
        coverage.add(report.coverage)
    code = _exit_code(runs)
    if junit is not None:
        junit.write_bytes(_to_junit(reports))
    if as_json:
        rates = {str(repeated[0].path): _rate(repeated) for repeated in runs} if live else {}
        scenes = [report.to_json() for report in reports]
        print_json({"outcome": code.name.lower(), "scenes": scenes, "coverage": coverage.to_json(), "rates": rates})
        return code
    for repeated in runs:
        _print_runs(repeated, is_live=bool(live))
    if has_annotations:
        _print_annotations(reports)
    _print_summary(reports, coverage)
    return code


@app.command(epilog=examples("bot scene record", "bot scene record scenes/greeting.yaml --missing"))
def record(
    paths: Paths = None,
    character: OtherCharacter = None,
    is_missing: Annotated[bool, typer.Option("--missing", help="Keep the recorded answers that still fit.")] = False,
    allows_python: AllowPython = False,
) -> int:
    """Ask the model of the settings, and write its answers and verdicts beside the scenes, without secrets."""
    mode = RunMode.RECORD_MISSING if is_missing else RunMode.RECORD
    runs = asyncio.run(_run_all(_find(paths), SceneOptions(mode, False, allows_python, character), 1))
    for [report] in runs:
        _print_runs([report], is_live=False)
        if report.recorded is not None:
            print(f"  wrote {strip_terminal_codes(str(report.recorded))}")
    return _exit_code(runs)


@app.command("from", epilog=examples("bot scene from 0196f1c2-8f1e-7c55-b0aa-93a8f8c2b001", "bot scene from --room R"))
def make(
    receipt: Annotated[str, typer.Argument(metavar="[RECEIPT]", help="Id of a receipt or a message.")] = "",
    room: Annotated[str, typer.Option(metavar="ROOM", help="Id or name of a room, instead of a receipt.")] = "",
    last: Annotated[int, typer.Option(metavar="N", min=1, max=200, help="How many messages the scene has.")] = 20,
    character: CharacterFile = None,
    to: Annotated[Path | None, typer.Option(metavar="FILE", help="The file to write.")] = None,
) -> int:
    """Write a scene and its answers from stored messages; people get other names, the same everywhere."""
    if bool(receipt) == bool(room):
        raise UsageError("name a receipt or a message, or a room with --room")
    config = load_character_config(character)
    source = SceneSource(config.agent_config, receipt, room, last)
    found = read_store(config, lambda store: read_source(store, source))
    path = to or Path("scenes") / f"{found.name}.yaml"
    for written in write_scene(path, found, config.path, config.secrets):
        print(f"wrote {strip_terminal_codes(str(written))}")
    print(f"run it with: bot scene run {strip_terminal_codes(str(path))}")
    return Exit.OK


@app.command(epilog=examples("bot scene schema > scenes/scene.schema.json"))
def schema() -> int:
    """Print the JSON schema of scene files, for editors."""
    print(json.dumps(Scene.model_json_schema(by_alias=True), indent=2))
    return Exit.OK


def _find(paths: Sequence[Path] | None) -> list[Path]:
    try:
        return find_scene_files(paths or [folder for folder in DEFAULT_FOLDERS if folder.is_dir()][:1])
    except SceneError as error:
        raise UsageError(str(error)) from None


async def _run_all(files: Sequence[Path], options: SceneOptions, count: int) -> list[list[SceneReport]]:
    is_isolated = options.mode is RunMode.RUN

    @lru_cache
    def load(path: Path) -> AgentConfig:
        return load_character_config(path, is_isolated=is_isolated).agent_config

    with configure_logging(level="CRITICAL"):  # what goes wrong is in the reports
        return [[await run_scene(file, load, options) for _ in range(count)] for file in files]


def _exit_code(runs: Sequence[Sequence[SceneReport]]) -> SceneExit:
    outcomes = [report.outcome for repeated in runs for report in repeated]
    if not outcomes:
        return SceneExit.NOTHING_RAN
    if "error" in outcomes:
        return SceneExit.ERROR
    rates = [sum(report.outcome == "passed" for report in repeated) / len(repeated) for repeated in runs]
    return SceneExit.PASSED if all(rate >= MIN_PASS_RATE for rate in rates) else SceneExit.FAILED


def _rate(repeated: Sequence[SceneReport]) -> dict[str, Any]:
    passed = sum(report.outcome == "passed" for report in repeated)
    low, high = wilson_interval(passed, len(repeated))
    return {"passed": passed, "runs": len(repeated), "low": round(low, 3), "high": round(high, 3)}


def _print_runs(repeated: Sequence[SceneReport], *, is_live: bool) -> None:
    if is_live:
        rate = _rate(repeated)
        share = f"{rate['passed']} of {rate['runs']} passed, 95 % interval {rate['low']:.0%} to {rate['high']:.0%}"
        print(strip_terminal_codes(f"{repeated[0].path}: {share}"))
    messages = dict.fromkeys(line for report in repeated for line in _list_lines(report, is_live=is_live))
    for line in messages:
        print(colour_state(strip_terminal_codes(line, allowed="\n")))


def _list_lines(report: SceneReport, *, is_live: bool) -> list[str]:
    lines = [] if is_live or report.outcome != "passed" else [f"ok   {report.path}"]
    lines += [f"fail {report.error}"] if report.error else []
    lines += [f"fail {report.path}:{item.line}: step {item.step}: {item.message}" for item in report.failures]
    return lines + [f"warn {report.path}: {text}" for text in report.warnings]


def _print_summary(reports: Sequence[SceneReport], coverage: Coverage) -> None:
    outcomes = [report.outcome for report in reports]
    steps = sum(report.step_count for report in reports)
    if not reports:
        print("no scene was found: name a file or a folder, or write one: docs/scenes.md")
        return
    numbers = ", ".join(f"{outcomes.count(name)} {name}" for name in ("passed", "failed", "error") if name in outcomes)
    print(f"{numbers}; {steps} steps in {sum(report.seconds for report in reports):.1f} s")
    document = coverage.to_json()
    for kind, names in document.items():
        total = len(names["used"]) + len(names["unused"])
        print(strip_terminal_codes(f"{kind}: {len(names['used'])} of {total} used: {', '.join(names['used']) or '-'}"))


def _print_annotations(reports: Sequence[SceneReport]) -> None:
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


def _to_junit(reports: Sequence[SceneReport]) -> bytes:
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
