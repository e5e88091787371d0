"""Select which noted facts to store, and quote facts in prompts."""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta, tzinfo
from typing import Any
from uuid import UUID

from bot import Content, Entity, Memory, MemoryKind, MemoryScope, RecallScope, Turn, derived_id, short_id
from bot.models import ModelError, ModelType
from bot.platform import ACCESS_TOKEN_KEY
from bot.prompts import ANYBODY, AUTHORS_KEY, own_words
from bot.store import index_words
from bot.text import escape_line, sanitize_name, shorten
from plugins.bootstrap.evaluators.fact_filters import (
    FACT_KINDS,
    MAX_FACT_LENGTH,
    distinguishing_words,
    fold_text,
    is_statement,
    shared_words,
)
from plugins.bootstrap.evaluators.model_output import FactClaim, ReflectionOutput
from plugins.bootstrap.evaluators.progress import ReflectionInput, build_daily_count, daily_fact_counts

MAX_FACTS_PER_DAY = 20
MAX_COMPARED_FACTS = 200
MAX_SHOWN_FACTS = 30
SAME_SIMILARITY = 0.97
TELLERS_KEY, MAX_TELLERS = "tellers", 5
ABOUT_KEY, SUPERSEDES_KEY, UNTIL_KEY = "about", "supersedes", "likely_until"  # in the metadata of a fact
LIKELY_DURATIONS = {"plan": timedelta(days=60), "event": timedelta(days=365)}  # of facts that pass, by their kinds
MIN_WORD_LENGTH = 5
_ANY_USER = re.compile(r"\A\W*(?:the )?user\b", re.IGNORECASE)  # how claims of elizaOS name the author of a message


@dataclass(slots=True)
class FactSelection:
    """The facts that one reflection adds and deletes."""

    new: list[Memory] = field(default_factory=list)
    forgotten: list[Memory] = field(default_factory=list)


async def find_known_facts(turn: Turn) -> list[Memory]:
    """Return the facts of this room, oldest first."""
    return await turn.agent.store.memories.recent(turn.room.id, MAX_COMPARED_FACTS, kind=MemoryKind.FACT)


def by_number(known: Sequence[Memory]) -> dict[int, Memory]:
    """Return the facts that the prompt shows, by their numbers in it."""
    return dict(enumerate(known[-MAX_SHOWN_FACTS:], 1))


async def select_facts(
    turn: Turn,
    output: ReflectionOutput,
    reflection_input: ReflectionInput,
    known: Sequence[Memory],
    people: Mapping[UUID, Entity],
) -> FactSelection:
    """Return which noted facts to store and which known facts to delete.

    Only the author of a fact can correct or delete it: with a message that has a word of it, unless the model
    has read nothing of other people.
    """
    shown_facts, selection = by_number(known), FactSelection()
    read_authors = {author for fact in shown_facts.values() for author in fact_authors(fact)}
    authors = sorted(read_authors.union(reflection_input.authors))
    requests = [(request.fact, reflection_input.by_number(request.message)) for request in output.forget_requests]
    for claim, source in _valid_claims(turn, output, reflection_input, people):
        requests += [(number, source) for number in claim.replaced_fact]
        superseded = [
            shown_facts[number].id
            for number in claim.replaced_fact
            if number in shown_facts and _may_delete(shown_facts[number], source, authors, people)
        ]
        fact = _with_provenance(_build_fact(turn, claim, source, authors), claim, people, superseded)
        tellers = _find_tellers(fact, reflection_input, shown_facts.values(), people)
        selection.new.append(replace(fact, metadata={**fact.metadata, TELLERS_KEY: tellers}) if tellers else fact)
    for number, message in requests:
        known_fact = shown_facts.get(number)
        if known_fact is not None and message is not None and _may_delete(known_fact, message, authors, people):
            selection.forgotten.append(known_fact)
    selection.forgotten = list({fact.id: fact for fact in selection.forgotten}.values())
    forgotten_ids = {fact.id for fact in selection.forgotten}
    accepted = [fact for fact in known if fact.id not in forgotten_ids]
    selection.new = _without_same_words(selection.new, accepted)
    selection.new = await _without_same_meaning(turn, await _with_embeddings(turn, selection.new), forgotten_ids)
    return selection


async def within_daily_limit(turn: Turn, facts: Sequence[Memory], day: str) -> tuple[list[Memory], list[Memory]]:
    """Return the facts within MAX_FACTS_PER_DAY per author, and the memories with the new counts."""
    counts = await daily_fact_counts(turn, {fact.entity_id for fact in facts}, day)
    accepted = []
    for fact in facts:
        count = counts.get(fact.entity_id, 0)
        if count < MAX_FACTS_PER_DAY:
            counts[fact.entity_id] = count + 1
            accepted.append(fact)
    authors = {fact.entity_id for fact in accepted}
    return accepted, [build_daily_count(turn, author, day, counts[author]) for author in authors]


def build_tombstone(fact: Memory) -> Memory:
    """Return an empty memory that replaces a fact until the fact is deleted."""
    return replace(fact, kind=MemoryKind.CUSTOM, content=Content(), metadata={}, embedding=None, embedding_model="")


def _may_delete(fact: Memory, message: Memory, authors: Sequence[UUID], people: Mapping[UUID, Entity]) -> bool:
    """Return whether a message of a fact's author asks to delete it, and not what others have written."""
    if message.entity_id != fact.entity_id:
        return False
    said = _words(own_words(message.content.text)) - _name_words(people.get(fact.entity_id))
    return {*authors} <= {fact.entity_id} or bool(said & _words(fact.content.text))


def _valid_claims(
    turn: Turn, output: ReflectionOutput, reflection_input: ReflectionInput, people: Mapping[UUID, Entity]
) -> Iterator[tuple[FactClaim, Memory]]:
    """Yield the valid claims, each with its source message; claims without a source are skipped."""
    for claim in output.claims:
        source = reflection_input.by_number(claim.message)
        if source is None and claim.message is None:
            source = max(
                reflection_input.user_messages, key=lambda message: shared_words(message.content.text, claim.text)
            )
            source = source if shared_words(source.content.text, claim.text) else None
        elif source is not None:
            source = _find_repeated_message(claim, source, reflection_input)
        if source is not None and (author := people.get(source.entity_id)) is not None and not claim.about:
            unnamed = _ANY_USER.match(claim.text)
            claim = replace(claim, text=f"{author.name}{claim.text[unnamed.end() :]}") if unnamed else claim
        if source is not None and fold_text(claim.text) and _is_valid_fact(turn, claim, people):
            yield claim, source


def _find_repeated_message(claim: FactClaim, source: Memory, reflection_input: ReflectionInput) -> Memory:
    """Return the message whose words a claim repeats: its source, unless another person's message fits better.

    So what one person says is not stored as said by another, whatever the model notes.
    """

    def count_shared(message: Memory) -> int:
        return shared_words(message.content.text, claim.text)

    others = [message for message in reflection_input.user_messages if message.entity_id != source.entity_id]
    best = max(others, key=count_shared, default=source)
    return best if count_shared(best) > count_shared(source) else source


def _is_valid_fact(turn: Turn, claim: FactClaim, people: Mapping[UUID, Entity]) -> bool:
    """Return whether a claim is of a known kind and states something about a user of the room."""
    if claim.kind and claim.kind not in FACT_KINDS:
        return False
    about = [entity for entity in people.values() if not claim.about or _has_name(claim.about, entity)]
    character = turn.agent.character
    own_names = [name for name in (character.name, character.username) if name]
    return is_statement(claim.text, [entity.names for entity in about], own_names)


def _has_name(name_text: str, person: Entity) -> bool:
    names = {name.casefold() for name in person.names}
    return name_text.strip("@ ").casefold() in (short_id(person.id), *names)


def _build_fact(turn: Turn, claim: FactClaim, source: Memory, authors: Sequence[UUID]) -> Memory:
    """Return the memory of a fact, visible only in the room of its message.

    `authors` are all whom the model has read: the words of each may be in the fact.
    """
    text = shorten(claim.text, MAX_FACT_LENGTH)
    token = {name: value for name, value in source.metadata.items() if name == ACCESS_TOKEN_KEY}
    return Memory(
        id=derived_id("fact", source.id, fold_text(text)),
        kind=MemoryKind.FACT,
        entity_id=source.entity_id,
        room_id=turn.room.id,
        world_id=turn.world.id,
        content=Content(text=text, source=source.content.source),
        created_at=source.created_at,
        scope=MemoryScope.ROOM,
        source_id=source.id,
        metadata={AUTHORS_KEY: [str(author) for author in authors], **token},
    )


def _with_provenance(
    fact: Memory, claim: FactClaim, people: Mapping[UUID, Entity], superseded: Sequence[UUID]
) -> Memory:
    """Return a fact that knows whom it is about, which facts it supersedes, and until when it is likely true."""
    about = [person.id for person in people.values() if _is_about(claim, person)]
    metadata: dict[str, Any] = {**fact.metadata, ABOUT_KEY: [str(person_id) for person_id in about]}
    if superseded:
        metadata[SUPERSEDES_KEY] = [str(fact_id) for fact_id in superseded]
    if claim.kind in LIKELY_DURATIONS:
        metadata[UNTIL_KEY] = (fact.created_at + LIKELY_DURATIONS[claim.kind]).isoformat()
    return replace(fact, metadata=metadata)


def _is_about(claim: FactClaim, person: Entity) -> bool:
    if claim.about:
        return _has_name(claim.about, person)
    return is_statement(claim.text, [person.names], ())


def _find_tellers(
    fact: Memory, reflection_input: ReflectionInput, known: Iterable[Memory], people: Mapping[UUID, Entity]
) -> list[str]:
    """Return who else uses words of a fact that its author does not use: it may repeat what they have said."""
    own = _name_words(people.get(fact.entity_id))
    said: list[tuple[UUID, set[str]]] = []
    for message in reflection_input.messages:
        text = message.content.text
        words = _words(own_words(text), MIN_WORD_LENGTH)
        said += [(message.entity_id, words), (ANYBODY, _words(text, MIN_WORD_LENGTH) - words)]
    own |= {word for teller, words in said if teller == fact.entity_id for word in words}
    for item in known:
        words, tellers = _words(item.content.text, MIN_WORD_LENGTH), fact_tellers(item)
        own |= words if tellers == [fact.entity_id] else set()
        said += [(teller, words) for teller in tellers]
    foreign = _words(fact.content.text, MIN_WORD_LENGTH) - own
    others = list(dict.fromkeys(str(teller) for teller, words in said if words & foreign and teller != fact.entity_id))
    return others if len(others) <= MAX_TELLERS else [*others[: MAX_TELLERS - 1], str(ANYBODY)]


def _words(text: str, min_length: int = 4) -> set[str]:
    return {word for word in index_words(text) if len(word) >= min_length}


def _name_words(person: Entity | None) -> set[str]:
    return _words(" ".join(person.names)) if person is not None else set()


def fact_tellers(fact: Memory) -> list[UUID]:
    """Return the author of a fact, then others whose words it may repeat; ANYBODY for words that were quoted."""
    return [fact.entity_id, *(UUID(teller) for teller in fact.metadata.get(TELLERS_KEY, ()))]


def fact_subjects(fact: Memory) -> list[UUID]:
    """Return whom a fact is about: as it was noted, or who told it."""
    return [UUID(person) for person in fact.metadata.get(ABOUT_KEY, ())] or [fact.entity_id]


def is_vouched_by_subject(fact: Memory) -> bool:
    """Return whether the person told the fact of themselves, and not another person of them."""
    return fact.entity_id in fact_subjects(fact)


def is_outdated(fact: Memory, now: datetime) -> bool:
    """Return whether a fact is likely no longer true, such as a plan of last year."""
    until = fact.metadata.get(UNTIL_KEY)
    return until is not None and datetime.fromisoformat(until) < now


def fact_authors(fact: Memory) -> list[UUID]:
    """Return whose words a fact may repeat; ANYBODY for one of an earlier version."""
    authors = fact.metadata.get(AUTHORS_KEY)
    return [ANYBODY] if authors is None else [fact.entity_id, *map(UUID, authors)]


def _without_same_words(facts: Sequence[Memory], known: Sequence[Memory]) -> list[Memory]:
    """Return the facts whose wording is new for their author."""
    wordings = {_fact_wording(fact) for fact in known}
    distinct = {_fact_wording(fact): fact for fact in reversed(facts) if _fact_wording(fact) not in wordings}
    return list(reversed(distinct.values()))


def _fact_wording(fact: Memory) -> tuple[UUID, str]:
    return fact.entity_id, fold_text(fact.content.text)


async def _with_embeddings(turn: Turn, facts: Sequence[Memory]) -> list[Memory]:
    models = turn.agent.models
    if not facts or not models.has_handler_for(ModelType.TEXT_EMBEDDING):
        return list(facts)
    try:
        result = await models.embed([fact.content.text for fact in facts])
    except ModelError:  # the fact is stored without a vector
        return list(facts)
    return [
        replace(fact, embedding=vector, embedding_model=result.model)
        for fact, vector in zip(facts, result.vectors, strict=True)
    ]


async def _without_same_meaning(turn: Turn, facts: Sequence[Memory], forgotten_ids: set[UUID]) -> list[Memory]:
    """Return the facts that do not repeat a stored fact of their author in other words."""
    scope = RecallScope(turn.room.id, turn.world.id)
    distinct = []
    for fact in facts:
        matches = []
        if fact.embedding is not None:
            matches = await turn.agent.store.memories.recall(
                fact.embedding, fact.embedding_model, scope, MemoryKind.FACT, 5
            )
        if not any(
            match.similarity >= SAME_SIMILARITY
            and match.memory.id not in forgotten_ids
            and _is_same_fact(match.memory, fact)
            for match in matches
        ):
            distinct.append(fact)
    return distinct


def _is_same_fact(known: Memory, fact: Memory) -> bool:
    key = (fact.entity_id, fact.room_id, distinguishing_words(fact.content.text))
    return (known.entity_id, known.room_id, distinguishing_words(known.content.text)) == key


def quote_fact(fact: Memory, people: Mapping[UUID, Entity], zone: tzinfo = UTC) -> str:
    """Return a fact as a quote with its author, others whose words it may repeat, and the day in a time zone."""
    names = ", with ".join(_describe_teller(teller, people) for teller in fact_tellers(fact))
    quote = escape_line(fact.content.text.replace('"', "'"))
    return f'{names}, {fact.created_at.astimezone(zone):%Y-%m-%d}: "{quote}"'


def _describe_teller(teller: UUID, people: Mapping[UUID, Entity]) -> str:
    entity = people.get(teller)
    name = sanitize_name(entity.name if entity is not None else "")
    return "others" if teller == ANYBODY else f"{name} (id {short_id(teller)})"
