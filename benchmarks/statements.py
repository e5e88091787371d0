"""Count the SQL statements of a group's message on SQLite, with embeddings.

`python -m benchmarks.statements` lists them.
"""

import asyncio
import tempfile
from collections import Counter
from pathlib import Path

from benchmarks.doubles import REPLY, DiscardingAdapter
from benchmarks.exchange import AGENT
from benchmarks.figures import Row, check_answered
from benchmarks.recording import SqlCall, count_statements, count_transactions, is_statement, recording_connection
from bot import ChannelType
from bot.store.sql.sqlite.storage import OpenFiles
from bot.testing import AgentHarness, ScriptedModel, running_agent

PEOPLE = [f"person {number}" for number in range(5)]
WARM_UP_MESSAGES, COUNTED_MESSAGES = 10, 40
WIDTH = 110  # of a printed statement
SETTINGS = {"MESSAGES_PER_PERSON": "0", "MESSAGES_PER_ROOM": "0", "MESSAGES_PER_WORLD": "0"}


def measure_statements() -> list[Row]:
    """Send messages of a group that name the bot, one after another; count what they write and read."""
    script = asyncio.run(_record_messages())
    statements, commits = (count(script) / COUNTED_MESSAGES for count in (count_statements, count_transactions))
    return [
        ("group message with embeddings, SQLite", f"{statements:.1f} statements in {commits:.1f} commits (goal ≤ 8)")
    ]


async def _record_messages() -> list[SqlCall]:
    script: list[SqlCall] = []
    with tempfile.TemporaryDirectory() as folder:
        files = OpenFiles(recording_connection(script))
        model = ScriptedModel(lambda request: REPLY, can_embed=True)
        async with (
            files.open_store(Path(folder, "a.db"), AGENT) as store,
            running_agent(store=store, model=model, adapter=DiscardingAdapter(), settings=SETTINGS) as harness,
        ):
            await _exchange(harness, WARM_UP_MESSAGES)
            script.clear()
            await _exchange(harness, COUNTED_MESSAGES)
            return script.copy()


async def _exchange(harness: AgentHarness, count: int) -> None:
    for number in range(count):
        author = PEOPLE[number % len(PEOPLE)]
        details = {"author": author, "room": "harbour", "kind": ChannelType.GROUP}
        check_answered(await harness.send(f"Ada, this is message {number} of {author}", **details))


def main() -> None:
    """Print how often a message executes each statement."""
    script = asyncio.run(_record_messages())
    counts = Counter(sql for sql, _ in script if is_statement(sql))
    for sql, count in counts.most_common():
        print(f"{count / COUNTED_MESSAGES:5.2f}  {' '.join(sql.split())[:WIDTH]}")


if __name__ == "__main__":
    main()
