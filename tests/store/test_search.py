"""What a question asks for, and how memories are ranked and grouped, without a store."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from bot.domain.content import Content
from bot.domain.environment import Entity
from bot.domain.ids import derived_id, new_id
from bot.domain.memory import Memory, MemoryKind
from bot.store.search import (
    SearchQuery,
    author_term,
    find_languages,
    find_period,
    group_by_topic,
    index_terms,
    parse_question,
    question_terms,
    rank_memories,
)

NOW = datetime(2026, 5, 4, 12, tzinfo=UTC)
PLACE = derived_id("place")
ADA_BERG, ADA_LIND, BOB = (Entity(derived_id(name), "web", name, (name,)) for name in ("Ada Berg", "Ada Lind", "Bob"))


def build_message(text: str, author: Entity = BOB, at: int = 0, **details: object) -> Memory:
    parts = new_id(), MemoryKind.MESSAGE, author.id, PLACE, PLACE, Content(text=text)
    return Memory(*parts, NOW + timedelta(minutes=at), **details)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("text", "start", "days"),
    [
        ("on 8 May, 2023", (2023, 5, 8), 1),
        ("on May 8th", (1, 5, 8), 1),
        ("im März 2024", (2024, 3, 1), 31),
        ("in December", (1, 12, 1), 31),
        ("since 2024-02", (2024, 2, 1), 29),
        ("back in 2025", (2025, 1, 1), 365),
    ],
)
def test_a_question_names_a_day_a_month_or_a_year(text: str, start: tuple[int, int, int], days: int) -> None:
    first = datetime(*start, tzinfo=UTC)
    assert find_period(text) == (first, first + timedelta(days=days))


@pytest.mark.parametrize("text", ["it may rain", "we march on", "", "2026-13-45", "31 February 2024"])
def test_what_is_no_date_names_no_time(text: str) -> None:
    assert find_period(text) is None


def test_people_with_the_same_first_name_are_distinguished_by_the_last() -> None:
    people = (ADA_BERG, ADA_LIND, BOB)
    topics = parse_question(SearchQuery("What does Ada Lind play?", people=people)).topics
    assert topics["by ada lind"] == {author_term(ADA_LIND.id)}
    assert author_term(ADA_BERG.id) not in frozenset().union(*topics.values())
    both = parse_question(SearchQuery("What does Ada play?", people=people)).topics["by ada"]
    assert both == {author_term(ADA_BERG.id), author_term(ADA_LIND.id)}


def test_the_name_of_the_agent_that_is_asked_is_no_topic() -> None:
    query = SearchQuery("Bob, where do I live?", people=(ADA_BERG, BOB), asked=BOB.id, asker=ADA_BERG.id)
    assert parse_question(query).topics.keys() == {"live", "by the asker"}


def test_what_the_agent_said_counts_less_unless_it_is_asked_for_it() -> None:
    lines = [build_message("the harp is old", ADA_BERG), build_message("I know of no harp", BOB)]
    query = SearchQuery("Who has a harp?", asked=BOB.id)
    assert rank_memories(query, lines)[0].memory is lines[0]
    assert rank_memories(query, lines[::-1])[0].memory is lines[0]
    asked = rank_memories(replace(query, text="What did you say of a harp?"), lines)
    assert asked[0].score == pytest.approx(asked[1].score, rel=0.5)


def test_a_text_has_the_stems_of_its_language_or_of_all_where_it_tells_none() -> None:
    assert index_terms("Wir haben die Häuser") == ("haus",)
    assert set(index_terms("Häuser")) >= {"haus", "hauser"}
    assert question_terms("house")["house"] >= set(index_terms("the houses of the town")) - {"town"}
    assert find_languages(["ich", "und", "du"]) == ("german",)


def test_scripts_without_spaces_are_read_in_pairs_of_characters() -> None:
    assert index_terms("猫が好き") == ("猫が", "が好", "好き")
    assert [
        result.memory.content.text
        for result in rank_memories(SearchQuery("猫が"), [build_message("猫が好き"), build_message("犬")])
    ]


def test_lines_nearer_to_each_other_than_to_the_question_share_a_topic() -> None:
    near = [build_message("one", at=2, embedding=(1.0, 0.1)), build_message("two", at=1, embedding=(1.0, 0.2))]
    far = build_message("three", at=0, embedding=(0.0, 1.0))
    assert group_by_topic([near[0], far, near[1]], question=(1.0, 1.0)) == [[near[1], near[0]], [far]]
    assert [len(group) for group in group_by_topic([near[0], replace(near[1], entity_id=ADA_BERG.id)])] == [1, 1]


@pytest.mark.parametrize("letter", ["a", "é", "ا"])
def test_of_an_endless_word_the_beginning_is_a_term_by_which_it_is_found(letter: str) -> None:
    terms = set(index_terms(letter * 200_000))
    assert max(map(len, terms)) <= 64
    assert any(not terms.isdisjoint(found) for found in question_terms(letter * 150_000).values())


@pytest.mark.long
def test_a_text_without_an_end_has_a_bounded_number_of_terms() -> None:
    assert len(set(index_terms(" ".join(f"word{number}" for number in range(50_000))))) <= 2_000
