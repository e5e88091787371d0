"""Answers in German and Spanish, from the rules of `script.de.txt` and `script.es.txt`.

They are fewer than the English ones, and quote words of people as they are. Which language is answered in depends on
the common words of the lines; where these do not tell, it is that of the person or the program.
"""

import re
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from types import MappingProxyType

from plugins.offline.input_analysis import ChatLine, find_unanswered
from plugins.offline.phrasing import MAX_SENTENCE_LENGTH, Rule, normalize_line, parse_rules, split_sentences

ENGLISH = "en"
CARE = "care"  # the rule that no sentence matches; its answers are for messages of distress
MAX_SHORT_LINE = 3  # in words: one of them tells the language


def _words(words: str) -> frozenset[str]:
    return frozenset(words.split())


# Common words that no other of these languages has.
WORDS: Mapping[str, frozenset[str]] = MappingProxyType(
    {
        "de": _words(
            "ich nicht und bist ist du wir mein meine meinen heute danke guten bitte aber geht dir das wie hallo "
            "kannst mir mich dich habe hast hat heiße heißt wer warum wieso morgen abend nein ja doch gut auch "
            "ein eine einen mit für über sehr schön tschüss müde keine kein weil sind wird der den dem von zum "
            "zur oder wenn noch nur schon ihr euch mag möchte will bin deine dein machst was's gibt's geht's moin "
            "servus erzähl deutsch egal entschuldigung genau klar nö nee stimmt hilfe witz wetter uhr spät"
        ),
        "es": _words(
            "hola estoy qué cómo estás soy gracias muy pero buenos buenas días quiero tengo hoy adiós eres puedes "
            "quién dónde cuándo yo porque mañana ayer necesito gusta español llamo tú él ella nosotros también "
            "aquí ahora algo nada siempre nunca hacer puedo sabes hablas cuéntame dime perdón sí claro vale bien "
            "chiste ayuda cuánto hablar perro gato siento encanta mi mis el los las una llama"
        ),
        ENGLISH: _words(
            "i you the is are am my your what who how why when where do does did can could would has have not and "
            "but to of it this that hello hey thanks thank please yes good tell we they there with for don't i'm "
            "it's what's bye joke help about if"
        ),
    }
)
_WORD = re.compile(r"[^\W\d_]+(?:'[^\W\d_]+)?")


@cache
def load_language_rules(language: str) -> tuple[Rule, ...]:
    """Return the rules of a language. They are read at its first message."""
    return parse_rules(Path(__file__).with_name(f"script.{language}.txt").read_text(encoding="utf-8"))


def find_language(history: Sequence[ChatLine], default: str = ENGLISH) -> str:
    """Return the language of the lines to answer, else of the latest earlier line of their author that tells.

    Where none tells, it is `default`, or English where that has no rules.
    """
    open_lines = find_unanswered(history)
    author = open_lines[-1].name if open_lines else ""
    earlier = [line.text for line in history if line.name == author and not line.is_agent]
    for text in (" ".join(line.text for line in open_lines), *reversed(earlier[-10:])):
        if language := _language_of(text):
            return language
    return default if default in WORDS else ENGLISH


def _language_of(text: str) -> str:
    """Return the language whose words a text has most, empty if that is unclear."""
    words = [word.casefold() for word in _WORD.findall(normalize_line(text))]
    counts = {language: sum(word in known for word in words) for language, known in WORDS.items()}
    best = max(counts, key=lambda language: counts[language])
    is_clear = list(counts.values()).count(counts[best]) == 1
    return best if is_clear and (counts[best] > 1 or (counts[best] == 1 and len(words) <= MAX_SHORT_LINE)) else ""


def pick_sentence(lines: Sequence[str], name: str) -> str:
    """Return the sentence to answer, without the character's name: the last question, else the last of some length."""
    called = re.escape(normalize_line(name).split(" ")[0]) or "(?!)"
    address = re.compile(rf"^(?:hallo|hola|hi|hey)?,? *@?{called}\b[\s,:!]*(?=\w)|[\s,]+{called}\W*$", re.IGNORECASE)
    parts = [plain for line in lines for part in split_sentences(line) if (plain := normalize_line(part))]
    found = next((part for part in reversed(parts) if part.endswith("?")), "")
    found = found or next((part for part in reversed(parts) if part.count(" ") > 1), "") or (parts[-1] if parts else "")
    return address.sub("", found[:MAX_SENTENCE_LENGTH]).strip(" .,;:!?¿¡…")
