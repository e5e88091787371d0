"""Linear: files an issue and gives it to a person, in two actions of which the second reads the result of the first.

Set LINEAR_API_KEY and LINEAR_TEAM_ID. For "file a bug about the login and give it to John" the model lists
CREATE_LINEAR_ISSUE, UPDATE_LINEAR_ISSUE.
"""

from typing import Annotated, Any, Self

import aiohttp
from pydantic import Field

from bot import ActionResult, BotError, Effect, Plugin, Secret, Service, SettingsModel, Turn, action, derived_id
from bot.prompts import Authority

ISSUE = "issue { id identifier title url }"
CREATE = f"mutation($input: IssueCreateInput!) {{ issueCreate(input: $input) {{ success {ISSUE} }} }}"
UPDATE = "mutation($id: String!, $input: IssueUpdateInput!) { issueUpdate(id: $id, input: $input) { success } }"
FIND = "query($id: String!) { issue(id: $id) { id identifier title url } }"
PEOPLE = "query($name: String!) { users(filter: {displayName: {eqIgnoreCase: $name}}, first: 2) { nodes { id } } }"


class LinearSettings(SettingsModel):
    """The variables of Linear; only the operator sets them."""

    linear_api_key: Secret | None = Field(None, description="The key of Linear's API.")
    linear_team_id: str = Field("", description="The id of the team that gets the issues.")
    linear_url: str = Field("https://api.linear.app/graphql", description="The address of its API.")


class Linear(Service):
    """The API of Linear."""

    capability = "file issues in Linear and assign them"

    async def __aenter__(self) -> Self:
        self.settings = self.agent.settings.load(LinearSettings)
        key = self.settings.linear_api_key
        headers = {"Authorization": key.get_secret_value() if key is not None else ""}
        self._session = aiohttp.ClientSession(headers=headers, timeout=aiohttp.ClientTimeout(total=30))
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._session.close()

    async def ask(self, query: str, **variables: Any) -> dict[str, Any]:
        """Return the data of an answer. Raises BotError with what Linear says is wrong."""
        body = {"query": query, "variables": variables}
        try:
            async with self._session.post(self.settings.linear_url, json=body, allow_redirects=False) as response:
                answer = await response.json()
        except (aiohttp.ClientError, TimeoutError, ValueError) as error:
            raise BotError(f"Linear did not answer as expected: {type(error).__name__}") from None
        if not isinstance(answer, dict) or answer.get("errors") or not answer.get("data"):
            raise BotError(f"Linear refused it: {str(answer)[:200]}")
        return dict(answer["data"])


@action(
    "CREATE_LINEAR_ISSUE",
    "File an issue in Linear.",
    similes=["FILE_BUG", "NEW_ISSUE"],
    effect=Effect.KEYED,
    authority=Authority.named("file", "create", "report", "open", targets=()),
)
async def create_issue(
    turn: Turn, title: Annotated[str, "What is wrong, in a few words", Field(min_length=1, max_length=120)]
) -> ActionResult:
    """File it under an id of this turn: after a crash it is found, and no second one is filed."""
    linear, issue_id = turn.agent.services[Linear], str(derived_id(turn.id, "issue"))
    values = {"id": issue_id, "teamId": linear.settings.linear_team_id, "title": title}
    try:
        try:
            issue = (await linear.ask(CREATE, input=values))["issueCreate"]["issue"]
        except BotError:
            issue = (await linear.ask(FIND, id=issue_id)).get("issue")
            if not issue:
                raise
    except BotError as error:
        return ActionResult(False, error=str(error), authors=())
    text = f"created issue {issue['identifier']}: {issue['title']} {issue['url']}"
    return ActionResult(text=text, data={"issue_id": issue["id"], "identifier": issue["identifier"]})


@action(
    "UPDATE_LINEAR_ISSUE",
    "Assign the issue that was just filed to a person.",
    similes=["ASSIGN_ISSUE"],
    effect=Effect.IDEMPOTENT,
    authority=Authority.named("assign", "give", targets=["assignee"]),
)
async def update_issue(turn: Turn, assignee: Annotated[str, "Who works on it"]) -> ActionResult:
    """Take the id from the result of the action before; without it say what is missing."""
    created = turn.get_previous_result("CREATE_LINEAR_ISSUE")
    if created is None or not created.success:
        return ActionResult(False, error="no issue was filed before", authors=())
    linear = turn.agent.services[Linear]
    try:
        people = (await linear.ask(PEOPLE, name=assignee))["users"]["nodes"]
        if len(people) != 1:
            return ActionResult(False, error=f"{len(people)} people of the team are called {assignee}", authors=())
        await linear.ask(UPDATE, id=created.data["issue_id"], input={"assigneeId": people[0]["id"]})
    except BotError as error:
        return ActionResult(False, error=str(error), authors=())
    return ActionResult(text=f"assigned {created.data['identifier']} to {assignee}")


plugin = Plugin(
    "linear_issues",
    "Files issues in Linear.",
    actions=[create_issue, update_issue],
    services=[Linear],
    settings=LinearSettings,
)
