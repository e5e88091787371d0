"""A process that imports the bot once and forks a bot for each order.

Each is the real command `bot` in its own process, which may be killed; forking saves the seconds that
Python needs to import everything. One order a line on stdin; the process id, then its exit code on stdout.
"""

import ctypes
import gc
import json
import os
import signal
import sys
from collections.abc import Mapping
from importlib import import_module
from typing import Any

import bot.cli.commands.run
import bot.store.sql.migrations.alembic_runner
import bot.store.sql.sqlite.storage
import plugins.bootstrap
import plugins.openai
import tests.chaos.adapter  # noqa: F401  # imported beforehand, like the others
from bot.cli.main import entry
from bot.concurrency.tasks import VARIABLE, kill_at

PR_SET_PDEATHSIG = 1
IMPORTED = (bot.cli.commands.run, plugins)


def main() -> None:
    """Carry out orders until stdin ends."""
    _die_with_the_parent()
    for module in sys.argv[1:]:
        import_module(module)
    gc.collect()
    gc.freeze()  # no child need look through what was imported
    for line in sys.stdin:
        order = json.loads(line)
        process = os.fork()
        if not process:
            os._exit(_run_bot(order))
        _write_number(process)
        _, status = os.waitpid(process, 0)
        _write_number(os.waitstatus_to_exitcode(status))


def _run_bot(order: Mapping[str, Any]) -> int:
    """Run the bot in this process with the environment and files of an order; return its exit code."""
    _die_with_the_parent()
    os.environ.clear()
    os.environ.update(order["environment"])
    if point := os.environ.get(VARIABLE):  # which the bot reads when it is imported: that was before the fork
        sys.addaudithook(kill_at(point))
    os.chdir(order["folder"])
    log = os.open(order["log"], os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    errors = os.open(order.get("errors", order["log"]), os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    input_file = os.open(order.get("said", os.devnull), os.O_RDONLY)
    for target, source in ((0, input_file), (1, log), (2, errors)):
        os.dup2(source, target)
    code = entry(order["arguments"])
    sys.stdout.flush()
    sys.stderr.flush()
    return code


def _die_with_the_parent() -> None:
    """Ask the kernel (Linux only) to kill this process when its parent dies."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)


def _write_number(number: int) -> None:
    sys.stdout.write(f"{number}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    main()
