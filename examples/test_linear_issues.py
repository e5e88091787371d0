"""Tests of Linear; run them with: bot plugin test ./linear_issues --trust"""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from aiohttp import web
from aiohttp.test_utils import TestServer
from linear_issues import create_issue, plugin

from bot.models import Purpose
from bot.testing import AgentHarness, ScriptedModel, check_plugin_contract, make_turn, model_answer, running_agent

ACTIONS = ["CREATE_LINEAR_ISSUE", "UPDATE_LINEAR_ISSUE"]
PARAMETERS = {"CREATE_LINEAR_ISSUE": '{"title": "the login fails"}', "UPDATE_LINEAR_ISSUE": '{"assignee": "John"}'}
REQUEST = "File a bug about the login and give it to John"


class Team:
    """Linear's API on this computer: an id is taken once."""

    def __init__(self, *people: str) -> None:
        self.people, self.issues = people, dict[str, dict[str, Any]]()
        self.app = web.Application()
        self.app.router.add_post("/graphql", self._answer)

    async def _answer(self, request: web.Request) -> web.Response:
        assert request.headers["Authorization"] == "secret-key"
        body = await request.json()
        query, values = body["query"], body["variables"]
        if "issueCreate" in query:
            given = values["input"]
            if given["id"] in self.issues:
                return web.json_response({"errors": [{"message": "the id is taken"}]})
            number = len(self.issues) + 1
            issue = {
                "id": given["id"],
                "identifier": f"BUG-{number}",
                "title": given["title"],
                "url": "https://l.test/1",
            }
            self.issues[given["id"]] = issue
            return web.json_response({"data": {"issueCreate": {"success": True, "issue": issue}}})
        if "issueUpdate" in query:
            self.issues[values["id"]]["assignee"] = values["input"]["assigneeId"]
            return web.json_response({"data": {"issueUpdate": {"success": True, "issue": self.issues[values["id"]]}}})
        if "users" in query:
            nodes = [{"id": f"user-{name}"} for name in self.people if name == values["name"]]
            return web.json_response({"data": {"users": {"nodes": nodes}}})
        return web.json_response({"data": {"issue": self.issues.get(values["id"])}})


@asynccontextmanager
async def filing(team: Team, then: str = "Done.") -> AsyncIterator[AgentHarness]:
    """Run an agent beside Linear whose model plans both actions."""
    async with TestServer(team.app) as server:
        url = str(server.make_url("/graphql"))
        settings = {"LINEAR_API_KEY": "secret-key", "LINEAR_TEAM_ID": "team", "LINEAR_URL": url}
        model = ScriptedModel([model_answer(actions=ACTIONS, parameters=PARAMETERS), model_answer(then)])
        async with running_agent(plugin, model=model, settings=settings) as harness:
            yield harness


async def test_the_issue_that_was_filed_is_given_to_the_person() -> None:
    team = Team("John", "Mary")
    async with filing(team) as harness:
        await harness.send(REQUEST)
    [issue] = team.issues.values()
    assert (issue["title"], issue["assignee"]) == ("the login fails", "user-John")


async def test_who_is_not_in_the_team_gets_no_issue_and_the_model_reads_why() -> None:
    team = Team("Mary")
    async with filing(team) as harness:
        await harness.send(REQUEST)
        [summary] = harness.model.requests_for(Purpose.SUMMARY)
    assert "0 people of the team are called John" in summary.prompt
    assert [issue.get("assignee") for issue in team.issues.values()] == [None]


async def test_an_action_that_runs_again_files_no_second_issue() -> None:
    team = Team()
    async with filing(team) as harness:
        turn = make_turn(harness.agent, REQUEST)
        results = [await create_issue(turn, "the login fails") for _ in range(2)]
    assert [result.success for result in results] == [True, True]  # type: ignore[union-attr]
    assert len(team.issues) == 1


async def test_the_plugin_obeys_the_contract_of_all_plugins() -> None:
    assert [result for result in await check_plugin_contract(plugin) if result.problems] == []
