"""The libraries of the web pages are those that the manifest names."""

import hashlib
import json
import re
from pathlib import Path
from typing import Any

import pytest

PAGES = Path(__file__).parents[3] / "adapters" / "web" / "pages"
VENDOR = PAGES / "vendor"
BUDGET = 120 * 1024  # bytes of the first load of either part, uncompressed
IMPORT = re.compile(r'(?:from|^import) "(\.[^"]+)"', re.MULTILINE)


@pytest.fixture
def manifest() -> list[dict[str, Any]]:
    entries: list[dict[str, Any]] = json.loads((VENDOR / "manifest.json").read_text())
    return entries


def test_every_library_has_the_hash_of_the_manifest(manifest: list[dict[str, Any]]) -> None:
    for entry in manifest:
        assert hashlib.sha256((VENDOR / entry["file"]).read_bytes()).hexdigest() == entry["sha256"], entry["file"]


def test_every_library_has_a_version_and_the_text_of_its_licence(manifest: list[dict[str, Any]]) -> None:
    for entry in manifest:
        assert re.fullmatch(r"\d+\.\d+\.\d+", entry["version"]), entry["file"]
        assert entry["licence"], entry["file"]
        assert len((VENDOR / entry["licence_file"]).read_text()) > 500, entry["file"]


def test_no_file_of_the_folder_is_missing_in_the_manifest(manifest: list[dict[str, Any]]) -> None:
    known = {entry[name] for entry in manifest for name in ("file", "licence_file")}
    assert {path.name for path in VENDOR.iterdir()} == known | {"manifest.json"}


def loaded_files(page: Path) -> set[Path]:
    """Return the files that a page needs before it is complete: its links, its scripts and what they import."""
    found = {
        PAGES / name.removeprefix("pages/") for name in re.findall(r'(?:src|href)="(pages/[^"]+)"', page.read_text())
    }
    waiting = [path for path in found if path.suffix == ".js"]
    while waiting:
        script = waiting.pop()
        for name in IMPORT.findall(script.read_text()):
            path = (script.parent / name).resolve()
            if path not in found:
                found.add(path)
                waiting.append(path)
    return found | {page, PAGES / "icons.svg"}


@pytest.mark.parametrize("name", ["index.html", "console.html", "signin.html"])
def test_the_first_load_of_a_page_stays_within_its_budget(name: str) -> None:
    sizes = {path.name: path.stat().st_size for path in loaded_files(PAGES / name)}
    assert sum(sizes.values()) <= BUDGET, sorted(sizes.items(), key=lambda item: -item[1])
