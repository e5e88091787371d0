"""`bot person`, `bot memory`, `bot care`: people, what is stored of them and what they told, referrals to help."""

import json
import os
import re
import sys
from collections.abc import Callable, Coroutine, Sequence
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Annotated, Any, TextIO
from uuid import UUID

import typer

from bot.cli.characters import CharacterConfig
from bot.cli.options import Output, examples, is_confirmed, new_group
from bot.cli.process.shutdown import Exit, UsageError
from bot.cli.running_bot import SOURCE, choose_person, describe_person, find_rooms, read_store, run_connected
from bot.domain.environment import Entity, MarkedPerson, MarkOrigin, PersonMark
from bot.domain.memory import Memory, MemoryKind
from bot.errors import ConfigError
from bot.operate.people import People, write_person_archive
from bot.operate.results import REPORT_DAYS, build_care_report
from bot.settings import CoreSettings
from bot.store.protocols import RecallScope, Store
from bot.store.search import SearchQuery
from bot.text import redactor_of

care_app = new_group("Report how many people in distress were referred to help.")


@care_app.callback()
def care() -> None:
    """Report how many people in distress were referred to help."""


@care_app.command(epilog=examples("bot care report", "bot care report --since 2026-11-01 --json"))
def report(
    config: CharacterConfig,
    since: Annotated[
        datetime | None,
        typer.Option(
            metavar="DAY",
            formats=["%Y-%m-%d"],
            help=f"The first day, in UTC (default: {REPORT_DAYS} days before today).",
        ),
    ] = None,
) -> Output:
    """Report the referrals since a day, by day and category; no texts and no people."""
    today = config.agent_config.clock().astimezone(UTC).date()
    first = since.date() if since is not None else today - timedelta(days=REPORT_DAYS)
    counts = read_store(config, lambda store: store.ledger.care_counts(first))
    made = build_care_report(counts, first, today)
    rows = [(str(item.day), item.category.value, str(item.count)) for item in made.days]
    lines = [
        f"referrals since {first}: {made.total}",
        *(f"  {day}  {category:<16} {count}" for day, category, count in rows),
    ]
    return Output(made, lines, ("day", "category", "referrals"), rows)


UPLOADS_FOLDER = "uploads"  # of the web page and the API, in BOT_DATA_DIR
REASONS = {
    MarkOrigin.PERSON: "they asked for it",
    MarkOrigin.OPERATOR: "an operator has set it",
    MarkOrigin.ROLE: "they have a role of IGNORED_ROLES",
}
person_app = new_group(
    "Show or mark a person, export or delete what is stored about them, or leave unread what they write."
)
PersonText = Annotated[
    str, typer.Argument(metavar="PERSON", help="A name, the id of the account on its platform, or an id of the API.")
]


@person_app.command("export", epilog=examples("bot person export Ada", "bot person export 123456789 ada.zip"))
def export_person(
    config: CharacterConfig,
    person: PersonText,
    file: Annotated[
        Path | None, typer.Argument(metavar="FILE", help="The ZIP (default: NAME.zip in this folder).")
    ] = None,
) -> Output:
    """Write a ZIP with everything that is stored about a person; also while the bot runs."""
    return read_store(config, lambda store: _export_person(config, store, person, file))


@person_app.command(epilog=examples("bot person forget Ada", "bot person forget 123456789 --yes"))
def forget(
    config: CharacterConfig, person: PersonText, yes: Annotated[bool, typer.Option("--yes", help="Do not ask.")] = False
) -> Output:
    """Delete everything that is stored about a person, as their own /forget-me does."""
    entity = _find_person(config, person)
    question = f"Delete everything about {describe_person(entity)}? It cannot be undone."
    if not yes and not is_confirmed(question, without_terminal="deleting a person's data cannot be undone: add --yes"):
        raise UsageError("nothing was deleted")
    forgotten = run_connected(config, lambda operations: operations.forget_person(entity.id, source=SOURCE))
    counts = forgotten.model_dump(exclude={"id"})
    deleted = ", ".join(f"{name} {number:,}" for name, number in counts.items() if number)
    lines = [f"{describe_person(entity)}: {f'deleted: {deleted}' if deleted else 'nothing was stored'}"]
    return Output({"id": entity.id, "deleted": counts}, lines, indent=None)


@person_app.command(epilog=examples("bot person show Ada", "bot person show 123456789 --json"))
def show(config: CharacterConfig, person: PersonText) -> Output:
    """Show a person: accounts, messages, marks, and when they were told that an AI writes."""
    return read_store(config, lambda store: _show_person(store, person, config.agent_id))


@person_app.command(epilog=examples("bot person mark Ada --minor", "bot person mark 123456789 --no-minor"))
def mark(
    config: CharacterConfig,
    person: PersonText,
    is_minor: Annotated[bool, typer.Option("--minor/--no-minor", help="Whether the person is a minor.")],
) -> Output:
    """Mark a person as a minor, or remove the mark; MINORS says what holds for minors."""
    entity = _find_person(config, person)
    run_connected(config, lambda operations: operations.mark_minor(entity, is_minor=is_minor, source=SOURCE))
    lines = [f"{describe_person(entity)}: {'marked as a minor' if is_minor else 'not marked as a minor any more'}"]
    return Output({"id": entity.id, "is_minor": is_minor}, lines, indent=None)


async def _show_person(store: Store, text: str, agent_id: UUID) -> Output:
    entity = await choose_person(store, text, agent_id)
    activity = await store.entities.activity(entity.id)
    notice = await People(agent_id, store=store, muted=set()).last_notice(entity.id)
    messages, answered = (activity.messages, activity.answered) if activity else (0, 0)
    marks = sorted({item.mark.value for item in store.marks.find(entity.id)})
    account = {"id": entity.id, "name": entity.name, "platform": entity.platform, "external_id": entity.external_id}
    figures = {"names": entity.names, "messages": messages, "answered": answered, "marks": marks}
    notified = "never"
    if notice is not None:
        state = notice.state or "unknown"
        notified = f"{notice.at.astimezone():%Y-%m-%d %H:%M} in {notice.room or notice.room_id} ({state})"
    lines = [
        describe_person(entity),
        f"  id                  {entity.id}",
        f"  messages            {messages:,}, {answered:,} of them answered",
        f"  marked as           {', '.join(marks) or 'nothing'}",
        f"  told of the AI      {notified}",
    ]
    return Output({**account, **figures, "notice": notice and notice.model_dump()}, lines, indent=None)


@person_app.command(epilog=examples("bot person ignore Ada", "bot person ignore 123456789 --json"))
def ignore(config: CharacterConfig, person: PersonText) -> Output:
    """Store nothing more that a person writes and hide what was stored, as their own /ignore-me does."""
    return _set_ignored(config, person, is_ignored=True)


@person_app.command(epilog=examples("bot person read Ada", "bot person read 123456789 --json"))
def read(config: CharacterConfig, person: PersonText) -> Output:
    """Read a person again whom `bot person ignore` named; their own /ignore-me and a platform's role stay."""
    return _set_ignored(config, person, is_ignored=False)


@person_app.command(epilog=examples("bot person ignored", "bot person ignored --json"))
def ignored(config: CharacterConfig) -> Output:
    """List the people who are not read, the latest first: the id, the account, who has set it, and when."""
    marks = read_store(config, _read_ignored)
    people = [
        {"id": item.entity_id, "platform": item.platform, "external_id": item.external_id, "set_by": item.origin,
         "at": item.at}
        for item in marks
    ]  # fmt: skip
    lines = [
        f"{item.entity_id}  {item.platform} {item.external_id}  {REASONS[item.origin]}  {item.at:%Y-%m-%d %H:%M} UTC"
        for item in marks
    ]
    return Output({"people": people}, lines or ["everybody is read"], indent=None)


async def _read_ignored(store: Store) -> list[MarkedPerson]:
    return store.marks.find(mark=PersonMark.NOT_READ)


def _set_ignored(config: CharacterConfig, person: str, *, is_ignored: bool) -> Output:
    entity = _find_person(config, person)
    result = run_connected(
        config, lambda operations: operations.ignore_person(entity.id, is_ignored=is_ignored, source=SOURCE)
    )
    origins = " and ".join(REASONS[MarkOrigin(origin)] for origin in result.ignored_by)
    line = f"{describe_person(entity)}: not read, because {origins}" if origins else f"{describe_person(entity)}: read"
    return Output(result, [line], indent=None)


async def _export_person(config: CharacterConfig, store: Store, person: str, file: Path | None) -> Output:
    entity = await choose_person(store, person, config.agent_id)
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
    lines = [f"  {name:<19} {number:,}" for name, number in counts.items() if number]
    document = {"file": target, "id": entity.id, "items": counts}
    return Output(document, [f"{describe_person(entity)}: written to {target}", *lines], indent=None)


def _find_person(config: CharacterConfig, text: str) -> Entity:
    return read_store(config, lambda store: choose_person(store, text, config.agent_id))


MAX_SEARCHED_ROOMS = 50
MAX_NAMED, MAX_EXPLAINED = 200, 8  # people whom a question may name; messages, and facts, that are shown
PAGE_SIZE = 200
MAX_EXPORTED_FACTS = 1_000_000  # of a room
OWNER_ONLY = 0o600
FactId = Annotated[UUID, typer.Argument(metavar="ID", help="As `bot memory list` shows it.")]
memory_app = new_group(
    "List, search, explain, export, correct or delete the facts that the bot noted of what people told."
)


@memory_app.command("list", epilog=examples("bot memory list Ada", "bot memory list 123456789 --json"))
def list_facts(config: CharacterConfig, person: PersonText) -> Output:
    """List the facts that a person told, newest first; with --json in full, as an export."""
    return _read(config, lambda store: _facts_of(store, person, config.agent_id))


@memory_app.command(epilog=examples("bot memory search who lives in Graz"))
def search(
    config: CharacterConfig,
    words: Annotated[list[str], typer.Argument(metavar="WORDS", help="What the facts are about.")],
) -> Output:
    """List the facts that share the most words with a question, in the rooms that were active last."""
    return _read(config, lambda store: _search(store, " ".join(words)))


@memory_app.command(epilog=examples("bot memory why 0196f1c2-8f1e-7c55-b0aa-93a8f8c2b001"))
def why(config: CharacterConfig, fact_id: FactId) -> Output:
    """Explain where a fact comes from: who told it, in which message, where, and what it supersedes."""
    return _read(config, lambda store: _with_source(store, fact_id), is_detailed=True)


@memory_app.command(epilog=examples("bot memory explain 'where does Ada live' --room general"))
def explain(
    config: CharacterConfig,
    question: Annotated[str, typer.Argument(metavar="QUESTION", help="What somebody asks.")],
    room: Annotated[str, typer.Option(metavar="R", help="The room where it is asked, by id or name.")],
    asker: Annotated[str | None, typer.Option(metavar="PERSON", help="Who asks, where it says `I`.")] = None,
) -> Output:
    """Show which messages and facts of a room a question finds, and why: the parts that make up each score.

    It is searched as in a turn, so the embedding model, if there is one, is asked for the vector of the question.
    """
    documents = read_store(config, lambda store: _explain(store, question, room, asker, config))
    lines = []
    for item in documents:
        parts = ", ".join(f"{part['name']} {part['score']}" for part in item["parts"])
        lines += [f"{item['score']:>6.2f}  {item['kind']}, {item['told_by']}, {item['at'][:16]}: {item['text']}"]
        lines += [f"        {parts}"]
    return Output(documents, lines or ["nothing"])


@memory_app.command(epilog=examples("bot memory correct 0196f1c2-8f1e-7c55-b0aa-93a8f8c2b001 'Ada lives in Graz.'"))
def correct(
    config: CharacterConfig,
    fact_id: FactId,
    text: Annotated[str, typer.Argument(metavar="TEXT", help="The sentence that replaces it.")],
) -> Output:
    """Replace the text of a fact; also while the bot runs."""
    if not text.strip():
        raise UsageError("the new text is empty: to remove a fact, use `bot memory delete`")
    return _change(config, fact_id, text.strip())


@memory_app.command(epilog=examples("bot memory delete 0196f1c2-8f1e-7c55-b0aa-93a8f8c2b001"))
def delete(config: CharacterConfig, fact_id: FactId) -> Output:
    """Delete a fact; also while the bot runs."""
    return _change(config, fact_id, None)


@memory_app.command("export", epilog=examples("bot memory export > facts.jsonl", "bot memory export facts.jsonl"))
def export_facts(
    config: CharacterConfig,
    file: Annotated[
        Path | None, typer.Argument(metavar="FILE", help="Where to write; standard output without it.")
    ] = None,
) -> int:
    """Write all stored facts with all that is known of each, one JSON object a line; also while the bot runs."""
    if file is None:
        read_store(config, lambda store: _export_facts(store, sys.stdout))
        return Exit.OK
    try:
        with open(file, "x", encoding="utf-8", opener=partial(os.open, mode=OWNER_ONLY)) as target:
            count = read_store(config, lambda store: _export_facts(store, target))
    except OSError as error:
        raise UsageError(f"{file} could not be written: {error.strerror}; name a new file") from None
    print(f"{count} facts are in {file}")
    return Exit.OK


async def _export_facts(store: Store, target: TextIO) -> int:
    """Write the facts of all rooms, oldest first in each, and return how many there are."""
    count = 0
    for room in await store.worlds.rooms():
        facts = await store.memories.recent(room.id, MAX_EXPORTED_FACTS, kind=MemoryKind.FACT)
        people = await store.entities.entities({fact.entity_id for fact in facts})
        for fact in facts:
            teller = people.get(fact.entity_id)
            document = _to_document(fact, teller.name if teller else "") | {
                "told_on": room.platform,
                "room_name": room.name,
                "metadata": fact.metadata,
            }
            target.write(json.dumps(document, ensure_ascii=False) + "\n")
        count += len(facts)
    return count


def _read(
    config: CharacterConfig,
    find: Callable[[Store], Coroutine[Any, Any, Sequence[Memory]]],
    *,
    is_detailed: bool = False,
) -> Output:
    """Return the memories that are found in the store, which a running bot may use meanwhile."""

    async def read(store: Store) -> tuple[Sequence[Memory], dict[UUID, str]]:
        memories = await find(store)
        people = await store.entities.entities({memory.entity_id for memory in memories})
        return memories, {entity.id: entity.name for entity in people.values()}

    memories, names = read_store(config, read)
    documents = [_to_document(memory, names.get(memory.entity_id, "")) for memory in memories]
    rows = [(item["id"], item["at"][:10], item["told_by"], item["text"]) for item in documents]
    lines = [f"{fact_id}  {date}  {teller}: {text}" for fact_id, date, teller, text in rows]
    if is_detailed:
        rows = []
        lines = [
            line for item in documents for line in (*(f"{name:<15} {item[name]}" for name in item if item[name]), "")
        ]
    return Output(documents, lines or ["no facts"], ("fact", "date", "told by", "text"), rows)


async def _facts_of(store: Store, person: str, agent_id: UUID) -> list[Memory]:
    entity = await choose_person(store, person, agent_id)
    facts: list[Memory] = []
    before: int | None = None
    while True:
        page = await store.memories.facts(entity.id, PAGE_SIZE, before)
        facts += page.memories
        before = page.before
        if before is None:
            return facts


async def _search(store: Store, text: str) -> list[Memory]:
    rooms = (await store.worlds.rooms())[:MAX_SEARCHED_ROOMS]
    if not rooms:
        return []
    also = frozenset(audience for room in rooms for audience in (room.id, room.world_id))
    return await store.memories.search(text, RecallScope(rooms[0].id, rooms[0].world_id, also), MemoryKind.FACT, 20)


async def _explain(
    store: Store, question: str, room_name: str, asker: str | None, config: CharacterConfig
) -> list[dict[str, Any]]:
    """Return the messages and facts that a question finds in a room, with their scores."""
    from bot.runtime.agent_runtime import run_agent  # here, because help needs no pipeline

    agent_id = config.agent_id
    room = (await find_rooms(store, room_name))[0]  # of several, the one that was active last
    people = await store.entities.participants(room.id, MAX_NAMED)
    asker_id = (await choose_person(store, asker, agent_id)).id if asker else None
    async with run_agent(config.dry_run_config) as agent_runtime:
        vector, model = await agent_runtime.agent.models.embed_question(question)
    query = SearchQuery(question, asker=asker_id, asked=agent_id, people=people, vector=vector, model=model)
    scope = RecallScope(room.id, room.world_id)
    results = [
        result
        for kind in (MemoryKind.MESSAGE, MemoryKind.FACT)
        for result in await store.memories.find(query, scope, kind, MAX_EXPLAINED)
    ]
    names = await store.entities.entities({result.memory.entity_id for result in results})
    return [
        _to_document(memory, names[memory.entity_id].name if memory.entity_id in names else "")
        | {
            "score": round(result.score, 2),
            "parts": [
                {"name": name, "score": round(value, 2)}
                for name, value in sorted(result.parts.items(), key=lambda part: -part[1])
            ],
        }
        for result in results
        for memory in [result.memory]
    ]


async def _with_source(store: Store, fact_id: UUID) -> list[Memory]:
    """Return a fact, and the message that it comes from if it is still stored."""
    fact = (await store.memories.memories([fact_id])).get(fact_id)
    if fact is None or fact.kind is not MemoryKind.FACT:
        raise UsageError(_unknown_fact(fact_id))
    source_ids = [fact.source_id] if fact.source_id is not None else []
    return [fact, *(await store.memories.memories(source_ids)).values()]


def _unknown_fact(fact_id: UUID) -> str:
    return f"{fact_id} is no stored fact: `bot memory list PERSON` shows the ids"


def _to_document(memory: Memory, teller: str) -> dict[str, Any]:
    return {
        "id": str(memory.id),
        "kind": memory.kind.value.lower(),
        "text": memory.content.text,
        "told_by": teller,
        "told_by_id": str(memory.entity_id),
        "at": memory.created_at.isoformat(timespec="seconds"),
        "room": str(memory.room_id),
        "world": str(memory.world_id),
        "audience": memory.scope.value.lower(),
        "source_message": str(memory.source_id) if memory.source_id else None,
        **{name: memory.metadata[name] for name in ("about", "supersedes", "likely_until") if name in memory.metadata},
    }


def _change(config: CharacterConfig, fact_id: UUID, text: str | None) -> Output:
    """Replace the text of a fact, or delete it without a text."""
    if not run_connected(config, lambda operations: operations.change_fact(fact_id, text, source=SOURCE)):
        raise UsageError(_unknown_fact(fact_id))
    lines = [f"{fact_id}: {'deleted' if text is None else text}"]
    return Output({"id": fact_id, "text": text}, lines, indent=None)
