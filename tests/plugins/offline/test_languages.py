"""Answers of the offline responder in German and Spanish."""

import re

import pytest

from plugins.offline.responder import find_language, load_language_rules, respond, respond_with_care
from tests.plugins.offline.test_responder import ADA, answers, talk

ENGLISH_WORDS = re.compile(r"\b(?:the|is|are|you|what|with|your)\b", re.IGNORECASE)
LANGUAGES = ("de", "es")


@pytest.mark.parametrize(
    ("lines", "language"),
    [
        (["hallo"], "de"),
        (["ich habe heute keine Zeit und bin müde"], "de"),
        (["¿Quién eres?"], "es"),
        (["hola", "ok"], "es"),
        (["Wie wird das Wetter?", "Ada: Ich weiß es nicht.", "ok"], "de"),
        (["Wie wird das Wetter?", "What do you think of it?"], "en"),
        (["il fait du vent aujourd'hui"], "en"),
        (["12 * 3"], "en"),
    ],
)
def test_the_language_is_that_of_the_lines_to_answer_or_of_earlier_lines(lines: list[str], language: str) -> None:
    assert find_language(talk(*lines)) == language


def test_lines_that_tell_no_language_are_answered_in_that_of_the_person() -> None:
    assert respond(talk("hi"), ADA, language="de").startswith("Hallo, ich bin Ada.")
    assert respond(talk("hi"), ADA, language="es").startswith("Hola, soy Ada.")
    assert respond(talk("hi"), ADA, language="fr").startswith("Hello, I'm Ada.")
    assert respond(talk("What do you think?"), ADA, language="de") == respond(talk("What do you think?"), ADA)


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("Ada, wer bist du?", "Ada.*Offline-Modell"),
        ("ich heiße Kim", "Kim"),
        ("was ist 12 * (3 + 4)?", "84"),
        ("Mir geht es heute nicht so gut", "leid|leicht|woher"),
        ("Kannst du mir einen Brief schreiben?", "offline nicht|übersteigt"),
        ("¿Eres un robot?", "modelo"),
        ("me llamo Kim", "Kim"),
        ("¿Cuánto es 3 * 4?", "12"),
        ("estoy muy cansado", "Siento|fácil|dónde"),
    ],
)
def test_a_line_is_answered_by_the_rule_of_its_language(line: str, expected: str) -> None:
    assert all(re.search(expected, answer) for answer in answers(line))


@pytest.mark.parametrize(("language", "line"), [("de", "Ich sehe den Bus nicht."), ("es", "Hoy no veo el gato.")])
def test_a_long_conversation_repeats_no_answer_soon_and_has_no_english_word(language: str, line: str) -> None:
    history: list[str] = []
    for _ in range(12):
        history.append(line)
        history.append(f"Ada: {respond(talk(*history), ADA, language=language)}")
    given = history[1::2]
    assert all(len(set(given[start : start + 5])) == 5 for start in range(8))
    assert not any(ENGLISH_WORDS.search(answer) for answer in given)


@pytest.mark.parametrize("language", LANGUAGES)
def test_distress_is_answered_with_care_in_the_language_of_the_person(language: str) -> None:
    line = {"de": "ich kann nicht mehr, das ist zu viel", "es": "no puedo más, estoy muy mal"}[language]
    care = next(rule.answers for rule in load_language_rules(language) if rule.name == "care")
    assert respond_with_care(talk(line)) in care
    assert len({respond_with_care(talk(line, "Ada: " + care[0])), care[0]}) == 2


@pytest.mark.parametrize("language", LANGUAGES)
def test_a_script_has_each_rule_once_and_its_last_answers_anything(language: str) -> None:
    rules = load_language_rules(language)
    assert len({rule.name for rule in rules}) == len(rules)
    assert rules[-1].pattern.search("anything")
    assert len([answer for answer in rules[-1].answers if "{" not in answer]) > 5
    texts = [answer for rule in rules for answer in rule.answers]
    assert not [text for text in texts if ENGLISH_WORDS.search(text)]
