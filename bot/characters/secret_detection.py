"""Detects secrets by name or by pattern; `Secrets` is a mapping that never shows its values."""

import re
from collections.abc import Iterator, Mapping
from typing import Final

MASK: Final = "••••"

_WORDS: Final = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+")
_SECRET_WORDS: Final = frozenset(
    [
        "secret",
        "secrets",
        "password",
        "passwords",
        "passwd",
        "passphrase",
        "mnemonic",
        "credential",
        "credentials",
        "apikey",
        "apikeys",
        "authtoken",
        "accesstoken",
        "bottoken",
        "privatekey",
        "secretkey",
    ]
)
_SECRET_LAST_WORDS: Final = frozenset(["key", "token", "cookie", "cookies", "pat", "pwd"])
_SECRET_PLURALS: Final = frozenset(["keys", "tokens"])
_WORDS_BEFORE_PLURAL: Final = frozenset(["api", "private", "access", "auth", "bearer", "bot"])
_HARMLESS_PREFIXES: Final = frozenset(
    [
        "public",
        "max",
        "min",
        "stop",
        "pad",
        "bos",
        "eos",
        "special",
        "primary",
        "foreign",
        "sort",
        "cache",
        "hot",
        "idempotency",
    ]
)

_SECRET_KINDS: Final[tuple[tuple[str, str], ...]] = (
    ("a private key", r"-----BEGIN [A-Z ]{0,40}PRIVATE KEY-----(?s:.*?)(?:-----END [A-Z ]{0,40}-----|\Z)"),
    ("an API key", r"(?<![\w-])(?:sk|gsk|xai|rk|pplx)[-_][\w-]{16,}"),
    ("a Discord token", r"(?<![\w-])[A-Za-z\d][\w-]{22,30}\.[\w-]{6}\.[\w-]{27,45}(?![\w-])"),
    ("a Telegram token", r"(?<![\w-])(?:bot)?\d{6,12}:[\w-]{30,50}(?![\w-])"),
    ("a Slack token", r"(?<![\w-])xox[abeoprs]-[\w-]{10,}"),
    ("a GitHub token", r"(?<![\w-])(?:gh[oprsu]_\w{30,}|github_pat_\w{30,})"),
    ("a Hugging Face token", r"(?<![\w-])hf_[A-Za-z\d]{30,}"),
    ("a Google key", r"(?<![\w-])AIza[\w-]{35}"),
    ("an AWS key", r"(?<![\w-])A(?:KIA|SIA)[A-Z\d]{16}(?!\w)"),
    ("a signed token", r"(?<![\w-])eyJ[\w-]{8,}\.[\w-]{8,}\.[\w-]{8,}"),
    ("an address with a password", r"(?<!\w)[A-Za-z][\w+.-]{1,20}://[^\s/:@\"]{0,100}:[^\s/@\"]{1,200}@[^\s\"]*"),
    ("a webhook address", r"(?<!\w)https://(?:\w+\.)?discord(?:app)?\.com/api/webhooks/\d+/[\w-]+"),
)
_SECRET_PATTERN: Final = re.compile("|".join(f"({pattern})" for _, pattern in _SECRET_KINDS), re.ASCII)
_WALLET_KEY: Final = re.compile(r"(?:0x)?[\da-fA-F]{64}|[1-9A-HJ-NP-Za-km-z]{86,90}", re.ASCII)

_PLACEHOLDER: Final = re.compile(
    r"""change[ _-]?(me|this|it)\W* | undefined | null | none | nil | todo | tbd | n/a | fixme | example
    | dummy | placeholder | secret[ _-]?salt | secret | password | redacted | api[ _-]?key | token
    | (sk|pk|gsk|xai|hf|xox[bp])[-_] (proj|ant|or|v1|your|test|api|key|here|[x*.…•<>0_-])*
    | [x*.…•?_-]+ | <[^<>]*> | \[[\w -]*\] | \$\{?\w+\}? | \{\{[^{}]*\}\} | %\w+% | process\.env\b.*
    | (insert|replace|enter|put|add|paste|set)[ _-].*(your|this|here|key|token|secret|password).*
    | my[ _-]?((api|bot|access|secret)[ _-]?)?(key|token|secret|password)
    | your[ _-].* | your(api|key|token|secret|password|bot|discord|telegram|openai)\w*
    | .*[ _-]here | .*[ _-]your[ _-](\w+[ _-])?(key|token|secret|password).*
    """,
    re.IGNORECASE | re.VERBOSE,
)


def is_secret_name(name: str) -> bool:
    """Whether a key of that name holds a secret: `OPENAI_API_KEY`, `botToken`, `password`."""
    words = [word.lower() for word in _WORDS.findall(name[-80:])]
    if not words:
        return False
    if not _SECRET_WORDS.isdisjoint(words):
        return True
    before = words[-2] if len(words) > 1 else ""
    if words[-1] in _SECRET_PLURALS:
        return before in _WORDS_BEFORE_PLURAL
    return words[-1] in _SECRET_LAST_WORDS and before not in _HARMLESS_PREFIXES


def secret_kind(text: str) -> str:
    """Return the kind of secret that a text contains ("a Telegram token"), or an empty string."""
    match = _SECRET_PATTERN.search(text)
    return _SECRET_KINDS[(match.lastindex or 1) - 1][0] if match else ""


def is_wallet_key(text: str) -> bool:
    """Whether a text looks like the private key of a wallet; hashes look the same."""
    return _WALLET_KEY.fullmatch(text.strip()) is not None


def mask_secrets(text: str) -> tuple[str, tuple[str, ...]]:
    """Return a text with every secret masked, and the secrets."""
    secrets = tuple(match.group() for match in _SECRET_PATTERN.finditer(text))
    return (_SECRET_PATTERN.sub(MASK, text), secrets) if secrets else (text, ())


def find_secret_spans(text: str) -> Iterator[tuple[int, int]]:
    """Yield start and end of each secret that is recognised by its pattern."""
    return (match.span() for match in _SECRET_PATTERN.finditer(text))


def is_placeholder(value: str) -> bool:
    """Whether a value is a placeholder: `changeme`, `your_key_here`, `sk-xxxx`."""
    return len(value) <= 200 and _PLACEHOLDER.fullmatch(value.strip()) is not None


class Secrets(Mapping[str, str]):
    """Secrets by name, for settings; the `repr` shows only names."""

    __slots__ = ("_values",)

    def __init__(self, values: Mapping[str, str]) -> None:
        self._values = dict(values)

    def __getitem__(self, name: str) -> str:
        return self._values[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._values)

    def __len__(self) -> int:
        return len(self._values)

    def __repr__(self) -> str:
        return f"Secrets({', '.join(f'{name}={MASK}' for name in self._values)})"
