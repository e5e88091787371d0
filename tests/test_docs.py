"""What the documents show: their Python runs, their transcripts are real, their variables exist."""

import json
import re
import shlex
import subprocess
import sys
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from bot import ChannelType, Effect, Outcome, Plugin, RouteRequest, choices_of
from bot.characters import parse_character
from bot.cli.main import entry
from bot.cli.variables import known_groups, variables
from bot.events import event_class
from bot.models import ModelType, Purpose, TextRequest, Tool, ToolCall
from bot.platform import Asked, Pressed
from bot.plugin_system.loading import find_plugin, plugin_names
from bot.testing import ScriptedModel, Stage, answer, make_arrival, on_stage
from tests.plugins.loopback import Sink

ROOT = Path(__file__).parents[1]
DOCS = (ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md")))
BLOCK = re.compile(r"^```(?P<kind>\w+)\n(?P<body>.*?)^```$", re.MULTILINE | re.DOTALL)
PLUGIN = re.compile(r"^plugin = Plugin\(\s*\"(\w+)\"", re.MULTILINE)
FILE = re.compile(r"`([\w/]+\.(?:py|json))`")
QUOTED = re.compile(r"`([A-Z][A-Z0-9]*(?:_[A-Z0-9]+)+)(?:=[^`]*)?`")
ASSIGNED = re.compile(r"^(?:# )?([A-Z][A-Z0-9]*(?:_[A-Z0-9]+)+)=", re.MULTILINE)
OTHERS = frozenset({"UPPER_SNAKE", "AWAITING_CHOICE"})
CHECKED = ("bot character check", "bot plugin new", "bot plugin check")


@dataclass(frozen=True)
class Block:
    """A piece of a document: its language, what stands in it, and the text just before it."""

    doc: Path
    kind: str
    body: str
    before: str

    @property
    def file(self) -> str:
        """The file it is: the plugin's own name, else the last one that the text before it names."""
        if found := PLUGIN.search(self.body):
            return f"{found[1]}.py"
        named = FILE.findall(self.before)
        return named[-1] if named else ""


def _blocks(doc: Path) -> Iterator[Block]:
    text, end = doc.read_text(encoding="utf-8"), 0
    for found in BLOCK.finditer(text):
        before = text[end : found.start()].rstrip().rpartition("\n\n")[2]
        yield Block(doc, found["kind"], found["body"], before)
        end = found.end()


BLOCKS = [block for doc in DOCS for block in _blocks(doc)]
PYTHON = [block for block in BLOCKS if block.kind == "python"]
PLUGINS = {block.file.removesuffix(".py"): block for block in PYTHON if PLUGIN.search(block.body)}
Check = Callable[[Stage], Awaitable[None]]


def _written(folder: Path, blocks: list[Block]) -> None:
    for block in blocks:
        assert block.file, f"{block.doc.name}: say before it which file this is:\n{block.body[:200]}"
        path = folder / block.file
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(block.body, encoding="utf-8")


async def _rolls(stage: Stage) -> None:
    await stage.say("Roll three dice!")
    assert re.fullmatch(r"Rolled: [1-6], [1-6], [1-6]\.", stage.texts[0])


async def _lends(stage: Stage) -> None:
    receipt = await stage.say("May I borrow Emma?", author="Alice")
    assert receipt.outcome is Outcome.ANSWERED
    assert stage.texts == ["Emma, stamped for Alice."]
    assert "- Emma: here" in stage.model.asked(Purpose.REPLY)[0].prompt


async def _counts(stage: Stage) -> None:
    await stage.say("Hello")
    await stage.resident.inbox.drain(5)
    [route] = stage.resident.door.routes
    response = await route.handle(RouteRequest("GET", route.path))
    assert response.json == {"guests": 1, "messages": 1}


async def _knows_the_tide(stage: Stage) -> None:
    [task] = await stage.agent.store.tasks.tasks(name="READ_TIDES")
    await stage.resident.registry.workers[task.name](stage.agent, task)
    await stage.say("How high is the water?")
    assert stage.texts == ["1.2 m."]
    assert "The water stands at 1.2 m." in stage.model.asked(Purpose.REPLY)[1].prompt


async def _flips_once_somebody_has_chosen(stage: Stage) -> None:
    place = make_arrival("", at=stage.agent.clock())
    here = (place.world, place.room, place.author)
    flipped = await stage.resident.door.command(Asked("flip", *here, "1", stage.agent.clock(), text="3"))
    assert re.fullmatch(r"(heads|tails)(, (heads|tails)){2}", flipped.text)
    await stage.say("Hello")
    await stage.resident.door.command(Asked("bet", *here, "2", stage.agent.clock()))
    [task] = await stage.agent.store.tasks.tasks(name="FLIP")
    value = choices_of(task)[0].value
    shown = await stage.resident.door.chosen(Pressed(*here, value, "3", stage.agent.clock()))
    assert shown.text == "Chosen: heads."
    assert (await stage.adapter.until_sent(3))[1] == "Heads or tails?\n1. heads\n2. tails"


async def _repeats(stage: Stage) -> None:
    await stage.say("Half past <two>")
    assert stage.texts == ["Half past <two>"]
    assert not stage.model.requests


async def _spells(stage: Stage) -> None:
    request = TextRequest("Say Kraa.", tools=(Tool("FLAP", "Flap.", {}), Tool("PECK", "Peck.", {})))
    shown = Sink()
    result = await stage.agent.models.text(replace(request, sink=shown))
    assert shown.seen == ["K", "r", "a", "a", "."]
    assert (result.text, result.calls) == ("Kraa.", (ToolCall("FLAP", {}),))


async def _asks_for_three_lines(stage: Stage) -> None:
    await stage.say("Hello")
    assert "in three short lines" in stage.model.asked(Purpose.REPLY)[0].prompt


async def _keeps_what_is_owed(stage: Stage) -> None:
    await stage.say("The round was on me")
    await stage.say("Who owes what?")
    assert "- Alice: 450" in stage.model.requests[-1].prompt


TRIED: dict[str, tuple[Check, list[str]]] = {
    "dice": (_rolls, [answer(actions=["ROLL_DICE"], parameters={"dice": 3})]),
    "library": (
        _lends,
        [answer(actions=["LEND_BOOK", "STAMP_BOOK"], parameters={"LEND_BOOK": '{"title": "emma"}'})],
    ),
    "guestbook": (_counts, [answer("Hello.")]),
    "tides": (_knows_the_tide, [answer(providers=["TIDES"]), answer("1.2 m.")]),
    "coin": (_flips_once_somebody_has_chosen, [answer("Hello.")]),
    "parrot": (_repeats, [answer("not I")]),
    "slow_parrot": (_spells, [answer("not I")]),
    "tally": (
        _keeps_what_is_owed,
        [
            answer("Noted.", actions=["NOTE_DEBT", "REPLY"], parameters={"NOTE_DEBT": '{"cents": 450}'}),
            answer("Alice, 4.50."),
        ],
    ),
    "haiku": (_asks_for_three_lines, [answer("One.")]),
}


def test_every_plugin_of_the_documents_is_tried() -> None:
    assert set(PLUGINS) == set(TRIED)


@pytest.mark.parametrize("name", sorted(PLUGINS))
async def test_a_documented_plugin_does_what_it_says(name: str, tmp_path: Path) -> None:
    _written(tmp_path, [PLUGINS[name]])
    plugin = find_plugin(f"./{name}", tmp_path)
    assert plugin is not None
    check, script = TRIED[name]
    settings = {"LIBRARY_BOOKS": "Kim, Emma", "PARROT_SPELLS": "yes", "BOT_DATA_DIR": str(tmp_path / "data")}
    async with on_stage(plugin, model=ScriptedModel(script), settings=settings) as stage:
        await check(stage)


@pytest.mark.parametrize("doc", DOCS, ids=lambda doc: doc.name)
def test_documented_files_and_their_tests_run(doc: Path, tmp_path: Path) -> None:
    blocks = [block for block in PYTHON if block.doc == doc]
    _written(tmp_path, blocks)
    files = [str(path) for path in tmp_path.rglob("test_*.py")]
    if not files:
        for block in blocks:
            compile(block.body, block.file, "exec")
        return
    (tmp_path / "pytest.ini").write_text(
        "[pytest]\nanyio_mode = auto\nfilterwarnings = error\npythonpath = .\n"
    )
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *files]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("block", [one for one in BLOCKS if one.kind == "json"], ids=lambda one: one.doc.name)
def test_documented_json_can_be_read(block: Block) -> None:
    read = json.loads(block.body)
    if "name" in read:
        parse_character(block.body)


@pytest.mark.parametrize("doc", DOCS, ids=lambda doc: doc.name)
def test_transcripts_are_real(
    doc: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    for block in _blocks(doc):
        if block.kind in ("json", "text") and block.file.endswith(".json"):
            (tmp_path / block.file).write_text(block.body, encoding="utf-8")
        if block.kind != "console":
            continue
        for piece in block.body.split("$ ")[1:]:
            command, _, shown = piece.partition("\n")
            assert command.startswith(CHECKED), f"mark it ```text, or have it checked: {command}"
            entry(shlex.split(command)[1:])
            said = capsys.readouterr()
            assert said.out + said.err == shown


def _names() -> frozenset[str]:
    groups, _ = known_groups()
    known = {one.name for group in groups for one in variables(group.model)}
    known |= {str(one) for kind in (ModelType, ChannelType, Effect) for one in kind}
    plugins = [found for name in plugin_names() if (found := find_plugin(name)) is not None]
    known |= {name for plugin in plugins for name in _components(plugin)}
    return frozenset(known)


def _components(plugin: Plugin) -> Iterator[str]:
    yield from (one.spec.name for one in (*plugin.actions, *plugin.providers, *plugin.evaluators))
    yield from (one.name for one in plugin.workers)
    yield from (simile for one in plugin.actions for simile in one.spec.similes)


def _is_event(name: str) -> bool:
    try:
        return event_class(name) is not None
    except (KeyError, LookupError, ValueError):
        return False


def test_every_variable_that_is_mentioned_exists() -> None:
    shown = {
        match.upper() for block in PYTHON for match in re.findall(r"^    (\w+): ", block.body, re.MULTILINE)
    }
    shown |= {match for block in PYTHON for match in re.findall(r'@\w+\(\s*"([A-Z_]+)"', block.body)}
    known = _names() | shown | OTHERS
    wrong = [
        f"{doc.name}: {name}"
        for doc in DOCS
        for pattern in (QUOTED, ASSIGNED)
        for name in pattern.findall(doc.read_text(encoding="utf-8"))
        if name not in known and not _is_event(name)
    ]
    assert not wrong
