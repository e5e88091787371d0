"""What was confirmed is done: once, and only if whoever confirmed it still may have it done."""

from uuid import UUID

from bot import Agent, Task, worker
from plugins.x_actions.deeds import WORKER, Deed, carried_out, objection_to
from plugins.x_actions.operators import Operators


@worker(WORKER)
async def act_on_x(agent: Agent, task: Task) -> None:
    """Do it, and tell in the room where it was confirmed what has become of it."""
    deed, person_id = Deed.of_change(task.metadata["change"]), UUID(str(task.metadata["chosenBy"]))
    room = await agent.store.worlds.room(task.room_id) if task.room_id is not None else None
    person = (await agent.store.entities.entities([person_id])).get(person_id)
    if room is None:
        return
    if person is None or not agent.services[Operators].knows(person):
        told = "Nothing was done: whoever confirmed it is not named in X_OPERATORS."
    elif cause := objection_to(agent, deed):
        told = f"Nothing was done: {cause}."
    else:
        result = await carried_out(agent, deed, key=str(task.id))
        told = "It is on its way to X." if result.success else f"Nothing was done: {result.error}."
    await agent.say(room, told, key=f"{task.id} report")
