"""A process that has imported the bot once, and gives birth to as many bots as are asked for.

Each is the real command, `bot`, in a process of its own that may be killed; what is saved is the seconds
that Python takes to import it all, with the modules that are named for it. One order a line on stdin, the
process id and then its exit code on stdout.
"""

import asyncio
import ctypes
import gc
import json
import os
import signal
import sys
from collections.abc import Mapping
from importlib import import_module
from typing import Any

import openai

import bot.cli.commands.run
import plugins.bootstrap
import plugins.openai
import plugins.sql.migrations.alembic_runner
import plugins.sql.sqlite.database
import tests.chaos.adapter  # noqa: F401  # imported beforehand, like the others
from bot.cli.main import entry

PR_SET_PDEATHSIG = 1
IMPORTED = (bot.cli.commands.run, plugins)


def main() -> None:
    """Serve until nobody orders any more."""
    _die_with_the_parent()
    for module in sys.argv[1:]:
        import_module(module)
    asyncio.run(_practise())
    gc.collect()
    gc.freeze()  # no child need look through what was imported
    for line in sys.stdin:
        order = json.loads(line)
        process = os.fork()
        if not process:
            os._exit(_live(order))
        _tell(process)
        _, status = os.waitpid(process, 0)
        _tell(os.waitstatus_to_exitcode(status))


async def _practise() -> None:
    """Have a model's client once, which imports half of itself only then."""
    async with openai.AsyncOpenAI(api_key="none"):
        pass


def _live(order: Mapping[str, Any]) -> int:
    """Be the bot: the order's environment, and its files for what is read and printed."""
    _die_with_the_parent()
    os.environ.clear()
    os.environ.update(order["environment"])
    os.chdir(order["folder"])
    log = os.open(order["log"], os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    errors = os.open(order.get("errors", order["log"]), os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    said = os.open(order.get("said", os.devnull), os.O_RDONLY)
    for target, source in ((0, said), (1, log), (2, errors)):
        os.dup2(source, target)
    code = entry(order["arguments"])
    sys.stdout.flush()
    sys.stderr.flush()
    return code


def _die_with_the_parent() -> None:
    """Leave no bot behind where the driver itself is killed; only Linux can do that."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)


def _tell(number: int) -> None:
    sys.stdout.write(f"{number}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    main()
