"""The authority that an action needs, and whether its asker's own words give it."""

import re
import unicodedata
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from functools import lru_cache
from typing import Any, Final, Self
from uuid import UUID

from bot.domain.content import Content

ANYBODY: Final = UUID(int=0)  # among authors: it is not known who wrote the text
UNKNOWN_AUTHORS: Final = frozenset({ANYBODY})
MAX_OWN_TEXT_LENGTH = 1_000  # a longer message was hardly typed: what it names may be pasted
_QUOTED_LINE = re.compile(r"^[^\S\n]*(?:>|\[(?:sticker|poll|contact|place|game)\b).*$", re.MULTILINE)
_SPOKEN_OF = re.compile(r"https?://\S+|`[^`\n]+`|“[^”\n]*”|«[^»\n]*»|„[^“”\n]*[“”]|「[^」\n]*」|(?<!\w)\"[^\"\n]*\"")
_UNSPACED = "\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3040-\u30ff\u3400-\u9fff\uf900-\ufaff\U00020000-\U0003ffff"
_SPACED_LETTER = rf"[^\W{_UNSPACED}가-힣]"  # Korean writes particles after a word without a space
_GAP = r"(?:\s+\w+){0,4}\s+"  # for `*` in the words of an action


class AuthorityKind(StrEnum):
    """What must be known before an action runs."""

    HARMLESS = "harmless"
    NAMED = "named"
    CONFIRMED = "confirmed"


@dataclass(frozen=True, slots=True)
class Authority:
    """What must be known before an action runs: that its asker, and not another text of the prompt, wants it.

    A harmless action runs at once; `reason` says why it may. A named one runs at once if every text of the
    prompt is by people with the authority it needs, or if the asker's own message names the action and each of
    its `targets`: the parameters whose values must be in the message, all if None. `words` name the action
    beside its own name and its similes, with `*` for up to four words; `by_targets` means that the targets name
    it well enough. Otherwise the asker confirms it, as always where the arguments are `confirmed_arguments`. A
    confirmed one is always confirmed. `is_default` marks what the author of an action did not decide.
    """

    kind: AuthorityKind
    reason: str = ""
    words: tuple[str, ...] = ()
    targets: tuple[str, ...] | None = None
    by_targets: bool = False
    confirmed_arguments: tuple[tuple[str, str], ...] = ()
    is_default: bool = False

    @classmethod
    def harmless(cls, reason: str) -> Self:
        """Return the authority of an action that may always run, because of `reason`."""
        if not reason.strip():
            raise ValueError("a harmless action needs the reason why it is harmless")
        return cls(AuthorityKind.HARMLESS, reason)

    @classmethod
    def named(
        cls,
        *words: str,
        targets: Iterable[str] | None = None,
        by_targets: bool = False,
        confirmed_arguments: Mapping[str, str] | None = None,
    ) -> Self:
        """Return the authority of an action that its asker names, by one of `words` too, with its targets."""
        confirmed = tuple((confirmed_arguments or {}).items())
        target_names = None if targets is None else tuple(targets)
        return cls(AuthorityKind.NAMED, "", words, target_names, by_targets, confirmed)

    @classmethod
    def confirmed(cls) -> Self:
        """Return the authority of an action that always asks for a confirmation.

        If its preview names targets that the asker's own message does not, it is refused without a question.
        """
        return cls(AuthorityKind.CONFIRMED, by_targets=True)

    def must_confirm(self, arguments: Mapping[str, Any]) -> bool:
        """Return whether a call with these arguments is confirmed whatever the prompt contains."""
        if self.kind is AuthorityKind.CONFIRMED:
            return True
        confirmed = self.confirmed_arguments
        return bool(confirmed) and all(
            str(arguments.get(name, "")).strip().casefold() == value.casefold() for name, value in confirmed
        )


def own_words(text: str) -> str:
    """Return what the author of a message wrote: no quotes, no forwarded text, no description of media."""
    return _QUOTED_LINE.sub("", text)


def is_all_own(content: Content) -> bool:
    """Return whether the author of a message wrote all of it: it has no words of others and no files."""
    return content.quotation is None and not content.attachments and own_words(content.text) == content.text


def names_action(text: str, names: Iterable[str], words: tuple[str, ...]) -> bool:
    """Return whether a person's own words name an action: one of `words`, or all words of one of its names.

    What they only speak of, in quotation marks or in a link, does not count, and neither does a long text.
    """
    if len(text) > MAX_OWN_TEXT_LENGTH:
        return False
    spoken = _SPOKEN_OF.sub(" ", text)
    pattern = _phrase_pattern(words, has_gaps=True)
    if pattern is not None and pattern.search(_normalize(spoken)):
        return True
    return any(all(contains_words(spoken, part) for part in name.split("_") if part) for name in names)


def contains_words(text: str, *phrases: str) -> bool:
    """Return whether a text contains one of the phrases as whole words, in any case."""
    pattern = _phrase_pattern(phrases, has_gaps=False)
    return pattern is not None and pattern.search(_normalize(text)) is not None


@lru_cache(maxsize=512)
def _phrase_pattern(phrases: tuple[str, ...], *, has_gaps: bool) -> re.Pattern[str] | None:
    """Compile phrases, in which `*` may stand for up to four words.

    In scripts that put no spaces a word needs no boundary.
    """
    by_boundaries: dict[tuple[str, str], list[str]] = {}  # compiling a boundary takes longer than compiling a phrase
    for phrase in phrases:
        expected = " ".join(_normalize(phrase).split())
        if expected:
            opening = rf"(?<!{_SPACED_LETTER})" if re.match(_SPACED_LETTER, expected) else ""
            ending = rf"(?!{_SPACED_LETTER})" if re.search(rf"{_SPACED_LETTER}\Z", expected) else ""
            body = re.escape(expected)
            body = body.replace(r"\ \*\ ", _GAP) if has_gaps else body
            by_boundaries.setdefault((opening, ending), []).append(body.replace(r"\ ", r"\s+"))
    alternatives = [f"{opening}(?:{'|'.join(bodies)}){ending}" for (opening, ending), bodies in by_boundaries.items()]
    return re.compile("|".join(alternatives)) if alternatives else None


def _normalize(text: str) -> str:
    return unicodedata.normalize("NFKC", text).casefold().replace("’", "'")
