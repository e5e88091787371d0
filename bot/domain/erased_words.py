"""`ErasedWords`: an erased person's words, to be removed from what the bot wrote to others."""

import re
from dataclasses import replace

from bot.domain.edits import REVISIONS_KEY
from bot.domain.memory import Memory

REMOVED_WORDS = "[…]"
RUN_WORDS, MIN_RUN_LENGTH = 4, 20  # a shorter run, such as "how are you", may be anybody's words
MIN_CODE_LENGTH = 6
MAX_RUNS = 500_000
_WORD = re.compile(r"\w(?:\S*\w)?")


class ErasedWords:
    """What a person wrote: four words in a row, and single ones with a digit, such as numbers, codes and addresses.

    Of a person who wrote more than half a million words the rest is not compared.
    """

    def __init__(self) -> None:
        self._runs: set[int] = set()
        self._codes: set[str] = set()

    def __bool__(self) -> bool:
        return bool(self._runs or self._codes)

    def add(self, text: str) -> None:
        """Add what the person wrote."""
        words = [match[0].casefold() for match in _WORD.finditer(text)]
        if len(self._runs) < MAX_RUNS:
            self._runs.update(_hash_runs(words))
            self._codes.update(word for word in words if _is_code(word))

    def remove_from(self, text: str) -> str:
        """Return a text without the person's words; the same text if it has none."""
        matches = list(_WORD.finditer(text))
        words = [match[0].casefold() for match in matches]
        spans = [match.span() for match, word in zip(matches, words, strict=True) if word in self._codes]
        start = end = -1
        for index, run in enumerate(_hash_runs(words)):
            if run not in self._runs:
                continue
            first, last = matches[index].start(), matches[index + RUN_WORDS - 1].end()
            if first >= end:
                spans.append((start, end))
                start = first
            end = last
        spans.append((start, end))
        for first, last in _merge([span for span in spans if _is_enough(text, *span, self._codes)])[::-1]:
            text = f"{text[:first]}{REMOVED_WORDS}{text[last:]}"
        return text

    def remove_from_reply(self, reply: Memory) -> Memory:
        """Return a reply without the person's words and without its earlier texts; the same one if it has none."""
        text = self.remove_from(reply.content.text)
        revisions = reply.metadata.get(REVISIONS_KEY, ())
        if text == reply.content.text and all(self.remove_from(item["text"]) == item["text"] for item in revisions):
            return reply
        metadata = {name: value for name, value in reply.metadata.items() if name != REVISIONS_KEY}
        return replace(
            reply, content=replace(reply.content, text=text), metadata=metadata, embedding=None, embedding_model=""
        )


def _is_code(word: str) -> bool:
    return len(word) >= MIN_CODE_LENGTH and (any(map(str.isdigit, word)) or "@" in word)


def _hash_runs(words: list[str]) -> list[int]:
    return [hash(tuple(words[index : index + RUN_WORDS])) for index in range(len(words) - RUN_WORDS + 1)]


def _is_enough(text: str, first: int, last: int, codes: set[str]) -> bool:
    return last - first >= MIN_RUN_LENGTH or text[first:last].casefold() in codes


def _merge(spans: list[tuple[int, int]]) -> list[tuple[int, int]]:
    merged: list[tuple[int, int]] = []
    for first, last in sorted(spans):
        if merged and first <= merged[-1][1]:
            merged[-1] = (merged[-1][0], max(last, merged[-1][1]))
        else:
            merged.append((first, last))
    return merged
