"""The tutorial is followed word by word: files are written, edits made, commands run, and what they print compared."""

import os
import re
import signal
import subprocess
import sys
import sysconfig
import time
import venv
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.doc_blocks import ROOT, Block, find_blocks
from tests.ports import free_port

pytestmark = pytest.mark.long

FOLDER = "/home/me/first-plugin"  # in what the tutorial shows
LAUNCHER = "import sys\nfrom bot.cli.main import entry\nsys.exit(entry())\n"
FINDS_INSTALLED = "import site, sys; sys.path.insert(0, {root!r}); site.addsitedir({packages!r})\n"
GREETING = re.compile(r"^(?:offline model: .*|You are talking to .*)\n", re.MULTILINE)
TYPED = re.compile(r"^to Robin> (.*)\n", re.MULTILINE)
VARYING = ((r"sha256 \w+", "sha256 …"), (r"token=[\w-]+", "token=…"), (r"\d+", "1"))
COMMAND_TIMEOUT = 60.0  # seconds


class Reader:
    """A reader of the tutorial in an empty folder, with an environment in which Greenroom is installed."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder / "first-plugin"
        self.folder.mkdir()
        environment = folder / "venv"
        venv.create(environment, with_pip=True)
        packages = next(environment.glob("lib/python*/site-packages"))
        line = FINDS_INSTALLED.format(root=str(ROOT), packages=sysconfig.get_path("purelib"))
        (packages / "greenroom.pth").write_text(line, encoding="utf-8")
        self.programs = environment / "bin"
        launcher = self.programs / "bot"
        launcher.write_text(f"#!{self.programs / 'python'}\n{LAUNCHER}", encoding="utf-8")
        launcher.chmod(0o755)
        kept = {name: value for name, value in os.environ.items() if name in ("LANG", "LC_ALL", "TMPDIR")}
        self.environ = {
            **kept,
            "PATH": f"{self.programs}:/usr/bin:/bin",
            "HOME": str(folder),
            "SERVER_PORT": str(free_port()),
            "PIP_NO_INDEX": "1",
            "PYTHONDONTWRITEBYTECODE": "1",
        }
        self.dev: subprocess.Popen[str] | None = None
        self.dev_output = folder / "dev.txt"

    def follow(self, block: Block) -> None:
        """Do what a block says. Raises AssertionError where the tutorial is wrong."""
        if block.kind == "python":
            path = self.folder / block.named_file
            assert path.exists(), f"say before it which file this is: {block.named_file!r}"
            path.write_text(block.body, encoding="utf-8")
        elif block.kind == "diff":
            self._edit(block.body)
        elif block.kind == "console":
            self.stop_dev()
            for command, printed in commands_of(block.body):
                self._run(command, printed)

    def stop_dev(self) -> None:
        """End `bot dev` as a person does."""
        if self.dev is not None:
            self.dev.send_signal(signal.SIGINT)
            assert self.dev.wait(COMMAND_TIMEOUT) in (0, 130)
            self.dev = None

    def _edit(self, body: str) -> None:
        lines = body.splitlines(keepends=True)
        old, new = ("".join(line[1:] for line in lines if line[0] in signs) for signs in (" -", " +"))
        files = [path for path in self.folder.rglob("*.*") if path.suffix in (".py", ".json", ".toml")]
        [path] = [path for path in files if old in path.read_text(encoding="utf-8")]
        text = path.read_text(encoding="utf-8")
        assert text.count(old) == 1
        starts = self._count_starts()
        path.write_text(text.replace(old, new), encoding="utf-8")
        if self.dev is not None and path.parent.name == "greenroom_jar":
            self._wait_for_start(starts + 1)

    def _run(self, command: str, printed: str) -> None:
        if command.startswith("bot dev"):
            with self.dev_output.open("w", encoding="utf-8") as output:
                arguments = command.split()
                self.dev = subprocess.Popen(
                    arguments, cwd=self.folder, env=self.environ, stdout=output, stderr=subprocess.DEVNULL, text=True
                )
            self._wait_for_start(1)
            self._compare(command, printed, self.dev_output.read_text(encoding="utf-8"))
            return
        typed = "".join(f"{line}\n" for line in TYPED.findall(printed))
        done = subprocess.run(
            ["sh", "-c", command],
            cwd=self.folder,
            env=self.environ,
            input=typed,
            text=True,
            capture_output=True,
            timeout=COMMAND_TIMEOUT,
            check=False,
        )
        shown = re.sub(r"^Robin: ", "", TYPED.sub("", printed), flags=re.MULTILINE)  # a pipe gets the texts only
        self._compare(command, GREETING.sub("", shown), GREETING.sub("", done.stdout + done.stderr))

    def _compare(self, command: str, shown: str, printed: str) -> None:
        printed = printed.replace(str(self.folder), FOLDER)
        for pattern, text in VARYING:
            shown, printed = re.sub(pattern, text, shown), re.sub(pattern, text, printed)
        expected = re.escape(shown).replace(re.escape("...\n"), r"(?:.*\n)*?")
        assert re.fullmatch(expected, printed), f"$ {command}\n{printed}\n--- and not\n{shown}"

    def _count_starts(self) -> int:
        return self.dev_output.read_text(encoding="utf-8").count("web       on") if self.dev is not None else 0

    def _wait_for_start(self, count: int) -> None:
        deadline = time.monotonic() + COMMAND_TIMEOUT
        while self._count_starts() < count:
            assert time.monotonic() < deadline, self.dev_output.read_text(encoding="utf-8")
            assert self.dev is not None
            assert self.dev.poll() is None
            time.sleep(0.1)


def commands_of(body: str) -> Iterator[tuple[str, str]]:
    """Yield the commands of a transcript, and what each prints."""
    for piece in re.split(r"^\$ ", body, flags=re.MULTILINE)[1:]:
        command, _, printed = piece.partition("\n")
        yield command, printed


@pytest.mark.skipif(sys.platform == "win32", reason="the tutorial is written for a shell of POSIX")
def test_the_tutorial_works_as_it_is_written(tmp_path: Path) -> None:
    reader = Reader(tmp_path)
    try:
        for block in find_blocks(ROOT / "docs" / "tutorial.md"):
            reader.follow(block)
    finally:
        if reader.dev is not None:
            reader.dev.kill()
