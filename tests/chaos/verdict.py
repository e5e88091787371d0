"""Comparison of the platform's record with the database of the bot (I1, I2, I4, I5, I8)."""

import re
from collections import Counter, defaultdict
from dataclasses import dataclass, field

from bot import Rule
from tests.chaos.adapter import MARK
from tests.chaos.database import BotDatabase, DeliveryRow, ReceiptRow
from tests.chaos.loopback import PlatformRecord, Post, Update

NAME = re.compile(r"m\d+")
CROWDED_OUT = ", but the answer is about the newest"
MOST_ONCE = ("unsafe", "keyed")
APOLOGY = "Sorry,"
DECIDED_RULES = (Rule.NOT_ADDRESSED, Rule.TAKEN_OVER, Rule.DRAFT)  # the latter two by a person


@dataclass(slots=True)
class Verdict:
    """The result of a comparison: counts, and lists of complaints."""

    messages: int = 0
    failed: int = 0
    held: int = 0
    crowded: int = 0
    explained: int = 0
    lost: list[str] = field(default_factory=list)
    doubled: list[str] = field(default_factory=list)
    inverted: list[str] = field(default_factory=list)
    uncaused: list[str] = field(default_factory=list)
    damaged: list[str] = field(default_factory=list)

    @property
    def complaints(self) -> list[str]:
        """All complaints."""
        return [*self.lost, *self.doubled, *self.inverted, *self.uncaused, *self.damaged]


@dataclass(slots=True)
class _Evidence:
    """Posts by delivery, parts by turn, and the messages that each turn answers."""

    record: PlatformRecord
    receipts: list[ReceiptRow]
    deliveries: list[DeliveryRow]
    posts: dict[str, list[Post]]
    parts: defaultdict[str, list[DeliveryRow]]
    about: defaultdict[str, set[str]]
    edited: set[str] = field(default_factory=set)

    def has_left(self, part: DeliveryRow) -> bool:
        """Return whether the platform received a part, as a post or as an edit."""
        return part.id in self.posts or part.id in self.edited

    @classmethod
    def collect(cls, record: PlatformRecord, database: BotDatabase) -> "_Evidence":
        """Read the record and the database."""
        found = cls(record, database.receipts(), database.deliveries(), {}, defaultdict(list), defaultdict(set))
        for post in record.posted:
            found.posts.setdefault(post.key, []).append(post)
        found.edited |= {edit.key for edit in record.edits}
        for part in found.deliveries:
            found.parts[part.turn].append(part)
            found.about[part.turn] |= set(NAME.findall(part.content))
        for turn, text in database.answers():
            found.about[turn] |= set(NAME.findall(text))
        return found


def compare(record: PlatformRecord, database: BotDatabase) -> Verdict:
    """Compare the platform's record with the database of a bot that has settled."""
    verdict = Verdict(messages=len(record.updates), damaged=database.integrity_errors())
    evidence = _Evidence.collect(record, database)
    _find_lost(verdict, evidence)
    _find_doubled(verdict, evidence)
    _find_inverted(verdict, evidence)
    _find_repeated_effects(verdict, record)
    return verdict


def _find_lost(verdict: Verdict, evidence: _Evidence) -> None:
    """I1: every message has one outcome, and an answered one has a reply."""
    of_name = {receipt.name: receipt for receipt in evidence.receipts}
    of_memory = {receipt.memory: receipt for receipt in evidence.receipts}
    for name, count in Counter(receipt.name for receipt in evidence.receipts).items():
        if count > 1:
            verdict.doubled.append(f"{name} has {count} receipts")
    for update in evidence.record.updates:
        end = of_name.get(update.name)
        if end is not None and CROWDED_OUT in end.reason:  # its reason is stored
            verdict.crowded += 1
            continue
        while end is not None and end.outcome == "superseded":
            end = of_memory.get(end.superseded_by)
        if end is None:
            verdict.lost.append(f"{update.name} has no receipt")
            continue
        if cause := _why_lost(update, end, evidence):
            verdict.lost.append(f"{update.name} ({end.name} is {end.outcome}, {end.rule}): {cause}")
        verdict.failed += end.outcome == "failed"
        is_held = any(part.state == "unknown" for part in evidence.parts[end.turn])
        verdict.held += is_held and end.name == update.name


def _why_lost(update: Update, end: ReceiptRow, evidence: _Evidence) -> str:
    """Return why a message counts as lost, or an empty text."""
    parts = evidence.parts[end.turn]
    if end.outcome == "ignored":
        is_decided = end.rule.startswith("shouldRespond") or end.rule in DECIDED_RULES
        return "" if is_decided else "it was ignored without a decision"
    if end.outcome == "failed":
        has_apology = any(post.room == update.room and APOLOGY in post.text for post in evidence.record.posted)
        is_spoken = any(part.state == "unknown" or evidence.has_left(part) for part in parts)
        return "" if has_apology or is_spoken else "the room was told nothing"
    if end.outcome != "answered":
        return "it is no end for a message of this run"
    if not parts:
        return "nothing was to be sent"
    wanted = [part for part in parts if part.state not in ("unknown", "cancelled")]
    unsent = [part for part in wanted if not evidence.has_left(part)]
    if unsent:
        return f"part {unsent[0].part} is {unsent[0].state} ({unsent[0].cause}) and was never posted"
    about = evidence.about[end.turn]
    return "" if update.name in about else f"what was said is about {', '.join(sorted(about))}"


def _find_doubled(verdict: Verdict, evidence: _Evidence) -> None:
    """I2 and I5: each part is posted once, or again with a mark after an ambiguous attempt."""
    known = {delivery.id: delivery for delivery in evidence.deliveries}
    turns: defaultdict[str, set[str]] = defaultdict(set)
    for key, several in evidence.posts.items():
        if key not in known:
            verdict.uncaused.append(f"{several[0].text!r} has no delivery")
            continue
        for name in NAME.findall(several[0].text):
            turns[name].add(known[key].turn)
        attempts = known[key].attempts
        bare = sum(not post.text.startswith(MARK) for post in several)
        if bare > 1 or len(several) > attempts:
            verdict.doubled.append(f"{several[0].text!r}: posted {len(several)} times in {attempts} attempts")
        else:
            verdict.explained += len(several) - 1
    verdict.doubled += [f"{name} was answered by {len(by)} turns" for name, by in turns.items() if len(by) > 1]


def _find_inverted(verdict: Verdict, evidence: _Evidence) -> None:
    """I4: per room, parts leave in the order in which they were committed."""
    places = {delivery.id: delivery.seq for delivery in evidence.deliveries}
    last: defaultdict[str, int] = defaultdict(int)
    for several in evidence.posts.values():  # in the order in which each was posted first
        post = several[0]
        place = places.get(post.key, 0)
        if place and place < last[post.room]:
            verdict.inverted.append(f"{post.text!r} left as {place} after {last[post.room]} in {post.room}")
        last[post.room] = max(place, last[post.room])


def _find_repeated_effects(verdict: Verdict, record: PlatformRecord) -> None:
    """I5: an unsafe effect happens at most once, a keyed one under one key."""
    done = Counter((kind, name) for kind, name, _ in record.effects)
    keys = Counter((kind, name) for kind, name, _ in set(record.effects))
    for (kind, name), count in done.items():
        times = count if kind == "unsafe" else keys[kind, name]
        if kind in MOST_ONCE and times > 1:
            verdict.doubled.append(f"{name}: {kind} was done {times} times")
