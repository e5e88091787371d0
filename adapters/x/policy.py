"""What must not stand in public, whoever wrote it: keys, contacts, and the operator's own list; pure."""

import re
import unicodedata

from adapters.x.config import XSettings

KEYS = re.compile(
    r"-----BEGIN [A-Z ]*PRIVATE KEY|\b(?:sk|pk|rk)[-_][A-Za-z0-9_-]{16,}|\bAKIA[0-9A-Z]{16}\b"
    r"|\bgh[opsru]_[A-Za-z0-9]{30,}|\bxox[abprs]-[A-Za-z0-9-]{10,}|\b\d{6,12}:[A-Za-z0-9_-]{30,}"
    r"|\beyJ[A-Za-z0-9_-]{10,}\.eyJ[A-Za-z0-9_-]{10,}\."
)
MAIL = re.compile(r"[\w.+-]{1,64}@[\w-]{1,63}(?:\.[\w-]{1,63})+")
PHONE = re.compile(r"(?<![\w+/=])(?:\+|00)\d(?:[ ()./-]{0,2}\d){7,13}(?!\d)")
BANK = re.compile(r"\b[A-Z]{2}\d{2}(?: ?[A-Z0-9]{4}){2,7}(?: ?[A-Z0-9]{1,3})?\b")
CARD = re.compile(r"(?<![\w/=])\d(?:[ -]?\d){12,18}(?!\d)")


class Policy:
    """What one account keeps to in all that it posts."""

    def __init__(self, settings: XSettings) -> None:
        self._own = {_bare(one) for one in settings.x_contacts}
        self._words = [
            (one, re.compile(rf"(?<!\w){re.escape(_folded(one))}(?!\w)"))
            for one in settings.x_forbidden_words
        ]

    def fault(self, text: str) -> str:
        """Say why a text may not be posted; blank where it may."""
        plain = unicodedata.normalize("NFKC", text)
        if KEYS.search(plain):
            return "it holds what looks like a key or a token"
        if any(_is_bank(_bare(one)) for one in BANK.findall(plain)):
            return "it holds the number of a bank account"
        if any(_is_card(_bare(one)) for one in CARD.findall(plain)):
            return "it holds the number of a bank card"
        for what, pattern in (("a mail address", MAIL), ("a telephone number", PHONE)):
            if any(_bare(one) not in self._own for one in pattern.findall(plain)):
                return f"it holds {what} that X_CONTACTS does not name"
        folded = _folded(text)
        word = next((one for one, pattern in self._words if pattern.search(folded)), "")
        return f"it holds {word!r}, which X_FORBIDDEN_WORDS names" if word else ""


def _bare(text: str) -> str:
    return re.sub(r"[ ()./-]", "", text) if "@" not in text else text.casefold()


def _folded(text: str) -> str:
    return " ".join(unicodedata.normalize("NFKC", text).casefold().split())


def _is_card(digits: str) -> bool:
    doubled = [int(one) * (2 if place % 2 else 1) for place, one in enumerate(reversed(digits))]
    return sum(one - 9 if one > 9 else one for one in doubled) % 10 == 0


def _is_bank(account: str) -> bool:
    return int("".join(str(int(one, 36)) for one in account[4:] + account[:4])) % 97 == 1
