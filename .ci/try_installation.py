"""Installs the wheel that `make dist` built into empty environments, outside the checkout, and uses it.

Run by `make try-dist`. Packages come from wherever pip finds them on this machine. It ends with exit code 1 and the
error of what failed.
"""

import os
import shutil
import subprocess
import sys
import tarfile
import tempfile
import urllib.request
import venv
import zipfile
from pathlib import Path

ROOT = Path(__file__).parents[1]
DIST = ROOT / "dist"
PACKAGES = ("adapters", "bot", "plugins")
RENAMED = {"characters/": "bot/characters/", "plugins.json": "bot/plugins.json"}  # `force-include` in pyproject.toml
TYPED = [f"{package}/py.typed" for package in PACKAGES]
# Emulators without the library of their platform; those of Farcaster and Telegram import what their bots have too.
EMULATOR_TEST = """
import pytest

@pytest.mark.parametrize("platform", ["discord", "mastodon", "matrix", "x"])
async def test_an_emulator_starts(platform, start_emulator):
    assert (await start_emulator(platform)).mention
"""
# Of the user; whoever imports one of these instead of the program's own module ends at once.
OTHER_MODULES = ("adapters/__init__.py", "plugins/__init__.py", "bot.py")


class Failure(Exception):
    """What a user of the wheel would meet."""


def find_built(pattern: str) -> Path:
    """Return the one file of the folder `dist` that matches. Raises Failure for none or several."""
    found = list(DIST.glob(pattern))
    if len(found) != 1:
        raise Failure(f"{DIST} has {len(found)} files {pattern}: remove the folder and run `make dist`")
    return found[0]


def check_contents(wheel: Path) -> None:
    """Raise Failure unless the wheel has every file of git that belongs to the program."""
    listed = subprocess.run(
        ["git", "ls-files", *PACKAGES, *RENAMED], cwd=ROOT, check=True, capture_output=True, text=True
    ).stdout.split()
    expected = {name for name in listed if name.startswith(PACKAGES)} - set(RENAMED)
    expected |= {name.replace(old, new, 1) for name in listed for old, new in RENAMED.items() if name.startswith(old)}
    missing = sorted({*expected, *TYPED} - set(zipfile.ZipFile(wheel).namelist()))
    if missing:
        raise Failure(f"{wheel.name} lacks {', '.join(missing[:10])}")


def check_source_distribution(sdist: Path, wheel: Path, folder: Path) -> None:
    """Raise Failure unless the source distribution builds the same wheel."""
    with tarfile.open(sdist) as archive:
        archive.extractall(folder, filter="data")
    run(folder, "pip", "wheel", "--no-deps", "--wheel-dir", "built", f"./{sdist.name.removesuffix('.tar.gz')}")
    if (folder / "built" / wheel.name).read_bytes() != wheel.read_bytes():
        raise Failure(f"{sdist.name} builds another wheel than {wheel.name}")


def run(folder: Path, program: str, *arguments: str, text: str = "") -> str:
    """Run a program of the environment in `folder` and return its output. Raises Failure unless it succeeds."""
    command = [str(folder / ".venv" / "bin" / program), *arguments]
    finished = subprocess.run(
        command, cwd=folder, env=environment(), input=text, capture_output=True, text=True, timeout=300, check=False
    )
    if finished.returncode:
        raise Failure(f"{program} {' '.join(arguments)}: exit code {finished.returncode}\n{finished.stderr[-2000:]}")
    return finished.stdout


def environment() -> dict[str, str]:
    """Return the variables of this process, without those of Python: nothing of the checkout may be found."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
    return {**kept, "SERVER_PORT": "0", "PIP_DISABLE_PIP_VERSION_CHECK": "1"}


def make_environment(folder: Path, requirement: str) -> None:
    """Create an environment in `folder` with the wheel and nothing else, beside files with the names of our modules."""
    venv.create(folder / ".venv", with_pip=True)
    run(folder, "pip", "install", "--quiet", "--constraint", str(DIST / "constraints.txt"), requirement)
    for name in OTHER_MODULES:
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_text(f"raise SystemExit('{name} of the user was imported')\n")


def converse(folder: Path) -> None:
    """Talk in the terminal, write and check a plugin. Raises Failure if one of them fails."""
    if "\nHello" not in run(folder, "bot", "chat", text="hello\n"):  # after the AI notice
        raise Failure("bot chat does not answer")
    run(folder, "greenroom", "--version")
    run(folder, "bot", "plugin", "new", "dice", "--single-file")
    run(folder, "bot", "plugin", "check", "./dice.py")
    run(folder, "bot", "character", "new", "mine.json", "--name", "Robin")
    run(folder, "bot", "character", "check", "mine.json")


def serve(folder: Path) -> None:
    """Start the bot, open its page as a browser does, and stop it. Raises Failure if one of them fails."""
    command = [str(folder / ".venv" / "bin" / "bot"), "run", "--strict"]
    with subprocess.Popen(command, cwd=folder, env=environment(), stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            address = next((word for line in process.stdout for word in line.split() if "?token=" in word), "")
            if not address:
                raise Failure("bot run ended before it printed an address")
            browser = urllib.request.build_opener(urllib.request.HTTPCookieProcessor())
            with browser.open(address, timeout=30) as page:
                body = page.read()
            licence = address.partition("?")[0] + "pages/vendor/marked.LICENSE.txt"
            with browser.open(licence, timeout=30) as text:
                text.read()
        finally:
            process.terminate()
        if b"<title>" not in body or process.wait(30):
            raise Failure(f"bot run: exit code {process.returncode}, page {body[:200]!r}")


def main() -> None:
    """Check both files, then use the wheel: alone, and with the extras for storage and for tests."""
    wheel, sdist = find_built("*.whl"), find_built("*.tar.gz")
    check_contents(wheel)
    with tempfile.TemporaryDirectory() as name:
        core, stored = Path(name) / "core", Path(name) / "stored"
        core.mkdir()
        make_environment(core, str(wheel))
        converse(core)
        serve(core)
        check_source_distribution(sdist, wheel, core)
        shutil.rmtree(core)
        stored.mkdir()
        make_environment(stored, f"{wheel}[sql,testing]")
        converse(stored)
        run(stored, "bot", "plugin", "test", "./dice.py")
        (stored / "test_emulators.py").write_text(EMULATOR_TEST)
        run(stored, "pytest", "-q", "--import-mode=importlib", "test_emulators.py")  # beside the modules of the user
        serve(stored)
        run(stored, "bot", "db", "check")


if __name__ == "__main__":
    try:
        main()
    except (Failure, OSError, subprocess.TimeoutExpired) as error:
        sys.exit(f"the installation from {DIST} fails: {error}")
