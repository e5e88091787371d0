"""Ranking by word overlap."""

from bot.store.similarity import rank_by_word_overlap


def rank(question: str, *texts: str) -> list[int]:
    return rank_by_word_overlap(question, texts, 3)


def test_the_text_with_the_rarer_words_comes_first() -> None:
    texts = ("The harbour opens at six.", "The harbour master keeps the ledger.", "Gulls.")
    assert rank("Who keeps the ledger of the harbour?", *texts) == [1, 0]


def test_a_text_without_shared_words_is_not_found() -> None:
    assert rank("Chess?", "The harbour opens at six.", "Gulls.") == []


def test_case_and_endings_do_not_matter() -> None:
    assert rank("OPENING hours", "It opens at six; opening is early.", "Gulls.") == [0]


def test_one_word_that_many_texts_have_is_not_enough() -> None:
    texts = [f"how {number}" for number in range(30)] + [f"lamp {number}" for number in range(70)]
    assert rank("how", *texts) == []
    assert rank("how is lamp 203", *texts, "how the lamp 203 was lit") == [100]


def test_words_that_most_texts_have_do_not_count() -> None:
    assert rank("the", "the lamp", "the tide", "the gull") == []
