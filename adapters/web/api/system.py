"""HTTP handlers of what the operator looks up about the program: plugins, variables, the log, the checks."""

import asyncio
import time
from dataclasses import dataclass, field
from datetime import datetime
from typing import Annotated, Literal
from uuid import UUID

from aiohttp import web
from pydantic import Field, StringConstraints

from adapters.web.auth import Access
from adapters.web.json_io import HttpProblem
from adapters.web.openapi import operation
from adapters.web.queries import AgentDirectory
from adapters.web.schemas import AgentQuery, Query, ResponseModel
from bot import system_clock
from bot.platform import AgentHandle, FindingStatus, OperatorTools, PluginState, TaskSet, check_running, find_log_buffer

NO_TOOLS = "not available: this agent was not started with `bot run` or `bot dev`"


class PluginBody(PluginState):
    """An installed plugin, as the API names it."""


class PluginsResponse(ResponseModel):
    """The installed plugins, and those that the character names by path; problems first."""

    agent_id: UUID
    plugins: list[PluginBody]


class SettingsQuery(AgentQuery):
    """Selection of variables: by a text in name, part or meaning, and those that are set."""

    q: Annotated[str, StringConstraints(strip_whitespace=True, max_length=200)] = ""
    is_set: bool | None = None


class SettingBody(ResponseModel):
    """A variable; `value` is null for a secret, whether it is set or not, and for one without a value.

    `origin` is where the value stands: `default`, the environment, a file; empty for one without a value.
    """

    name: str
    part: str
    value: str | None
    is_set: bool
    is_secret: bool
    is_character_setting: bool
    origin: str
    meaning: str


class SettingsResponse(ResponseModel):
    """The variables of the program as an agent sees them, part by part."""

    agent_id: UUID
    settings: list[SettingBody]


class LogsQuery(Query):
    """Selection of log lines: from a level on, those that contain a text, those before a cursor."""

    level: Literal["DEBUG", "INFO", "WARNING", "ERROR", "CRITICAL"] = "DEBUG"
    q: Annotated[str, StringConstraints(strip_whitespace=True, max_length=200)] = ""
    before: Annotated[str, StringConstraints(pattern="^[0-9]{1,15}$")] | None = None
    limit: Annotated[int, Field(ge=1, le=200)] = 50


class LogLineBody(ResponseModel):
    """A line of the log without secrets; `error` is a traceback, if there is one."""

    id: str
    at: datetime
    level: str
    logger: str
    text: str
    error: str


class LogsResponse(ResponseModel):
    """Lines of the log, the newest first; those of the last thousands that the process has written."""

    lines: list[LogLineBody]
    next: str | None


class FindingBody(ResponseModel):
    """A result of a check: what it was about, what was found, what to do.

    `is_outside` is true if it failed because another service does not answer.
    """

    state: FindingStatus
    subject: str
    text: str
    fix: str
    is_outside: bool


class DoctorResponse(ResponseModel):
    """The last results of the checks, problems first; `ran_at` is null if they have not run yet."""

    agent_id: UUID
    ran_at: datetime | None
    seconds: float | None
    findings: list[FindingBody]


WORST_FIRST = (FindingStatus.FAIL, FindingStatus.WARN, FindingStatus.OK)


@dataclass(frozen=True, slots=True)
class SystemApi:
    """Handlers for plugins, settings, the log and the checks; the operator's alone."""

    _directory: AgentDirectory
    _requests: TaskSet
    _running: dict[UUID, asyncio.Task[DoctorResponse]] = field(default_factory=dict)
    _results: dict[UUID, DoctorResponse] = field(default_factory=dict)

    @operation("GET", "/api/plugins", "plugins", Access.CHANGE, (404,))
    async def list_plugins(self, request: web.Request, query: AgentQuery) -> PluginsResponse:
        """List the plugins of an agent: what each brings, and why one is off."""
        handle, tools = self._find_tools(query.agent)
        plugins = await tools.program.plugins()
        return PluginsResponse.model_validate({"agent_id": handle.agent_id, "plugins": plugins})

    @operation("GET", "/api/settings", "settings", Access.CHANGE, (404,))
    async def list_settings(self, request: web.Request, query: SettingsQuery) -> SettingsResponse:
        """List the variables with their values and where these stand."""
        handle, tools = self._find_tools(query.agent)
        words = query.q.casefold()
        settings = [
            SettingBody.build(item, origin=item.origin or ("default" if item.value is not None else ""))
            for item in await tools.program.settings(handle.settings)
            if words in f"{item.name}\n{item.part}\n{item.meaning}".casefold() and query.is_set in (None, item.is_set)
        ]
        return SettingsResponse(agent_id=handle.agent_id, settings=settings)

    @operation("GET", "/api/logs", "logs", Access.CHANGE, (404,))
    async def list_log_lines(self, request: web.Request, query: LogsQuery) -> LogsResponse:
        """List the last lines of the log."""
        buffer = find_log_buffer()
        before = None if query.before is None else int(query.before)
        lines = (
            []
            if buffer is None
            else buffer.lines(level=query.level, text=query.q, before=before, limit=query.limit + 1)
        )
        shown = lines[: query.limit]
        cursor = str(shown[-1].number) if len(lines) > query.limit else None
        return LogsResponse(lines=[LogLineBody.build(line, id=str(line.number)) for line in shown], next=cursor)

    @operation("GET", "/api/doctor", "doctor", Access.CHANGE, (404,))
    async def show_checks(self, request: web.Request, query: AgentQuery) -> DoctorResponse:
        """Return the last results of the checks of `bot doctor`."""
        handle, _ = self._find_tools(query.agent)
        empty = DoctorResponse(agent_id=handle.agent_id, ran_at=None, seconds=None, findings=[])
        return self._results.get(handle.agent_id, empty)

    @operation("POST", "/api/doctor", "run-doctor", Access.CHANGE, (404,))
    async def run_checks(self, request: web.Request, query: AgentQuery) -> DoctorResponse:
        """Run the checks of `bot doctor` beside the agent; it takes seconds, and a small call to the model."""
        handle, tools = self._find_tools(query.agent)
        task = self._running.get(handle.agent_id)
        if task is None:
            task = self._running[handle.agent_id] = self._requests.start(self._run_checks(handle, tools))
            task.add_done_callback(lambda _: self._running.pop(handle.agent_id, None))
        return await asyncio.shield(task)

    async def _run_checks(self, handle: AgentHandle, tools: OperatorTools) -> DoctorResponse:
        started, ran_at = time.monotonic(), system_clock()
        findings = [*await check_running([handle], ran_at), *await tools.program.run_checks()]
        bodies = [
            FindingBody(
                state=item.status, subject=item.check, text=item.message, fix=item.advice, is_outside=item.is_outside
            )
            for item in dict.fromkeys(findings)
        ]
        bodies.sort(key=lambda item: WORST_FIRST.index(item.state))
        seconds = time.monotonic() - started
        result = DoctorResponse(agent_id=handle.agent_id, ran_at=ran_at, seconds=seconds, findings=bodies)
        self._results[handle.agent_id] = result
        return result

    def _find_tools(self, agent: str | None) -> tuple[AgentHandle, OperatorTools]:
        handle = self._directory.find_agent(agent)
        if handle.operator_tools is None:
            raise HttpProblem(404, "not_found", NO_TOOLS)
        return handle, handle.operator_tools
