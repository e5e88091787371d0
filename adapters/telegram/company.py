"""Who has been heard in a chat: nobody else is called by what we say; kept in memory, bounded."""

import re
from collections import OrderedDict
from collections.abc import Collection, Iterator, Sequence
from dataclasses import replace
from typing import Any

from adapters.telegram.markup import CODE, PRE
from adapters.telegram.outgoing import MARKS, SOURCE
from bot import Content

MOST_CHATS = 2000
MOST_PEOPLE = 200
MOST_CALLS = 3
NO_CALL = "＠"  # as long as the sign that calls, so that no mark moves
_NAME = re.compile(r"https?://\S+|(?<![A-Za-z0-9_])@([A-Za-z0-9_]{2,})")


class Company:
    """Remembers by chat whose @names may stand in what is said there."""

    def __init__(self) -> None:
        self._own = ""
        self._people: OrderedDict[int, OrderedDict[str, None]] = OrderedDict()

    def introduce(self, own: str) -> None:
        """Learn our own @name, which calls nobody else."""
        self._own = own.lower()

    def heard(self, chat: int, username: str) -> None:
        """Somebody has said something in a chat; so it is there."""
        people = self._people.setdefault(chat, OrderedDict())
        people[username.lower()] = None
        people.move_to_end(username.lower())
        self._people.move_to_end(chat)
        _bound(people, MOST_PEOPLE)
        _bound(self._people, MOST_CHATS)

    def among(self, chat: int, content: Content) -> Content:
        """Have a part call three people at most, of those in the chat."""
        return calling(content, {self._own, *self._people.get(chat, ())})


def calling(content: Content, people: Collection[str]) -> Content:
    """Take the call out of every @name but the first three of `people`; in code there is none. Pure."""
    named = dict.fromkeys(name.lower() for _, name in _names(content.text))
    called = [name for name in named if name in people][:MOST_CALLS]
    metadata = dict(content.metadata)
    if SOURCE in metadata:
        metadata[SOURCE] = _without_calls(str(metadata[SOURCE]), called)
    codes = [(int(start), int(end)) for kind, start, end, _ in metadata.get(MARKS, ()) if kind in (CODE, PRE)]
    return replace(content, text=_without_calls(content.text, called, codes), metadata=metadata)


def _without_calls(text: str, called: Collection[str], codes: Sequence[tuple[int, int]] = ()) -> str:
    signs = list(text)
    for place, name in _names(text):
        if name.lower() not in called and not any(start <= place < end for start, end in codes):
            signs[place] = NO_CALL
    return "".join(signs)


def _names(text: str) -> Iterator[tuple[int, str]]:
    """Find the @names as Telegram does: not within a word, nor in an address."""
    for found in _NAME.finditer(text):
        if found[1]:
            yield found.start(), found[1]


def _bound(books: OrderedDict[Any, Any], most: int) -> None:
    while len(books) > most:
        books.popitem(last=False)
