"""`bot reload`, `bot cluster`: make a running bot take up a changed file; processes that share a database."""

from collections.abc import Mapping
from dataclasses import asdict
from datetime import UTC, datetime, timedelta
from http import HTTPStatus
from typing import Annotated, Any
from urllib.parse import quote

import typer

from bot.cli.characters import CharacterConfig, load_character_config, print_notes
from bot.cli.options import AsJson, CharacterFile, CharacterFiles, Output, examples, new_command, print_json
from bot.cli.process.shutdown import Exit, UsageError, print_line
from bot.cli.running_bot import ANY_STATUS, find_running_bot, open_store, read_store, run_with
from bot.errors import ConfigError, TemporaryError
from bot.store.ledger import Members
from bot.store.protocols import Store

RELOAD_TIMEOUT = 30.0
DIAGNOSIS = "start it with `bot run`; a bot that runs without the web page takes up a changed file by itself"


reload_app = new_command()


@reload_app.command(epilog=examples("bot reload", "bot reload -c mine.json"))
def reload(character: CharacterFiles = None, as_json: AsJson = False) -> int:
    """Make the running bot take up a changed character file.

    Each file is checked here first; then the bot that runs it is asked, and what came of it is printed.
    """
    configs = [load_character_config(path) for path in character or (None,)]
    print_notes(configs)
    results = []
    for config in configs:
        result = _reload(config)
        results.append({"name": config.name, **result})
        if as_json:
            continue
        if changed := result.get("changed"):
            print_line(f"{config.name}  taken up from {result.get('file')}: {', '.join(changed)}")
        else:
            print_line(f"{config.name}  runs as {result.get('file')} says: nothing has changed since it was last read")
        if needs_restart := result.get("needs_restart"):
            print_line(f"  after the next start only: {', '.join(needs_restart)}")
    if as_json:
        print_json({"agents": results})
    return Exit.OK


def _reload(config: CharacterConfig) -> Mapping[str, Any]:
    """Return the response of the running bot. Raises ConfigError where it refuses, TemporaryError if none runs."""
    try:
        running_bot = find_running_bot(config)
    except ConfigError as error:
        raise ConfigError(f"no running bot was found: {error}\n{DIAGNOSIS}") from None
    try:
        for agent in (str(config.agent_id), config.name):  # its id may be new in the file
            path = f"/api/agents/{quote(agent, safe='')}/reload"
            reply = running_bot.send("POST", path, allowed=ANY_STATUS, timeout=RELOAD_TIMEOUT)
            if reply.status is not HTTPStatus.NOT_FOUND:
                break
        else:
            agents = running_bot.send("GET", "/api/agents", allowed=ANY_STATUS).body.get("agents", ())
            names = ", ".join(str(agent.get("name")) for agent in agents)
            raise ConfigError(
                f"the bot at {running_bot} does not run {config.name} ({config.path}), but {names or 'no character'}: "
                "one that is renamed and has no `id` is another character, for which the bot has to be started again"
            )
    except TemporaryError as error:
        raise TemporaryError(f"{error}: {DIAGNOSIS}") from None
    if reply.status is not HTTPStatus.OK:
        raise ConfigError(f"the bot at {running_bot} keeps the version it has: {reply.problem}")
    return reply.body


cluster_app = new_command(invoke_without_command=True)


@cluster_app.callback(epilog=examples("bot cluster", "bot cluster --json", "bot cluster drain 12"))
def list_members(context: typer.Context, character: CharacterFile = None, as_json: AsJson = False) -> int:
    """List the processes that share a character's database: what each holds, and how late the work is."""
    if context.invoked_subcommand is not None:
        return Exit.OK
    config = load_character_config(character)
    members, lag = read_store(config, lambda store: _members(config, store).find())
    now = datetime.now(UTC)
    document = {"members": [asdict(member) for member in members], "lag": asdict(lag)}
    header = ("member", "role", "state", "rooms", "accounts", "host", "process", "version", "heartbeat")
    rows, lines = [], []
    for member in members:
        number, draining = str(member.number), ", draining" if member.is_draining else ""
        accounts, heartbeat = ", ".join(member.accounts), f"{_seconds(now, member.last_heartbeat)} ago"
        place = (member.host or "", str(member.process or ""), member.version)
        state = "draining" if member.is_draining else "on"
        rows.append((number, member.role, state, str(member.rooms), accounts, *place, heartbeat))
        where = f"{member.host}, process {member.process}" if member.host else "of a version that does not tell where"
        since = "" if member.since is None else f", since {member.since.astimezone(UTC):%Y-%m-%d %H:%M:%S} UTC"
        lines += [
            f"{number}  {member.role}{draining}  {where}  {member.version}{since}, heartbeat {heartbeat}",
            f"  {member.rooms} room{'s' * (member.rooms != 1)}{accounts and f', {accounts}'}",
        ]
    lines = lines or ["no process runs this character"]
    after = [
        f"oldest unanswered message: {_age(now, lag.oldest_unanswered)}",
        f"oldest undelivered part: {_age(now, lag.oldest_undelivered)}",
    ]
    return Output(document, lines, header, rows, after=after).print(as_json=as_json)


@cluster_app.command(epilog=examples("bot cluster drain 12"))
def drain(
    config: CharacterConfig,
    member: Annotated[int, typer.Argument(metavar="MEMBER", help="The number that `bot cluster` shows.")],
) -> Output:
    """Request that a process release its rooms and accounts and take no others; then stop it."""
    if not run_with(config, open_store(config), lambda store: _members(config, store).drain(member)):
        raise UsageError(f"there is no process {member}: `bot cluster` shows them")
    lines = [f"{member}: it releases its work; `bot cluster` shows what it still holds, stop it at 0 rooms"]
    return Output({"member": member, "is_draining": True}, lines, indent=None)


def _members(config: CharacterConfig, store: Store) -> Members:
    if store.sharing is None:
        raise ConfigError(
            f"{config.name}: the database of this character is used by one process only; several share a PostgreSQL "
            "database: set POSTGRES_URL"
        )
    return store.sharing.members


def _age(now: datetime, since: datetime | None) -> str:
    return "none" if since is None else f"{_seconds(now, since)} old"


def _seconds(now: datetime, then: datetime) -> str:
    return f"{max((now - then) / timedelta(seconds=1), 0.0):.1f} s"
