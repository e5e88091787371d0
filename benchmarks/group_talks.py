"""Generate group conversations with questions whose evidence is known, from templates and a seed.

The half "tune" is for choosing weights, the half "test" for stating figures. Their topics, and the questions about what
was never said, are in group_topics_tune.toml and group_topics_test.toml.
"""

import re
import tomllib
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from functools import cache
from pathlib import Path
from random import Random
from typing import Any

NAMES = [
    "Kim",
    "Tom",
    "Ann",
    "Rui",
    "Sofia",
    "Marek",
    "Lena",
    "Omar",
    "Priya",
    "Jack",
    "Nadia",
    "Felix",
    "Yuki",
    "Ivan",
    "Clara",
    "Diego",
    "Mona",
    "Pete",
    "Greta",
    "Amir",
]
LAST_NAMES = ["Berg", "Novak", "Silva", "Okoro", "Haas", "Lindt"]
NICKNAMES = ["Sparrow", "Bear", "Ziggy", "Moss", "Captain", "Pixel", "Turbo", "Beans"]
SHARE_ABOUT, SHARE_CHANGED, SHARE_WHO, SHARE_NICKNAME, SHARE_LOWER = 0.3, 0.35, 0.5, 0.5, 0.2
TOPICS, UNANSWERABLE_QUESTIONS = 12, 30  # of each conversation
START, LENGTH, CHATTER_LINES = datetime(2026, 3, 2, 8, tzinfo=UTC), timedelta(days=90), 600
# Small talk; of {a|b} one is said, so that few lines are alike.
CHATTER = (
    "good {morning|evening|afternoon|night} everyone",
    "haha {nice|good|brilliant|silly} one",
    "did anybody watch the {game|match|race|final|show|debate} {last night|yesterday|on Sunday|on Friday}?",
    "{lunch|coffee|tea|a beer|pizza|ice cream} anyone?",
    "brb, {door|phone|kettle|laundry|delivery} is {waiting|calling|ringing|done}",
    "that {made|saved|spoiled|brightened} my {day|week|morning|evening}",
    "the weather is {awful|lovely|strange|freezing|damp} {today|again|this week|over here}",
    "so much {rain|snow|wind|fog|heat}, I want {summer|spring|autumn|sunshine} back",
    "{coffee|breakfast|a shower|the mails|a nap} first, then {talking|work|the rest|everything else}",
    "same {here|problem here|on my side|for me}",
    "what a {week|day|month|morning|mess|Monday}",
    "I'm so {tired|hungry|bored|sleepy|behind} {today|already|again|since lunch}",
    "let me {check|think|ask around|look it up|sleep on it} and get back to you",
    "can someone send me the {link|file|slides|photo|address|invoice}?",
    "sure, {one moment|give me an hour|after lunch|when I'm home|tonight}",
    "who is in {the office|the building|the call|town} on {Thursday|Monday|Tuesday|Wednesday}?",
    "my {train|tram|bus|lift|flight} is {late|full|cancelled|crowded} {again|once more|as ever|today}",
    "the new {office chairs|lamps|mugs|screens|curtains|doors} are {great|ugly|fine|too bright|huge}",
    "thanks {a lot|so much|for that|anyway|for the help}!",
    "no {problem|worries|stress|hurry|rush}",
    "I need a {holiday|break|massage|longer weekend|second coffee|haircut}",
    "did you see the {news|mail|memo|weather map|headline|invitation}?",
    "the {printer|scanner|coffee machine|lift|heating|doorbell} is broken {again|since noon|on our floor|once more}",
    "we should play {cards|chess|darts|table tennis|board games} again some {time|evening|weekend}",
    "I forgot my {umbrella|keys|charger|badge|wallet|lunch box} {at home|on the bus|in the hall|again}",
    "anyone up for a {walk|run|swim|quick break|quiz|picnic}?",
    "that {film|series|lecture|meeting|podcast|play} was {boring|too long|fun|odd|moving}",
    "my {phone|laptop|watch|headset} battery is {dying|flat|hopeless|at one percent}",
    "great {work|job|talk|idea|effort}, {team|all|folks|everybody}",
    "is the {kitchen|meeting room|small desk|car park|terrace} free?",
    "I had {pizza|soup|curry|leftovers|a salad|pancakes} {yesterday|for lunch|at midnight|again}",
    "someone left a {blue|green|wet|woolly|long} {jacket|scarf|bag|hat} in the {hall|kitchen|lift|lobby}",
    "the {cat|dog|goat|parrot|penguin} video is {hilarious|cute|too loud|old}",
    "the {concert|party|fair|neighbourhood feast|parade} was {loud|packed|lovely|short}",
    "I'd love to {travel|read|sleep|dance|cook} more",
    "what do you {mean|think|suggest|say} {exactly|there|now|by that}?",
    "makes {sense|me laugh|no difference|me wonder}",
    "see you {tomorrow|later|on Monday|at noon|around}",
    "happy {Friday|holidays|weekend|new year|name day}!",
    "my {neighbour|landlord|flatmate|uncle|cousin} is {drilling holes|playing drums|moving sofas|singing} "
    "since {8|6|dawn|noon}",
    "reading the {minutes|report|contract|manual|thread} now",
    "I'll be {five|ten|two|twenty} minutes late, {sorry|traffic|long queue|no seat}",
    "wow, {congratulations|that was quick|impressive|lucky you}",
    "who wants the last {cookie|slice|banana|sandwich|muffin|chocolate}?",
    "the wifi is {slow|down|patchy|unusable} {at home|in here|on the train|in the cellar}",
    "no {idea|clue}, sorry",
    "good {question|point|catch|luck}",
    "let's {talk|meet|decide|eat} {later|tomorrow|next week|outside}",
    "the {bus|canteen|gym|car park|waiting room} was {full|empty|closed|noisy} {again|today|at eight|all morning}",
    "I love this {song|colour of the sky|time of the year|smell|view}",
    "how was your {weekend|trip|evening|exam|appointment|interview}?",
    "nothing special, {cleaned|painted|tidied|aired} the {flat|balcony|cellar|windows}",
    "ouch, {that hurts|not again|poor you|my back}",
    "I'll bring {snacks|drinks|plates|a speaker|fruit|cushions}",
    "can we do it {next week|on Tuesday|after the holidays|in the afternoon}?",
    "the {deadline|inspection|trade fair|audit|summer break} is getting close",
    "my {brother|aunt|dentist|bank|old school friend} called me {twice|back|at work|in the middle of dinner}",
    "fair {enough|point|deal}",
)

Turn = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Participants:
    """The people of a generated conversation, two of whom share a first name, and the nicknames of some."""

    people: list[str]
    nicknames: dict[str, str]


@dataclass(slots=True)
class Talk:
    """What is said in a conversation, each with its place between 0 and 1, and what is asked about it."""

    turns: list[tuple[float, Turn]] = field(default_factory=list)
    questions: list[dict[str, Any]] = field(default_factory=list)


@cache
def load_half(half: str) -> dict[str, Any]:
    """Return the topics (`topic`) and the questions about what was never said (`never_said`) of "tune" or "test"."""
    with Path(__file__).with_name(f"group_topics_{half}.toml").open("rb") as file:
        return tomllib.load(file)


def generate_talks(half: str, *, count: int = 24, seed: int = 1) -> list[dict[str, Any]]:
    """Return conversations in the format of the scorer, about 120 questions each, the same for the same seed.

    Beyond the format, a question has as `superseded` the turns whose value is no longer true.
    """
    return [_generate_talk(half, number, Random(f"{seed} {half} {number}")) for number in range(count)]


def small_talk(random: Random, template: str = "") -> str:
    """Return a line without information, from CHATTER or the given group."""
    return re.sub(r"\{(.*?)\}", lambda match: random.choice(match[1].split("|")), template or random.choice(CHATTER))


def _generate_talk(half: str, number: int, random: Random) -> dict[str, Any]:
    participants = _invite(random)
    stored, talk = load_half(half), Talk()
    for person, nickname in participants.nicknames.items():
        text = random.choice(["everyone calls me {n}, by the way", "just call me {n}", "at school they called me {n}"])
        talk.turns.append((random.random() * 0.2, {"speaker": person, "text": text.format(n=nickname)}))
    for topic in random.sample(stored["topic"], TOPICS):
        for person, value in zip(random.sample(participants.people, 4), random.sample(topic["values"], 4), strict=True):
            _tell(talk, topic, person, value, participants, random)
    for _ in range(CHATTER_LINES):
        turn = {"speaker": random.choice(participants.people), "text": small_talk(random)}
        talk.turns.append((random.random(), turn))
    talk.turns.sort(key=lambda item: item[0])
    for position, (place, turn) in enumerate(talk.turns):
        turn |= {"id": f"m{position}", "time": (START + LENGTH * place).isoformat()}
    questions = [
        question
        | {"evidence": [question["evidence"]["id"]], "superseded": [turn["id"] for turn in question["superseded"]]}
        for question in talk.questions
    ]
    for text in random.sample(stored["never_said"], UNANSWERABLE_QUESTIONS):
        text, asker = text.format(p=random.choice(participants.people)), random.choice(participants.people)
        questions.append({"question": text, "asker": asker, "evidence": [], "category": "never said"})
    return {"conversation": f"{half} {number}", "turns": [turn for _, turn in talk.turns], "questions": questions}


def _invite(random: Random) -> Participants:
    people, (first_last, second_last) = random.sample(NAMES, 8), random.sample(LAST_NAMES, 2)
    shared = people[0]
    people = [f"{shared} {first_last}", *people[1:], f"{shared} {second_last}"]
    named = zip(random.sample(people[1:8], 3), random.sample(NICKNAMES, 3), strict=True)
    return Participants(people, dict(named))


def _tell(
    talk: Talk, topic: dict[str, list[str]], person: str, value: str, participants: Participants, random: Random
) -> None:
    """Plan what is said of one person on one topic, and ask for it."""
    others = [other for other in participants.people if other != person]
    place, category, teller, kind = 0.2 + random.random() * 0.6, "who said", person, "said"
    if random.random() < SHARE_ABOUT:
        category, teller, kind = "about whom", random.choice(others), "about"
    turn = {"speaker": teller, "text": _dress(random.choice(topic[kind]).format(p=person, v=value), random)}
    talk.turns.append((place, turn))
    superseded: list[Turn] = []
    if kind == "said" and random.random() < SHARE_CHANGED:
        value = random.choice([other for other in topic["values"] if other != value])
        superseded, category = [turn], "latest value"
        turn = {"speaker": person, "text": _dress(random.choice(topic["changed"]).format(v=value), random)}
        talk.turns.append((place + 0.05 + random.random() * 0.14, turn))
    called, category = _call(person, category, participants, random)
    for text in random.sample(topic["asked"], 2):
        _ask(talk, text.format(p=called), category, turn, superseded, random.choice(participants.people))
    if not superseded and random.random() < SHARE_WHO:
        _ask(talk, random.choice(topic["who"]).format(v=value), "who", turn, [], random.choice(others))


def _call(person: str, category: str, participants: Participants, random: Random) -> tuple[str, str]:
    """Return the name by which a question calls a person, and the category of the question."""
    is_plain = category == "latest value"
    if person in participants.nicknames and random.random() < SHARE_NICKNAME:
        return participants.nicknames[person], category if is_plain else "nickname"
    if " " in person:
        return person, category if is_plain else "two of one name"
    return (person.lower() if random.random() < SHARE_LOWER else person), category


def _ask(talk: Talk, text: str, category: str, turn: Turn, superseded: list[Turn], asker: str) -> None:
    question = {"question": text, "asker": asker, "evidence": turn, "superseded": superseded, "category": category}
    talk.questions.append(question)


def _dress(text: str, random: Random) -> str:
    """Return a line as people write it: with an opening or an end that says nothing."""
    opening = random.choice(["", "", "", "oh, ", "hey all, ", "well, ", "fyi: ", "btw "])
    return f"{opening}{text}{random.choice(['', '', '!', '.', ' :)', ' lol'])}"
