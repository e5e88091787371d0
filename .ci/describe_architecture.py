"""Writes the parts of `docs/architecture.md` that are made from the code: the diagram of packages, the list of files.

`python .ci/describe_architecture.py` renews them; a test compares them with the code.
"""

import ast
import re
from collections import defaultdict
from collections.abc import Sequence
from graphlib import TopologicalSorter
from pathlib import Path

ROOT = Path(__file__).parents[1]
DOCUMENT = ROOT / "docs" / "architecture.md"
SECTIONS = re.compile(
    r"(<!-- (diagram|files): made by \.ci/describe_architecture\.py -->\n).*?(<!-- end -->)", re.DOTALL
)


def describe(document: str) -> str:
    """Return the text of the document with the diagram and the list as the code is now."""
    parts = {"diagram": draw_packages, "files": list_files}
    return SECTIONS.sub(lambda match: f"{match[1]}\n{parts[match[2]]()}\n{match[3]}", document)


def draw_packages() -> str:
    """Return the packages of `bot` as a Mermaid flowchart; an import that others imply is left out.

    The modules directly in `bot` are left out too: the public ones and the context objects import from every package.
    """
    imports: dict[str, set[str]] = defaultdict(set)
    for path in sorted((ROOT / "bot").glob("*/**/*.py")):
        imports[_package(path.relative_to(ROOT).with_suffix("").parts)] |= _imported_packages(path)
    below: dict[str, set[str]] = {}  # what each package reaches
    for package in imports:
        imports[package].discard(package)
    for package in TopologicalSorter(imports).static_order():
        below[package] = imports[package].union(*(below[target] for target in imports[package]))
    lines = ['adapters["adapters/*"] --> public["public modules of bot"]', 'plugins["plugins/*"] --> public']
    for package, targets in imports.items():
        implied = set().union(*(below[target] for target in targets))
        lines += [f"{package} --> {target}" for target in sorted(targets - implied)]
    return "\n".join(["```mermaid", "flowchart TD", *(f"    {line}" for line in lines), "```"])


def list_files() -> str:
    """Return a table for each package: its files, and the first sentence of each file's docstring."""
    tables = []
    for package in ("bot", "adapters", "plugins"):
        by_folder = defaultdict(list)
        for path in sorted((ROOT / package).rglob("*.py")):
            by_folder[path.parent].append(path)
        for folder, paths in by_folder.items():
            rows = [f"| `{path.name}` | {_summary(path)} |" for path in paths if path.name != "__init__.py"]
            if rows:
                title = folder.relative_to(ROOT).as_posix()
                init = folder / "__init__.py"
                text = f"\n{_summary(init)}\n" if init.exists() else ""
                tables.append("\n".join([f"### {title}\n{text}", "| file | what is in it |", "|---|---|", *rows]))
    return "\n\n".join(tables)


def _package(parts: Sequence[str]) -> str:
    """Return the package of a module of `bot`; the client that plugins share is above the other models."""
    return "openai_compatible" if "openai_compatible" in parts else parts[1]


def _imported_packages(path: Path) -> set[str]:
    found = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.ImportFrom) and node.module and node.module.startswith("bot."):
            parts = node.module.split(".")
            if (ROOT / "bot" / parts[1] / "__init__.py").exists():
                found.add(_package(parts))
    return found


def _summary(path: Path) -> str:
    docstring = ast.get_docstring(ast.parse(path.read_text(encoding="utf-8"))) or ""
    return docstring.split("\n\n")[0].replace("\n", " ").replace("|", "\\|")


if __name__ == "__main__":
    DOCUMENT.write_text(describe(DOCUMENT.read_text(encoding="utf-8")), encoding="utf-8")
