"""Show, mark, export or delete a person, or leave unread what they write."""

import os
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any
from uuid import UUID

import typer

from bot.cli.characters import CharacterConfig, load_character_config
from bot.cli.options import AsJson, CharacterFile, examples, is_confirmed, new_group, print_result
from bot.cli.process.shutdown import UsageError
from bot.cli.running_bot import SOURCE, read_store, run_connected
from bot.domain.environment import Entity, MarkedPerson, MarkOrigin, PersonMark
from bot.errors import ConfigError
from bot.operate.people import ArchiveCounts, People, find_people, write_person_archive
from bot.settings import CoreSettings
from bot.store.protocols import Store
from bot.text import redactor_of

UPLOADS_FOLDER = "uploads"  # of the web page and the API, in BOT_DATA_DIR
MAX_SHOWN_PEOPLE = 20
REASONS = {
    MarkOrigin.PERSON: "they asked for it",
    MarkOrigin.OPERATOR: "an operator has set it",
    MarkOrigin.ROLE: "they have a role of IGNORED_ROLES",
}
app = new_group("Show or mark a person, export or delete what is stored about them, or leave unread what they write.")
PersonText = Annotated[
    str, typer.Argument(metavar="PERSON", help="A name, the id of the account on its platform, or an id of the API.")
]


@dataclass(frozen=True, slots=True)
class ExportedPerson:
    """A person, the file that was written about them, and how many items it holds."""

    entity: Entity
    file: Path
    counts: ArchiveCounts


@app.command(epilog=examples("bot person export Ada", "bot person export 123456789 ada.zip"))
def export(
    person: PersonText,
    file: Annotated[
        Path | None, typer.Argument(metavar="FILE", help="The ZIP (default: NAME.zip in this folder).")
    ] = None,
    character: CharacterFile = None,
    as_json: AsJson = False,
) -> int:
    """Write a ZIP with everything that is stored about a person; also while the bot runs."""
    config = load_character_config(character)
    exported = read_store(config, lambda store: _export(config, store, person, file))
    document = {"file": exported.file, "id": exported.entity.id, "items": exported.counts.items}
    counts = [f"  {name:<19} {number:,}" for name, number in exported.counts.items.items() if number]
    lines = [f"{_describe(exported.entity)}: written to {exported.file}", *counts]
    return print_result(document, lines, as_json=as_json, indent=None)


@app.command(epilog=examples("bot person forget Ada", "bot person forget 123456789 --yes"))
def forget(
    person: PersonText,
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask.")] = False,
    character: CharacterFile = None,
    as_json: AsJson = False,
) -> int:
    """Delete everything that is stored about a person, as their own /forget-me does."""
    config = load_character_config(character)
    entity = read_store(config, lambda store: choose_person(store, person, config.agent_config.agent_id))
    question = f"Delete everything about {_describe(entity)}? It cannot be undone."
    if not yes and not is_confirmed(question, without_terminal="deleting a person's data cannot be undone: add --yes"):
        raise UsageError("nothing was deleted")
    forgotten = run_connected(config, lambda operations: operations.forget_person(entity.id, source=SOURCE))
    counts = forgotten.model_dump(exclude={"id"})
    deleted = ", ".join(f"{name} {number:,}" for name, number in counts.items() if number)
    lines = [f"{_describe(entity)}: {f'deleted: {deleted}' if deleted else 'nothing was stored'}"]
    return print_result({"id": entity.id, "deleted": counts}, lines, as_json=as_json, indent=None)


@app.command(epilog=examples("bot person show Ada", "bot person show 123456789 --json"))
def show(person: PersonText, character: CharacterFile = None, as_json: AsJson = False) -> int:
    """Show a person: accounts, messages, marks, and when they were told that an AI writes."""
    config = load_character_config(character)
    document = read_store(config, lambda store: _describe_person(store, person, config.agent_config.agent_id))
    notice = document["notice"]
    notified = "never"
    if notice is not None:
        notified = (
            f"{notice.at.astimezone():%Y-%m-%d %H:%M} in {notice.room or notice.room_id} ({notice.state or 'unknown'})"
        )
    lines = [
        f"{document['name'] or 'without a name'} ({document['platform']} {document['external_id']})",
        f"  id                  {document['id']}",
        f"  messages            {document['messages']:,}, {document['answered']:,} of them answered",
        f"  marked as           {', '.join(document['marks']) or 'nothing'}",
        f"  told of the AI      {notified}",
    ]
    document["notice"] = None if notice is None else notice.model_dump()
    return print_result(document, lines, as_json=as_json, indent=None)


@app.command(epilog=examples("bot person mark Ada --minor", "bot person mark 123456789 --no-minor"))
def mark(
    person: PersonText,
    is_minor: Annotated[bool, typer.Option("--minor/--no-minor", help="Whether the person is a minor.")],
    character: CharacterFile = None,
    as_json: AsJson = False,
) -> int:
    """Mark a person as a minor, or remove the mark; MINORS says what holds for minors."""
    config = load_character_config(character)
    entity = read_store(config, lambda store: choose_person(store, person, config.agent_config.agent_id))
    run_connected(config, lambda operations: operations.mark_minor(entity, is_minor=is_minor, source=SOURCE))
    lines = [f"{_describe(entity)}: {'marked as a minor' if is_minor else 'not marked as a minor any more'}"]
    return print_result({"id": entity.id, "is_minor": is_minor}, lines, as_json=as_json, indent=None)


async def _describe_person(store: Store, text: str, agent_id: UUID) -> dict[str, Any]:
    """Return what `bot person show` tells, with the notice as `GivenNotice`."""
    entity = await choose_person(store, text, agent_id)
    activity = await store.entities.activity(entity.id)
    return {
        "id": entity.id,
        "name": entity.name,
        "platform": entity.platform,
        "external_id": entity.external_id,
        "names": list(entity.names),
        "messages": activity.messages if activity else 0,
        "answered": activity.answered if activity else 0,
        "marks": sorted({item.mark.value for item in store.marks.find(entity.id)}),
        "notice": await People(agent_id, store=store, muted=set()).last_notice(entity.id),
    }


@app.command(epilog=examples("bot person ignore Ada", "bot person ignore 123456789 --json"))
def ignore(person: PersonText, character: CharacterFile = None, as_json: AsJson = False) -> int:
    """Store nothing more that a person writes and hide what was stored, as their own /ignore-me does."""
    return _set_ignored(person, character, is_ignored=True, as_json=as_json)


@app.command(epilog=examples("bot person read Ada", "bot person read 123456789 --json"))
def read(person: PersonText, character: CharacterFile = None, as_json: AsJson = False) -> int:
    """Read a person again whom `bot person ignore` named; their own /ignore-me and a platform's role stay."""
    return _set_ignored(person, character, is_ignored=False, as_json=as_json)


@app.command(epilog=examples("bot person ignored", "bot person ignored --json"))
def ignored(character: CharacterFile = None, as_json: AsJson = False) -> int:
    """List the people who are not read, the latest first: the id, the account, who has set it, and when."""
    marks = read_store(load_character_config(character), _read_ignored)
    people = [
        {"id": item.entity_id, "platform": item.platform, "external_id": item.external_id, "set_by": item.origin,
         "at": item.at}
        for item in marks
    ]  # fmt: skip
    lines = [
        f"{item.entity_id}  {item.platform} {item.external_id}  {REASONS[item.origin]}  {item.at:%Y-%m-%d %H:%M} UTC"
        for item in marks
    ]
    return print_result({"people": people}, lines or ["everybody is read"], as_json=as_json, indent=None)


async def _read_ignored(store: Store) -> list[MarkedPerson]:
    return store.marks.find(mark=PersonMark.NOT_READ)


def _set_ignored(person: str, character: Path | None, *, is_ignored: bool, as_json: bool) -> int:
    config = load_character_config(character)
    entity = read_store(config, lambda store: choose_person(store, person, config.agent_config.agent_id))
    result = run_connected(
        config, lambda operations: operations.ignore_person(entity.id, is_ignored=is_ignored, source=SOURCE)
    )
    origins = " and ".join(REASONS[MarkOrigin(origin)] for origin in result.ignored_by)
    line = f"{_describe(entity)}: not read, because {origins}" if origins else f"{_describe(entity)}: read"
    return print_result({"id": entity.id, "ignored_by": result.ignored_by}, [line], as_json=as_json, indent=None)


async def _export(config: CharacterConfig, store: Store, person: str, file: Path | None) -> ExportedPerson:
    entity = await choose_person(store, person, config.agent_config.agent_id)
    name = re.sub(r"[^\w.-]+", "_", entity.name)[:60].strip("._")
    target = file or Path(f"{name or entity.id}.zip")
    unfinished = target.with_name(f"{target.name}.part")
    if target.exists():
        raise ConfigError(f"{target} exists already: name another file, or remove it")
    try:
        handle = os.open(unfinished, os.O_RDWR | os.O_CREAT | os.O_TRUNC, 0o600)
    except OSError as error:
        raise ConfigError(f"{target} cannot be written: {error.strerror}; name another file") from None
    try:
        with os.fdopen(handle, "w+b") as archive:
            counts = await write_person_archive(
                store,
                entity,
                archive,
                agent_name=config.name,
                redact=redactor_of(frozenset(config.secrets)).redact,
                uploads=config.settings.load(CoreSettings).bot_data_dir / UPLOADS_FOLDER,
            )
        unfinished.replace(target)
    finally:
        unfinished.unlink(missing_ok=True)
    return ExportedPerson(entity, target, counts)


async def choose_person(store: Store, text: str, agent_id: UUID) -> Entity:
    """Return the person whose id, account or name is a text. Raises UsageError where there is none or several."""
    people = await find_people(store, text, agent_id)
    if not people:
        raise UsageError(f"{text!r} is no stored person: name the id of the account, as the Console's people show it")
    if len(people) > 1:
        lines = [f"{len(people)} people are called {text!r}: name one by the id that stands first"]
        lines += [f"  {entity.id}  {_describe(entity)}" for entity in people[:MAX_SHOWN_PEOPLE]]
        raise UsageError("\n".join(lines))
    return people[0]


def _describe(entity: Entity) -> str:
    return f"{entity.name or 'without a name'} ({entity.platform} {entity.external_id})"
