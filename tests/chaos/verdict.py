"""Comparison of the platform's record with the database of the bot (I1, I2, I4, I5, I8)."""

import re
from collections import Counter, defaultdict
from dataclasses import dataclass, field

from tests.chaos.adapter import MARK
from tests.chaos.books import Books, KeptDelivery, KeptReceipt
from tests.chaos.loopback import Post, Truth, Update

NAME = re.compile(r"m\d+")
CROWDED_OUT = ", but the answer is about the newest"
MOST_ONCE = ("unsafe", "keyed")
APOLOGY = "Sorry,"


@dataclass(slots=True)
class Verdict:
    """What was found; the lists hold a sentence each and are empty where all is well."""

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
        """All that must not be."""
        return [*self.lost, *self.doubled, *self.inverted, *self.uncaused, *self.damaged]


@dataclass(slots=True)
class _Evidence:
    """What there is to look at: posts by their delivery, parts by their turn, and what each turn is about."""

    truth: Truth
    receipts: list[KeptReceipt]
    deliveries: list[KeptDelivery]
    posts: dict[str, list[Post]]
    parts: defaultdict[str, list[KeptDelivery]]
    about: defaultdict[str, set[str]]
    edited: set[str] = field(default_factory=set)

    def has_left(self, part: KeptDelivery) -> bool:
        """Tell whether the platform was given a part, anew or in another's place."""
        return part.id in self.posts or part.id in self.edited

    @classmethod
    def gathered(cls, truth: Truth, books: Books) -> "_Evidence":
        """Read it from both sides."""
        found = cls(truth, books.receipts(), books.deliveries(), {}, defaultdict(list), defaultdict(set))
        for post in truth.posted:
            found.posts.setdefault(post.key, []).append(post)
        found.edited |= {edit.key for edit in truth.edits}
        for part in found.deliveries:
            found.parts[part.turn].append(part)
            found.about[part.turn] |= set(NAME.findall(part.content))
        for turn, text in books.answers():
            found.about[turn] |= set(NAME.findall(text))
        return found


def judged(truth: Truth, books: Books) -> Verdict:
    """Hold what the platform saw against what the books say, once all is settled."""
    verdict = Verdict(messages=len(truth.updates), damaged=books.faults())
    evidence = _Evidence.gathered(truth, books)
    _look_for_lost(verdict, evidence)
    _look_for_doubled(verdict, evidence)
    _look_for_inverted(verdict, evidence)
    _look_for_repeated_deeds(verdict, truth)
    return verdict


def _look_for_lost(verdict: Verdict, evidence: _Evidence) -> None:
    """I1: every message has one outcome, and whoever is said to be answered was."""
    of_name = {one.name: one for one in evidence.receipts}
    of_memory = {one.memory: one for one in evidence.receipts}
    for name, count in Counter(one.name for one in evidence.receipts).items():
        if count > 1:
            verdict.doubled.append(f"{name} has {count} receipts")
    for update in evidence.truth.updates:
        end = of_name.get(update.name)
        if end is not None and CROWDED_OUT in end.reason:  # and whoever asks why is told
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


def _why_lost(update: Update, end: KeptReceipt, evidence: _Evidence) -> str:
    """Say why a message counts as lost; empty where it does not."""
    parts = evidence.parts[end.turn]
    if end.outcome == "ignored":
        return "" if end.rule.startswith("shouldRespond") else "nobody wanted it ignored"
    if end.outcome == "failed":
        told = any(post.room == update.room and APOLOGY in post.text for post in evidence.truth.posted)
        is_said = any(part.state == "unknown" or evidence.has_left(part) for part in parts)
        return "" if told or is_said else "the room was told nothing"
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


def _look_for_doubled(verdict: Verdict, evidence: _Evidence) -> None:
    """I2 and I5: each part once, unless an attempt that nobody could judge explains it by a mark."""
    known = {one.id: one for one in evidence.deliveries}
    turns: defaultdict[str, set[str]] = defaultdict(set)
    for key, several in evidence.posts.items():
        if key not in known:
            verdict.uncaused.append(f"{several[0].text!r} is in no book")
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


def _look_for_inverted(verdict: Verdict, evidence: _Evidence) -> None:
    """I4: per room, parts leave in the order in which they were committed."""
    places = {one.id: one.seq for one in evidence.deliveries}
    last: defaultdict[str, int] = defaultdict(int)
    for several in evidence.posts.values():  # in the order in which each was posted first
        post = several[0]
        place = places.get(post.key, 0)
        if place and place < last[post.room]:
            verdict.inverted.append(f"{post.text!r} left as {place} after {last[post.room]} in {post.room}")
        last[post.room] = max(place, last[post.room])


def _look_for_repeated_deeds(verdict: Verdict, truth: Truth) -> None:
    """I5: what is unsafe happens once at most, what is keyed under one key."""
    done = Counter((kind, name) for kind, name, _ in truth.deeds)
    keys = Counter((kind, name) for kind, name, _ in set(truth.deeds))
    for (kind, name), count in done.items():
        times = count if kind == "unsafe" else keys[kind, name]
        if kind in MOST_ONCE and times > 1:
            verdict.doubled.append(f"{name}: {kind} was done {times} times")
