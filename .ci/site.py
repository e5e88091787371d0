"""Hooks of mkdocs: pages that are made from the code, and links of pages that lead out of docs/."""

import asyncio
import inspect
import json
import logging
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import click
import typer
from aiohttp import ClientSession
from mkdocs.config.defaults import MkDocsConfig
from mkdocs.exceptions import PluginError
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page
from pymdownx.superfences import fence_code_format

from adapters.web.adapter import WebAdapter
from adapters.web.config import WebSettings
from bot import events
from bot.cli.main import COMMANDS, GROUPS
from bot.cli.variables import SettingsGroup, find_settings_groups, group_summary, list_variables
from bot.testing import ScriptedModel, running_agent

ROOT = Path(__file__).parents[1]
LOADED = re.compile(r"""<(?:script|link|img|iframe)\b[^>]*\b(?:src|href)=["']?(https?://[^\s"'>]+)""")
LINK = re.compile(r"(?<!!)\[(?P<text>(?:[^\]\n]|\n(?! *\n))*)\]\((?P<target>[^)\s]+)\)")
MODULES = ("platform", "models", "store", "prompts", "text", "testing")
COPIES = {"index.md": "README.md", "changelog.md": "CHANGELOG.md", "contributing.md": "CONTRIBUTING.md"}
NAMES = {name: copy for copy, name in COPIES.items()}
MERMAID = ROOT / "build" / "mermaid" / "package" / "dist" / "mermaid.min.js"


def on_startup(*, command: str, dirty: bool) -> None:
    """Print warnings and errors only; `--quiet` would hide warnings from the check that they fail the build, too."""
    logging.getLogger("mkdocs").setLevel(logging.WARNING)


def on_config(config: MkDocsConfig) -> MkDocsConfig:
    """Have diagrams drawn by the copy of Mermaid that `make docs` has fetched; without one they stay text."""
    if MERMAID.exists():
        fence = {"name": "mermaid", "class": "mermaid", "format": fence_code_format}
        config.mdx_configs["pymdownx.superfences"] = {"custom_fences": [fence]}
        config.extra_javascript.append(MERMAID.name)  # loaded first: the theme would take it from another host
    return config


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the pages that are made from the code, and copies of those beside docs/."""
    for page, name in COPIES.items():
        files.append(_page(config, page, (ROOT / name).read_text(encoding="utf-8")))
    if MERMAID.exists():
        files.append(File.generated(config, MERMAID.name, abs_src_path=str(MERMAID)))
    for name, text in _reference().items():
        files.append(_page(config, f"reference/{name}.md", text))
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Write a link to a file of the repository that is no page as its text, and name pages by their headings."""
    is_copy = page.file.src_uri in COPIES
    folder = Path() if is_copy else Path("docs", page.file.src_uri).parent

    def replace(link: re.Match[str]) -> str:
        target, _, anchor = link["target"].partition("#")
        if not target or "://" in target or target.startswith("mailto:"):
            return link[0]
        place = _normalise(folder / target)
        found = NAMES.get(place) or place.removeprefix("docs/")
        if not (place in NAMES or place.startswith("docs/")) and (ROOT / place).exists():
            return link["text"]
        up = "../" * page.file.src_uri.count("/")
        file = files.get_file_from_path(found)
        text = _find_title(file) if file is not None and link["text"].endswith(".md") else link["text"]
        return f"[{text}]({up}{found}{'#' if anchor else ''}{anchor})"

    text = LINK.sub(replace, markdown)
    return text.replace("](docs/images/", "](images/") if is_copy else text


def on_post_build(config: MkDocsConfig) -> None:
    """Raise PluginError if a page loads something from another host."""
    for path in Path(config.site_dir).rglob("*.html"):
        if found := LOADED.search(path.read_text(encoding="utf-8")):
            raise PluginError(f"{path.name} loads {found[1]} from another host")


def _find_title(file: File) -> str:
    """Return the heading of a page: a link that has the file's name as its text is meant for readers of the folder."""
    return next(line.removeprefix("# ") for line in file.content_string.splitlines() if line.startswith("# "))


def _page(config: MkDocsConfig, path: str, text: str) -> File:
    return File.generated(config, path, content=text)


def _normalise(path: Path) -> str:
    parts: list[str] = []
    for part in path.parts:
        if part == "..":
            parts = parts[:-1]
        elif part != ".":
            parts.append(part)
    return "/".join(parts)


def _reference() -> Mapping[str, str]:
    """Return the generated pages by name."""
    pages = {"commands": _commands(), "settings": _settings(), "http": _http_operations(), "events": _events()}
    pages["bot"] = "::: bot\n"
    return pages | {name: f"::: bot.{name}\n" for name in MODULES}


def _commands() -> str:
    lines = ["# Commands", "", "As `bot COMMAND --help` prints them."]
    for group in GROUPS:
        lines += ["", f"## {group.capitalize()}"]
        for command in COMMANDS:
            if command.group == group:
                app = command.load()
                lines += _describe_command(typer.main.get_command(app), f"bot {command.name}")
    return "\n".join(lines) + "\n"


def _describe_command(command: Any, name: str) -> Iterator[str]:
    context = click.Context(command, info_name=name, max_content_width=100)
    yield from ("", f"### {name}", "", "```text", command.get_help(context).rstrip(), "```")
    for child, found in getattr(command, "commands", {}).items():
        yield from _describe_command(found, f"{name} {child}")


def _settings() -> str:
    groups, _ = find_settings_groups()
    intro = "Variables of the environment or of `.env`. `bot settings` shows their values and where these stand."
    return "\n".join(["# Settings", "", intro, *(line for group in groups for line in _describe_group(group))]) + "\n"


def _describe_group(group: SettingsGroup) -> Iterator[str]:
    yield from ("", f"## {group.name}", "", group_summary(group.model), "")
    yield from ("| variable | default | meaning |", "|---|---|---|")
    for variable in list_variables(group.model):
        default = f"`{variable.default}`" if variable.default else ""
        yield f"| `{variable.name}` | {_cell(default)} | {_cell(variable.description)} |"


def _cell(text: str) -> str:
    return " ".join(text.replace("|", "\\|").replace("<", "&lt;").split())


def _http_operations() -> str:
    document = asyncio.run(_read_openapi())
    lines = ["# HTTP operations", "", "A running bot serves the whole document at `/api/openapi.json`."]
    for path, operations in document["paths"].items():
        for method, operation in operations.items():
            if isinstance(operation, dict) and "responses" in operation:
                lines += ["", f"## {method.upper()} {path}", "", operation.get("summary", "")]
                lines += ["", operation.get("description", "")]
                lines += _describe_parameters(operation.get("parameters", []))
    return "\n".join(lines) + "\n"


def _describe_parameters(parameters: list[Any]) -> list[str]:
    if not parameters:
        return []
    rows = [
        f"| `{item['name']}` | {item['in']} | {_cell(item.get('description', ''))} |"
        for item in parameters
        if "name" in item
    ]
    return ["", "| parameter | in | meaning |", "|---|---|---|", *rows]


async def _read_openapi() -> Any:
    """Return the document that a running bot serves."""
    token = "a-token-to-read-the-document"
    async with running_agent(model=ScriptedModel(lambda request: "")) as harness:
        handle = harness.agent_runtime.handle
        settings = WebSettings.model_validate({"SERVER_PORT": "0", "SERVER_TOKEN": token})
        async with WebAdapter([handle], settings, token) as web, ClientSession() as session:
            headers = {"Authorization": f"Bearer {token}"}
            async with session.get(f"http://127.0.0.1:{web.port}/api/openapi.json", headers=headers) as response:
                return json.loads(await response.text())


def _events() -> str:
    lines = ["# Events", "", "What a plugin can listen to with `@on(Event)`; the module is `bot.events`."]
    for name in events.__all__:
        event = getattr(events, name)
        if inspect.isclass(event) and event.__doc__:
            fields = ", ".join(f"`{field}`" for field in getattr(event, "__dataclass_fields__", {}))
            lines += ["", f"## {name}", "", inspect.cleandoc(event.__doc__), "", f"Fields: {fields}." if fields else ""]
    return "\n".join(lines) + "\n"
