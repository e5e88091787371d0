"""Records: fetches the harbour's arrivals, tidies them and stores them, each action from the one before."""

from typing import Annotated, Any

from bot import ActionResult, Agent, Effect, Plugin, Service, Turn, action
from bot.prompts import Authority

STORED = "records:stored"


class Harbour(Service):
    """Where arrivals come from; its owner closes it."""

    def __init__(self, agent: Agent) -> None:
        super().__init__(agent)
        self.is_open = True
        self.known = ("aurora ", "Bora", " CIRRUS")

    async def arrivals(self) -> list[dict[str, str]]:
        """List today's ships as the harbour writes them."""
        if not self.is_open:
            raise ConnectionError("the harbour does not answer")
        return [{"ship": ship} for ship in self.known]


@action("CHECK_ACCESS", "Check that the harbour may be asked.", effect=Effect.PURE, critical=True)
async def check_access(turn: Turn, harbour: Annotated[str, "Which harbour"]) -> ActionResult:
    """Fail where nothing after it makes sense."""
    if harbour != "Lisbon":
        return ActionResult(success=False, error=f"nobody may ask the harbour of {harbour}")
    return ActionResult(text=f"the harbour of {harbour} may be asked")


@action("FETCH_DATA", "Fetch today's arrivals.", effect=Effect.PURE)
async def fetch(turn: Turn) -> ActionResult:
    """Answer at once that it may take a while, then ask."""
    await turn.reply("One moment, I am asking the harbour.")
    records = await turn.agent.services[Harbour].arrivals()
    return ActionResult(text=f"fetched {len(records)} records", data={"records": records})


@action("TRANSFORM_DATA", "Tidy what was fetched.", effect=Effect.PURE)
async def transform(turn: Turn) -> ActionResult:
    """Take the result of the action before it, by name."""
    fetched = turn.get_previous_result("FETCH_DATA")
    if fetched is None or not fetched.success:
        return ActionResult(success=False, error="there is no data to transform")
    tidied = [{**record, "ship": record["ship"].strip().title()} for record in fetched.data["records"]]
    return ActionResult(text=f"transformed {len(tidied)} records", data={"records": tidied})


@action(
    "STORE_DATA",
    "Store what was tidied.",
    effect=Effect.IDEMPOTENT,
    authority=Authority.harmless("it stores what the harbour said, whatever anybody writes"),
)
async def store(turn: Turn) -> ActionResult:
    """Take it from the list of all results, as the documents show it, and keep it."""
    results: list[ActionResult] = turn.state.data.get("actionResults", [])
    tidied = next((result for result in results if result.action == "TRANSFORM_DATA" and result.success), None)
    if tidied is None:
        return ActionResult(success=False, error="there is no data to store")
    await turn.agent.store.cache.set(STORED, tidied.data["records"])
    count = len(tidied.data["records"])
    return ActionResult(text=f"stored {count} records", values={"stored": count})


@action("PROCESS_DATA", "Process what was fetched, or what was stored last.", effect=Effect.PURE)
async def process(turn: Turn) -> ActionResult:
    """Fall back to the last stored records where the fetch has failed."""
    fetched = turn.get_previous_result("FETCH_DATA")
    if fetched is not None and fetched.success:
        records, is_old = fetched.data["records"], False
    else:
        records, is_old = await turn.agent.store.cache.get(STORED) or [], True
    ships = ", ".join(record["ship"] for record in records) or "none"
    await turn.reply(f"Ships{' of the last time' if is_old else ''}: {ships}.")
    return ActionResult(text=f"processed {len(records)} records", data={"used_fallback": is_old})


@action("REPORT", "Say how the plan went so far.", effect=Effect.PURE)
async def report(turn: Turn) -> ActionResult:
    """Read the plan and the working memory."""
    plan = turn.state.data["actionPlan"]
    memory: list[dict[str, Any]] = turn.state.data["workingMemory"]
    done = ", ".join(f"{step.action} {step.status}" for step in plan.steps[: plan.current_step])
    remembered = ", ".join(entry["actionName"] for entry in memory)
    await turn.reply(f"Step {plan.current_step + 1} of {plan.total_steps}: {done} ({remembered}).")
    return ActionResult(text="reported")


plugin = Plugin(
    "records",
    "Fetches, tidies and stores the harbour's arrivals.",
    actions=[check_access, fetch, transform, store, process, report],
    services=[Harbour],
)
