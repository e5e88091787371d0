"""What a model thinks aloud before its answer, between `<think>` and `</think>`: left out."""

OPENING, CLOSING = "<think>", "</think>"


class Thinking:
    """Takes a text piece by piece and gives what of it is for others."""

    def __init__(self) -> None:
        self._held = ""
        self._is_thinking = False
        self._is_settled = False

    def feed(self, piece: str) -> str:
        """Take a piece; gives what may be shown of it and of what was held back."""
        if self._is_settled:
            return piece
        self._held += piece
        if not self._is_thinking:
            start = self._held.lstrip()
            if OPENING.startswith(start[: len(OPENING)]) and len(start) < len(OPENING):
                return ""
            if not start.startswith(OPENING):
                return self._release(self._held)
            self._is_thinking = True
        _, closed, rest = self._held.partition(CLOSING)
        if closed and rest.lstrip():
            return self._release(rest.lstrip())
        if not closed:
            self._held = OPENING + self._held[-len(CLOSING) :]
        return ""

    def end(self) -> str:
        """Give what is left when no more comes: all that was held, unless it is thought alone."""
        return "" if self._is_thinking else self._release(self._held)

    def _release(self, text: str) -> str:
        self._held, self._is_settled = "", True
        return text


def without_thinking(text: str) -> str:
    """Leave out what a whole text begins with in thoughts."""
    thinking = Thinking()
    return thinking.feed(text) + thinking.end()
