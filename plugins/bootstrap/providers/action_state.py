"""How far the actions of this answer have come."""

from collections.abc import Iterator

from bot import ActionPlan, ActionResult, ProviderResult, StepStatus, Turn, escape_line, provider, shorten

LONGEST = 1_000


@provider(
    "ACTION_STATE",
    "The plan of this answer, what its actions gave, and what is kept in mind of them.",
    position=150,
    dynamic=True,
)
def action_state(turn: Turn) -> ProviderResult:
    """Tell the plan and the results so far; on demand, since the prompts that need results hold them."""
    data = turn.state.data
    plan: ActionPlan | None = data.get("actionPlan")
    memory = data.get("workingMemory", [])
    lines = [*_planned(plan), *_remembered([entry["result"] for entry in memory])]
    text = "\n".join(["# Actions of this answer", *lines]) if lines else ""
    names = ("actionPlan", "actionResults", "workingMemory")
    return ProviderResult(text=text, data={name: data[name] for name in names if name in data})


def _planned(plan: ActionPlan | None) -> Iterator[str]:
    if plan is None or not plan.steps:
        return
    if plan.thought:
        yield f"Plan: {escape_line(shorten(plan.thought, LONGEST))}"
    for number, step in enumerate(plan.steps, 1):
        is_next = number == plan.current_step + 1 and step.status is StepStatus.PENDING
        yield f"{number}. {step.action}: {'under way' if is_next else step.status}"


def _remembered(results: list[ActionResult]) -> Iterator[str]:
    for result in results:
        said = escape_line(shorten(result.text or result.error or "done", LONGEST))
        yield f"- {result.action} {'gave' if result.success else 'failed'}: {said}"
