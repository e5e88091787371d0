import re
from pathlib import Path
from typing import Any

import pytest


async def test_a_page_may_not_be_kept_and_its_files_are_asked_for_again(house: Any) -> None:
    page = await house.request("GET", "/", headers=house.bearer)
    assert (page.status, page.content_type, page.charset) == (200, "text/html", "utf-8")
    assert page.headers["Cache-Control"] == "no-store"
    script = await house.request("GET", "/pages/chat.js", headers=house.bearer)
    assert script.content_type == "text/javascript"
    again = await house.request(
        "GET", "/pages/chat.js", headers={**house.bearer, "If-None-Match": script.headers["ETag"]}
    )
    assert (again.status, await again.read()) == (304, b"")


def named(pages: Path) -> set[str]:
    """Every address that a page or a script of ours asks for."""
    found = set()
    for path in pages.iterdir():
        text = path.read_text()
        found |= set(re.findall(r'(?:src|href)="(/[^"]*)"', text))
        found |= {f"/pages/{name}" for name in re.findall(r'from "\./([^"]+)"', text)}
    return found


async def test_everything_a_page_names_is_served(house: Any, pages: Path) -> None:
    addresses = named(pages)
    assert len(addresses) > 6
    for address in addresses:
        assert (await house.request("GET", address, headers=house.bearer)).status == 200, address


@pytest.mark.parametrize("path", ["../adapter.py", "..%2fadapter.py", "%2e%2e/adapter.py", "/etc/passwd", ""])
async def test_nothing_else_is_served(house: Any, path: str) -> None:
    assert (await house.request("GET", f"/pages/{path}", headers=house.bearer)).status == 404


def test_the_pages_keep_to_the_policy(pages: Path) -> None:
    for path in pages.iterdir():
        text = path.read_text()
        assert not re.search(r"\bstyle=|\bon\w+=\"|<style|javascript:", text), path.name
        assert not re.search(r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|\beval\(", text), (
            path.name
        )
        for script in re.findall(r"<script[^>]*>", text):
            assert "src=" in script
        outside = re.sub(r'xmlns="http://www.w3.org/2000/svg"', "", text)
        assert not re.search(r"(?:src|href|url\(|import|from)[=\s(\"']*https?://", outside), path.name
