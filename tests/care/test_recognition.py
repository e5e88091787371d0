"""Recognition of distress by phrases: what is found, and what means something else."""

import csv
import re
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from bot.care.recognition import DistressCategory, find_distress, fold_text, load_phrases

DATA = Path(__file__).parents[1] / "data"
ROOT = Path(__file__).parents[2]
MIN_RECALL, MAX_FALSE_ALARMS = 0.95, 0.05


class Line(NamedTuple):
    """A line of a test set; without a category it means something else."""

    language: str
    kind: str
    category: str
    text: str

    @property
    def is_distress(self) -> bool:
        return self.category != "-"


def read_lines(name: str) -> list[Line]:
    with (DATA / name).open(encoding="utf-8", newline="") as file:
        return [Line(**row) for row in csv.DictReader(file, delimiter="\t", quoting=csv.QUOTE_NONE)]


def measure(name: str) -> tuple[float, float]:
    """Return the share of lines of distress that are found, and of other lines that are found too."""
    lines = read_lines(name)
    shares = []
    for is_distress in (True, False):
        of_kind = [line for line in lines if line.is_distress is is_distress]
        shares.append(sum(find_distress(line.text) is not None for line in of_kind) / len(of_kind))
    return shares[0], shares[1]


def list_missed() -> Iterator[Line]:
    for line in read_lines("care_lines.tsv"):
        if (find_distress(line.text) is not None) is not line.is_distress:
            yield line


def test_of_two_hundred_lines_nearly_all_distress_is_found_and_little_else() -> None:
    recall, false_alarms = measure("care_lines.tsv")
    assert (recall, false_alarms) >= (MIN_RECALL, 0.0)
    assert false_alarms <= MAX_FALSE_ALARMS, list(list_missed())


def test_of_the_lines_that_were_written_before_the_phrases_as_many_are_found() -> None:
    recall, false_alarms = measure("care_held_out.tsv")
    assert recall >= MIN_RECALL
    assert false_alarms <= MAX_FALSE_ALARMS


def test_the_set_has_two_hundred_lines_in_five_languages_half_of_them_distress() -> None:
    lines = read_lines("care_lines.tsv")
    assert len(lines) == 200
    assert {line.language for line in lines} == {phrases.language for phrases in load_phrases()}
    assert sum(line.is_distress for line in lines) == 100
    assert {line.kind for line in lines} == {"true", "figurative", "fiction", "quote", "negation"}


def test_a_message_of_distress_is_found_in_the_language_and_category_in_which_it_is_written() -> None:
    for line in read_lines("care_lines.tsv"):
        if line.is_distress and (found := find_distress(line.text)) is not None:
            assert (found.language, found.category) == (line.language, line.category), line.text


@pytest.mark.parametrize(
    "text",
    [
        "I WANT TO DIE",
        "i want  to\tdie...",
        "hey, how are you? me, I want to die.",
        "*I want to die*",
        "I don’t want to live anymore",
        "i dont want to live anymore",
        "ICH MÖCHTE STERBEN",
        "ich mochte sterben",
        "je n'ai plus envie de vivre",
        "je n’ai plus envie de vivre",
        "no quiero vivir mas",
        "nao quero mais viver",
    ],
)
def test_case_accents_apostrophes_and_signs_do_not_matter(text: str) -> None:
    assert find_distress(text) is not None


@pytest.mark.parametrize(
    "text", ["", "?!…", "hello", "die", "I want to diet", "suicidesquad", "the skilled myself", "x" * 100_000]
)
def test_parts_of_words_and_single_words_are_no_phrases(text: str) -> None:
    assert find_distress(text) is None


def test_a_negation_holds_for_its_own_sentence() -> None:
    assert find_distress("I'm not okay. I want to die") is not None
    assert find_distress("I'm not okay, I want to die") is not None
    assert find_distress("I do not want to die") is None
    assert find_distress("No, I don't really want to die.") is None


@pytest.mark.parametrize(
    "text", ["ich habe mich noch nie geritzt", "ich will wirklich nicht sterben", "je n'ai jamais pensé à me suicider"]
)
def test_a_negation_within_the_words_of_a_phrase_counts(text: str) -> None:
    assert find_distress(text) is None


def test_fiction_holds_for_its_own_sentence() -> None:
    assert find_distress("In my novel the hero says I want to die.") is None
    assert find_distress("I finished my novel. I want to die.") is not None


def test_what_stands_in_quotation_marks_or_after_a_sign_of_quotation_does_not_count() -> None:
    for text in ('"I want to die"', "“I want to die”", "«je veux mourir»", "„ich will sterben“", "> I want to die"):
        assert find_distress(text) is None
        assert find_distress(f"{text}\nand I want to die too") is not None


def test_of_several_categories_the_most_urgent_counts() -> None:
    found = find_distress("I cut myself again. I took all my pills. I want to die.")
    assert found is not None
    assert found.category is DistressCategory.EMERGENCY


def test_a_long_text_takes_no_long_time_and_its_beginning_counts() -> None:
    assert find_distress("I want to die. " + "and then I want to go on " * 100_000) is not None
    assert find_distress("ich will " + "sehr " * 100_000) is None


def test_phrases_are_written_as_texts_are_compared() -> None:
    source = (ROOT / "bot" / "care" / "phrases.toml").read_text(encoding="utf-8")
    for number, line in enumerate(source.splitlines(), 1):
        if not line.startswith("#"):
            words = re.sub(r"\\+[wdbs]", "", line)
            assert words.isascii(), number
            assert fold_text("don't Übel") == "dont ubel"


def test_distress_at_the_end_of_a_long_message_is_recognised() -> None:
    assert find_distress("It was a long day at work. " * 400 + "I want to die.") is not None
