"""Answers in a character's name without a model: the rules of `script`, what was said before, no more.

Pure: what is said depends on the history, the voice and the seed alone. Work is bounded: of each line the
first 2,000 characters are read, of a history the last 200 lines, and rules see one short sentence at a time.
"""

import re
import unicodedata
import zlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from types import MappingProxyType

from plugins.offline.embedding import embed, similarity
from plugins.offline.script import (
    BASE_FORMS,
    CLOSING,
    DULL,
    HE,
    LONG_FORMS,
    NOT_NAMES,
    POSTS,
    REFLECTIONS,
    RULES,
    SHE,
    SIGNS,
    UNKEEPABLE,
    YOU_IS_SUBJECT_AFTER,
    YOU_IS_SUBJECT_BEFORE,
    Rule,
)

LONGEST_HISTORY = 200
LONGEST_LINE = 2_000
LONGEST_SENTENCE = 300
LONGEST_ANSWER = 240
LONGEST_POST = 280
LONGEST_QUOTE = 60
MOST_EXAMPLES = 100
CRISIS, FRANK, STRONG = (
    10,
    9,
    6,
)  # ranks: nothing comes before; honesty before examples; worth an answer alone
NEAR = 0.66  # how alike a line and an example's prompt are before the example's answer is taken

_STRAIGHT = MappingProxyType({ord("’"): "'", ord("‘"): "'", ord("`"): "`", ord("“"): '"', ord("”"): '"'})
_SENTENCE_END = re.compile(r"(?<=[.!?…])\s+|[\r\n]+")
_MENTION = re.compile(r"<[@#:][^<>\s]{1,60}>")
_SMILEY = re.compile(r"(?:^|\s)[:;=8][-o']?[)(DPp/|]+(?=\s|$)")
_WORD = re.compile(r"[A-Za-z']+")
_GREETS = re.compile(r"^(?:hi|hello|hey|hiya|howdy|good (?:morning|afternoon|evening))\b", re.IGNORECASE)
_CALL = re.compile(r"(?:hi|hello|hey|ok|okay|dear|so|and|yo|thanks|thank|bye|goodbye|good|sorry|yes|no)$")
_FILLER = re.compile(
    r"^(?:(?:so|and|but|oh|ok|okay|hmm|um|uh|please|also|actually|honestly|anyway|then)[, ]+"
    r"|(?:well|yes|no|yeah|nope|sorry|look|listen|hi|hello|hey|wow|haha|lol|thanks|thank you|sure)[,!] *"
    r"|(?:hi|hello|hey|yo) (?!there|again|all\b|every|you\b|guys|folks|friend))(?=\w)",
    re.IGNORECASE,
)
_ASKS = re.compile(
    r"^(?:(?:what|which|whose|who|where|when|why|how)(?: \w+)? (?:is|are|am|was|were|do|does|did|can|could|"
    r"will|would|should|shall|has|have|about)\b|(?:can|could|do|does|did|are|is|was|were|will|would|should|shall|"
    r"may|have|has) (?:you|i|we|it|he|she|they|there|the|this|that|your|my|any\w*|some\w*)\b|why\b)",
    re.IGNORECASE,
)
_TAG = re.compile(r"^(?:right|ok|okay|yes|no|huh|eh|you know|isn't it|really)$", re.IGNORECASE)
_ROOM_CALL = re.compile(
    r"\b(?:anyone|anybody|someone|somebody|everyone|everybody|you all)\b.*\b(?:here|there|awake|around|"
    r"up for|talk|chat|how are|doing|say)\b|^how (?:is|are) (?:everyone|everybody|you all)\b",
    re.IGNORECASE,
)
_LINKISH = re.compile(r"://|www\.|\w\.\w{2}|[a-z]{4,}:\S", re.IGNORECASE)
_MARKUP = re.compile(r"[@{}<>\[\]`*_~|\\#\"]")
_CLAUSE_END = re.compile(
    r"\s*[,;:(?!]|\s[-–—]+\s|\s(?:but|because|although|though|however|while|"
    r"and (?:i|my|we|it|he|she|then|now|you))\b",
    re.IGNORECASE,
)
_AFTERTHOUGHT = re.compile(
    r" (?:too|as well|lol|haha|though|please|you know|anyway|either|again|now)$", re.IGNORECASE
)
_COARSE = re.compile(
    r"fuck|shit|cunt|nigg|faggot|\b(?:rape|porn|nazi|kill|sex|dick|bitch|whore|slut|cock|pussy|kike|retard)",
    re.IGNORECASE,
)
_SLOT = re.compile(r"\{(\w+)(?::(\w+))?\}")
_CONDITION = re.compile(r"^\[(\w+)\] ")
_PLACE = re.compile(r"\{\{(?:user|name)\d*\}\}")
_NAME_TOLD = re.compile(
    r"\b(?:my name(?: is|'s)|call me|i am called)\s+([^\W\d_][\w'-]{0,23})", re.IGNORECASE
)
_NAME_SAID = re.compile(r"\bI(?:'m| am) ([A-Z][a-z'-]{1,23})(?=$|[.!,])")
_THING = re.compile(
    r"\bmy ((?:(?:old|new|little|big|first|best|younger|older|favou?rite) )?(?!name\b|own\b|way\b|mind\b)"
    r"[a-z]{3,})(?=$|[,.!?;:]| (?:is|was|are|were|has|had|and|but|in|on|at|to|for|with|because|that|who|when|"
    r"will|would|can|[a-z]+s|[a-z]+ed)\b)",
    re.IGNORECASE,
)
_WISH = re.compile(
    r"\bI ((?:want|need|like|love|hate|play|work|live|study|hope|have to|am learning|am worried) .+)"
)
_POWERS = re.compile(
    r"\b(?:never|always|must|should|access|real[- ]time|live|wallet|24/7|you have|quer\w+|api|when asked|"
    r"respon\w+|parameters?|hosted|mission)\b",
    re.IGNORECASE,
)


@dataclass(frozen=True, slots=True)
class Said:
    """One line of the conversation so far."""

    name: str
    text: str
    by_agent: bool


@dataclass(frozen=True, slots=True)
class Voice:
    """What of the character colours an offline answer."""

    name: str
    topics: tuple[str, ...] = ()
    adjectives: tuple[str, ...] = ()
    bio: tuple[str, ...] = ()
    examples: tuple[tuple[str, str], ...] = ()  # (someone says, the character answers)
    posts: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class _Sentence:
    """A tidied sentence, whether it asks, and the line it stood in."""

    text: str
    asks: bool
    line: str


@dataclass(frozen=True, slots=True)
class _Scene:
    """The moment an answer is for: the sentence picked, what fills the slots, what was said already."""

    focus: _Sentence
    matching: tuple[tuple[Rule, re.Match[str]], ...]
    slots: Mapping[str, str]
    conditions: frozenset[str]
    said: tuple[str, ...]
    key: str


def respond(history: Sequence[Said], voice: Voice, *, seed: int = 0) -> str:
    """Answers what the last speaker left open: one or two sentences, the same for the same arguments."""
    scene = _scene(history[-LONGEST_HISTORY:], voice, seed)
    openings = {_opening(answer) for answer in scene.said[-3:]}
    for known in (scene.said, scene.said[-5:]):
        for offers in _offers(scene, voice):
            fresh = [offer for offer in offers if _folded(offer) not in known]
            if fresh:
                return next((offer for offer in fresh if _opening(offer) not in openings), fresh[0])
    raise AssertionError("the rules end in more plain answers than a character's last five lines can use up")


def decide(history: Sequence[Said], voice: Voice) -> bool:
    """Whether the last line of a room is meant for the character, or asks the room what it could take up."""
    recent = history[-12:]
    if not recent or recent[-1].by_agent:
        return False
    last, line = recent[-1], _plain(recent[-1].text)
    sentences = _sentences(last.text, voice.name)
    if any(rule.name == "quiet" for sentence in sentences for rule, _ in _matching(sentence.text)[:1]):
        return False
    if _is_named(line, voice.name):
        return True
    others = {said.name for said in recent if not said.by_agent} - {last.name}
    if line.startswith("@") or any(_is_named(line, other) for other in others):
        return False
    if len(recent) > 1 and recent[-2].by_agent:
        answered = next((said.name for said in reversed(recent[:-2]) if not said.by_agent), last.name)
        if not others or (answered == last.name and recent[-2].text.rstrip().endswith("?")):
            return True
    asked = [sentence.text for sentence in sentences if sentence.asks]
    return any(_ROOM_CALL.search(text) or _named_topics(text, voice) for text in asked)


def post(voice: Voice, *, seed: int = 0, recent: Sequence[str] = ()) -> str:
    """Writes one public post, of the file's own or a question about a topic, and none of `recent`."""
    taken = {_folded(text) for text in recent}
    key = f"{seed}|{len(recent)}|{voice.name}"
    own = [text for text in (_voiced(text, LONGEST_POST) for text in voice.posts) if text]
    slots = [{"topic": topic} for topic in _topics(voice)] or [{}]
    made = [text for form in POSTS for slot in slots if (text := _filled(form, slot, None, frozenset()))]
    for pool in [made, own] if _drawn(key, "pool", 3) == 0 else [own, made]:
        fresh = [text for text in _rotated(pool, key, "post") if _folded(text) not in taken]
        if fresh:
            return fresh[0]
    pairs = (f"{one} {two}" for one in _rotated(made, key, "pair") for two in made if one != two)
    return next((pair for pair in pairs if len(pair) <= LONGEST_POST and _folded(pair) not in taken), made[0])


def _offers(scene: _Scene, voice: Voice) -> Iterator[Sequence[str]]:
    """Everything that could be said, the most fitting first, equals together."""
    examples_are_due = not any(rule.name in UNKEEPABLE for rule, _ in scene.matching)
    for rule, match in scene.matching:
        if examples_are_due and rule.rank < FRANK:
            examples_are_due = False
            yield _from_examples(scene, voice)
        apt = sorted(_rotated(rule.answers, scene.key, rule.name), key=lambda answer: "{1" not in answer)
        answers = [_filled(answer, scene.slots, match, scene.conditions) for answer in apt]
        if rule.name != "greeting" and rule.rank != CRISIS:
            answers = [_greeted(scene.slots.get("greeting", ""), answer) for answer in answers]
        yield [_fit(answer, LONGEST_ANSWER) for answer in answers if answer]


def _from_examples(scene: _Scene, voice: Voice) -> list[str]:
    """The character's own words, where its file answers nearly the same line."""
    whole = _tidied(_plain(scene.focus.line), voice.name)
    heard = [(_words(text), embed(text)) for text in (scene.focus.text, whole)]
    found = []
    for prompt, answer in voice.examples[:MOST_EXAMPLES]:
        text = _tidied(_plain(prompt), voice.name)
        words, line = _words(text), _voiced(_PLACE.sub(scene.slots["display"], answer), LONGEST_ANSWER)
        if not line or any(rule.name in UNKEEPABLE for rule, _ in _matching(text)):
            continue
        near = [vector for others, vector in heard if words & others]
        score = max((similarity(vector, embed(text)) for vector in near), default=0.0)
        if score >= NEAR:
            found.append((score, line))
    return [line for _, line in sorted(found, reverse=True)]


def _scene(history: Sequence[Said], voice: Voice, seed: int) -> _Scene:
    """Reads the conversation: what is open, who speaks, what was said before."""
    opened = _unanswered(history)
    said = tuple(_folded(line.text) for line in history if line.by_agent)
    focus = _focus([line.text for line in opened], voice.name)
    if not opened:
        focus = _Sentence("go on" if said else "hello", False, "")
    key = f"{seed}|{len(history)}|{focus.text}"
    person = opened[-1].name if opened else ""
    theirs = [line.text for line in history if line.name == person and not line.by_agent]
    told = _told_name(theirs)
    slots = _voice_slots(voice, focus.text, key) | _memories(
        theirs[: -len(opened) or None], focus.text, said, voice
    )
    slots["display"] = _quote(person[:40], 24) or "friend"
    if told:
        slots["told"] = told
        if not any(told.casefold() in answer for answer in said[-3:]):
            slots["user"] = told
    if not said and opened and _GREETS.search(_plain(opened[0].text)):
        slots["greeting"] = f"Hello, I'm {slots['name']}."
    matching = tuple(_matching(focus.text))
    if any(rule.name == "sum" for rule, _ in matching) and (total := _reckoned(focus.text)):
        slots["sum"] = total
    return _Scene(focus, matching, slots, _conditions(focus, said, told), said, key)


def _conditions(focus: _Sentence, said: Sequence[str], told: str) -> frozenset[str]:
    """What holds at the moment, by the words that answers are marked with."""
    shouted = _plain(focus.line)
    holds = {
        "first": not said,
        "again": bool(said),
        "unmet": not told,
        "loud": shouted.isupper() and sum(map(str.isalpha, shouted)) >= 8,
        "brief": bool(said) and said[-1].endswith("?") and len(focus.text.split()) <= 5 and not focus.asks,
    }
    return frozenset(word for word, is_so in holds.items() if is_so)


def _unanswered(history: Sequence[Said]) -> list[Said]:
    """The last speaker's lines since the character spoke, at most eight."""
    lines: list[Said] = []
    for said in reversed(history[-24:]):
        if said.by_agent or len(lines) == 8:
            break
        if not lines or said.name == lines[0].name:
            lines.append(said)
    return lines[::-1]


def _focus(lines: Sequence[str], name: str) -> _Sentence:
    """The sentence to answer: the last open question, else the best of the last substantial line."""
    sentences = [sentence for line in lines for sentence in _sentences(line, name)][-40:]
    leading = [(_matching(sentence.text)[0][0], sentence) for sentence in sentences]
    grave = [sentence for rule, sentence in leading if rule.rank == CRISIS]
    if grave:
        return grave[-1]
    if not leading or leading[-1][0].name in CLOSING:
        return sentences[-1] if sentences else _Sentence("", False, "")
    questions = [sentence for sentence in sentences if sentence.asks]
    if questions:
        return questions[-1]
    weighty = [(r, s) for r, s in leading if r.rank >= STRONG or len(s.text.split()) >= 3]
    if not weighty:
        return sentences[-1]
    last = weighty[-1][1].line
    return max(((r, s) for r, s in weighty if s.line == last), key=lambda pair: min(pair[0].rank, STRONG))[1]


def _matching(sentence: str) -> list[tuple[Rule, re.Match[str]]]:
    return [(rule, match) for rule in RULES if (match := rule.pattern.search(sentence))]


def _sentences(line: str, name: str) -> list[_Sentence]:
    """Cuts a line into tidied sentences; a line without words is one sentence of its own."""
    found = []
    for part in _SENTENCE_END.split(line[:LONGEST_LINE]):
        plain = _plain(part)
        if plain:
            text = _tidied(plain, name)
            asks = (plain.rstrip("!\"')").endswith("?") or bool(_ASKS.search(text))) and not _TAG.search(text)
            found.append(_Sentence(text, asks, line))
    return found or [_Sentence("", False, line)]


def _plain(text: str) -> str:
    """One line without control characters, look-alike forms and curly quotes."""
    cut = unicodedata.normalize("NFKC", text[:LONGEST_LINE])[:LONGEST_LINE].translate(_STRAIGHT)
    return " ".join("".join(c if c.isprintable() else " " for c in cut).split())


def _tidied(plain: str, name: str) -> str:
    """What rules look at: no address, no filler, no closing marks, contractions written out."""
    text = plain.lower() if plain.isupper() and len(plain) >= 8 else plain
    text = _SMILEY.sub(" ", _MENTION.sub(" ", text))
    text = _unaddressed(text.split(), name) or plain
    text = _WORD.sub(lambda word: LONG_FORMS.get(word[0].lower(), word[0]), text)[:LONGEST_SENTENCE]
    end = len(text)
    while end and not (text[end - 1].isalnum() or text[end - 1] in ")'\"=%`;{}>"):
        end -= 1
    text = text[:end] or text
    for _ in range(3):
        text = _FILLER.sub("", text, count=1)
    return text


def _unaddressed(words: list[str], name: str) -> str:
    """Takes the character's name off where it only calls: "Ada, ...", "hey Ada ...", "..., Ada"."""
    for called in _callings(name):
        count = len(called)
        start = 1 if words and _CALL.match(_squeezed(words[0])) else 0
        front = words[start : start + count]
        is_called = [_squeezed(word) for word in front] == called and len(words) > (0 if start else count)
        if is_called and (start or front[-1][-1] in ",:!" or front[0].startswith("@")):
            words = words[:start] + words[start + count :]
        rest = words[:-count]
        is_called = bool(rest) and [_squeezed(word) for word in words[-count:]] == called
        if is_called and (rest[-1].endswith(",") or (len(rest) <= 3 and _CALL.match(_squeezed(rest[0])))):
            words = rest
    return " ".join(words).rstrip(",")


def _callings(name: str) -> list[list[str]]:
    """The ways to call somebody: by all words of the name, or by the first if it is one."""
    full = [squeezed for word in _plain(name[:80]).split() if (squeezed := _squeezed(word))]
    first = full[:1] if len(full) > 1 and len(full[0]) > 2 and full[0] not in DULL else full
    return [full, first] if first != full else [full] if full else []


def _squeezed(word: str) -> str:
    return "".join(filter(str.isalnum, word)).casefold()


def _is_named(line: str, name: str) -> bool:
    """Whether somebody's name stands in a line as whole words."""
    words = [_squeezed(word.removesuffix("'s")) for word in line.split()]
    return any(
        words[at : at + len(called)] == called for called in _callings(name) for at in range(len(words))
    )


def _voice_slots(voice: Voice, focus: str, key: str) -> dict[str, str]:
    """What the character's file offers for this answer; a slot it cannot fill is missing."""
    name = _voiced(voice.name, 40) or "a character without a name"
    topics = _rotated(_topics(voice), key, "topic")
    named = _rotated(_named_topics(focus, voice), key, "named")
    adjectives = _rotated(
        [text for word in voice.adjectives if (text := _voiced(word, 30))], key, "adjective"
    )
    bio = [text for line in voice.bio if (text := _voiced(line, 140)) and not _POWERS.search(text)]
    about = [line for line in bio if named and _words(named[0]) & _words(line)]
    posts = _rotated([text for line in voice.posts if (text := _voiced(line, 200))], key, "post")
    found = {
        "name": [name],
        "who": [_who(name, line) for line in _rotated(bio, key, "bio")] or [""],
        "topic": topics[:1],
        "topic2": topics[1:2],
        "named": named,
        "about": about,
        "adjective": adjectives[:1],
        "adjective2": adjectives[1:2],
        "post": posts,
    }
    return {slot: values[0] for slot, values in found.items() if values}


def _who(name: str, line: str) -> str:
    """Continues "I'm <name>" by a line of the biography."""
    for start in (f"{name} is ", "you are ", "i am ", "i'm "):
        rest = line[len(start) :].rstrip(".")
        if line.casefold().startswith(start.casefold()):
            return f", {rest}" if re.match(r"(?:an?|the) ", rest, re.IGNORECASE) else ""
    return f". {line[:1].upper()}{line[1:].rstrip('.')}"


def _topics(voice: Voice) -> list[str]:
    return [text for topic in voice.topics if len(text := _voiced(topic, 80)) in range(2, 50)]


def _named_topics(text: str, voice: Voice) -> list[str]:
    """The topics that a sentence speaks of: at least half of a topic's own words stand in it."""
    spoken = _words(text)
    return [
        t for t in _topics(voice) if (own := _words(t.split("(")[0])) and 2 * len(own & spoken) >= len(own)
    ]


def _told_name(lines: Sequence[str]) -> str:
    """The name that somebody last gave as theirs."""
    for line in reversed(lines):
        plain = _plain(line)
        for match in (_NAME_TOLD.search(plain), _NAME_SAID.search(plain)):
            name = match[1].strip("'-") if match else ""
            if name and name.casefold() not in NOT_NAMES and not _COARSE.search(name):
                return name if any(map(str.isupper, name)) else name.capitalize()
    return ""


def _memories(lines: Sequence[str], focus: str, said: Sequence[str], voice: Voice) -> dict[str, str]:
    """The latest thing and the latest wish of earlier lines that were not called back yet."""
    found: dict[str, str] = {}
    now = " ".join((*said, _folded(_reflected(focus))))
    for line in reversed(lines[-40:]):
        for sentence in _sentences(line[:LONGEST_SENTENCE], voice.name):
            thing, wish = _THING.search(sentence.text), _WISH.search(sentence.text)
            for slot, start, match in (("memory", "your", thing), ("wish", "you", wish)):
                words = _reflected(_quote(match[1], 50)) if match and not sentence.asks else ""
                if words and slot not in found and _folded(words) not in now:
                    found[slot] = f"{start} {words}"
    return found


def _filled(
    answer: str, slots: Mapping[str, str], match: re.Match[str] | None, conditions: frozenset[str]
) -> str:
    """Fills an answer's slots; empty if its condition does not hold or a slot has nothing to fill it."""
    if condition := _CONDITION.match(answer):
        if condition[1] not in conditions:
            return ""
        answer = answer[condition.end() :]
    parts = []
    end = 0
    for slot in _SLOT.finditer(answer):
        value = _group(match, int(slot[1]), slot[2]) if slot[1].isdigit() else slots.get(slot[1])
        if value is None:
            return ""
        if slot[2] == "top":
            value = value[:1].upper() + value[1:]
        parts += [answer[end : slot.start()], value]
        end = slot.end()
    text = "".join((*parts, answer[end:]))
    return text[:1].upper() + text[1:]


def _group(match: re.Match[str] | None, number: int, form: str | None) -> str | None:
    """A group of the person's words, fit to stand in an answer."""
    words = (
        _quote(next((group for group in match.groups()[number - 1 :] if group), ""), LONGEST_QUOTE)
        if match
        else ""
    )
    if not words:
        return None
    if form in ("she", "her"):
        she, her = (
            ("she", "her")
            if words.lower() in SHE
            else ("he", "him")
            if words.lower() in HE
            else ("they", "them")
        )
        return she if form == "she" else her
    if form == "raw":
        return words[:1].upper() + words[1:]
    if form == "quoted":
        return f'"{words}"'
    if match and match.start(number) == 0 and not re.match(r"I\b|[A-Z]{2}", words):
        words = words[:1].lower() + words[1:]
    if form == "base":
        verb, _, rest = words.partition(" ")
        return " ".join(filter(None, (_base(verb), _reflected(rest))))
    return _reflected(words)


def _base(verb: str) -> str:
    """Turns "sings" into "sing"."""
    known = BASE_FORMS.get(verb)
    if known:
        return known
    if verb.endswith("ies") and len(verb) > 4:
        return f"{verb[:-3]}y"
    if verb.endswith(("ches", "shes", "sses", "xes", "zzes", "oes")):
        return verb[:-2]
    return verb[:-1] if verb.endswith("s") and not verb.endswith("ss") else verb


def _reflected(text: str) -> str:
    """Turns the persons round: what "I" says of "you" becomes what "you" hear of "me"."""
    parts = re.split(r"([A-Za-z']+)", text)  # words stand at the odd places
    words = ["", *(word.lower() for word in parts[1::2]), ""]
    for place in range(1, len(words) - 1):
        parts[2 * place - 1] = _turned(words[place - 1], words[place], words[place + 1], parts[2 * place - 1])
    return "".join(parts)


def _turned(before: str, word: str, after: str, spelled: str) -> str:
    beside = (before, after)
    if word == "you":
        is_subject = after and (
            not before or before in YOU_IS_SUBJECT_AFTER or after in YOU_IS_SUBJECT_BEFORE
        )
        return "I" if is_subject else "me"
    if word == "was" and "i" in beside:
        return "were"
    if word in ("are", "were") and "you" in beside:
        return "am" if word == "are" else "was"
    return REFLECTIONS.get(word, spelled)


def _quote(text: str, longest: int) -> str:
    """The person's words as they may be said back: no links, mentions, markup or coarse words; one clause."""
    plain = _plain(text)
    if _LINKISH.search(plain) or _COARSE.search(plain):
        return ""
    clean = "".join(c for c in _MARKUP.sub("", plain) if not unicodedata.combining(c)).strip(" .,;:!?'-")
    if clause := _CLAUSE_END.search(clean, 3):
        clean = clean[: clause.start()]
    if len(clean) > longest:
        clean = clean[: longest - 1].rpartition(" ")[0] + "…"
    return _AFTERTHOUGHT.sub("", clean).strip(" '") if len(clean) > 1 else ""


def _voiced(text: str, longest: int) -> str:
    """The file's words as they may be said: one line, no links, no mass mentions, no open placeholders."""
    plain = _plain(text)
    if _LINKISH.search(plain) or "{" in plain or "}" in plain:
        return ""
    return _fit(plain.replace("@", ""), longest)


def _fit(text: str, longest: int) -> str:
    """As many whole sentences as fit, at worst a cut one."""
    if len(text) <= longest:
        return text
    fitting = ""
    for sentence in _SENTENCE_END.split(text):
        longer = f"{fitting} {sentence}".strip()
        if len(longer) > longest:
            break
        fitting = longer
    return fitting or text[: longest - 1].rpartition(" ")[0] + "…"


def _greeted(greeting: str, answer: str) -> str:
    """Returns the greeting that came along, without giving the name twice."""
    return f"{greeting} {answer}" if greeting and answer and greeting[7:-1] not in answer else answer


def _words(text: str) -> frozenset[str]:
    """The words of a text that carry its matter, plural or not."""
    words = (word.strip("'").casefold() for word in re.findall(r"[^\W_][\w'-]+", text))
    return frozenset(
        word[:-1] if len(word) > 3 and word.endswith("s") else word for word in words if word not in DULL
    )


def _folded(text: str) -> str:
    """An answer as it is compared with others, however a platform spaced it."""
    return " ".join(text[: 2 * LONGEST_POST].casefold().split())


def _opening(answer: str) -> str:
    return " ".join(_folded(answer).split()[:2])


def _drawn(key: str, purpose: str, count: int) -> int:
    """A number below `count` that looks like chance and is the same every time."""
    drawn = zlib.crc32(f"{key}|{purpose}".encode("utf-8", "backslashreplace"))
    return (drawn * 2_654_435_761 >> 16) % count


def _rotated(items: Sequence[str], key: str, purpose: str) -> list[str]:
    start = _drawn(key, purpose, len(items)) if items else 0
    return [*items[start:], *items[:start]]


def _reckoned(text: str) -> str:
    """The value of a small sum such as "12 times (3 + 4)"; empty if it has none or is too large."""
    text = re.sub(r"(?<=\d),(?=\d{3})", "", text.lower())
    for word, sign in SIGNS.items():
        text = text.replace(word, sign)
    tokens = re.findall(r"\d+(?:\.\d+)?|[-+*/()]", text)[::-1]
    if len(tokens) > 30 or any(len(token) > 12 for token in tokens):
        return ""
    try:
        value = _added(tokens)
    except (ValueError, IndexError, ZeroDivisionError):
        return ""
    if tokens or abs(value) >= 10**15:
        return ""
    if value.denominator == 1:
        return str(value)
    short = f"{float(value):.4f}".rstrip("0") if abs(value) >= 1 else f"{float(value):.4g}"
    return short if Fraction(short) == value else f"about {short}"


def _added(tokens: list[str]) -> Fraction:
    value = _multiplied(tokens)
    while tokens and tokens[-1] in "+-":
        value = value + _multiplied(tokens) if tokens.pop() == "+" else value - _multiplied(tokens)
    return value


def _multiplied(tokens: list[str]) -> Fraction:
    value = _factor(tokens)
    while tokens and tokens[-1] in "*/":
        value = value * _factor(tokens) if tokens.pop() == "*" else value / _factor(tokens)
    return value


def _factor(tokens: list[str]) -> Fraction:
    token = tokens.pop()
    if token == "-":
        return -_factor(tokens)
    if token != "(":
        return Fraction(token)
    value = _added(tokens)
    if tokens.pop() != ")":
        raise ValueError("a bracket stays open")
    return value
