"""Run a turn again from what was recorded of it, and show the first difference."""

from collections.abc import Iterator
from enum import IntEnum
from pathlib import Path
from typing import Annotated

import typer

from bot.cli.characters import load_character_config
from bot.cli.commands.why import find_receipts
from bot.cli.options import AsJson, CharacterFile, examples, new_command, print_result
from bot.cli.running_bot import read_store
from bot.operate.replay import ReplayBody, ReplayState
from bot.store.protocols import Store
from bot.text import redact


class ReplayExit(IntEnum):
    """The exit codes of `bot replay`, beside those of every command."""

    EQUAL = 0
    DIFFERENT = 1
    NOT_REPLAYED = 3


EXIT_CODES = {state: ReplayExit[state.name] for state in ReplayState}

app = new_command()


@app.command(
    epilog=examples(
        "bot replay 0196f1c2-8f1e-7c55-b0aa-93a8f8c2b001", "bot replay 4711 --with new.json", "bot replay 4711 --json"
    )
)
def replay(
    message: Annotated[
        str,
        typer.Argument(
            metavar="RECEIPT",
            help="The id of the receipt or of its message, or the platform's id; `bot why` lists them.",
            show_default=False,
        ),
    ],
    other: Annotated[
        Path | None,
        typer.Option("--with", metavar="NEW.json", help="Run it with this character instead, and show what changes."),
    ] = None,
    character: CharacterFile = None,
    as_json: AsJson = False,
) -> int:
    """Run a turn again, byte for byte, from what was recorded of it; no model is called, nothing is sent or stored.

    The exit code is 0 if prompts, decisions, actions and replies are equal, 1 if something differs, and 3 if it cannot
    be replayed: its data were erased or have expired, or another version ran it.
    """
    from bot.runtime.replay import replay_turn  # here, because help needs no pipeline

    config = load_character_config(character)
    new_config = load_character_config(other) if other is not None else None

    async def run(store: Store) -> ReplayBody:
        *_, receipt = await find_receipts(store, message)
        other_agent = new_config.agent_config if new_config is not None else None
        return await replay_turn(store, receipt, config.agent_config, other_agent)

    body = ReplayBody.model_validate_json(redact(read_store(config, run).model_dump_json(), config.secrets))
    print_result(body.model_dump(mode="json"), _describe(body, shows_all=other is not None), as_json=as_json)
    return EXIT_CODES[body.state]


def _describe(body: ReplayBody, *, shows_all: bool) -> Iterator[str]:
    """Yield the result as lines: the first difference, or all of them with what changes in each."""
    if body.state is ReplayState.NOT_REPLAYED:
        yield f"it cannot be replayed: {body.reason}"
        return
    if not body.differences:
        yield f"equal: {', '.join(body.steps)}"
        return
    if not shows_all:
        first = body.differences[0]
        yield f"{first.step} differs in line {first.line}"
        yield f"  recorded: {first.recorded}"
        yield f"  replayed: {first.replayed}"
        yield f"{len(body.differences)} of {len(body.steps)} steps differ; --json shows all"
        return
    for difference in body.differences:
        yield f"{difference.step} changes:"
        yield from (f"  {line}" for line in difference.diff[2:])
    if first_prompt := next((item.step for item in body.differences if item.step.startswith("prompt")), ""):
        yield f"from {first_prompt} on, the recorded answers are to other prompts: a model may answer otherwise now"
