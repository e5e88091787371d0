"""What the running bot says needs attention: as findings, and as it changes with `bot doctor --watch`."""

import json
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import datetime
from http import HTTPStatus
from typing import Any
from urllib.parse import quote

from bot.cli.characters import CharacterConfig
from bot.cli.process.exit_codes import Exit
from bot.cli.running_bot import find_running_bot
from bot.errors import ConfigError, TemporaryError
from bot.inbound.operator_tools import Finding, FindingStatus
from bot.text import strip_terminal_codes

WATCH_SECONDS = 15.0
QUICK_TIMEOUT = 3.0
UNREACHABLE_KEY = "bot"


def check_running_bot(config: CharacterConfig) -> Iterator[Finding]:
    """Yield what the running bot says needs attention; nothing where no bot runs."""
    try:
        problems = _read_problems(config)
    except (ConfigError, TemporaryError):
        return
    for problem in problems:
        status = FindingStatus.FAIL if problem["level"] == "bad" else FindingStatus.WARN
        yield Finding(status, "running", str(problem["text"]), str(problem["why"]), is_outside=True)
    if not problems:
        yield Finding(FindingStatus.OK, "running", "the bot runs, and nothing needs attention")


def watch_running_bot(
    config: CharacterConfig, *, as_json: bool = False, sleep: Callable[[float], object] = time.sleep
) -> int:
    """Print what begins to need attention and what is over, until the operator stops it.

    Raises ConfigError where the running bot cannot be asked at all.
    """
    find_running_bot(config)
    present: dict[str, str] = {}
    try:
        while True:
            current = _current_texts(config)
            for key in current.keys() - present.keys():
                _print_change("began", key, current[key], as_json=as_json)
            for key in present.keys() - current.keys():
                _print_change("over", key, present[key], as_json=as_json)
            present = current
            sleep(WATCH_SECONDS)
    except KeyboardInterrupt:
        return Exit.OK


def _current_texts(config: CharacterConfig) -> dict[str, str]:
    try:
        problems = _read_problems(config)
    except TemporaryError as error:
        return {UNREACHABLE_KEY: str(error)}
    return {str(problem["key"]): f"{problem['text']} {problem['why']}".strip() for problem in problems}


def _read_problems(config: CharacterConfig) -> Sequence[Mapping[str, Any]]:
    """Return the problems of the overview; raises ConfigError and TemporaryError."""
    running_bot = find_running_bot(config)
    agent = quote(str(config.agent_config.agent_id), safe="")
    reply = running_bot.get(f"/api/overview?agent={agent}", timeout=QUICK_TIMEOUT)
    if reply.status is HTTPStatus.SERVICE_UNAVAILABLE:
        raise TemporaryError(f"the bot at {running_bot} cannot say: {reply.problem}")
    if reply.status is not HTTPStatus.OK:
        raise ConfigError(f"the bot at {running_bot} does not say what needs attention: {reply.problem}")
    problems: Sequence[Mapping[str, Any]] = reply.body["problems"]
    return problems


def _print_change(change: str, key: str, text: str, *, as_json: bool) -> None:
    now = datetime.now().astimezone()
    if as_json:
        line = json.dumps({"at": now.isoformat(), "kind": change, "key": key, "text": text}, ensure_ascii=False)
    else:
        line = strip_terminal_codes(f"{now:%H:%M:%S}  {change:<5}  {text}")
    print(line, flush=True)
