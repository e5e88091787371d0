"""Links that would tell a stranger's server what was said: a model may be talked into writing one.

Platforms open the links of a message by themselves, to show what is behind them. So a link that carries
data to a host nobody has vouched for leaves as words: it can be read, and nothing opens it.
"""

import re
from collections.abc import Collection
from dataclasses import dataclass
from urllib.parse import unquote

LONGEST_HOST, LONGEST_PATH, LONGEST_QUERY = 64, 128, 64
LEFT_OUT = "[a link that held a secret]"
_SCHEME = r"https?://"
_BARE = r"(?<![\w.-])(?=(?:[^\W_][\w-]{0,62}\.)+[^\W\d_]{2,24}[/?:])"  # Telegram makes links of such names
_NEXT = rf"{_SCHEME}|\]\("
_LINK = (
    rf"(?P<scheme>{_SCHEME}|{_BARE})(?P<host>(?:(?!{_NEXT})[^\s/?#\\])+)"
    rf"(?P<path>(?:(?!{_NEXT})[^\s?#])*)(?:\?(?P<query>(?:(?!{_NEXT})[^\s#])*))?"
)
_ANY = re.compile(_LINK, re.IGNORECASE)
_UNFINISHED = re.compile(rf"(?:{_LINK}|{_SCHEME})\Z", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Hyperlinks:
    """What links may carry: anything to these hosts and those below them, elsewhere little but an address."""

    hosts: Collection[str] = ()

    def defanged(self, text: str, secrets: Collection[str] = ()) -> str:
        """Write each link that carries too much as `hxxps://host[.]example/...`, which no platform opens.

        One that holds a secret, however its signs are written, is left out.
        """

        def checked(link: re.Match[str]) -> str:
            if any(secret in unquote(link[0]) for secret in filter(None, secrets)):
                return LEFT_OUT
            return link[0] if self._may_leave(link) else _as_words(link)

        return _ANY.sub(checked, text)

    def _may_leave(self, link: re.Match[str]) -> bool:
        host, path, query = link["host"], link["path"], link["query"] or ""
        if len(host) <= LONGEST_HOST and len(path) <= LONGEST_PATH and len(query) <= LONGEST_QUERY:
            return True
        name = host.rpartition("@")[2].partition(":")[0].lower()
        return any(name == one or name.endswith(f".{one}") for one in map(str.lower, self.hosts))


def without_unfinished(text: str) -> str:
    """Leave out the link with which a text that is still being written breaks off."""
    return _UNFINISHED.sub("", text)


def _as_words(link: re.Match[str]) -> str:
    scheme, host = link["scheme"], link["host"]
    rest = link[0][len(scheme) + len(host) :]
    return scheme.lower().replace("http", "hxxp") + host.replace(".", "[.]") + rest
