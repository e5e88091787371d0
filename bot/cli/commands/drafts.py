"""List replies and posts that wait for a person; send, edit or drop one."""

import re
from pathlib import Path
from typing import Annotated

import typer

from bot.cli.characters import load_character_config
from bot.cli.options import MAX_COUNT, AsJson, CharacterFile, examples, new_group, print_result
from bot.cli.process.shutdown import UsageError
from bot.cli.running_bot import read_store, run_connected
from bot.domain.proposal import ProposalState
from bot.operate.operations import NO_DRAFT, Operations
from bot.outbound.proposals import ProposalDecision
from bot.text import shorten

DEFAULT_LIMIT, MAX_TEXT_LENGTH = 100, 200
ACTOR = "an operator"
ALL = "all"
NO_DRAFTS = {ProposalState.WAITING: "no draft waits", ALL: "there are no drafts"}
ID_PATTERN = re.compile(r"[0-9a-f]{1,64}")

app = new_group("List replies and posts that wait for a person; send, edit or drop one.")
DraftId = Annotated[str, typer.Argument(metavar="ID", help="A draft's id, as `bot drafts list` shows it.")]
Revision = Annotated[
    int | None,
    typer.Option(metavar="N", min=1, help="Only if it still has this revision: nobody has changed its text."),
]


@app.command("list", epilog=examples("bot drafts list", "bot drafts list --state all --json"))
def list_drafts(
    state: Annotated[
        str,
        typer.Option(
            metavar="STATE", help=f"Those in this state: {', '.join((*ProposalState, ALL))}.", show_default=True
        ),
    ] = ProposalState.WAITING.value,
    limit: Annotated[
        int, typer.Option(metavar="N", min=1, max=MAX_COUNT, help="At most N drafts.", show_default=True)
    ] = DEFAULT_LIMIT,
    character: CharacterFile = None,
    as_json: AsJson = False,
) -> int:
    """List the drafts that wait, or those in another state."""
    if state not in (*ProposalState, ALL):
        raise UsageError(f"--state {state!r}: there are {', '.join((*ProposalState, ALL))}")
    selected = None if state == ALL else ProposalState(state)
    config = load_character_config(character)
    drafts = read_store(
        config,
        lambda store: Operations.on_store(config.agent_config.agent_id, store).drafts(state=selected, limit=limit),
    )
    lines, rows = [], []
    for draft in drafts:
        room, text = f"{draft.room} ({draft.platform})", shorten(draft.text, MAX_TEXT_LENGTH)
        rows.append((draft.id, str(draft.revision), draft.state, room, draft.reason, text, draft.decided_by))
        decided = f" by {draft.decided_by}" if draft.decided_by else ""
        lines += [f"{draft.id}  revision {draft.revision}, {draft.state}{decided}, for {room}: {draft.reason}"]
        lines += [f"  > {shorten(draft.question, MAX_TEXT_LENGTH)!r}"] if draft.question else []
        lines += [f"  {text!r}"]
    header = ("draft", "revision", "state", "room", "reason", "text", "decided by")
    body = {"drafts": [draft.model_dump(mode="json", exclude={"agent_id"}) for draft in drafts]}
    return print_result(
        body, lines or [NO_DRAFTS.get(state, f"no draft is {state}")], as_json=as_json, header=header, rows=rows
    )


@app.command(ProposalDecision.SEND, epilog=examples("bot drafts send 3fa2b1c4d5e6"))
def send_draft(
    draft_id: DraftId, revision: Revision = None, character: CharacterFile = None, as_json: AsJson = False
) -> int:
    """Send a draft."""
    return _decide(ProposalDecision.SEND, draft_id, revision, None, character, as_json=as_json)


@app.command(ProposalDecision.EDIT, epilog=examples('bot drafts edit 3fa2b1c4d5e6 "It is a fern."'))
def edit_draft(
    draft_id: DraftId,
    text: Annotated[str, typer.Argument(metavar="TEXT", help="Its new text.")],
    revision: Revision = None,
    character: CharacterFile = None,
    as_json: AsJson = False,
) -> int:
    """Change the text of a draft, which still waits."""
    return _decide(ProposalDecision.EDIT, draft_id, revision, text, character, as_json=as_json)


@app.command(ProposalDecision.DROP, epilog=examples("bot drafts drop 3fa2b1c4d5e6"))
def drop_draft(
    draft_id: DraftId, revision: Revision = None, character: CharacterFile = None, as_json: AsJson = False
) -> int:
    """Drop a draft: it is never sent."""
    return _decide(ProposalDecision.DROP, draft_id, revision, None, character, as_json=as_json)


def _decide(
    decision: ProposalDecision,
    draft_id: str,
    revision: int | None,
    text: str | None,
    character: Path | None,
    *,
    as_json: bool,
) -> int:
    unknown = UsageError(f"there is no draft {draft_id!r}: `bot drafts list` shows those that wait")
    if not ID_PATTERN.fullmatch(draft_id):
        raise unknown
    config = load_character_config(character)
    result = run_connected(
        config,
        lambda operations: operations.decide_draft(draft_id, decision, actor=ACTOR, revision=revision, text=text),
    )
    if not result.is_done and result.note == NO_DRAFT:
        raise unknown
    if not result.is_done:
        raise UsageError(result.note)
    body = result.model_dump(mode="json", exclude={"draft": {"agent_id"}})
    return print_result(
        body, result.note.splitlines(), as_json=as_json, header=("draft", "result"), rows=[(draft_id, result.note)]
    )
