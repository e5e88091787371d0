"""Action planning: several actions for one message, each with the results of those before it.

For "file a bug about the login and give it to John" the model lists CREATE_ISSUE, ASSIGN_ISSUE, REPORT_PLAN.
"""

from dataclasses import dataclass
from typing import Annotated

from pydantic import Field

from bot import ActionResult, Agent, Effect, Plugin, Service, Turn, action
from bot.prompts import Authority


@dataclass
class Issue:
    """One entry of the tracker."""

    id: str
    title: str
    assignee: str = ""


class Tracker(Service):
    """The tracker of a team; a real plugin would call one over HTTP."""

    capability = "file issues and assign them"

    def __init__(self, agent: Agent) -> None:
        super().__init__(agent)
        self.issues: dict[str, Issue] = {}
        self.team: tuple[str, ...] = ("John", "Mary")
        self.is_open = True

    def create(self, key: str, title: str) -> Issue:
        """Return the issue that was filed with this key, else file it: after a crash there is no second one."""
        return self.issues.setdefault(key, Issue(f"BUG-{len(self.issues) + 1}", title))


@action("CHECK_TRACKER", "Check that the tracker can be used, as first step.", effect=Effect.PURE, critical=True)
async def check_tracker(turn: Turn) -> ActionResult:
    """Fail where no step after this one makes sense: what is `critical` ends the plan."""
    if not turn.agent.services[Tracker].is_open:
        return ActionResult(False, error="the tracker is closed for maintenance", authors=())
    return ActionResult(text="the tracker can be used", authors=())


@action(
    "CREATE_ISSUE",
    "File an issue.",
    similes=["CREATE_BUG", "FILE_ISSUE"],
    effect=Effect.KEYED,
    authority=Authority.named("file", "create", "report", "open", targets=()),
)
async def create_issue(
    turn: Turn, title: Annotated[str, "What is wrong, in a few words", Field(min_length=1, max_length=120)]
) -> ActionResult:
    """File it; `data` holds the id for the actions that follow, `values` are for templates."""
    issue = turn.agent.services[Tracker].create(str(turn.id), title)
    text = f"filed {issue.id}: {issue.title}"
    return ActionResult(text=text, values={"issue": issue.id}, data={"issue_id": issue.id})


@action(
    "ASSIGN_ISSUE",
    "Assign the issue that was just filed to a person.",
    effect=Effect.IDEMPOTENT,
    authority=Authority.named("assign", "give", targets=["assignee"]),
)
async def assign_issue(turn: Turn, assignee: Annotated[str, "Who works on it"]) -> ActionResult:
    """Take the id from the result of the action before; without it say what is missing."""
    created = turn.get_previous_result("CREATE_ISSUE")
    if created is None or not created.success:
        return ActionResult(False, error="no issue was filed before", authors=())
    tracker = turn.agent.services[Tracker]
    if assignee not in tracker.team:
        return ActionResult(False, error=f"the team is {', '.join(tracker.team)}", authors=())
    [issue] = [issue for issue in tracker.issues.values() if issue.id == created.data["issue_id"]]
    issue.assignee = assignee
    return ActionResult(text=f"assigned {issue.id} to {assignee}", data={"issue_id": issue.id})


@action("REPORT_PLAN", "Tell how each step of the plan went.", effect=Effect.PURE)
async def report_plan(turn: Turn) -> ActionResult:
    """Read the results so far, and the plan: `turn.state.data["actionPlan"]`."""
    plan = turn.state.data["actionPlan"]
    lines = [f"{'✓' if result.success else '✗'} {result.text or result.error}" for result in turn.results.values()]
    await turn.reply("\n".join([f"Step {plan.current_step + 1} of {plan.total_steps}", *lines]))
    return ActionResult(text="told how it went")


plugin = Plugin(
    "action_planning",
    "Files issues and assigns them.",
    actions=[check_tracker, create_issue, assign_issue, report_plan],
    services=[Tracker],
)
