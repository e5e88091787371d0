"""Make the running bot take up the changed file of a character, without a restart."""

from collections.abc import Mapping
from http import HTTPStatus
from typing import Any
from urllib.parse import quote

from bot.cli.characters import CharacterConfig, load_character_config, print_notes
from bot.cli.options import AsJson, CharacterFiles, examples, new_command, print_json
from bot.cli.process.shutdown import Exit, print_line
from bot.cli.running_bot import ANY_STATUS, find_running_bot
from bot.errors import ConfigError, TemporaryError

RELOAD_TIMEOUT = 30.0
DIAGNOSIS = "start it with `bot run`; a bot that runs without the web page takes up a changed file by itself"


app = new_command()


@app.command(epilog=examples("bot reload", "bot reload -c mine.json"))
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
        for agent in (str(config.agent_config.agent_id), config.name):  # its id may be new in the file
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
