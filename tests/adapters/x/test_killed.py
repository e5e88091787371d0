"""Killed at every stage of an answer: the mention is answered, and answered once."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.adapters.x.threaded import emulated

ROOT = Path(__file__).parents[3]
STAGES = (  # what is spent is kept three times before the mention is
    "ingress.pre_commit:4",
    "send.pre_write:1",
    "send.post_write:1",
    "send.pre_record:1",
)


class Nursery:
    """Has bots live in processes that may be killed; Python is imported once for all of them."""

    def __init__(self) -> None:
        command = [sys.executable, "-m", "tests.chaos.nursery"]
        self.process = subprocess.Popen(
            command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )

    def begin(self, folder: Path, **variables: str) -> int:
        """Start `bot run` for X alone; gives its process id."""
        order = {
            "environment": {**os.environ, **variables, "BOT_DATA_DIR": str(folder), "CRASH_LOOP_BOOTS": "0"},
            "folder": str(folder),
            "log": str(folder / "log"),
            "arguments": ["run", "--only", "x", "-c", str(folder / "ada.json")],
        }
        assert self.process.stdin is not None
        self.process.stdin.write(json.dumps(order) + "\n")
        self.process.stdin.flush()
        return self._told()

    def end(self) -> int:
        """Wait for its end, and give its exit code."""
        return self._told()

    def _told(self) -> int:
        assert self.process.stdout is not None
        return int(self.process.stdout.readline())


@pytest.fixture(scope="module")
def nursery() -> Iterator[Nursery]:
    nursery = Nursery()
    with nursery.process:
        yield nursery
        assert nursery.process.stdin is not None
        nursery.process.stdin.close()


@pytest.mark.parametrize("stage", STAGES)
def test_a_mention_is_answered_once_wherever_the_process_is_killed(
    stage: str, nursery: Nursery, tmp_path: Path
) -> None:
    (tmp_path / "ada.json").write_text('{"name": "Ada", "plugins": ["sql"]}')
    with emulated() as emulator:
        asked = emulator.say("bob", "@greenroom_bot hello Ada!")
        nursery.begin(tmp_path, BOT_KILL_AT=stage, **emulator.environment)
        assert nursery.end() == -signal.SIGKILL
        looks = len(emulator.calls)
        process = nursery.begin(tmp_path, **emulator.environment)
        emulator.wait(
            lambda: bool(emulator.said) and any("mentions" in one.path for one in emulator.calls[looks:])
        )
        os.kill(process, signal.SIGTERM)
        log = tmp_path / "log"
        assert nursery.end() == 0, log.read_text()
        made = emulator.world.by(emulator.user_id)
        assert [one.answers for one in made] == [asked], log.read_text()
