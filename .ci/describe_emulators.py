"""Writes the tables of `docs/testing-other-bots.md`: what each emulator answers of what its platform documents.

`PYTHONPATH=. python .ci/describe_emulators.py` renews them. DISCORD_API_DESCRIPTION, TELEGRAM_API_DESCRIPTION and
X_API_DESCRIPTION are the paths of the descriptions, as for the tests; they are not part of the repository.
"""

import json
import os
import re
import sys
from collections import Counter
from pathlib import Path
from typing import Any

from adapters.discord.emulator import Emulator as Discord
from adapters.farcaster.emulator import Emulator as Farcaster
from adapters.mastodon.emulator import Emulator as Mastodon
from adapters.matrix.emulator import Homeserver
from adapters.telegram.emulator import Emulator as Telegram
from adapters.x.emulator import Emulator as X

DOCUMENT = Path(__file__).parents[1] / "docs" / "testing-other-bots.md"
SECTION = re.compile(r"(<!-- endpoints: made by \.ci/describe_emulators\.py -->\n).*?(<!-- end -->)", re.DOTALL)
ENDPOINTS = {
    name: [item.replace("/api/v10/", "/", 1) for item in emulator().endpoints()]
    for name, emulator in {
        "Discord": Discord,
        "Telegram": Telegram,
        "X": X,
        "Farcaster": Farcaster,
        "Mastodon": Mastodon,
        "Matrix": Homeserver,
    }.items()
}
VARIABLES = {name: f"{name.upper()}_API_DESCRIPTION" for name in ("Discord", "Telegram", "X")}


def describe(document: str) -> str:
    """Return the text of the document with its tables renewed. Raises KeyError if there is no description."""
    tables = "\n\n".join(_table(name, endpoints) for name, endpoints in ENDPOINTS.items())
    return SECTION.sub(lambda match: f"{match[1]}\n{tables}\n\n{match[2]}", document)


def _table(name: str, endpoints: list[str]) -> str:
    described, source = _read_description(name)
    if not source:
        return "\n".join([f"### {name}", "", "| endpoint |", "|---|", *(f"| `{endpoint}` |" for endpoint in endpoints)])
    names = [described.pop(_without_names(endpoint), "") for endpoint in endpoints]
    rows = [f"| `{item}` | {operation or 'not described'} |" for item, operation in zip(endpoints, names, strict=True)]
    coverage = _coverage(source, described, sum(map(bool, names)))
    return "\n".join([f"### {name}", "", coverage, "", "| endpoint | operation |", "|---|---|", *rows])


def _coverage(source: str, missing: dict[str, str], covered: int) -> str:
    parts = Counter(re.sub(r"^\w+ (/2)?/?", "", key).partition("/")[0] for key in missing if "/" in key)
    listed = ", ".join(f"`{part}` {count}" for part, count in parts.most_common())
    where = f", by the first part of the path: {listed}" if listed else ""
    return f"{covered} of {covered + len(missing)} operations of {source}. {len(missing)} are not covered{where}."


def _read_description(name: str) -> tuple[dict[str, str], str]:
    """Return what a platform documents, by endpoint without names of parameters, and the title of its description."""
    if name not in VARIABLES:
        return {}, ""
    document: dict[str, Any] = json.loads(Path(os.environ[VARIABLES[name]]).read_text(encoding="utf-8"))
    if "methods" in document:
        methods = {method: f"[{method}]({item['href']})" for method, item in document["methods"].items()}
        return methods, document["version"]
    operations = {
        _without_names(f"{method.upper()} {path}"): f"`{operation['operationId']}`"
        for path, item in document["paths"].items()
        for method, operation in item.items()
        if isinstance(operation, dict) and "operationId" in operation
    }
    return operations, f"{document['info']['title']}, version {document['info']['version']}"


def _without_names(endpoint: str) -> str:
    return re.sub(r"\{[^}]*\}|(?<=/):\w+", "{}", endpoint)


if __name__ == "__main__":
    try:
        DOCUMENT.write_text(describe(DOCUMENT.read_text(encoding="utf-8")), encoding="utf-8")
    except KeyError as variable:
        sys.exit(f"{variable} is not set: the path of the platform's published description")
