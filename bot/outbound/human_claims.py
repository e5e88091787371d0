"""Replaces claims to be human in outgoing texts, in the languages of `human_claims.toml`."""

import re
import tomllib
from dataclasses import dataclass
from functools import cache
from importlib.resources import files

from bot.user_texts import UNSPACED

CLAUSE_END = re.compile(r"[,.;:!?…\n()—–。、，！？；]")
QUOTES = '"“”«»„「」'
PARTS = ("self", "sure", "real", "bot", "end")
MAX_CLAUSE_LENGTH = 100


@dataclass(frozen=True, slots=True)
class ClaimLanguage:
    """How texts of one language claim to be by a human; see the file. Patterns are compiled when they are needed."""

    words: tuple[str, ...]
    claims: str
    doubts: str
    replacement: str


def replace_human_claims(text: str) -> tuple[str, int]:
    """Return a text in which each claim to be human says that an AI writes, and how many claims there were.

    What is quoted, doubted or denied is no claim.
    """
    folded, count = text.casefold(), 0
    for language in _load_languages():
        if any(word in folded for word in language.words):
            text, found = _replace_in(text, language)
            count += found
    return text, count


def _replace_in(text: str, language: ClaimLanguage) -> tuple[str, int]:
    count, doubts = 0, re.compile(language.doubts, re.IGNORECASE)

    def replace(match: re.Match[str]) -> str:
        nonlocal count
        before = text[max(0, match.start() - MAX_CLAUSE_LENGTH) : match.start()]
        line = before.rpartition("\n")[2]
        clause = CLAUSE_END.split(before)[-1]
        if sum(map(line.count, QUOTES)) % 2 or doubts.search(clause):
            return match[0]
        count += 1
        replacement = language.replacement
        return replacement[0].upper() + replacement[1:] if match[0][0].isupper() else replacement

    return re.sub(language.claims, replace, text, flags=re.IGNORECASE), count


@cache
def _load_languages() -> tuple[ClaimLanguage, ...]:
    source = files("bot.outbound").joinpath("human_claims.toml").read_text(encoding="utf-8")
    languages = []
    for entry in tomllib.loads(source).values():
        claims = "|".join(entry["claims"])
        for name in PARTS:
            claims = claims.replace(f"<{name.upper()}>", entry[name])
        doubts = "|".join(entry["doubts"])
        if not UNSPACED.match(doubts):
            doubts = rf"(?<!\w)(?:{doubts})(?!\w)"
        languages.append(ClaimLanguage(tuple(entry["words"]), claims, doubts, str(entry["replacement"])))
    return tuple(languages)
