"""JSON requests and answers, the OpenAPI document, and the files of the pages."""

import hashlib
import json
import re
from itertools import product
from pathlib import Path
from typing import Any

import pytest
from jsonschema import Draft202012Validator
from yarl import URL

from adapters.web.json_io import HttpProblem, JsonResponder, parse_json, validate_model
from adapters.web.schemas import ErrorBody, MessageRequest


@pytest.mark.failure("N-13")
def test_a_secret_is_removed_in_every_json_spelling() -> None:
    answers = JsonResponder(['say "friend"\\', "schlüssel-1"])
    body = ErrorBody(code="x", message='the word is say "friend"\\, or schlüssel-1', request_id="1")
    assert answers.to_json(body) == ('{"code":"x","message":"the word is [redacted], or [redacted]","request_id":"1"}')


def test_the_longer_secret_is_removed_first() -> None:
    assert JsonResponder(["secret-1", "secret-1-and-more"]).redact("secret-1-and-more") == "[redacted]"


@pytest.mark.failure("N-10")
@pytest.mark.parametrize(
    "text",
    [
        "",
        "{",
        "[" * 100_000,
        '{"a":' * 100_000,
        "1" * 10_000,
        '{"a":1,"a":2}',
        '{"text":NaN}',
        '{"text":-Infinity}',
        b"\xff\xfe",
        '{"text":"\x00"}',
        "{" + ",".join(f'"{n}":1' for n in range(100_000)) + "}",
    ],
    ids=lambda text: repr(text[:12]),
)
def test_invalid_json_is_refused_with_a_short_message(text: str | bytes) -> None:
    with pytest.raises(HttpProblem) as raised:
        parse_json(text)
    assert raised.value.status == 400
    assert len(raised.value.message) < 300


@pytest.mark.failure("N-03")
@pytest.mark.parametrize(
    ("body", "named"),
    [
        ({}, "text"),
        ({"text": 1}, "text"),
        ({"text": "x", "source": "client_chat"}, "source"),
        ({"text": "x", "roles": ["OWNER"]}, "roles"),
        ({"text": "x", "room": ""}, "room"),
        ({"text": "x", "room": "a\nb"}, "room"),
        ({"text": "x", "user": "y" * 65}, "user"),
        ({"text": "x", "stream": "yes"}, "stream"),
        ({"text": "x", "idempotency_key": ""}, "idempotency_key"),
        ({"text": "x", "attachments": [{"url": "file:///etc/passwd"}]}, "attachments.0.url"),
        ({"text": "x", "attachments": [{"url": "http://a/ b"}]}, "attachments.0.url"),
        ({"text": "x", "attachments": [{"url": "https://a.example"}] * 11}, "attachments"),
        ([], "body"),
        ("x", "body"),
        ({"text": "x", "room": "\ud800"}, "room"),
    ],
)
def test_a_wrong_field_is_named(body: object, named: str) -> None:
    with pytest.raises(HttpProblem) as raised:
        validate_model(MessageRequest, body)
    assert raised.value.status == 422
    assert raised.value.message.startswith(f"{named}: ")


def test_the_first_of_many_wrong_fields_are_named() -> None:
    with pytest.raises(HttpProblem) as raised:
        validate_model(MessageRequest, {"text": "x", **{f"f{n}": 1 for n in range(900)}})
    assert raised.value.message.endswith("and 895 more")


def test_unpaired_surrogates_are_replaced() -> None:
    assert validate_model(MessageRequest, {"text": "a\ud83d"}).text == "a\ufffd"


@pytest.mark.long
async def test_every_reference_resolves(web_server: Any) -> None:
    described = await web_server.get("/api/openapi.json")
    schemas = described["components"]["schemas"]
    references = [part.split('"')[0] for part in json.dumps(described).split('"$ref": "')[1:]]
    assert references
    for reference in references:
        assert reference.removeprefix("#/components/schemas/") in schemas
    for schema in schemas.values():
        Draft202012Validator.check_schema(schema)


async def test_every_route_of_the_api_is_described(web_server: Any) -> None:
    described = (await web_server.get("/api/openapi.json"))["paths"]
    served = {resource.canonical for resource in web_server.adapter.app.router.resources()}
    assert set(described) == {path for path in served if path.startswith(("/api/", "/healthz", "/metrics"))}


async def test_the_request_schema_matches_the_validation(web_server: Any) -> None:
    schema = (await web_server.get("/api/openapi.json"))["components"]["schemas"]["MessageRequest"]
    assert "required" not in schema  # a text or attachments
    assert schema["additionalProperties"] is False
    assert set(schema["properties"]) == {"text", "room", "user", "idempotency_key", "stream", "attachments"}


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
