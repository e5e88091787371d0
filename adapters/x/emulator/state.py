"""What there is at the emulated X: people, posts, pictures, and everything that was ever done there."""

import html
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from itertools import count
from typing import Any

from adapters.x.outgoing import LONGEST, weight
from bot import Clock

SAME_AGAIN = timedelta(hours=24)  # so long the same text is not taken twice
_NAME = re.compile(r"@(\w{1,15})")
_URL = re.compile(r"https?://\S+")


class Forbidden(Exception):
    """X does not want it; the text is its reason."""


@dataclass(slots=True)
class Made:
    """One post as it is."""

    id: str
    author_id: str
    text: str
    at: datetime
    conversation_id: str
    answers: str = ""
    quotes: str = ""
    pictures: tuple[str, ...] = ()
    is_deleted: bool = False
    likes: set[str] = field(default_factory=set)
    reposts: set[str] = field(default_factory=set)


class EmulatedWorld:
    """People and posts; what is written here is the truth against which the bot is held."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._numbers = count(1)
        self.people: dict[str, str] = {}
        self.posts: dict[str, Made] = {}
        self.pictures: dict[str, dict[str, Any]] = {}
        self.blocked: set[tuple[str, str]] = set()  # who has blocked whom

    def person(self, username: str) -> str:
        """Give the number of somebody with this handle, who is made where there is none."""
        known = next((number for number, name in self.people.items() if name == username), None)
        if known is None:
            known = str(1000 + len(self.people))
            self.people[known] = username
        return known

    def post(
        self,
        author_id: str,
        text: str,
        *,
        answers: str = "",
        quotes: str = "",
        pictures: tuple[str, ...] = (),
    ) -> Made:
        """Make a post; raises Forbidden as X would."""
        above = self._check(author_id, text, answers, quotes, pictures)
        number = self.new_id()
        conversation = above.conversation_id if above else number
        made = Made(number, author_id, text, self._clock(), conversation, answers, quotes, pictures)
        self.posts[number] = made
        return made

    def new_id(self) -> str:
        """Give a number that grows with time, as X's do."""
        return str(int(self._clock().timestamp() * 1000) * 1000 + next(self._numbers))

    def by(self, author_id: str) -> list[Made]:
        """List what somebody has posted, oldest first."""
        return [one for one in self.posts.values() if one.author_id == author_id and not one.is_deleted]

    def naming(self, user_id: str) -> Iterator[Made]:
        """List the posts of others that name somebody, or answer them."""
        for one in self.posts.values():
            if one.author_id != user_id and not one.is_deleted and user_id in self.named(one):
                yield one

    def named(self, made: Made) -> list[str]:
        """List whom a post names: in so many words, or by answering them."""
        handles = {name.casefold() for name in _NAME.findall(made.text)}
        found = [number for number, name in self.people.items() if name.casefold() in handles]
        above = self.posts.get(made.answers)
        if above is not None and above.author_id not in (*found, made.author_id):
            found.append(above.author_id)
        return found

    def shown(self, made: Made) -> dict[str, Any]:
        """Give a post as X tells it: names before replies, short addresses, escapes."""
        above = self.posts.get(made.answers)
        text, addresses = self._shortened(made)
        handle = self.people[above.author_id] if above else ""
        if handle and not text.startswith("@"):
            text = f"@{handle} {text}"
        text = html.escape(text, quote=False)
        told: dict[str, Any] = {
            "id": made.id,
            "text": text,
            "author_id": made.author_id,
            "conversation_id": made.conversation_id,
            "created_at": made.at.strftime("%Y-%m-%dT%H:%M:%S.000Z"),
            "edit_history_tweet_ids": [made.id],
        }
        people = [{"id": one, "username": self.people[one]} for one in self.named(made)]
        entities = {
            "urls": [{**one, **_span(text, one["url"])} for one in addresses],
            "mentions": [{**one, **_span(text, f"@{one['username']}")} for one in people],
        }
        if found := {kind: listed for kind, listed in entities.items() if listed}:
            told["entities"] = found
        references = [("replied_to", made.answers), ("quoted", made.quotes)]
        if referred := [{"type": kind, "id": one} for kind, one in references if one]:
            told["referenced_tweets"] = referred
        if above:
            told["in_reply_to_user_id"] = above.author_id
        if made.pictures:
            told["attachments"] = {"media_keys": [f"3_{key}" for key in made.pictures]}
        return told

    def _shortened(self, made: Made) -> tuple[str, list[dict[str, Any]]]:
        """Put a short address in the place of each one, and of what hangs on the post."""
        text, found = made.text, []
        for number, address in enumerate(dict.fromkeys(_URL.findall(made.text))):
            short = f"https://t.co/{made.id[-6:]}{number}"
            text = text.replace(address, short)
            found.append({"url": short, "expanded_url": address})
        for key in made.pictures:
            short = f"https://t.co/p{key[-6:]}"
            text = f"{text} {short}".strip()
            found.append({"url": short, "expanded_url": "https://x.com/photo", "media_key": f"3_{key}"})
        if made.quotes:
            short = f"https://t.co/q{made.quotes[-6:]}"
            text = f"{text} {short}"
            found.append({"url": short, "expanded_url": f"https://twitter.com/i/web/status/{made.quotes}"})
        return text, found

    def _check(
        self, author_id: str, text: str, answers: str, quotes: str, pictures: tuple[str, ...]
    ) -> Made | None:
        if not text and not pictures:
            raise Forbidden("Your post has neither text nor media.")
        if weight(text) > LONGEST:
            raise Forbidden("Your post is too long.")
        now = self._clock()
        for one in self.by(author_id):
            if one.text == text and one.answers == answers and now - one.at < SAME_AGAIN:
                raise Forbidden("You are not allowed to create a Tweet with duplicate content.")
        if any(key not in self.pictures for key in pictures):
            raise Forbidden("Your media IDs are invalid.")
        for wanted in filter(None, (answers, quotes)):
            there = self.posts.get(wanted)
            if there is None or there.is_deleted:
                raise Forbidden("You attempted to reply to a Tweet that is deleted or not visible to you.")
            if (there.author_id, author_id) in self.blocked:
                raise Forbidden("You are not permitted to perform this action.")
        return self.posts.get(answers)


def _span(text: str, part: str) -> dict[str, int]:
    start = max(text.casefold().find(part.casefold()), 0)
    return {"start": start, "end": start + len(part)}
