"""Replies, decisions, posts and arithmetic from rules and the character file.

Pure: the result depends on history, persona and seed only. Bounded: the first 2,000 characters of each line
and the last 200 lines are read, and rules are matched against one short sentence at a time.

Answers in German and Spanish, from the rules of `script.de.txt` and `script.es.txt`.

They are fewer than the English ones, and quote words of people as they are. Which language is answered in depends on
the common words of the lines; where these do not tell, it is that of the person or the program.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cache
from itertools import chain
from pathlib import Path
from types import MappingProxyType

from bot.store import cosine
from plugins.offline.input_analysis import (
    ChatLine,
    Sentence,
    embed,
    find_callbacks,
    find_matching_rules,
    find_stated_name,
    find_unanswered,
    parse_sentences,
    pick_focus,
)
from plugins.offline.phrasing import (
    FRANK,
    MAX_ANSWER_LENGTH,
    MAX_POST_LENGTH,
    MAX_SENTENCE_LENGTH,
    OPERATOR_SYMBOLS,
    POST_TEMPLATES,
    RECALLING_RULES,
    RULES_WITHOUT_EXAMPLES,
    SOCIAL,
    Rule,
    clean_persona_text,
    clean_sentence,
    content_words,
    fill_slots,
    fit_sentences,
    fold_text,
    is_named,
    normalize_line,
    parse_rules,
    pick_freshest,
    pick_index,
    quote_line,
    quote_words,
    rotate_items,
    split_sentences,
)

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


MAX_EXAMPLES = 100
MIN_SIMILARITY = 0.66  # minimum similarity of a line and an example's prompt

_NAME_PLACEHOLDER = re.compile(r"\{\{(?:user|name)\d*\}\}")
_CAPABILITY_PATTERN = re.compile(
    r"\b(?:never|always|must|should|access|real[- ]time|live|wallet|24/7|you have|quer\w+|api|when asked|"
    r"respon\w+|parameters?|hosted|mission)\b",
    re.IGNORECASE,
)
MAX_HISTORY_LINES = 200
CARE_ANSWERS = (
    "I'm glad you told me. I am only a small offline program, so please talk to a person who is near you now.",
    "Thank you for telling me. Please don't stay alone with it: is there somebody whom you could call now?",
    "That sounds very hard. You deserve more than a program can give: please talk to somebody whom you trust, today.",
)
_GREETING_PATTERN = re.compile(r"^(?:hi|hello|hey|hiya|howdy|good (?:morning|afternoon|evening))\b", re.IGNORECASE)
_ROOM_QUESTION_PATTERN = re.compile(
    r"\b(?:anyone|anybody|someone|somebody|everyone|everybody|you all)\b.*\b(?:here|there|awake|around|"
    r"up for|talk|chat|how are|doing|say)\b|^how (?:is|are) (?:everyone|everybody|you all)\b",
    re.IGNORECASE,
)
# Questions, and what a line has that may answer them though it shares no word with them: a place, a number.
_KINDS_OF_ANSWERS = (
    (re.compile(r"\bwhere\b", re.IGNORECASE), re.compile(r"\b(?:in|to|at|from|near)\s+[^\W\d]", re.IGNORECASE)),
    (re.compile(r"\b(?:when|how (?:old|many|much|long|often))\b", re.IGNORECASE), re.compile(r"\d")),
)
_OWN_PATTERN = re.compile(r"\b(?:i|me|my|mine)\b", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Persona:
    """The parts of a character that shape offline answers."""

    name: str
    topics: tuple[str, ...] = ()
    adjectives: tuple[str, ...] = ()
    bio: tuple[str, ...] = ()
    examples: tuple[tuple[str, str], ...] = ()  # (user's line, character's answer)
    posts: tuple[str, ...] = ()


def build_slots(persona: Persona, focus: str, key: str) -> dict[str, str]:
    """Return the slot values from the character file; a slot without a value is missing."""
    name = clean_persona_text(persona.name, 40) or "a character without a name"
    topics = rotate_items(list_topics(persona), key, "topic")
    named = rotate_items(find_named_topics(focus, persona), key, "named")
    adjectives = rotate_items(_clean_texts(persona.adjectives, 30), key, "adjective")
    bio = [text for text in _clean_texts(persona.bio, 140) if not _CAPABILITY_PATTERN.search(text)]
    about = [line for line in bio if named and content_words(named[0]) & content_words(line)]
    posts = rotate_items(_clean_texts(persona.posts, 200), key, "post")
    candidates = {
        "name": [name],
        "who": [_continue_introduction(name, line) for line in rotate_items(bio, key, "bio")] or [""],
        "topic": topics[:1],
        "topic2": topics[1:2],
        "named": named,
        "about": about,
        "adjective": adjectives[:1],
        "adjective2": adjectives[1:2],
        "post": posts,
    }
    return {slot: values[0] for slot, values in candidates.items() if values}


def list_topics(persona: Persona) -> list[str]:
    """Return the character's topics that fit into a sentence."""
    topics = _clean_texts(persona.topics, 50)
    return [topic for topic in topics if len(topic) > 1 and not re.search("[!?:…]", topic)]


def _clean_texts(texts: Sequence[str], max_length: int) -> list[str]:
    return [cleaned for text in texts if (cleaned := clean_persona_text(text, max_length))]


def find_named_topics(text: str, persona: Persona) -> list[str]:
    """Return the topics of which a text contains at least half of the words."""
    spoken_words = content_words(text)
    return [
        topic
        for topic in list_topics(persona)
        if (topic_words := content_words(topic.split("(")[0]))
        and 2 * len(topic_words & spoken_words) >= len(topic_words)
    ]


def find_example_answers(persona: Persona, focus: Sentence, display: str) -> list[str]:
    """Return answers of message examples whose prompt is similar to the sentence, the most similar first."""
    cleaned_line = clean_sentence(normalize_line(focus.line), persona.name)
    targets = [(content_words(text), embed(text)) for text in (focus.text, cleaned_line)]
    scored = []
    for prompt, answer in persona.examples[:MAX_EXAMPLES]:
        text = clean_sentence(normalize_line(prompt), persona.name)
        words = content_words(text)
        line = clean_persona_text(_NAME_PLACEHOLDER.sub(display, answer), MAX_ANSWER_LENGTH)
        if not line or any(rule.name in RULES_WITHOUT_EXAMPLES for rule, _ in find_matching_rules(text)):
            continue
        comparable = [vector for target_words, vector in targets if words & target_words]
        score = max((cosine(vector, embed(text)) for vector in comparable), default=0.0)
        if score >= MIN_SIMILARITY:
            scored.append((score, line))
    return [line for _, line in sorted(scored, reverse=True)]


def _continue_introduction(name: str, line: str) -> str:
    """Return the continuation of "I'm <name>" by a line of the biography."""
    for start in (f"{name} is ", "you are ", "i am ", "i'm "):
        rest = line[len(start) :].rstrip(".")
        if line.casefold().startswith(start.casefold()):
            return f", {rest}" if re.match(r"(?:an?|the) ", rest, re.IGNORECASE) else ""
    return f". {line[:1].upper()}{line[1:].rstrip('.')}"


@dataclass(frozen=True, slots=True)
class _ReplyContext:
    """What an answer depends on: the picked sentence, matching rules, slot values, earlier answers."""

    focus: Sentence
    matching: tuple[tuple[Rule, re.Match[str]], ...]
    slots: Mapping[str, str]
    conditions: frozenset[str]
    agent_lines: tuple[str, ...]
    key: str


def respond(history: Sequence[ChatLine], persona: Persona, *, seed: int = 0, language: str = ENGLISH) -> str:
    """Return the answer to the last speaker: one or two sentences, deterministic.

    It is in the language of their lines, or in `language` where these do not tell.
    """
    history = history[-MAX_HISTORY_LINES:]
    if (found := find_language(history, language)) != ENGLISH:
        context = _build_foreign_context(history, persona, seed, found)
    else:
        context = _build_context(history, persona, seed)
    for excluded in (context.agent_lines, context.agent_lines[-5:]):
        for rank, candidates in _list_candidates(context, persona):
            stale = excluded if rank < SOCIAL else context.agent_lines[-5:]
            if answer := pick_freshest(candidates, excluded=stale, recent_answers=context.agent_lines[-3:]):
                return answer
    raise AssertionError("the last rule must have more plain answers than the five lines that are excluded")


def respond_with_care(history: Sequence[ChatLine], *, language: str = ENGLISH) -> str:
    """Return the answer to a message of distress: no pattern fits it, and none is tried."""
    answers: Sequence[str] = CARE_ANSWERS
    if (found := find_language(history, language)) != ENGLISH:
        answers = next(rule.answers for rule in load_language_rules(found) if rule.name == CARE)
    own = [fold_text(line.text) for line in history if line.is_agent][-len(answers) + 1 :]
    return pick_freshest(answers, excluded=own, recent_answers=())


def asks_what_was_said(history: Sequence[ChatLine], persona: Persona) -> bool:
    """Return whether the sentence to answer asks for something that people said."""
    open_lines = find_unanswered(history)
    focus = pick_focus([line.text for line in open_lines], persona.name)
    return any(rule.name in RECALLING_RULES for rule, _ in find_matching_rules(focus.text)[:1])


def quote_statement(lines: Sequence[ChatLine], question: str, asker: str, persona: Persona) -> str:
    """Return who said the first of the lines that is no question; empty if none can be quoted.

    If no line shares a word with the question, the lines are a guess: then only one that tells a place or a number
    that is asked for is quoted, with a word of doubt.
    """
    statements = [line for line in lines if _is_statement(line, persona)]
    words, doubt = content_words(question), ""
    if not any(words & content_words(line.text) for line in statements):
        statements = [line for line in statements if _may_answer(line, question, asker)]
        doubt = "Nobody said it in these words, but "
    for line in statements:
        if quote := quote_line(line.text, MAX_ANSWER_LENGTH - len(doubt)):
            you = "you" if doubt else "You"
            return f'{doubt}{you if line.name == asker else line.name} said: "{quote}"'
    return ""


def _may_answer(line: ChatLine, question: str, asker: str) -> bool:
    """Return whether a line tells what kind of thing is asked for: of the asker, if the question is about them."""
    if _OWN_PATTERN.search(question) and line.name != asker:
        return False
    return any(kind.search(question) and answer.search(line.text) for kind, answer in _KINDS_OF_ANSWERS)


def _is_statement(line: ChatLine, persona: Persona) -> bool:
    return not all(sentence.is_question for sentence in parse_sentences(line.text, persona.name))


def should_respond(history: Sequence[ChatLine], persona: Persona) -> bool:
    """Return whether the last line addresses the character or asks the room about one of its topics."""
    recent = history[-12:]
    if not recent or recent[-1].is_agent:
        return False
    last, line = recent[-1], normalize_line(recent[-1].text)
    sentences = parse_sentences(last.text, persona.name)
    best_rules = [rule for sentence in sentences for rule, _ in find_matching_rules(sentence.text)[:1]]
    if any(rule.name == "quiet" for rule in best_rules):
        return False
    if is_named(line, persona.name):
        return True
    others = {entry.name for entry in recent if not entry.is_agent} - {last.name}
    if line.startswith("@") or any(is_named(line, other) for other in others):
        return False
    if len(recent) > 1 and recent[-2].is_agent:
        answered = next((entry.name for entry in reversed(recent[:-2]) if not entry.is_agent), last.name)
        if not others or (answered == last.name and recent[-2].text.rstrip().endswith("?")):
            return True
    questions = [sentence.text for sentence in sentences if sentence.is_question]
    return any(_ROOM_QUESTION_PATTERN.search(text) or find_named_topics(text, persona) for text in questions)


def write_post(persona: Persona, *, seed: int = 0, recent: Sequence[str] = ()) -> str:
    """Return a public post from the file or a question about a topic, different from `recent`."""
    recent_texts = {fold_text(text) for text in recent}
    key = f"{seed}|{len(recent)}|{persona.name}"
    own_posts = _clean_texts(persona.posts, MAX_POST_LENGTH)
    slots = [{"topic": topic} for topic in list_topics(persona)]
    topical = [text for form in POST_TEMPLATES for slot in slots if (text := fill_slots(form, slot)) != form]
    plain = [text for form in POST_TEMPLATES if (text := fill_slots(form, {}))]
    pools = [topical, own_posts, plain] if pick_index(key, "pool", 3) == 0 else [own_posts, topical, plain]
    candidates = [text for pool in pools for text in rotate_items(pool, key, "post")]
    pairs = (f"{first} {second}" for first in candidates for second in plain if first != second)
    fitting = (text for text in chain(candidates, pairs) if len(text) <= MAX_POST_LENGTH)
    return next((text for text in fitting if fold_text(text) not in recent_texts), candidates[0])


def _list_candidates(context: _ReplyContext, persona: Persona) -> Iterator[tuple[int, Sequence[str]]]:
    """Yield candidate answers with their rank, the best first."""
    examples_are_due = not any(rule.name in RULES_WITHOUT_EXAMPLES for rule, _ in context.matching)
    for rule, match in context.matching:
        if examples_are_due and rule.rank < FRANK:
            examples_are_due = False
            yield rule.rank, find_example_answers(persona, context.focus, context.slots["display"])
        ordered = sorted(rotate_items(rule.answers, context.key, rule.name), key=lambda answer: "{1" not in answer)
        answers = [fill_slots(answer, context.slots, match, context.conditions) for answer in ordered]
        if rule.name != "greeting":
            answers = [_prepend_greeting(context.slots.get("greeting", ""), answer) for answer in answers]
        yield rule.rank, [fit_sentences(answer, MAX_ANSWER_LENGTH) for answer in answers if answer]


def _prepend_greeting(greeting: str, answer: str) -> str:
    """Return the answer, after the greeting if it does not contain the name."""
    return f"{greeting} {answer}" if greeting and answer and greeting[7:-1] not in answer else answer


def _build_context(history: Sequence[ChatLine], persona: Persona, seed: int) -> _ReplyContext:
    """Build the context of a reply from the conversation."""
    open_lines = find_unanswered(history)
    agent_lines = tuple(fold_text(line.text) for line in history if line.is_agent)
    focus = pick_focus([line.text for line in open_lines], persona.name)
    if not open_lines:
        focus = Sentence("go on" if agent_lines else "hello", False, "")
    key = f"{seed}|{len(history)}|{focus.text}"
    person = open_lines[-1].name if open_lines else ""
    person_lines = [line.text for line in history if line.name == person and not line.is_agent]
    stated_name = find_stated_name(person_lines)
    earlier_lines = person_lines[: -len(open_lines) or None]
    slots = build_slots(persona, focus.text, key) | find_callbacks(earlier_lines, focus.text, agent_lines, persona.name)
    slots["display"] = quote_words(person[:40], 24) or "friend"
    if stated_name:
        slots["told"] = stated_name
        if not any(stated_name.casefold() in answer for answer in agent_lines[-3:]):
            slots["user"] = stated_name
    if not agent_lines and open_lines and _GREETING_PATTERN.search(normalize_line(open_lines[0].text)):
        slots["greeting"] = f"Hello, I'm {slots['name']}."
    matching = tuple(find_matching_rules(focus.text))
    if any(rule.name == "sum" for rule, _ in matching) and (total := evaluate_arithmetic(focus.text)):
        slots["sum"] = total
    return _ReplyContext(focus, matching, slots, _find_conditions(focus, agent_lines, stated_name), agent_lines, key)


def _build_foreign_context(history: Sequence[ChatLine], persona: Persona, seed: int, language: str) -> _ReplyContext:
    """Build the context of a reply in another language than English: the words of people are quoted as they are."""
    open_lines = find_unanswered(history)
    agent_lines = tuple(fold_text(line.text) for line in history if line.is_agent)
    text = pick_sentence([line.text for line in open_lines], persona.name)
    rules = load_language_rules(language)
    matching = tuple((rule, match) for rule in rules if (match := rule.pattern.search(text)))
    slots = {
        "name": clean_persona_text(persona.name, 40) or persona.name[:40],
        "display": quote_words(open_lines[-1].name[:40] if open_lines else "", 24) or "…",
    }
    if total := evaluate_arithmetic(text):
        slots["sum"] = total
    conditions = frozenset({"again" if agent_lines else "first"})
    focus = Sentence(text, is_question=False, line=open_lines[-1].text if open_lines else "")
    return _ReplyContext(focus, matching, slots, conditions, agent_lines, f"{seed}|{len(history)}|{text}")


def _find_conditions(focus: Sentence, agent_lines: Sequence[str], stated_name: str) -> frozenset[str]:
    """Return the names of the conditions that are true now."""
    plain_line = normalize_line(focus.line)
    conditions = {
        "first": not agent_lines,
        "again": bool(agent_lines),
        "unmet": not stated_name,
        "loud": plain_line.isupper() and sum(map(str.isalpha, plain_line)) >= 8,
        "brief": bool(agent_lines)
        and agent_lines[-1].endswith("?")
        and len(focus.text.split()) <= 3
        and not focus.is_question,
    }
    return frozenset(word for word, is_active in conditions.items() if is_active)


def evaluate_arithmetic(text: str) -> str:
    """Return the value of a small sum such as "12 times (3 + 4)"; empty if it is invalid or too large."""
    text = re.sub(r"(?<=\d),(?=\d{3})", "", text.lower())
    for word, symbol in OPERATOR_SYMBOLS.items():
        text = text.replace(word, symbol)
    tokens = re.findall(r"\d+(?:\.\d+)?|[-+*/()]", text)[::-1]
    if len(tokens) > 30 or any(len(token) > 12 for token in tokens):
        return ""
    try:
        value = _parse_sum(tokens)
    except (ValueError, IndexError, ZeroDivisionError):
        return ""
    if tokens or abs(value) >= 10**15:
        return ""
    if value.denominator == 1:
        return str(value)
    rounded = f"{float(value):.4f}".rstrip("0") if abs(value) >= 1 else f"{float(value):.4g}"
    return rounded if Fraction(rounded) == value else f"about {rounded}"


def _parse_sum(tokens: list[str]) -> Fraction:
    value = _parse_product(tokens)
    while tokens and tokens[-1] in "+-":
        value = value + _parse_product(tokens) if tokens.pop() == "+" else value - _parse_product(tokens)
    return value


def _parse_product(tokens: list[str]) -> Fraction:
    value = _parse_factor(tokens)
    while tokens and tokens[-1] in "*/":
        value = value * _parse_factor(tokens) if tokens.pop() == "*" else value / _parse_factor(tokens)
    return value


def _parse_factor(tokens: list[str]) -> Fraction:
    token = tokens.pop()
    if token == "-":
        return -_parse_factor(tokens)
    if token != "(":
        return Fraction(token)
    value = _parse_sum(tokens)
    if tokens.pop() != ")":
        raise ValueError("a bracket is not closed")
    return value
