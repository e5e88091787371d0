"""Ranking by word overlap."""

import pytest

from bot.store.similarity import rank_by_word_overlap, top_by_word_overlap, word_weights


def rank(question: str, *texts: str) -> list[int]:
    return rank_by_word_overlap(question, texts, 3)


def test_the_text_with_the_rarer_words_comes_first() -> None:
    texts = ("The harbour opens at six.", "The harbour master keeps the ledger.", "Gulls.")
    assert rank("Who keeps the ledger of the harbour?", *texts) == [1, 0]


def test_a_text_without_shared_words_is_not_found() -> None:
    assert rank("Chess?", "The harbour opens at six.", "Gulls.") == []


def test_case_and_endings_do_not_matter() -> None:
    assert rank("OPENING hours", "It opens at six; opening is early.", "Gulls.") == [0]


def test_a_single_word_that_many_texts_have_is_not_enough() -> None:
    texts = [f"how {number}" for number in range(30)] + [f"lamp {number}" for number in range(70)]
    assert rank("how", *texts) == []
    assert rank("how is lamp 203", *texts, "how the lamp 203 was lit") == [100]


def test_words_that_most_texts_have_do_not_count() -> None:
    assert rank("the", "the lamp", "the tide", "the gull") == []


def test_a_transcript_is_searched_for_words_that_many_of_its_texts_have() -> None:
    texts = ["the gull", *[f"the lamp {number}" for number in range(30)], "the oil of the lamp"]
    assert rank_by_word_overlap("the", texts, 3, is_transcript=True) == [0, 1, 2]
    assert rank_by_word_overlap("oil lamp", texts, 2, is_transcript=True) == [31, 1]
    assert rank_by_word_overlap("chess", texts, 3, is_transcript=True) == []


def find_with(word_count: int, total: int) -> list[int]:
    weights = word_weights({"lamp": word_count}, total)
    return top_by_word_overlap({number: {"lamp"} for number in range(word_count)}, weights, total, 1)


@pytest.mark.parametrize(("word_count", "total"), [(10, 100), (11, 400), (40, 400), (1_000, 10_000)])
def test_a_single_word_that_a_tenth_of_the_texts_have_is_enough_for_facts(word_count: int, total: int) -> None:
    assert find_with(word_count, total) == [0]


@pytest.mark.parametrize(("word_count", "total"), [(11, 100), (41, 400)])
def test_a_single_word_that_more_texts_have_is_not_enough_for_facts(word_count: int, total: int) -> None:
    assert find_with(word_count, total) == []
