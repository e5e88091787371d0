"""`bot dev`: a change of the character or of its code is reloaded; what does not load or start changes nothing."""

import asyncio
import sys
from collections.abc import AsyncGenerator, Collection, Iterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from bot.cli.commands.run import DevSession
from bot.cli.main import entry
from bot.cli.process.shutdown import wake_on_changes
from bot.errors import PluginError
from tests.trust import trust_code

PLUGIN = """
from bot import Plugin

def note(text):
    with open("started.txt", "a") as file:
        file.write(text + ";")

async def init(agent):
    {body}

plugin = Plugin("mine", init=init)
"""


@pytest.fixture(autouse=True)
def _keep_modules_of_other_tests() -> Iterator[None]:
    """Restore the imported modules: a reload forgets those of all plugins and adapters that have a path."""
    before = dict(sys.modules)
    yield
    sys.modules.update(before)


def write_plugin(folder: Path, body: str) -> None:
    (folder / "mine.py").write_text(PLUGIN.replace("{body}", body), encoding="utf-8")


def write_character(folder: Path, name: str = "Ada") -> None:
    (folder / "ada.json").write_text(f'{{"name": "{name}", "plugins": ["./mine"]}}', encoding="utf-8")


def report(text: str) -> str:
    """Return the code of an `init` that writes to the file that the tests read."""
    return f"note(agent.name + ' {text}')"


class Session:
    """A running session, whose files change when the test says so; `started` is what the plugin wrote."""

    def __init__(self, folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
        self._folder, self._capsys, self._printed = folder, capsys, ""
        self._changes: asyncio.Queue[Collection[Path]] = asyncio.Queue()

    @property
    def started(self) -> list[str]:
        return (self._folder / "started.txt").read_text(encoding="utf-8").split(";")[:-1]

    async def changes(self, folders: Collection[Path]) -> AsyncGenerator[Collection[Path], None]:
        while True:
            paths = await self._changes.get()
            try:
                yield paths
            finally:
                self._changes.task_done()

    async def look_in_vain(self) -> None:
        """Make the session look at its files without a hint, and wait until it has done so."""
        self._changes.put_nowait([])
        await self._changes.join()

    async def change(self, name: str, expected: str) -> None:
        """Report a changed file, and wait until the session has printed this."""
        self._changes.put_nowait([self._folder / name])
        await self.wait_for_text(expected)

    async def look(self, expected: str) -> None:
        """Make the session look at its files without a hint, and wait until it has printed this."""
        self._changes.put_nowait([])
        await self.wait_for_text(expected)

    async def wait_for_text(self, expected: str) -> None:
        async with asyncio.timeout(30):
            while expected not in self._printed:
                await asyncio.sleep(0.02)
                self._printed += self._capsys.readouterr().out
        self._printed = self._printed.partition(expected)[2]


@asynccontextmanager
async def running(folder: Path, capsys: pytest.CaptureFixture[str]) -> AsyncGenerator[Session, None]:
    write_plugin(folder, report("first"))
    write_character(folder)
    trust_code(folder)
    session = Session(folder, capsys)
    dev = DevSession([Path("ada.json")], ["web"], session.changes)
    task = asyncio.create_task(dev.run(dev.load()))
    await session.wait_for_text("web       on")
    yield session
    task.cancel()
    await asyncio.wait([task])


@pytest.fixture(autouse=True)
def _free_port(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SERVER_PORT", "0")


async def test_changed_code_and_a_changed_character_are_reloaded(
    workdir: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    async with running(workdir, capsys) as session:
        write_plugin(workdir, report("second"))
        await session.change("mine.py", "web       on")
        write_character(workdir, "Bea")
        await session.change("ada.json", "running: Bea")
        await session.wait_for_text("web       on")
        assert session.started == ["Ada first", "Ada second", "Bea second"]


async def test_a_change_that_no_watcher_reported_is_reloaded_at_the_next_look(
    workdir: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    async with running(workdir, capsys) as session:
        write_plugin(workdir, report("second"))
        await session.look("web       on")
        assert session.started == ["Ada first", "Ada second"]


async def test_conversations_that_are_only_in_memory_are_kept(
    workdir: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    async with running(workdir, capsys) as session:
        count = "count = (await agent.store.cache.get('count') or 0) + 1; await agent.store.cache.set('count', count)"
        for _ in range(2):
            write_plugin(workdir, f"{count}; note(str(count))")
            await session.change("mine.py", "web       on")
        assert session.started == ["Ada first", "1", "2"]


@pytest.mark.parametrize(
    ("body", "expected"),
    [("(", "not reloaded: "), ("raise OSError('no oil')", "the new version does not start: ")],
    ids=["does not load", "does not start"],
)
async def test_a_version_that_fails_is_replaced_by_the_version_before(
    workdir: Path, capsys: pytest.CaptureFixture[str], body: str, expected: str
) -> None:
    async with running(workdir, capsys) as session:
        write_plugin(workdir, body)
        await session.change("mine.py", expected)
        write_plugin(workdir, report("third"))
        await session.change("mine.py", "web       on")
        if session.started[-1] != "Ada third":
            await session.wait_for_text("web       on")
        assert session.started[-1] == "Ada third"


async def test_a_version_that_does_not_start_is_tried_once_until_the_next_change(
    workdir: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    async with running(workdir, capsys) as session:
        write_plugin(workdir, f"{report('broken')}; raise OSError('no oil')")
        await session.change("mine.py", "the new version does not start: ")
        await session.wait_for_text("web       on")
        for _ in range(2):
            await session.look_in_vain()
        write_plugin(workdir, report("third"))
        await session.look("web       on")
        assert session.started == ["Ada first", "Ada broken", "Ada first", "Ada third"]


async def test_code_that_was_not_there_before_is_not_trusted_by_a_change(
    workdir: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    async with running(workdir, capsys) as session:
        (workdir / "other.py").write_text("from bot import Plugin\nplugin = Plugin('other')\n", encoding="utf-8")
        (workdir / "ada.json").write_text('{"name": "Ada", "plugins": ["./mine", "./other"]}', encoding="utf-8")
        await session.change("ada.json", "not reloaded: plugin './other' is code that you have not trusted yet")
        assert session.started == ["Ada first"]


def test_code_that_is_not_trusted_does_not_start(workdir: Path) -> None:
    write_plugin(workdir, "pass")
    write_character(workdir)
    with pytest.raises(PluginError, match="not trusted yet"):
        DevSession([Path("ada.json")], ["web"], wake_on_changes).load()
    assert entry(["dev", "-c", "ada.json"]) == 78


async def test_the_watcher_tells_of_changed_files(workdir: Path) -> None:
    changes = wake_on_changes([workdir], 20.0)
    waiting = asyncio.create_task(anext(changes))
    async with asyncio.timeout(20):
        while not waiting.done():  # until the watcher has started
            (workdir / "ada.json").write_text("{}", encoding="utf-8")
            await asyncio.wait([waiting], timeout=0.2)
    assert {path.name for path in waiting.result()} == {"ada.json"}
    await changes.aclose()
