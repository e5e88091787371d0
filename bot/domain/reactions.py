"""Reactions: which emoji mean the same, what they say about a message, and which ones an account can set."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import chain
from types import MappingProxyType

# Emoji of one row stand for one another where a platform does not have the one that was meant.
LIKES = (
    "👍 👌 ✅ 💯 🙏 🤝 🫡 👏 💪 🆒 🙌",
    "❤ 🥰 😍 😘 💘 💕 💖 🧡 💛 💚 💙 💜 🤗 💋",
    "🔥 🎉 🤩 🏆 ⚡ 🚀 ⭐ 🌟 🥳 🍾 🎊 ✨",
)
LAUGHS = "😂 🤣 😁 😄 😆 😅 😃 😀 🙂 😊 😎 😇"
OTHERS = ("🤔 🤨 🧐", "😱 🤯 😮 😲 😳 👀", "😢 😭 💔 😔 🥺", "🥱 😴", "👋 🤗")
DISLIKES = "👎 💩 😡 🤬 😠 🤮 🤢 🖕 🙄 🤐 🤫 😒 🛑 🤡"
GROUPS = tuple(tuple(group.split()) for group in (*LIKES, LAUGHS, *OTHERS, DISLIKES))
POSITIVE = frozenset(chain.from_iterable(group.split() for group in (*LIKES, LAUGHS)))
NEGATIVE = frozenset(DISLIKES.split())
MAX_LISTED = 12  # in a prompt; of a longer list any emoji may be named, and the nearest one is set
MAX_CUSTOM = 20

_BASE = (
    r"[\xa9\xae\u203c\u2049\u2122\u2139\u2190-\u23ff\u24c2\u25a0-\u27bf\u2900-\u297f\u2b00-\u2bff\U0001f000-\U0001faff]"
)
_SINGLE = rf"{_BASE}\ufe0f?[\U0001f3fb-\U0001f3ff]?"
_EMOJI = re.compile(rf"[\U0001f1e6-\U0001f1ff]{{2}}|[0-9#*]\ufe0f?\u20e3|{_SINGLE}(?:\u200d{_SINGLE})*")
_VARIANT = re.compile(r"(?<=.)[\ufe0f\U0001f3fb-\U0001f3ff]")


def vote_of(emoji: str) -> int:
    """Return what a reaction says about a message: 1 if it is liked, -1 if it is not, else 0."""
    plain = _plain(emoji)
    return (plain in POSITIVE) - (plain in NEGATIVE)


def _plain(emoji: str) -> str:
    """Return an emoji without its colour of skin and the mark that it is shown in colour."""
    return _VARIANT.sub("", emoji.strip())


@dataclass(frozen=True, slots=True)
class ReactionSet:
    """The reactions that an account can set in a room: those `listed`, every emoji if there are none.

    `custom` are those of the server by name, as the platform takes them.
    """

    listed: tuple[str, ...] = ()
    custom: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))

    def find(self, text: str) -> str:
        """Return the reaction that a text names, or the nearest one; empty if there is none."""
        name = text.strip().strip(":").casefold()
        custom = next((value for key, value in self.custom.items() if key.casefold() == name), "")
        match = _EMOJI.search(text)
        if custom or match is None:
            return custom
        if not self.listed:
            return match[0]
        wanted, by_plain = _plain(match[0]), {_plain(emoji): emoji for emoji in self.listed}
        nearest = (emoji for group in GROUPS if wanted in group for emoji in group)
        likes = ("👍", "❤", "⭐") if wanted in POSITIVE else ()
        candidates = (wanted, *nearest, *likes)
        return next((by_plain[emoji] for emoji in candidates if emoji in by_plain), "")

    def __str__(self) -> str:
        """Return what a prompt says about them."""
        if 0 < len(self.listed) <= MAX_LISTED:
            return " ".join(self.listed)
        names = [f":{name}:" for name in list(self.custom)[:MAX_CUSTOM]]
        return f"any emoji, or of this server {' '.join(names)}" if names else "any emoji"
