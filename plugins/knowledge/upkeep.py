"""When documents are looked at: at the start, and every few minutes for what has changed."""

from datetime import timedelta

from bot import QUEUE, REPEAT, Agent, Task, derived_id, worker
from plugins.knowledge.library import Library
from plugins.knowledge.sources import check

EVERY = timedelta(minutes=5)


@worker("INDEX_KNOWLEDGE")
async def index(agent: Agent, task: Task) -> None:
    """Take in what is new or changed; raising has it tried again later."""
    await agent.services[Library].index()


async def begin(agent: Agent) -> None:
    """Refuse what must not be read, and leave the task; raises PluginError."""
    check(agent.character, agent.folder)
    task = Task(
        id=derived_id(agent.id, "knowledge", "index"),
        name=index.name,
        next_run=agent.clock(),
        description="take in the character's documents",
        tags=frozenset({QUEUE, REPEAT}),
        metadata={"updateInterval": EVERY / timedelta(milliseconds=1)},
    )
    await agent.store.tasks.save_task(task)
