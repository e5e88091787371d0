"""Which facts are kept; how a fact is quoted."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from uuid import UUID

from bot import Content, Entity, Memory, MemoryKind, MemoryScope, RecallScope, Turn, derived_id, short_id
from bot.models import ModelError, ModelType
from bot.text import escape_line, sanitize_name, shorten
from plugins.bootstrap.evaluators.fact_filters import (
    KINDS,
    LONGEST_FACT,
    folded,
    is_statement,
    marks,
    shared_words,
)
from plugins.bootstrap.evaluators.model_output import Claim, Insights
from plugins.bootstrap.evaluators.progress import Material, learnt_today, tally

MOST_A_DAY = 20
MOST_COMPARED = 200
MOST_SHOWN = 30
SAME = 0.97


@dataclass(slots=True)
class Lesson:
    """What one reflection changes about the facts: some are new, and some are to be forgotten."""

    new: list[Memory] = field(default_factory=list)
    forgotten: list[Memory] = field(default_factory=list)


async def known_facts(turn: Turn) -> list[Memory]:
    """List what was learnt in this room, the oldest first."""
    return await turn.agent.store.memories.recent(turn.room.id, MOST_COMPARED, kind=MemoryKind.FACT)


def numbered(known: Sequence[Memory]) -> dict[int, Memory]:
    """Number the facts that the prompt shows."""
    return dict(enumerate(known[-MOST_SHOWN:], 1))


async def weighed(
    turn: Turn,
    insights: Insights,
    material: Material,
    known: Sequence[Memory],
    people: Mapping[UUID, Entity],
) -> Lesson:
    """Decide which noted facts are kept, and which known ones are forgotten.

    Somebody's facts are corrected and withdrawn by that person alone.
    """
    shown, lesson = numbered(known), Lesson()
    for wish in insights.wishes:
        _forget(lesson, shown.get(wish.fact), material.numbered(wish.message))
    for claim, source in _sourced(turn, insights, material, people):
        for number in claim.replaces:
            _forget(lesson, shown.get(number), source)
        lesson.new.append(_fact(turn, claim, source))
    gone = {one.id for one in lesson.forgotten}
    kept = [one for one in known if one.id not in gone]
    lesson.new = _unlike(lesson.new, kept)
    lesson.new = await _unlike_in_meaning(turn, await _embedded(turn, lesson.new), gone)
    return lesson


async def allowed(turn: Turn, facts: Sequence[Memory], day: str) -> tuple[list[Memory], list[Memory]]:
    """Cut to twenty a day what is learnt from one person; gives it with the new tallies."""
    counts = await learnt_today(turn, {one.entity_id for one in facts}, day)
    kept = []
    for fact in facts:
        count = counts.get(fact.entity_id, 0)
        if count < MOST_A_DAY:
            counts[fact.entity_id] = count + 1
            kept.append(fact)
    authors = {one.entity_id for one in kept}
    return kept, [tally(turn, author, day, counts[author]) for author in authors]


def erased(fact: Memory) -> Memory:
    """Give what takes a fact's place in the moment in which others are kept: nothing of it is left."""
    return replace(
        fact, kind=MemoryKind.CUSTOM, content=Content(), metadata={}, embedding=None, embedding_model=""
    )


def _forget(lesson: Lesson, fact: Memory | None, said: Memory | None) -> None:
    if fact is None or said is None or said.entity_id != fact.entity_id or fact in lesson.forgotten:
        return
    lesson.forgotten.append(fact)


def _sourced(
    turn: Turn, insights: Insights, material: Material, people: Mapping[UUID, Entity]
) -> Iterator[tuple[Claim, Memory]]:
    """Pair the facts with the messages they come from; what nobody said, or states nothing, is left out."""
    for claim in insights.claims:
        source = material.numbered(claim.message)
        if source is None and claim.message is None:
            source = max(material.said, key=lambda one: shared_words(one.content.text, claim.text))
            source = source if shared_words(source.content.text, claim.text) else None
        if source is not None and folded(claim.text) and _is_fact(turn, claim, people):
            yield claim, source


def _is_fact(turn: Turn, claim: Claim, people: Mapping[UUID, Entity]) -> bool:
    """Tell whether a claim is of a kind that is kept, and states something about somebody in the room."""
    if claim.kind and claim.kind not in KINDS:
        return False
    about = [one for one in people.values() if not claim.about or _is_called(claim.about, one)]
    character = turn.agent.character
    own = [name for name in (character.name, character.username) if name]
    return is_statement(claim.text, [one.names for one in about], own)


def _is_called(named: str, person: Entity) -> bool:
    names = {name.casefold() for name in person.names}
    return named.strip("@ ").casefold() in (short_id(person.id), *names)


def _fact(turn: Turn, claim: Claim, source: Memory) -> Memory:
    """Make the memory of a fact: it stays in the room in which it was said, whoever that room belongs to."""
    text = shorten(claim.text, LONGEST_FACT)
    return Memory(
        id=derived_id("fact", source.id, folded(text)),
        kind=MemoryKind.FACT,
        entity_id=source.entity_id,
        room_id=turn.room.id,
        world_id=turn.world.id,
        content=Content(text=text, source=source.content.source),
        created_at=source.created_at,
        scope=MemoryScope.ROOM,
        source_id=source.id,
    )


def _unlike(facts: Sequence[Memory], known: Sequence[Memory]) -> list[Memory]:
    """Leave out what the same person has said already, in these words."""
    said = {_wording(one) for one in known}
    fresh = {_wording(one): one for one in reversed(facts) if _wording(one) not in said}
    return list(reversed(fresh.values()))


def _wording(fact: Memory) -> tuple[UUID, str]:
    return fact.entity_id, folded(fact.content.text)


async def _embedded(turn: Turn, facts: Sequence[Memory]) -> list[Memory]:
    models = turn.agent.models
    if not facts or not models.has_handler_for(ModelType.TEXT_EMBEDDING):
        return list(facts)
    try:
        given = await models.embed([one.content.text for one in facts])
    except ModelError:  # a fact without a vector is better than none
        return list(facts)
    return [
        replace(fact, embedding=vector, embedding_model=given.model)
        for fact, vector in zip(facts, given.vectors, strict=True)
    ]


async def _unlike_in_meaning(turn: Turn, facts: Sequence[Memory], gone: set[UUID]) -> list[Memory]:
    """Leave out what the same person has said here already in other words."""
    reach = RecallScope(turn.room.id, turn.world.id)
    fresh = []
    for fact in facts:
        near = []
        if fact.embedding is not None:
            near = await turn.agent.store.memories.recall(
                fact.embedding, fact.embedding_model, reach, MemoryKind.FACT, 5
            )
        if not any(
            one.similarity >= SAME and one.memory.id not in gone and _says_the_same(one.memory, fact)
            for one in near
        ):
            fresh.append(fact)
    return fresh


def _says_the_same(known: Memory, fact: Memory) -> bool:
    theirs = (fact.entity_id, fact.room_id, marks(fact.content.text))
    return (known.entity_id, known.room_id, marks(known.content.text)) == theirs


def quoted(fact: Memory, people: Mapping[UUID, Entity]) -> str:
    """Write a fact as a quote, with who said it and on which day."""
    author = people.get(fact.entity_id)
    name = sanitize_name(author.name if author is not None else "")
    said = escape_line(fact.content.text.replace('"', "'"))
    return f'{name} (id {short_id(fact.entity_id)}), {fact.created_at:%Y-%m-%d}: "{said}"'
