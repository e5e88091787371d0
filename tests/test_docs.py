"""The documents: their Python code runs, their transcripts are correct, their variables exist."""

import ast
import json
import re
import runpy
import shlex
import shutil
import subprocess
import sys
from collections.abc import Awaitable, Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import click
import pytest
import typer

from bot import ChannelType, ChoiceRequest, Effect, Outcome, Plugin, RouteRequest, SettingError, Task, new_id
from bot.characters import parse_character
from bot.cli.main import app, entry
from bot.cli.variables import find_settings_groups, list_variables
from bot.events import event_class
from bot.models import ModelType, Purpose, TextRequest, Tool, ToolCall
from bot.platform import ChoiceSelection, CommandInvocation, UploadedFile
from bot.plugin_system import WebhookSignature
from bot.plugin_system.loading import find_plugin, plugin_names
from bot.testing import AgentHarness, ScriptedModel, check_plugin_contract, make_message, model_answer, running_agent
from bot.text import user_text
from tests.doc_blocks import PLUGIN, ROOT, Block, find_blocks, write_blocks
from tests.plugins.loopback import Sink

DOCS = (ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md")))
# Tests of their own follow these from the first line to the last.
FOLLOWED = frozenset({"tutorial.md", "scenes.md"})
QUOTED = re.compile(r"`([A-Z][A-Z0-9]*(?:_[A-Z0-9]+)+)(?:=[^`]*)?`")
ASSIGNED = re.compile(r"^(?:# )?([A-Z][A-Z0-9]*(?:_[A-Z0-9]+)+)=", re.MULTILINE)
PLACE = re.compile(r"`((?:bot|adapters|plugins|tests|requirements)/[\w/.]*)(?::([\w.]+))?`")
COMMAND = re.compile(r"`(make|\.venv/bin/pytest|\.venv/bin/python -m) ([^`]+)`")
LINK = re.compile(r"\]\((?P<file>[\w./-]*)(?:#(?P<anchor>[\w-]+))?\)")
HEADING = re.compile(r"^#+ (.+)$", re.MULTILINE)
NOT_SETTINGS = frozenset(
    {"UPPER_SNAKE", "AWAITING_CHOICE", "BOT_KILL_AT", "MAX_IMAGE_PIXELS", "O_NOFOLLOW", "SQLITE_BUSY"}
    | {"CHARACTER_SETTINGS", "BENCH_VECTORS", "RECALL_DATA"}  # of a settings model, and of the benchmarks
    | {f"TWITTER_{name}" for name in ("API_KEY", "API_SECRET_KEY", "ACCESS_TOKEN", "ACCESS_TOKEN_SECRET")}  # of elizaOS
    | {f"OTEL_{name}" for name in ("EXPORTER_OTLP_COMPRESSION", "EXPORTER_OTLP_TIMEOUT", "BSP_MAX_QUEUE_SIZE")}
    | {"OTEL_ATTRIBUTE_VALUE_LENGTH_LIMIT"}  # of the SDK of OpenTelemetry
    | {"LC_ALL", "LC_MESSAGES", "PGLITE_DATA_DIR", "SOURCES_KEY"}  # of the locale, and in the metadata of a result
    | {"CALL_A_PERSON"}  # of bootstrap, where it is registered
)
SHOWN = re.compile(r"`bot ([a-z][^`\n]*)`|^(?:\$ )?(?:[A-Z_]+=\S+ )*(?:\.venv/bin/)?bot ([a-z].*)$", re.MULTILINE)
CHECKED = ("bot character check", "bot plugin new", "bot plugin check")


BLOCKS = [block for doc in DOCS for block in find_blocks(doc)]
PYTHON = [block for block in BLOCKS if block.kind == "python"]
PLUGINS = {
    block.file.removesuffix(".py"): block
    for block in PYTHON
    if PLUGIN.search(block.body) and block.doc.name != "cookbook.md"  # tests/test_cookbook.py runs those
}
Check = Callable[[AgentHarness], Awaitable[None]]


async def _check_roll(harness: AgentHarness) -> None:
    await harness.send("Roll three dice!")
    assert re.fullmatch(r"Rolled: [1-6], [1-6], [1-6]\.", harness.texts[0])


async def _check_lend(harness: AgentHarness) -> None:
    receipt = await harness.send("May I borrow Emma?", author="Alice")
    assert receipt.outcome is Outcome.ANSWERED
    assert harness.texts == ["Emma is lent to Alice for 14 days, and stamped."]
    assert "- Emma: here" in harness.model.requests_for(Purpose.REPLY)[0].prompt


async def _check_count(harness: AgentHarness) -> None:
    await harness.send("Hello")
    await harness.agent_runtime.inbox.drain(5)
    [route] = harness.agent_runtime.handle.routes
    response = await route.handle(RouteRequest("GET", route.path))
    assert response.json == {"guests": 1, "messages": 1}


async def _check_press(harness: AgentHarness) -> None:
    routes = {route.path: route for route in harness.agent_runtime.handle.routes}
    files = (UploadedFile("file", "fox.png", "image/png", b"png"),)
    upload = RouteRequest("POST", "/pictures", form={"title": "A fox"}, files=files)
    assert (await routes["/pictures"].handle(upload)).json == {"stored": ["fox.png"]}
    for name, status in (("fox.png", 200), ("owl.png", 404)):
        request = RouteRequest("GET", f"/pictures/{name}", parameters={"name": name})
        assert (await routes["/pictures/{name}"].handle(request)).status == status
    body = b'{"status": "green"}'
    signed = WebhookSignature("", prefix="sha256=").sign("a-secret-of-the-press", body)
    for signature, status in ((signed, 202), ("sha256=0", 401)):
        headers = {"X-Hub-Signature-256": signature}
        assert (
            await routes["/builds"].handle(RouteRequest("POST", "/builds", headers=headers, body=body))
        ).status == status
    events = (await routes["/news"].handle(RouteRequest("GET", "/news"))).events
    assert events is not None
    stream = aiter(events)
    assert [(await anext(stream)).data["line"] for _ in range(2)] == ["fox.png: A fox", "green"]
    await stream.aclose()  # it is a generator


async def _check_tide(harness: AgentHarness) -> None:
    [task] = await harness.agent.store.tasks.tasks(name="READ_TIDES")
    await harness.agent_runtime.registry.workers[task.name](harness.agent, task)
    await harness.send("How high is the water?")
    assert harness.texts == ["1.2 m."]
    assert "The water stands at 1.2 m." in harness.model.requests_for(Purpose.REPLY)[1].prompt


async def _check_flip(harness: AgentHarness) -> None:
    place = make_message("", sent_at=harness.agent.clock())
    here = (place.world, place.room, place.author)
    flipped = await harness.agent_runtime.handle.run_command(
        CommandInvocation("flip", *here, "1", harness.agent.clock(), text="3")
    )
    assert re.fullmatch(r"(heads|tails)(, (heads|tails)){2}", flipped.text)
    await harness.send("Hello")
    await harness.agent_runtime.handle.run_command(CommandInvocation("bet", *here, "2", harness.agent.clock()))
    [task] = await harness.agent.store.tasks.tasks(name="FLIP")
    value = ChoiceRequest.from_metadata(task.metadata).choices(task.id)[0].value
    shown = await harness.agent_runtime.handle.select_choice(ChoiceSelection(*here, value, "3", harness.agent.clock()))
    assert shown.text == "Chosen: heads."
    assert (await harness.adapter.wait_until_sent(3))[1] == "Heads or tails?\n1. heads\n2. tails"


async def _check_repeat(harness: AgentHarness) -> None:
    await harness.send("Half past <two>")
    assert harness.texts == ["Half past <two>"]
    assert not harness.model.requests


async def _check_spell(harness: AgentHarness) -> None:
    request = TextRequest("Say Kraa.", tools=(Tool("FLAP", "Flap.", {}), Tool("PECK", "Peck.", {})))
    shown = Sink()
    result = await harness.agent.models.text(replace(request, sink=shown))
    assert shown.seen == ["K", "r", "a", "a", "."]
    assert (result.text, result.tool_calls) == ("Kraa.", (ToolCall("FLAP", {}),))


async def _check_three_lines(harness: AgentHarness) -> None:
    await harness.send("Hello")
    assert "in three short lines" in harness.model.requests_for(Purpose.REPLY)[0].prompt


async def _check_owed(harness: AgentHarness) -> None:
    await harness.send("The round was on me")
    await harness.send("Who owes what?")
    assert "- Alice: 450" in harness.model.requests[-1].prompt


async def _check_builds(harness: AgentHarness) -> None:
    await harness.send("Hello")
    [route] = harness.agent_runtime.handle.routes
    body = {"platform": "test", "channel": "lobby", "build": "build-7"}
    for channel, status in (("lobby", 202), ("lobby", 202), ("other", 404)):
        request = RouteRequest("POST", route.path, body=json.dumps(body | {"channel": channel}).encode())
        assert (await route.handle(request)).status == status
    assert await harness.adapter.wait_until_sent(2) == ["Hello.", "I saw it."]
    [room] = await harness.agent.store.worlds.rooms()
    task = Task(new_id(), "BUILD_DIGEST", harness.agent.clock(), room_id=room.id)
    await harness.agent_runtime.registry.workers[task.name](harness.agent, task)
    assert await harness.adapter.wait_until_sent(3) == ["Hello.", "I saw it.", "One build failed."]
    assert "# Failed builds\nbuild-7" in harness.model.requests[-1].prompt
    assert "RESTART_BUILD" in [spec.name for spec in harness.agent.catalog.actions]
    assert [spec.name for spec in harness.agent.catalog.component_types] == ["ON_CALL"]


async def _check_jar(harness: AgentHarness) -> None:
    for text in ("We could fly a kite", "Draw one"):
        await harness.send(text)
    assert harness.texts == ["It is in.", "The jar says: fly a kite!"]


async def _check_digest(harness: AgentHarness) -> None:
    await harness.send("Hello")
    [room], settings = await harness.agent.store.worlds.rooms(), harness.agent.world_settings
    for value, note in (("7", "The digest comes at 7:00 from tomorrow on."), ("", "There is no digest any more.")):
        assert await settings.change(room.world_id, "DIGEST_HOUR", value, actor=None, source="a test") == note
    with pytest.raises(SettingError, match="DIGEST_HOUR: an hour from 0 to 23"):
        await settings.change(room.world_id, "DIGEST_HOUR", "24", actor=None, source="a test")


async def _check_numbers(harness: AgentHarness) -> None:
    receipt = await harness.send("Ada, I am at 0171 1234567", kind=ChannelType.GROUP)
    assert "filter HIDE_PHONE_NUMBERS replaced the text: it had a phone number" in receipt.notes
    assert "I am at [phone number]" in harness.model.requests[-1].prompt
    assert "filter HOLD_PHONE_NUMBERS held the text: it has a phone number" in receipt.notes


CHECKS: dict[str, tuple[Check, list[str]]] = {
    "phone_numbers": (_check_numbers, [model_answer("Call 030 7654321.")]),
    "digest": (_check_digest, [model_answer("Hello.")]),
    "jar": (
        _check_jar,
        [
            model_answer(actions=["ADD_IDEA"], parameters={"idea": "fly a kite"}),
            model_answer("It is in."),
            model_answer(actions=["DRAW_IDEA"]),
        ],
    ),
    "dice": (_check_roll, [model_answer(actions=["ROLL_DICE"], parameters={"dice": 3})]),
    "library": (
        _check_lend,
        [model_answer(actions=["LEND_BOOK", "STAMP_BOOK"], parameters={"LEND_BOOK": '{"title": "emma"}'})],
    ),
    "guestbook": (_check_count, [model_answer("Hello.")]),
    "press": (_check_press, []),
    "tides": (_check_tide, [model_answer(providers=["TIDES"]), model_answer("1.2 m.")]),
    "coin": (_check_flip, [model_answer("Hello.")]),
    "parrot": (_check_repeat, [model_answer("not I")]),
    "slow_parrot": (_check_spell, [model_answer("not I")]),
    "tally": (
        _check_owed,
        [
            model_answer("Noted.", actions=["NOTE_DEBT", "REPLY"], parameters={"NOTE_DEBT": '{"cents": 450}'}),
            model_answer("Alice, 4.50."),
        ],
    ),
    "builds": (_check_builds, [model_answer("Hello."), model_answer("I saw it."), "One build failed."]),
    "haiku": (_check_three_lines, [model_answer("One.")]),
}


def test_every_documented_plugin_is_tested() -> None:
    assert set(PLUGINS) == set(CHECKS)


@pytest.mark.matrix(3)
@pytest.mark.parametrize("name", sorted(PLUGINS))
async def test_a_documented_plugin_works(name: str, tmp_path: Path) -> None:
    write_blocks(tmp_path, [PLUGINS[name]])
    plugin = find_plugin(f"./{name}", tmp_path)
    assert plugin is not None
    check, script = CHECKS[name]
    settings = {
        "LIBRARY_BOOKS": "Kim, Emma",
        "PARROT_SPELLS": "yes",
        "PRESS_SECRET": "a-secret-of-the-press",
        "BOT_DATA_DIR": str(tmp_path / "data"),
    }
    async with running_agent(plugin, model=ScriptedModel(script), settings=settings) as harness:
        await check(harness)


@pytest.mark.matrix(3)
@pytest.mark.parametrize("name", sorted(PLUGINS))
async def test_a_documented_plugin_obeys_the_contract_of_all_plugins(name: str, tmp_path: Path) -> None:
    write_blocks(tmp_path, [PLUGINS[name]])
    plugin = find_plugin(f"./{name}", tmp_path)
    assert plugin is not None
    results = await check_plugin_contract(plugin, {"LIBRARY_BOOKS": "Kim", "PRESS_SECRET": "a-secret-of-the-press"})
    assert [result for result in results if result.problems or result.skipped] == []


@pytest.mark.matrix(1)
@pytest.mark.parametrize("doc", DOCS, ids=lambda doc: doc.name)
def test_documented_files_and_their_tests_run(doc: Path, tmp_path: Path) -> None:
    blocks = [block for block in PYTHON if block.doc == doc and doc.name not in FOLLOWED]
    write_blocks(tmp_path, blocks)
    files = [str(path) for path in tmp_path.rglob("test_*.py")]
    if not files:
        for block in blocks:
            compile(block.body, block.file, "exec")
        return
    _run_plain_pytest(tmp_path, files)


@pytest.mark.long
def test_copied_examples_pass_their_tests_without_settings_of_pytest(tmp_path: Path) -> None:
    tests = sorted((ROOT / "examples").glob("test_*.py"))
    others = re.compile(rf"^(?:from|import) (?:{'|'.join(test.stem.removeprefix('test_') for test in tests)})\b", re.M)
    for test in tests:
        example = test.with_name(test.name.removeprefix("test_"))
        assert not others.search(example.read_text()), f"{example.name} needs another example"
        (tmp_path / example.stem).mkdir()
        for file in (test, example):
            shutil.copy(file, tmp_path / example.stem)
    _run_plain_pytest(tmp_path, ["."])


def _run_plain_pytest(folder: Path, files: Sequence[str]) -> None:
    """Run tests as their reader does, in a folder that has nothing else."""
    command = [sys.executable, "-m", "pytest", "-q", "-W", "error", "-p", "no:cacheprovider", *files]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert " passed" in done.stdout


@pytest.mark.parametrize(
    "block",
    [code_block for code_block in BLOCKS if code_block.kind == "json"],
    ids=lambda code_block: code_block.doc.name,
)
def test_documented_json_is_valid(block: Block) -> None:
    read = json.loads(block.body)
    if "name" in read:
        parse_character(block.body)


@pytest.mark.parametrize("doc", DOCS, ids=lambda doc: doc.name)
def test_transcripts_match_the_commands(
    doc: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    for block in () if doc.name in FOLLOWED else find_blocks(doc):
        if block.kind in ("json", "text") and block.file.endswith(".json"):
            (tmp_path / block.file).write_text(block.body, encoding="utf-8")
        if block.kind != "console":
            continue
        for piece in block.body.split("$ ")[1:]:
            command, _, shown = piece.partition("\n")
            assert command.startswith(CHECKED), f"mark it ```text, or have it checked: {command}"
            entry(shlex.split(command)[1:])
            captured = capsys.readouterr()
            assert captured.out + captured.err == shown


def _names_of(command: Any) -> set[str]:
    """Return the options of a command of the terminal, and the commands in its group."""
    options = {name for parameter in command.params for name in (*parameter.opts, *parameter.secondary_opts)}
    return options | set(getattr(command, "commands", ())) | {"--help", "-h"}


@pytest.mark.parametrize("doc", DOCS, ids=lambda doc: doc.name)
def test_every_shown_command_exists_with_its_options(doc: Path) -> None:
    commands = typer.main.get_command(app)
    context = click.Context(commands)
    for shown in SHOWN.finditer(doc.read_text(encoding="utf-8")):
        name, *words = re.sub(r"\s#.*|\s[|>&] .*|[\[\]…\\]", "", shown[1] or shown[2]).split()
        command = commands.get_command(context, name)
        assert command is not None, f"{doc.name}: bot {name}"
        known = _names_of(command)
        children = getattr(command, "commands", {})
        if children and words and not words[0].startswith("-"):
            assert set(words[0].split("|")) <= known, shown[0]
            known |= _names_of(children[words[0].split("|")[0]])
        options = {re.split("[=|]", word)[0] for word in words if re.match(r"--?[a-z]", word)}
        assert options <= known, f"{doc.name}: {shown[0]}: {options - known}"


def _list_commands(command: Any, name: str) -> Iterator[str]:
    """Yield the names of a command and of those in its group, without the group itself if it does nothing."""
    children = {child: command.get_command(click.Context(command), child) for child in getattr(command, "commands", ())}
    if not children or command.invoke_without_command:
        yield name
    for child, found in children.items():
        yield from _list_commands(found, f"{name} {child}")


def test_the_table_of_commands_is_complete() -> None:
    commands = typer.main.get_command(app)
    context = click.Context(commands)
    names = {
        name
        for child in commands.list_commands(context)
        for name in _list_commands(commands.get_command(context, child), child)
    }
    text = (ROOT / "docs" / "operating.md").read_text(encoding="utf-8")
    table = text.partition("## Every command")[2].partition("\n\n| exit code")[0]
    shown = set()
    for command in re.findall(r"`bot ([^`]*)`", table):
        group, *words = command.replace("\\", "").split()
        shown |= {group, *(f"{group} {word}" for word in (words[0].split("|") if words else ()))}
    assert names - shown == set()


def _known_names() -> frozenset[str]:
    groups, _ = find_settings_groups()
    names = {known_plugin.name for group in groups for known_plugin in list_variables(group.model)}
    names |= {str(known_plugin) for kind in (ModelType, ChannelType, Effect) for known_plugin in kind}
    plugins = [adapters for name in plugin_names() if (adapters := find_plugin(name)) is not None]
    names |= {name for plugin in plugins for name in _component_names(plugin)}
    return frozenset(names)


def _component_names(plugin: Plugin) -> Iterator[str]:
    yield from (component.spec.name for component in (*plugin.actions, *plugin.providers, *plugin.evaluators))
    yield from (component.name for component in plugin.workers)
    yield from (simile for component in plugin.actions for simile in component.spec.similes)


def _is_event(name: str) -> bool:
    try:
        return event_class(name) is not None
    except (KeyError, LookupError, ValueError):
        return False


def _own_text(doc: Path) -> str:
    """Return a document without the names of elizaOS, which are in the first column of its tables."""
    text = doc.read_text(encoding="utf-8")
    return re.sub(r"^\| .*? \|", "|", text, flags=re.MULTILINE) if doc.name == "elizaos-names.md" else text


def test_every_mentioned_variable_exists() -> None:
    shown = {match.upper() for block in PYTHON for match in re.findall(r"^    (\w+): ", block.body, re.MULTILINE)}
    shown |= {match for block in PYTHON for match in re.findall(r'@\w+\(\s*"([A-Z_]+)"', block.body)}
    known = _known_names() | shown | NOT_SETTINGS
    wrong = [
        f"{doc.name}: {name}"
        for doc in DOCS
        for pattern in (QUOTED, ASSIGNED)
        for name in pattern.findall(_own_text(doc))
        if name not in known and not _is_event(name)
    ]
    assert not wrong


def _defined_names(path: Path) -> set[str]:
    """Return the functions and classes of a module, and the methods of its classes as `Class.method`."""
    kinds = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)
    nodes = [node for node in ast.parse(path.read_text(encoding="utf-8")).body if isinstance(node, kinds)]
    classes = [node for node in nodes if isinstance(node, ast.ClassDef)]
    methods = {f"{node.name}.{item.name}" for node in classes for item in node.body if isinstance(item, kinds)}
    return {node.name for node in nodes} | methods


@pytest.mark.long
@pytest.mark.parametrize("doc", [ROOT / "docs" / "security.md", ROOT / "CONTRIBUTING.md"], ids=lambda doc: doc.name)
def test_every_file_and_function_that_is_named_exists(doc: Path) -> None:
    named = {(match[1], match[2] or "") for match in PLACE.finditer(doc.read_text(encoding="utf-8"))}
    missing = {path for path, _ in named if not (ROOT / path).exists()}
    missing |= {
        f"{path}:{name}"
        for path, name in named
        if name and path not in missing and name not in _defined_names(ROOT / path)
    }
    assert named
    assert not missing


def test_every_command_of_the_tables_of_attacks_can_be_run() -> None:
    commands = COMMAND.findall((ROOT / "docs" / "security.md").read_text(encoding="utf-8"))
    targets = re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE)
    assert {program for program, _ in commands} == {"make", ".venv/bin/pytest", ".venv/bin/python -m"}
    for program, words in commands:
        arguments = words.split()
        if program == "make":
            assert arguments[0] in targets, words
        elif program == ".venv/bin/pytest":
            assert all((ROOT / path).exists() for path in arguments if not path.startswith("-")), words
        else:
            module = ROOT / arguments[0].replace(".", "/")
            assert module.with_suffix(".py").exists() or (module / "__main__.py").exists(), words


def test_the_page_of_the_http_api_names_every_operation_once() -> None:
    page = (ROOT / "docs" / "http-api.md").read_text(encoding="utf-8")
    named = list(_named_operations(page.partition("## Operations")[2].partition("\n## ")[0]))
    snapshot = ROOT / "tests" / "contracts" / "snapshots" / "openapi.json"
    paths = json.loads(snapshot.read_text(encoding="utf-8"))["paths"]
    assert sorted(named) == sorted((path, method.upper()) for path, methods in paths.items() for method in methods)


def _named_operations(table: str) -> Iterator[tuple[str, str]]:
    """Yield path and method of the operations in the first column of a table; "…" is a path up to its last part."""
    for cell in re.findall(r"^\| (`.+?`) \|", table, re.MULTILINE):
        methods, path = list[str](), ""
        for method, part in re.findall(r"`([A-Z]+)? ?([^` ]*)`", cell):
            if method:
                methods = [*methods, method] if not path else [method]
            if part:
                path = part.replace("…", path.rpartition("/")[0])
                yield from ((path, name) for name in methods if not path.startswith("/plugins/"))


@pytest.mark.parametrize("before", ["the room reads ", "says that an action is under way (", "the result after "])
def test_the_progress_message_is_quoted_as_it_is(before: str) -> None:
    pages = "".join(doc.read_text(encoding="utf-8") for doc in DOCS)
    assert set(re.findall(f'{re.escape(before)}"([^"]*)"', pages)) == {user_text("actions.under_way")}


def test_the_site_has_every_page_once() -> None:
    site = (ROOT / "mkdocs.yml").read_text(encoding="utf-8")
    for page in sorted((ROOT / "docs").rglob("*.md")):
        name = page.relative_to(ROOT / "docs").as_posix()
        assert len(re.findall(rf"[ :]{re.escape(name)}$", site, re.MULTILINE)) == 1, name


@pytest.mark.parametrize("doc", DOCS, ids=lambda doc: doc.name)
def test_no_document_installs_from_an_index_that_does_not_have_it(doc: Path) -> None:
    assert not re.findall(r"pip install[^\n`]*greenroom\[[^]]*\](?! @ git\+)", doc.read_text(encoding="utf-8"))


def _anchors(doc: Path) -> set[str]:
    headings = HEADING.findall(doc.read_text(encoding="utf-8"))
    return {re.sub(r"[^\w -]", "", heading).strip().lower().replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("doc", [*DOCS, ROOT / "CONTRIBUTING.md"], ids=lambda doc: doc.name)
def test_every_link_leads_to_a_file_and_heading_that_exist(doc: Path) -> None:
    broken = []
    for link in LINK.finditer(doc.read_text(encoding="utf-8")):
        target = doc.parent / link["file"] if link["file"] else doc
        if not target.exists() or (link["anchor"] and link["anchor"] not in _anchors(target)):
            broken.append(link[0])
    assert not broken


@pytest.mark.long
def test_the_diagram_and_the_list_of_files_in_architecture_md_are_as_the_code() -> None:
    describe = runpy.run_path(str(ROOT / ".ci" / "describe_architecture.py"))["describe"]
    document = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
    assert describe(document) == document, "run `python .ci/describe_architecture.py`"
