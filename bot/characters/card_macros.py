"""`CardMacros`: replaces the macros of SillyTavern in the texts of a card or a lorebook."""

import re
from typing import Final

from bot.characters.report import ReportCollector
from bot.characters.source_text import Path

MAX_NESTED_MACROS: Final = 5
OPEN, CLOSE = "\1", "\2"  # stand for the braces of a placeholder that stays

_MACRO: Final = re.compile(r"\{\{([^{}]*)\}\}|<(user|bot|char)>", re.IGNORECASE)


class CardMacros:
    """Replaces the macros in the texts of one file; those without a counterpart are removed and counted once.

    `char_name` is what `{{char}}` stands for.
    """

    def __init__(self, char_name: str = "") -> None:
        self.char_name = char_name
        self._lost: dict[str, int] = {}

    def replace(self, text: str, offset: int, user: str = "the user") -> str:
        """Return a text without macros, stripped; it stands at `offset` of the file, `user` replaces `{{user}}`."""
        text = text.replace(OPEN, "").replace(CLOSE, "")
        kept_user = user.replace("{{", OPEN).replace("}}", CLOSE)  # so that a macro around it is read too

        def replace(match: re.Match[str]) -> str:
            name, _, argument = (match[1] or match[2] or "").partition(":")
            match name.strip().lower():
                case "char" | "bot":
                    return self.char_name
                case "user":
                    before = text[: match.start()].rstrip(' *"')
                    is_start = not before or before[-1] in ".!?\n"
                    return kept_user[0].upper() + kept_user[1:] if is_start else kept_user
                case "newline":
                    return "\n"
                case "random" | "pick":
                    return re.split(r"::|,", argument.removeprefix(":"))[0].strip()
                case "name1" if user == "{{name1}}":
                    return kept_user
                case word if word.startswith("//") or word in ("", "trim", "noop", "comment", "hidden_key"):
                    return ""
            self._lost.setdefault(name.strip()[:40], offset)
            return ""

        for _ in range(MAX_NESTED_MACROS):
            replaced = _MACRO.sub(replace, text)
            if replaced == text:
                break
            text = replaced
        return text.replace(OPEN, "{{").replace(CLOSE, "}}").strip()

    def report_lost(self, collector: ReportCollector, path: Path) -> None:
        """Report the macros that were removed, as parts of what stands at `path`."""
        for macro, offset in self._lost.items():
            collector.add_ignored(offset, path, f"{{{{{macro}}}}} has no counterpart here and is left out")
