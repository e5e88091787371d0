"""Select which noted facts to store, and quote facts in prompts.

Filter what a model noted as a fact: accept statements about users, reject instructions.

A fact starts with the name of a user of the room, addresses no one, and does not mention the character.
An instruction fails one of these checks.

What a person told alone with the agent, wherever they talk with it alone.

Parse what a model noted in a reflection, as tags or as JSON.

What a person told of themselves, in all rooms where they write: with their consent, given by a command.
"""

import re
import time
import unicodedata
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta, tzinfo
from typing import Annotated, Any, Literal
from uuid import UUID

from bot import (
    Agent,
    CommandContext,
    Component,
    Content,
    Entity,
    Memory,
    MemoryKind,
    MemoryScope,
    RecallScope,
    Room,
    Service,
    Turn,
    command,
    derived_id,
    on,
    short_id,
)
from bot.events import EntityErased
from bot.models import ModelError, ModelType
from bot.platform import ACCESS_TOKEN_KEY, BoundedDict
from bot.prompts import ANYBODY, AUTHORS_KEY, TagTree, own_words, parse_tag_tree
from bot.store import index_terms, index_words
from bot.text import english_text, escape_line, sanitize_name, shorten, user_text
from plugins.bootstrap.evaluators.progress import ReflectionInput, build_daily_count, daily_fact_counts

FACT_KINDS = frozenset({"trait", "belonging", "work", "place", "taste", "plan", "event", "people"})
MIN_NAME_PART_LENGTH = 2
_OPENING = re.compile(r"^[^\w]+")
_WORD = re.compile(r"\w+")
_CALL_PUNCTUATION = re.compile(r"^\s*[,;:!?、，：；？！،؛—–…]")
_REQUEST = re.compile(r"[?!？！؟;]\W*$")
# Only words that mean nothing else in any other language.
_SECOND_PERSON = re.compile(
    r"\b(?:you|yours?|yourself|yourselves|dich|dir|dein(?:e[mnrs]?)?|euch|euer|eure|musst|sollst|darfst|tu|toi|"
    r"vous|votre|vos|tú|ti|usted(?:es)?|vosotros|contigo|voi|vocês?|teu|tua|jij|jouw?|jullie|dig|siz|sana|senin|"
    r"kamu|anda|ciebie|tobie|twój|ты|тебя|тебе|тобой|твой|вы|вас|вам|вами|ваш|ти|тобі|εσύ|εσένα|εσείς|אתה|أنت|"
    r"انت|तुम|आप)\b|[你您]|あなた|お前|당신"
)


def is_statement(text: str, about: Iterable[Collection[str]], character: Collection[str]) -> bool:
    """Return whether a sentence states something about one of these users.

    `about` has the names of each user, `character` the names of the character.
    """
    sentence = _normalize(text)
    subject = next(
        (
            subject_end
            for names in about
            for name in names
            if (subject_end := _leading_name_length(sentence, _normalize(name)))
        ),
        0,
    )
    if not subject or _CALL_PUNCTUATION.match(sentence[subject:]) or addresses_character(text):
        return False
    return not any(_contains_name(sentence, _normalize(name)) or is_order(text, name) for name in character)


def addresses_character(text: str) -> bool:
    """Return whether a text addresses someone: by the second person, a question or an exclamation."""
    sentence = _normalize(text)
    return bool(_SECOND_PERSON.search(sentence) or _REQUEST.search(sentence))


def _normalize(text: str) -> str:
    return _OPENING.sub("", unicodedata.normalize("NFKC", text).casefold()).strip()


def _leading_name_length(sentence: str, name: str) -> int:
    """Return the length of the name at the start of a sentence, whole, in part or declined; 0 if none."""
    if name and sentence.startswith(name):
        return len(name)
    first_word = _WORD.match(sentence)
    if first_word is None:
        return 0
    parts = [part for part in _WORD.findall(name) if len(part) >= MIN_NAME_PART_LENGTH]
    is_part = len(first_word[0]) >= MIN_NAME_PART_LENGTH and any(first_word[0] in part for part in parts)
    return first_word.end() if is_part or any(first_word[0].startswith(part) for part in parts) else 0


def _contains_name(sentence: str, name: str) -> bool:
    """Return whether a sentence contains a name as a word, or anywhere in scripts without spaces."""
    if not name:
        return False
    if not name.isascii() and not any(char.isspace() for char in sentence):
        return name in sentence
    return re.search(rf"(?<!\w){re.escape(name)}(?!\w)", sentence) is not None


MAX_FACT_LENGTH = 300

_DISTINGUISHING = re.compile(r"\d+|\b(?:no|not|never|none|without|longer|former|formerly)\b|n't\b")
_COMMAND_OPENING = re.compile(
    r"\W*(?:please\W+)?(?:always|never|remember|forget|ignore|disregard|obey|pretend|answer|reply|respond|"
    r"say|tell|call|treat|act|let|make sure|do not|don't|from now on|whenever|"
    r"you (?:must|should|shall|have to|need to|are to|are now|will|can|may))\b"
)
_OBLIGATION = re.compile(
    r"\b(?:(?:you|bot|assistant|ai|model|system)\W+(?:must|should|shall|has to|have to|needs? to|"
    r"(?:is|are) (?:to|now|allowed|supposed)|always|never|may|can|will)|system prompt|"
    r"(?:previous|prior|earlier|your) instructions?)\b"
)
_DUTY = r"\W+(?:must|should|shall|has to|needs to|is (?:to|now|allowed|supposed)|always|never|may|can|will)\b"


def fold_text(text: str) -> str:
    """Return the words of a sentence in lower case, without punctuation."""
    return " ".join(_WORD.findall(text.casefold()))


def distinguishing_words(text: str) -> tuple[str, ...]:
    """Return the sorted numbers and negations of a sentence, which decide its meaning."""
    return tuple(sorted(_DISTINGUISHING.findall(text.casefold())))


def is_order(text: str, name: str) -> bool:
    """Return whether a text instructs the character of this name how to behave."""
    sentence = text.casefold()
    obligation = re.compile(rf"\b{re.escape(name.casefold())}{_DUTY}")
    return bool(_COMMAND_OPENING.match(sentence) or _OBLIGATION.search(sentence) or obligation.search(sentence))


def shared_words(first: str, second: str) -> int:
    """Return how many words of at least 4 letters two sentences share."""
    long_words = ({word for word in fold_text(text).split() if len(word) > 3} for text in (first, second))
    return len(next(long_words) & next(long_words))


MAX_ITEMS = 20
# Of elizaOS: kinds of facts that say nothing of their subject, and what marks a fact that is not new.
GENERAL_KINDS = frozenset({"fact", "opinion", "status"})
KNOWN_MARKS = ("already_known", "alreadyKnown", "in_bio", "inBio")
_NUMBER = re.compile(r"\d{1,6}")
_COMMA = re.compile(r"[,;\n]")


@dataclass(frozen=True, slots=True)
class FactClaim:
    """A fact, the number of its source message, and the numbers of the facts it replaces.

    `about` names the user it is about, `kind` its category; blank if the model gave none.
    """

    text: str
    message: int | None = None
    replaced_fact: tuple[int, ...] = ()
    about: str = ""
    kind: str = ""


@dataclass(frozen=True, slots=True)
class ForgetRequest:
    """The number of a fact to delete, and the number of the message that asks for it."""

    fact: int
    message: int | None = None


@dataclass(frozen=True, slots=True)
class RelationshipClaim:
    """A relationship between two users, given by names or ids."""

    source: str
    target: str
    tags: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class ReflectionOutput:
    """Everything a model noted in one reflection."""

    claims: tuple[FactClaim, ...] = ()
    forget_requests: tuple[ForgetRequest, ...] = ()
    relationships: tuple[RelationshipClaim, ...] = ()


def parse_output(raw: str) -> ReflectionOutput:
    """Parse tags of the template's form, or JSON of that form; other text gives an empty output."""
    tree = parse_tag_tree(raw)
    claims = [_parse_claim(item) for item in _items_of(tree, "facts", "fact") if not _is_known(item)]
    forget_requests = [_parse_forget_request(item) for item in _items_of(tree, "forgotten", "fact")]
    relationships = [_parse_relationship(item) for item in _items_of(tree, "relationships", "relationship")]
    return ReflectionOutput(
        tuple(item for item in claims if item.text)[:MAX_ITEMS],
        tuple(item for item in forget_requests if item is not None)[:MAX_ITEMS],
        tuple(item for item in relationships if item.source and item.target)[:MAX_ITEMS],
    )


def _parse_claim(item: TagTree) -> FactClaim:
    if not isinstance(item, dict):
        return FactClaim(_to_text(item))
    text = _first_text(item, "text", "fact", "claim", "content")
    about, kind = _first_text(item, "about", "subject", "who"), _first_text(item, "kind", "type").casefold()
    if kind in GENERAL_KINDS:
        kind = ""
    message = _parse_number(_first_text(item, "message", "source"))
    return FactClaim(text, message, _parse_numbers(_first_text(item, "replaces")), about, kind)


def _is_known(item: TagTree) -> bool:
    """Return whether an item says that it is known already, as the form of elizaOS does."""
    return isinstance(item, dict) and any(_first_text(item, name).casefold() == "true" for name in KNOWN_MARKS)


def _parse_forget_request(item: TagTree) -> ForgetRequest | None:
    if not isinstance(item, dict):
        return None
    fact = _parse_number(_first_text(item, "number", "fact", "id"))
    if fact is None:
        return None
    return ForgetRequest(fact, _parse_number(_first_text(item, "message", "source")))


def _parse_relationship(item: TagTree) -> RelationshipClaim:
    if not isinstance(item, dict):
        return RelationshipClaim("", "")
    source = _first_text(item, "source", "sourceEntityId")
    target = _first_text(item, "target", "targetEntityId")
    tags = (tag.strip() for tag in _COMMA.split(_first_text(item, "tags", "tag")))
    return RelationshipClaim(source, target, tuple(tag for tag in tags if tag))


def _items_of(tree: TagTree, plural: str, singular: str) -> Iterator[TagTree]:
    """Yield the items under a name: `<facts><fact>…`, several of those, or a list in JSON."""
    value = _fold_keys(tree).get(plural, "") if isinstance(tree, dict) else ""
    for group in value if isinstance(value, list) else [value]:
        inner = _fold_keys(group).get(singular) if isinstance(group, dict) else None
        if isinstance(inner, list):
            yield from inner
        elif isinstance(inner, dict) or (inner and isinstance(group, dict) and len(group) == 1):
            yield inner
        elif group:
            yield group


def _fold_keys(tree: Mapping[str, TagTree]) -> dict[str, TagTree]:
    return {name.casefold(): value for name, value in tree.items()}


def _first_text(tree: Mapping[str, TagTree], *names: str) -> str:
    members = _fold_keys(tree)
    return next((text for name in names if (text := _to_text(members.get(name.casefold(), "")))), "")


def _to_text(value: TagTree) -> str:
    """Return a value as one text; items of a list or of `<tag>a</tag><tag>b</tag>` are joined by commas."""
    if isinstance(value, list):
        return ", ".join(filter(None, map(_to_text, value)))
    if isinstance(value, dict):
        return ", ".join(filter(None, map(_to_text, value.values())))
    return value.strip()


def _parse_number(text: str) -> int | None:
    return next(iter(_parse_numbers(text)), None)


def _parse_numbers(text: str) -> tuple[int, ...]:
    return tuple(int(number) for number in _NUMBER.findall(text))


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


def is_outdated(fact: Memory, now: datetime) -> bool:
    """Return whether a fact is likely no longer true, such as a plan of last year."""
    until = fact.metadata.get(UNTIL_KEY)
    return until is not None and datetime.fromisoformat(until) < now


def fact_authors(fact: Memory) -> list[UUID]:
    """Return whose words a fact may repeat; ANYBODY for one of an earlier version."""
    authors = fact.metadata.get(AUTHORS_KEY)
    return [ANYBODY] if authors is None else [fact.entity_id, *map(UUID, authors)]


def _without_same_words(facts: Sequence[Memory], known: Sequence[Memory]) -> list[Memory]:
    """Return the facts whose words, by their stems, are new for their author."""
    wordings = {_fact_wording(fact) for fact in known}
    distinct = {_fact_wording(fact): fact for fact in reversed(facts) if _fact_wording(fact) not in wordings}
    return list(reversed(distinct.values()))


def _fact_wording(fact: Memory) -> tuple[UUID, tuple[str, ...], tuple[str, ...]]:
    text = fact.content.text
    return fact.entity_id, index_terms(text) or (fold_text(text),), distinguishing_words(text)


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


MAX_PRIVATE_FACTS = 100  # the latest of a person
SETTING, EACH_ROOM = "PRIVATE_FACTS", "room"


async def find_private_facts(turn: Turn) -> list[Memory]:
    """Return what the author of a turn told in other talks with the agent alone, oldest first.

    It is empty unless they are alone here too. The talks are in the same world, by the same account of the platform,
    and on the web the facts were told with the same token. With `PRIVATE_FACTS=room` there are none.
    """
    agent, room, person_id = turn.agent, turn.room, turn.author.id
    if not room.type.is_direct or agent.settings.get(SETTING) == EACH_ROOM:
        return []
    token_ids = {turn_input.message.metadata.get(ACCESS_TOKEN_KEY) for turn_input in turn.inputs}
    page = await agent.store.memories.facts(person_id, MAX_PRIVATE_FACTS)
    facts = [
        fact
        for fact in page.memories
        if fact.room_id != room.id
        and fact.world_id == turn.world.id
        and token_ids == {fact.metadata.get(ACCESS_TOKEN_KEY)}
        and fact_tellers(fact) == [person_id]
    ]
    if not facts or not await _is_alone(turn, room):
        return []
    source_ids = {fact.room_id for fact in facts}
    private_ids: set[UUID] = set()
    for other in await agent.store.worlds.rooms_of(person_id):
        is_same_account = (other.platform, other.account) == (room.platform, room.account)
        if other.id in source_ids and is_same_account and other.type.is_direct and await _is_alone(turn, other):
            private_ids.add(other.id)
    return [fact for fact in reversed(facts) if fact.room_id in private_ids]


async def _is_alone(turn: Turn, room: Room) -> bool:
    """Return whether the author alone has written to the agent in a room; an API client may write for several."""
    people = await turn.agent.store.entities.participants(room.id, 3)
    return {person.id for person in people} <= {turn.author.id, turn.agent.id}


CONSENT = "facts_in_all_rooms"  # the type of the component
MAX_PEOPLE = 2_000
CONSENT_SECONDS = 60.0  # after which a change that another process made is seen
MAX_FACTS = 100  # the latest of a person


class SharedFacts(Service):
    """Finds the facts that follow a person into other rooms; for most people it asks the store once a minute."""

    def __init__(self, agent: Agent) -> None:
        super().__init__(agent)
        self._consents: BoundedDict[UUID, tuple[bool, float]] = BoundedDict(MAX_PEOPLE)

    async def has_consent(self, person_id: UUID) -> bool:
        """Return whether the person wants their facts to be used in all rooms."""
        is_given, read_at = self._consents.get(person_id, (False, float("-inf")))
        if time.monotonic() - read_at < CONSENT_SECONDS:
            return is_given
        components = await self.agent.store.entities.components(person_id, CONSENT)
        is_given = any(item.source_entity_id == person_id and item.data.get("is_given") is True for item in components)
        self._consents[person_id] = (is_given, time.monotonic())
        return is_given

    async def set_consent(self, person_id: UUID, *, is_given: bool) -> None:
        """Store the person's decision."""
        component_id = derived_id(self.agent.id, person_id, CONSENT)
        component = Component(
            component_id,
            person_id,
            CONSENT,
            {"is_given": is_given},
            source_entity_id=person_id,
            created_at=self.agent.clock(),
        )
        await self.agent.store.entities.save_component(component)
        self._consents[person_id] = (is_given, time.monotonic())

    def forget(self, person_id: UUID) -> None:
        """Read the person's decision again when it is needed next."""
        self._consents.pop(person_id, None)

    async def find(self, people: Iterable[UUID], room_id: UUID) -> list[Memory]:
        """Return what consenting people told of themselves in other rooms, except in talks with the agent alone."""
        found: list[Memory] = []
        for person_id in [person_id for person_id in people if await self.has_consent(person_id)]:
            rooms = await self.agent.store.worlds.rooms_of(person_id)
            shared = {room.id for room in rooms if not room.type.is_direct and room.id != room_id}
            page = await self.agent.store.memories.facts(person_id, MAX_FACTS)
            found += [
                fact
                for fact in page.memories
                if fact.room_id in shared
                and fact_tellers(fact) == [person_id]
                and {*fact_subjects(fact)} == {person_id}
            ]
        return found


@on(EntityErased)
def on_consent_erased(agent: Agent, event: EntityErased) -> None:
    """Forget the decision of a person whose data were deleted."""
    agent.services[SharedFacts].forget(event.entity_id)


@command("share-my-facts", english_text("commands.share_facts.description"))
async def share_my_facts(
    context: CommandContext, choice: Annotated[Literal["show", "on", "off"], "show, on or off"] = "show"
) -> str:
    """Show or store whether the facts that a person told of themselves are used in all rooms."""
    shared, person_id = context.agent.services[SharedFacts], context.invocation.author.id
    if choice != "show":
        await shared.set_consent(person_id, is_given=choice == "on")
    return user_text("commands.share_facts.on" if await shared.has_consent(person_id) else "commands.share_facts.off")
