"""Text tools of the responder: clean-up, answer slots, quoting, deterministic choice; pure.

Data of the offline responder: the rules of `script.txt`, word lists and post templates.

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
import unicodedata
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from types import MappingProxyType

# Ranks of rules: before a file's examples; may be repeated soon; substantial.
FRANK, SOCIAL, STRONG = 9, 7, 6


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


MAX_ANSWER_LENGTH = 240
MAX_POST_LENGTH = 280
MAX_QUOTE_LENGTH = 60

_LINK_PATTERN = re.compile(r"://|\bhttps?\b|www\.|\w\.\w{2}|[a-z]{4}:\S", re.IGNORECASE)
_MARKUP_PATTERN = re.compile(r"[@{}<>\[\]`*_~|\\#\"]")
_CLAUSE_END = re.compile(
    r"\s*[,;:(?!]|\s[-–—]+\s|\s(?:but|because|although|though|however|while|"
    r"since|for \w+ (?:day|week|month|year|hour)s?|and (?:i|my|we|it|he|she|then|now|you))\b",
    re.IGNORECASE,
)
_TRAILING_FILLER = re.compile(
    r" (?:too|as well|lol|haha|though|please|you know|anyway|either|again|now)$", re.IGNORECASE
)
_COARSE_PATTERN = re.compile(
    r"fuck|shit|cunt|nigg|faggot|\b(?:rape|porn|nazi|kill|sex|dick|bitch|whore|slut|cock|pussy|kike|retard)",
    re.IGNORECASE,
)
_DOUBLE_STOP = re.compile(r"(?<!\.)\.\.(?!\.)")  # after a name that ends with a full stop
_SLOT = re.compile(r"\{(\w+)(?::(\w+))?\}")
_CONDITION = re.compile(r"^\[(\w+)\] ")
MAX_LINE_LENGTH = 2_000
MAX_SENTENCE_LENGTH = 300
_STRAIGHT_QUOTES = MappingProxyType({ord("’"): "'", ord("‘"): "'", ord("“"): '"', ord("”"): '"'})
_SENTENCE_END = re.compile(r"(?<=[.!?…])\s+|[\r\n]+")
_MENTION = re.compile(r"<[@#:][^<>\s]{1,60}>")
_SMILEY = re.compile(r"(?:^|\s)[:;=8][-o']?[)(DPp/|]+(?=\s|$)")
_WORD = re.compile(r"[A-Za-z']+")
_GREETING_WORD_PATTERN = re.compile(
    r"(?:hi|hello|hey|ok|okay|dear|so|and|yo|thanks|thank|bye|goodbye|good|sorry|yes|no)$"
)
_SENTENCE_START_PATTERN = re.compile(
    r"(?:what|who|how|why|when|where|could|do|are|shut|stop|tell|please|be|help|you|i)$"
)
_FILLER = re.compile(
    r"^(?:(?:so|and|but|oh|ok|okay|hmm|um|uh|please|also|actually|honestly|anyway|then)[, ]+"
    r"|(?:well|yes|no|yeah|nope|sorry|look|listen|hi|hello|hey|wow|haha|lol|thanks|thank you|sure)[,!] *"
    r"|(?:hi|hello|hey|yo) (?!there|again|all\b|every|you\b|guys|folks|friend))(?=\w)",
    re.IGNORECASE,
)


def fill_slots(
    answer: str, slots: Mapping[str, str], match: re.Match[str] | None = None, conditions: frozenset[str] = frozenset()
) -> str:
    """Return the answer with its slots filled; empty if its condition is false or a slot has no value."""
    if condition := _CONDITION.match(answer):
        if condition[1] not in conditions:
            return ""
        answer = answer[condition.end() :]
    parts = []
    end = 0
    for slot in _SLOT.finditer(answer):
        value = _format_group(match, int(slot[1]), slot[2]) if slot[1].isdigit() else slots.get(slot[1])
        if value is None:
            return ""
        if slot[2] == "top":
            value = value[:1].upper() + value[1:]
        parts += [answer[end : slot.start()], value]
        end = slot.end()
    text = _DOUBLE_STOP.sub(".", "".join((*parts, answer[end:])))
    return text[:1].upper() + text[1:]


def reflect_pronouns(text: str) -> str:
    """Swap first and second person, such as "I" and "you"."""
    parts = re.split(r"([A-Za-z']+)", text)  # words are at the odd indexes
    words = ["", *(word.lower() for word in parts[1::2]), ""]
    for index in range(1, len(words) - 1):
        parts[2 * index - 1] = _reflect_word(words[index - 1], words[index], words[index + 1], parts[2 * index - 1])
    return "".join(parts)


def is_coarse(text: str) -> bool:
    """Return whether a text contains words that must not be repeated."""
    return bool(_COARSE_PATTERN.search(text))


def quote_line(text: str, max_length: int) -> str:
    """Return a user's line without @, as many sentences as fit; empty if it has links or coarse words."""
    plain = normalize_line(text)
    if _LINK_PATTERN.search(plain) or is_coarse(plain):
        return ""
    return fit_sentences(plain.replace("@", ""), max_length)


def quote_words(text: str, max_length: int) -> str:
    """Return one clause of a user's text without markup; empty if it has links or coarse words."""
    plain = normalize_line(text)
    if _LINK_PATTERN.search(plain) or is_coarse(plain):
        return ""
    clean = "".join(c for c in _MARKUP_PATTERN.sub("", plain) if not unicodedata.combining(c))
    clean = clean.strip(" .,;:!?'-")
    if clause := _CLAUSE_END.search(clean, 3):
        clean = clean[: clause.start()]
    if len(clean) > max_length:
        clean = clean[: max_length - 1].rpartition(" ")[0] + "…"
    return _TRAILING_FILLER.sub("", clean).strip(" '") if len(clean) > 1 else ""


def clean_persona_text(text: str, max_length: int) -> str:
    """Return a text of the character file as one line without @; empty if it has links or placeholders."""
    plain = normalize_line(text)
    if _LINK_PATTERN.search(plain) or "{" in plain or "}" in plain:
        return ""
    return fit_sentences(plain.replace("@", ""), max_length)


def fit_sentences(text: str, max_length: int) -> str:
    """Return as many whole sentences as fit, at least a truncated one."""
    if len(text) <= max_length:
        return text
    result = ""
    for sentence in split_sentences(text):
        longer = f"{result} {sentence}".strip()
        if len(longer) > max_length:
            break
        result = longer
    return result or text[: max_length - 1].rpartition(" ")[0] + "…"


def _format_group(match: re.Match[str] | None, number: int, form: str | None) -> str | None:
    """Return a matched group of the user's text in the form for an answer; None if it cannot be quoted."""
    groups = match.groups()[number - 1 :] if match else ()
    words = quote_words(next(filter(None, groups), ""), MAX_QUOTE_LENGTH)
    if not words:
        return None
    if form in ("she", "her"):
        pronouns = ("they", "them")
        if words.lower() in FEMININE_WORDS:
            pronouns = ("she", "her")
        elif words.lower() in MASCULINE_WORDS:
            pronouns = ("he", "him")
        return pronouns[0 if form == "she" else 1]
    if form == "raw":
        return words[:1].upper() + words[1:]
    if form == "quoted":
        return f'"{words}"'
    if match and match.start(number) == 0 and not re.match(r"I\b|[A-Z]{2}", words):
        words = words[:1].lower() + words[1:]
    if form == "base":
        verb, _, rest = words.partition(" ")
        return " ".join(filter(None, (_base_form(verb), reflect_pronouns(rest))))
    return reflect_pronouns(words)


def _base_form(verb: str) -> str:
    """Return the base form of a verb, such as "sing" for "sings"."""
    irregular = BASE_FORMS.get(verb)
    if irregular:
        return irregular
    if verb.endswith("ies") and len(verb) > 4:
        return f"{verb[:-3]}y"
    if verb.endswith(("ches", "shes", "sses", "xes", "zzes", "oes")):
        return verb[:-2]
    return verb[:-1] if verb.endswith("s") and not verb.endswith("ss") else verb


def _reflect_word(previous_word: str, word: str, next_word: str, spelling: str) -> str:
    adjacent = (previous_word, next_word)
    if word == "you":
        is_subject = next_word and (
            not previous_word or previous_word in YOU_IS_SUBJECT_AFTER or next_word in YOU_IS_SUBJECT_BEFORE
        )
        return "I" if is_subject else "me"
    if word == "was" and "i" in adjacent:
        return "were"
    if word in ("are", "were") and "you" in adjacent:
        return "am" if word == "are" else "was"
    return REFLECTIONS.get(word, spelling)


def normalize_line(text: str) -> str:
    """Return one line without control characters, compatibility forms and curly quotes."""
    normalized = unicodedata.normalize("NFKC", text[:MAX_LINE_LENGTH])[:MAX_LINE_LENGTH].translate(_STRAIGHT_QUOTES)
    return " ".join("".join(c if c.isprintable() else " " for c in normalized).split())


def split_sentences(text: str) -> list[str]:
    """Split a text at sentence and line ends."""
    return _SENTENCE_END.split(text)


def content_words(text: str) -> frozenset[str]:
    """Return the words of a text without stop words, in the singular."""
    words = (word.strip("'").casefold() for word in re.findall(r"[^\W_][\w'-]+", text))
    return frozenset(
        word[:-1] if len(word) > 3 and word.endswith("s") else word for word in words if word not in STOP_WORDS
    )


def clean_sentence(plain: str, name: str) -> str:
    """Return the sentence for rules: without name, filler and closing punctuation, contractions expanded."""
    text = plain.lower() if plain.isupper() and len(plain) >= 8 else plain
    text = _SMILEY.sub(" ", _MENTION.sub(" ", text))
    text = _strip_address(text.split(), name) or plain
    text = _WORD.sub(lambda word: LONG_FORMS.get(word[0].lower(), word[0]), text)[:MAX_SENTENCE_LENGTH]
    end = len(text)
    while end and not (text[end - 1].isalnum() or text[end - 1] in ")'\"=%`;{}>"):
        end -= 1
    text = text[:end] or text
    for _ in range(3):
        text = _FILLER.sub("", text, count=1)
    return text


def is_named(line: str, name: str) -> bool:
    """Return whether a line contains a name as whole words."""
    words = [_squeeze(word.removesuffix("'s")) for word in line.split()]
    return any(
        words[start : start + len(name_words)] == name_words
        for name_words in _name_forms(name)
        for start in range(len(words))
    )


def _strip_address(words: list[str], name: str) -> str:
    """Remove the character's name where it is an address: "Ada, ...", "hey Ada ...", "..., Ada"."""
    for name_words in _name_forms(name):
        count = len(name_words)
        start = 1 if words and _GREETING_WORD_PATTERN.match(_squeeze(words[0])) else 0
        front = words[start : start + count]
        is_called = [_squeeze(word) for word in front] == name_words and len(words) > (0 if start else count)
        following = _squeeze("".join(words[start + count :][:1]))
        if is_called and (
            start or front[-1][-1] in ",:!" or front[0].startswith("@") or _SENTENCE_START_PATTERN.match(following)
        ):
            words = words[:start] + words[start + count :]
        rest = words[:-count]
        is_called = bool(rest) and [_squeeze(word) for word in words[-count:]] == name_words
        if is_called and (rest[-1][-1] in ",u" or (len(rest) <= 3 and _GREETING_WORD_PATTERN.match(_squeeze(rest[0])))):
            words = rest
    return " ".join(words).rstrip(",")


def _name_forms(name: str) -> list[list[str]]:
    """Return the forms of a name: all its words, and the first if it can stand alone."""
    full = [squeezed for word in normalize_line(name[:80]).split() if (squeezed := _squeeze(word))]
    first = full[:1] if len(full) > 1 and len(full[0]) > 2 and full[0] not in STOP_WORDS else full
    return [full, first] if first != full else [full] if full else []


def _squeeze(word: str) -> str:
    return "".join(filter(str.isalnum, word)).casefold()


def pick_index(key: str, purpose: str, count: int) -> int:
    """Return a pseudo-random number below `count` that depends on key and purpose only."""
    checksum = zlib.crc32(f"{key}|{purpose}".encode("utf-8", "backslashreplace"))
    return (checksum * 2_654_435_761 >> 16) % count


def rotate_items(items: Sequence[str], key: str, purpose: str) -> list[str]:
    """Return the items rotated to a pseudo-random start."""
    start = pick_index(key, purpose, len(items)) if items else 0
    return [*items[start:], *items[:start]]


def pick_freshest(candidates: Sequence[str], *, excluded: Sequence[str], recent_answers: Sequence[str]) -> str:
    """Return a candidate that is not excluded, preferably with a new opening; empty if there is none."""
    openings = {_opening_words(answer) for answer in recent_answers}
    fresh = [candidate for candidate in candidates if fold_text(candidate) not in excluded]
    return next(
        (candidate for candidate in fresh if _opening_words(candidate) not in openings), fresh[0] if fresh else ""
    )


def fold_text(text: str) -> str:
    """Return an answer in the form for comparison, independent of white space and case."""
    return " ".join(text[: 2 * MAX_POST_LENGTH].casefold().split())


def _opening_words(answer: str) -> str:
    """Return the first two words of an answer."""
    return " ".join(fold_text(answer).split()[:2])
