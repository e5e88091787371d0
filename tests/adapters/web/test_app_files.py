import re
from itertools import product
from pathlib import Path
from typing import Any

import pytest
from yarl import URL


async def test_pages_are_not_cached_and_files_are_revalidated(web_server: Any) -> None:
    page = await web_server.request("GET", "/", headers=web_server.bearer)
    assert (page.status, page.content_type, page.charset) == (200, "text/html", "utf-8")
    assert page.headers["Cache-Control"] == "no-store"
    script = await web_server.request("GET", "/pages/js/api.js", headers=web_server.bearer)
    assert script.content_type == "text/javascript"
    again = await web_server.request(
        "GET", "/pages/js/api.js", headers={**web_server.bearer, "If-None-Match": script.headers["ETag"]}
    )
    assert (again.status, await again.read()) == (304, b"")


LINK = r'(?:src|href)="([^"#][^"]*)"'


def own_files(pages: Path) -> list[Path]:
    """Return the text files of the pages that are not a library's."""
    files = (path for path in pages.rglob("*") if path.suffix in {".html", ".js", ".css", ".svg"})
    return [path for path in files if "vendor" not in path.relative_to(pages).parts]


def referenced_files(pages: Path) -> set[str]:
    """Return every URL that the pages and scripts refer to; those of pages are relative to the root."""
    addresses = set()
    for path in own_files(pages):
        text = path.read_text()
        folder = URL(f"http://test/pages/{path.parent.relative_to(pages).as_posix()}/")
        if path.suffix == ".html":
            addresses |= {URL("http://test/").join(URL(link)) for link in re.findall(LINK, text)}
        if path.suffix == ".js":
            addresses |= {folder.join(URL(name)) for name in re.findall(r'(?:from|import) *\(?"(\.[^"]+)"', text)}
    return {address.path for address in addresses}


async def test_every_referenced_file_is_served(web_server: Any, pages: Path) -> None:
    addresses = referenced_files(pages)
    assert len(addresses) > 6
    for address in addresses:
        assert (await web_server.request("GET", address, headers=web_server.bearer)).status == 200, address


@pytest.mark.parametrize(
    ("path", "base"), [("/", "./"), ("/c/1", "../"), ("/console", "./"), ("/console/receipts/1", "../../")]
)
async def test_a_page_finds_its_files_behind_any_prefix(web_server: Any, path: str, base: str) -> None:
    page = await web_server.request("GET", path, headers=web_server.bearer)
    assert f'<head>\n<base href="{base}">' in await page.text()


UP = ("..", "%2e%2e", ".%2e", "%2e.", "..;", "%252e%252e", "..%00", "%c0%ae%c0%ae", "....", "\\..")
BETWEEN = ("/", "%2f", "%5c", "\\", "//", "%252f", "%c0%af")
ELSEWHERE = ("guards.py", "pages/index.html", "etc/passwd", "server-token", ".git/config", ".env")
STRAY = (
    *("", ".", "..", "/etc/passwd", "%2fetc%2fpasswd", "C:%5cboot.ini", "file:%2f%2f%2fetc%2fpasswd", ".env"),
    *("theme.js%00", "theme.js%00.html", "theme.js.", "theme.js%20", "theme.js/", "THEME.JS", "theme.js::$DATA"),
    *("theme.js~", ".theme.js.swp", "index.html", "js", "__pycache__", "js/api.js%2f..%2fstream.js", "theme%2ejs%3f"),
)


@pytest.mark.long
@pytest.mark.failure("M-06")
async def test_only_the_listed_files_are_served(web_server: Any) -> None:
    climbs = [
        f"{between.join([up] * times)}{between}{name}"
        for up, between, times, name in product(UP, BETWEEN, (1, 4), ELSEWHERE)
    ]
    found = set()
    for path in (*STRAY, *climbs[::3]):
        url = URL(f"{web_server.origin}/pages/{path}", encoded=True)
        answer = await web_server.session.get(url, headers=web_server.bearer, allow_redirects=False)
        assert answer.status == 404, path
        error = (await answer.json())["error"]
        found.add((error["code"], error["message"], answer.headers["Content-Length"]))
    assert len(found) == 1


RANGES = ("bytes=0-0", "bytes=-1", "bytes=5-1", "bytes=0-,0-,0-", "bytes=" + "0-0," * 1500, "lines=1-2")


@pytest.mark.failure("M-06")
async def test_range_requests_get_the_whole_file(web_server: Any) -> None:
    whole = await web_server.request("GET", "/pages/js/api.js", headers=web_server.bearer)
    body = await whole.read()
    for ranges in RANGES:
        part = await web_server.request("GET", "/pages/js/api.js", headers={**web_server.bearer, "Range": ranges})
        assert (part.status, await part.read()) == (200, body), ranges


@pytest.mark.failure("N-12")
def test_the_pages_obey_the_content_security_policy(pages: Path) -> None:
    for path in own_files(pages):
        text = path.read_text()
        assert not re.search(r"\bstyle=|\bon\w+=\"|<style|javascript:", text), path.name
        assert not re.search(r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|\beval\(", text), path.name
        for script in re.findall(r"<script[^>]*>", text):
            assert "src=" in script
        outside = re.sub(r'xmlns="http://www.w3.org/2000/svg"', "", text)
        assert not re.search(r"(?:src|href|url\(|import|from)[=\s(\"']*https?://", outside), path.name
