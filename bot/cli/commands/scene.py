"""Run scenes with recorded answers, record them, and make them of what really happened."""

import asyncio
import json
from pathlib import Path
from typing import Annotated

import typer

from bot.cli.characters import load_character_config
from bot.cli.options import AsJson, CharacterFile, examples, new_group, print_json
from bot.cli.process.shutdown import Exit, UsageError, explain_os_error
from bot.logs import configure_logging
from bot.text import strip_terminal_codes

MAX_LIVE_RUNS = 1000


scene_app = new_group("Run scenes with recorded answers, record them, and make them of what really happened.")
Paths = Annotated[
    list[Path] | None, typer.Argument(metavar="PATH...", help="Scenes, or folders of them (default: ./scenes).")
]
OtherCharacter = Annotated[
    Path | None, typer.Option("-c", "--character", metavar="FILE", help="Another character than the scenes name.")
]
AllowPython = Annotated[bool, typer.Option("--allow-python", help="Run the functions that `python:` names.")]


@scene_app.command(
    epilog=examples("bot scene run", "bot scene run scenes/greeting.yaml --strict", "bot scene run --live 20")
)
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
    from bot.cli import scene_reports as reporting
    from bot.scenes.runner import Coverage, RunMode, SceneOptions

    mode = RunMode.LIVE if live else RunMode.RUN
    options = SceneOptions(mode, is_strict, allows_python, character)
    runs = asyncio.run(reporting.run_scenes(reporting.find_scenes(paths), options, max(1, live)))
    reports = [report for repeated in runs for report in repeated]
    coverage = Coverage()
    for report in reports:
        coverage.add(report.coverage)
    code = reporting.exit_code(runs)
    if junit is not None:
        with explain_os_error(UsageError, f"{junit}: cannot be written"):
            junit.write_bytes(reporting.to_junit(reports))
    if as_json:
        rates = {str(repeated[0].path): reporting.rate(repeated) for repeated in runs} if live else {}
        scenes = [report.to_json() for report in reports]
        voice = {name: measured.model_dump() for name, measured in reporting.measure_voices(reports).items()}
        body = {"outcome": code.name.lower(), "scenes": scenes, "coverage": coverage.to_json(), "rates": rates}
        print_json({**body, "voice": voice})
        return code
    for repeated in runs:
        reporting.print_runs(repeated, is_live=bool(live))
    if has_annotations:
        reporting.print_annotations(reports)
    reporting.print_summary(reports, coverage)
    return code


@scene_app.command(epilog=examples("bot scene record", "bot scene record scenes/greeting.yaml --missing"))
def record(
    paths: Paths = None,
    character: OtherCharacter = None,
    is_missing: Annotated[bool, typer.Option("--missing", help="Keep the recorded answers that still fit.")] = False,
    allows_python: AllowPython = False,
) -> int:
    """Ask the model of the settings, and write its answers and verdicts beside the scenes, without secrets."""
    from bot.cli import scene_reports as reporting
    from bot.scenes.runner import RunMode, SceneOptions

    mode = RunMode.RECORD_MISSING if is_missing else RunMode.RECORD
    runs = asyncio.run(
        reporting.run_scenes(reporting.find_scenes(paths), SceneOptions(mode, False, allows_python, character), 1)
    )
    for [report] in runs:
        reporting.print_runs([report], is_live=False)
        if report.recorded is not None:
            print(f"  wrote {strip_terminal_codes(str(report.recorded))}")
    return reporting.exit_code(runs)


@scene_app.command(
    "from", epilog=examples("bot scene from 0196f1c2-8f1e-7c55-b0aa-93a8f8c2b001", "bot scene from --room R")
)
def make(
    receipt: Annotated[str, typer.Argument(metavar="[RECEIPT]", help="Id of a receipt or a message.")] = "",
    room: Annotated[str, typer.Option(metavar="ROOM", help="Id or name of a room, instead of a receipt.")] = "",
    last: Annotated[
        int, typer.Option(metavar="N", min=1, max=200, help="With --room, how many of its last messages.")
    ] = 20,
    character: CharacterFile = None,
    to: Annotated[Path | None, typer.Option(metavar="FILE", help="The file to write.")] = None,
) -> int:
    """Write a scene and its answers from stored messages; people get other names, the same everywhere.

    It expects what became of the message, or of the last messages of a room; the messages before are its history.
    """
    if bool(receipt) == bool(room):
        raise UsageError("name a receipt or a message, or a room with --room")
    from bot.cli import scene_reports as reporting
    from bot.cli.running_bot import read_store
    from bot.scenes.conversion import SceneSource, read_source

    config = load_character_config(character)
    source = SceneSource(config.agent_config, config.path, reporting.load_isolated, receipt, room, last)
    with configure_logging(level="CRITICAL"):  # of the run that checks the scene
        found = read_store(config, lambda store: read_source(store, source))
    print("\n".join(reporting.write_found(found, to, config.path, config.secrets)))
    return Exit.OK


@scene_app.command(epilog=examples("bot scene schema > scenes/scene.schema.json"))
def schema() -> int:
    """Print the JSON schema of scene files, for editors."""
    from bot.scenes.scene import Scene

    print(json.dumps(Scene.model_json_schema(by_alias=True), indent=2))
    return Exit.OK
