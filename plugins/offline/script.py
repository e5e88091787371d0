"""Data of the offline responder: the rules of `script.txt`, word lists and post templates.

A rule of the script is a header `name rank pattern` at the margin (continued by eight spaces) and, indented,
its answers, separated by ` | `. A pattern is searched, ignoring case, in one cleaned sentence of at most 300
characters: contractions are expanded ("I am"), name and closing punctuation are removed; `%word%` stands for
the pattern of an earlier line `%word% pattern`. The matching rule of the highest rank answers; among equals,
the first.

In an answer `{1}` is a group with pronouns reflected, `{1:raw}` as written, `{1:quoted}` in quotation marks,
`{1:base}` with the verb's base form first, `{1:she}` the pronoun for a relative, `{…:top}` with a capital;
`[first]` and the like are conditions. An answer with an unfilled slot or a false condition is skipped.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from types import MappingProxyType

# Ranks of rules: before everything; before a file's examples; may be repeated soon; substantial.
CRISIS, FRANK, SOCIAL, STRONG = 10, 9, 7, 6


@dataclass(frozen=True, slots=True)
class Rule:
    """Answers to sentences that match a pattern."""

    name: str
    rank: int
    pattern: re.Pattern[str]
    answers: tuple[str, ...]


def parse_rules(script: str) -> tuple[Rule, ...]:
    """Parse rules in the format of the module's docstring; highest rank first, else in their order."""
    rules, word_groups = [], dict[str, str]()
    for block in re.split(r"\n(?=\S)", script.strip("\n")):
        header, _, body = re.sub(r"\n {8}", "", block).partition("\n")
        if header.startswith("%"):
            group, pattern = header.split(" ", 1)
            word_groups[group] = pattern
            continue
        name, rank, pattern = header.split(" ", 2)
        pattern = re.sub(r"%\w+%", lambda group: word_groups[group[0]], pattern)
        answers = tuple(" ".join(body.split()).split(" | "))
        rules.append(Rule(name, int(rank), re.compile(pattern, re.IGNORECASE), answers))
    return tuple(sorted(rules, key=lambda rule: -rule.rank))


@cache
def load_rules() -> tuple[Rule, ...]:
    """Return the rules of `script.txt`. They are read at the first message: their patterns take 30 ms to compile."""
    return parse_rules(Path(__file__).with_name("script.txt").read_text(encoding="utf-8"))


def _words(words: str) -> frozenset[str]:
    return frozenset(words.split())


def _pairs(pairs: str) -> Mapping[str, str]:
    return MappingProxyType(dict(pair.split("=") for pair in pairs.split("; ")))


CLOSING_RULES = _words("bye never-mind quiet")  # rules: as the last sentence they end the open questions
RECALLING_RULES = _words("told remember")  # questions about what was said: it is looked up
RULES_WITHOUT_EXAMPLES = _words("request live machine link code sum")  # an example would be untrue here

REFLECTIONS = _pairs(
    "i=you; me=you; my=your; mine=yours; myself=yourself; we=you; us=you; our=your; ours=yours; am=are; "
    "ourselves=yourselves; your=my; yours=mine; yourself=myself; yourselves=ourselves"
)
YOU_IS_SUBJECT_AFTER = _words(
    "because that if when while but so what why how where who do did does can could will would should may "
    "might are were am was think thinks know hope wish believe than whether since until till as way "
    "everything all and time thing whatever though or have had has say said sure"
)
YOU_IS_SUBJECT_BEFORE = _words(
    "are were have had do did don't didn't can can't could will won't would should must may might never "
    "always said told left went made know think want need like love hate"
)
LONG_FORMS = _pairs(
    "i=I; i'm=I am; im=I am; i've=I have; ive=I have; i'll=I will; i'd=I would; you're=you are; "
    "youre=you are; you've=you have; you'll=you will; you'd=you would; we're=we are; we've=we have; "
    "we'll=we will; they're=they are; theyre=they are; they've=they have; they'll=they will; he's=he is; "
    "she's=she is; it's=it is; that's=that is; thats=that is; there's=there is; what's=what is; "
    "whats=what is; who's=who is; whos=who is; where's=where is; how's=how is; hows=how is; dont=don't; "
    "cant=can't; cannot=can't; wont=won't; didnt=didn't; doesnt=doesn't; isnt=isn't; wasnt=wasn't; "
    "couldnt=couldn't; wouldnt=wouldn't; havent=haven't; u=you; ur=your; r=are; pls=please; plz=please; "
    "gonna=going to; wanna=want to; gotta=have to; dunno=don't know"
)
BASE_FORMS = _pairs("has=have; is=be; does=do; goes=go; was=be")
OPERATOR_SYMBOLS = _pairs("divided by=/; multiplied by=*; plus=+; minus=-; times=*; over=/; x=*; ×=*; ÷=/")
FEMININE_WORDS = _words("sister mother mom mum wife daughter aunt niece grandmother grandma gran girlfriend")
MASCULINE_WORDS = _words("brother father dad husband son uncle nephew grandfather grandpa boyfriend")
NOT_NAMES = _words("not back here home fine good happy sad ok okay done later when if a the maybe so german")
STOP_WORDS = _words(
    "the a an and or of to in on for is are was were be it i you your my me we do does did what who how why "
    "when where that this with about at from as not have has can could will tell know think like am"
)

POST_TEMPLATES = (
    "Question of the day: what first drew you to {topic}?",
    "If you had to explain {topic} to a child in one sentence, which would it be?",
    "What does hardly anybody ask about {topic}?",
    "{topic:top}: overrated, underrated, or just right?",
    "What changed your mind lately?",
    "What have you learned this week that you wish you had known before?",
    "Name something plain that deserves more praise.",
)
