"""HTTP handlers of scheduled tasks.

HTTP handlers of the settings of worlds that plugins declare; a secret can be written, and is never returned.
"""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Annotated, Literal
from uuid import UUID

from aiohttp import web
from pydantic import StringConstraints

from adapters.web.api.people import SOURCE, load_names
from adapters.web.auth import Access
from adapters.web.json_io import HttpProblem, build_not_found
from adapters.web.openapi import ReadBody, operation
from adapters.web.queries import AgentDirectory, build_cursor, collect_page, parse_id, parse_position
from adapters.web.schemas import PageQuery, RequestModel, ResponseModel, Text
from bot import SettingError, Task, World
from bot.platform import AgentHandle, TaskControl, TaskDecision, TaskState, last_run_of

Decision = Callable[[TaskControl, UUID], Awaitable[TaskDecision | None]]


class TasksQuery(PageQuery):
    """Selection of tasks."""

    state: Literal["waiting", "running", "paused", "failed", "asking"] | None = None


class TaskBody(ResponseModel):
    """A scheduled task: when it runs next, how it repeats, and what failed the last time.

    `every_s` and `cron` are how it repeats, `late_s` how long a waiting one is past its time, from a minute on.
    """

    id: UUID
    agent_id: UUID
    name: str
    description: str
    state: TaskState
    due_at: datetime
    every_s: float | None
    cron: str
    timezone: str
    late_s: float
    last_at: datetime | None
    attempts: int
    problem: str
    room_id: UUID | None
    room: str
    person_id: UUID | None
    person: str


class TasksResponse(ResponseModel):
    """Tasks by the time of their next run, and where the list continues."""

    tasks: list[TaskBody]
    next: str | None


class DeletedTaskResponse(ResponseModel):
    """The task that was deleted."""

    deleted: UUID


@dataclass(frozen=True, slots=True)
class TasksApi:
    """Handlers for scheduled tasks."""

    _directory: AgentDirectory

    @operation("GET", "/api/tasks", "tasks", Access.READ)
    async def list_tasks(self, request: web.Request, query: TasksQuery) -> TasksResponse:
        """List the scheduled tasks, those that are due first."""
        handles = self._directory.select_agents(query.agent)

        async def fetch(
            limit: int, after: tuple[datetime, UUID] | None
        ) -> Sequence[tuple[tuple[datetime, UUID], tuple[AgentHandle, Task]]]:
            found = [(handle, task) for handle in handles for task in await handle.tasks.tasks(limit, after)]
            keyed = [((task.next_run, task.id), (handle, task)) for handle, task in found]
            return sorted(keyed, key=lambda item: item[0])[:limit]

        def is_wanted(item: tuple[AgentHandle, Task]) -> bool:
            return query.state in (None, item[0].tasks.state_of(item[1]))

        page, cursor = await collect_page(fetch, is_wanted, query.limit, parse_position(query.before))
        next_page = None if cursor is None else build_cursor(*cursor)
        return TasksResponse(tasks=await _build_bodies(page), next=next_page)

    @operation("POST", "/api/tasks/{id}/run", "run-task", Access.CHANGE, (404, 409, 503))
    async def run_task(self, request: web.Request) -> TaskBody:
        """Make a task due now."""
        return await self._decide(request.match_info["id"], TaskControl.run)

    @operation("POST", "/api/tasks/{id}/pause", "pause-task", Access.CHANGE, (404, 409, 503))
    async def pause_task(self, request: web.Request) -> TaskBody:
        """Leave a task out until it is resumed."""
        return await self._decide(request.match_info["id"], TaskControl.pause)

    @operation("POST", "/api/tasks/{id}/resume", "resume-task", Access.CHANGE, (404, 409, 503))
    async def resume_task(self, request: web.Request) -> TaskBody:
        """Queue a task again that was paused or failed too often."""
        return await self._decide(request.match_info["id"], TaskControl.resume)

    @operation("DELETE", "/api/tasks/{id}", "delete-task", Access.CHANGE, (404, 503))
    async def delete_task(self, request: web.Request) -> DeletedTaskResponse:
        """Delete a task; a plugin that schedules it at every start does so again."""
        task_id = parse_id(request.match_info["id"])
        for handle in self._directory:
            if await handle.tasks.delete(task_id):
                return DeletedTaskResponse(deleted=task_id)
        raise build_not_found("task", task_id)

    async def _decide(self, text: str, decide: Decision) -> TaskBody:
        task_id = parse_id(text)
        handle, decision = await self._directory.find("task", task_id, lambda handle: decide(handle.tasks, task_id))
        if not decision.is_done:
            raise HttpProblem(409, "conflict", decision.note)
        [body] = await _build_bodies([(handle, decision.task)])
        return body


async def _build_bodies(page: Sequence[tuple[AgentHandle, Task]]) -> list[TaskBody]:
    """Return the bodies of tasks; the rooms and people of an agent are read together."""
    names: dict[UUID | None, str] = {}
    for handle in {handle.agent_id: handle for handle, _ in page}.values():
        tasks = [task for owner, task in page if owner is handle]
        names |= await load_names(handle, (item_id for task in tasks for item_id in (task.room_id, task.entity_id)))
    return [_build_body(handle, task, names) for handle, task in page]


def _build_body(handle: AgentHandle, task: Task, names: Mapping[UUID | None, str]) -> TaskBody:
    every: float | None = None
    cron = timezone = problem = ""
    if task.is_repeating:
        try:
            schedule = task.schedule
        except ValueError as error:
            problem = str(error)
        else:
            cron, timezone = schedule.cron, (schedule.timezone or "UTC") if schedule.cron else ""
            every = None if cron else schedule.interval.total_seconds()
    return TaskBody(
        id=task.id,
        agent_id=handle.agent_id,
        name=task.name,
        description=task.description,
        state=handle.tasks.state_of(task),
        due_at=task.next_run,
        every_s=every,
        cron=cron,
        timezone=timezone,
        late_s=handle.tasks.late_seconds(task),
        last_at=last_run_of(task),
        attempts=task.attempts,
        problem=task.last_error or problem,
        room_id=task.room_id,
        room=names.get(task.room_id, ""),
        person_id=task.entity_id,
        person=names.get(task.entity_id, ""),
    )


class WorldSettingRequest(RequestModel):
    """The new value of a setting; blank to remove it."""

    value: Annotated[Text, StringConstraints(max_length=4000)]


class WorldSettingBody(ResponseModel):
    """A setting of a world; `value` is empty for a secret, whether it is set or not."""

    name: str
    description: str
    usage: str
    plugin: str
    is_secret: bool
    is_required: bool
    is_set: bool
    value: str


class WorldSettingsResponse(ResponseModel):
    """The settings that a world can have now; `note` is what the plugin says about a change."""

    world_id: UUID
    agent_id: UUID
    name: str
    settings: list[WorldSettingBody]
    note: str = ""


@dataclass(frozen=True, slots=True)
class WorldSettingsApi:
    """Handlers for the settings of worlds."""

    _directory: AgentDirectory

    @operation("GET", "/api/worlds/{id}/settings", "world-settings", Access.READ, (404,))
    async def list_settings(self, request: web.Request) -> WorldSettingsResponse:
        """List the settings of a world that plugins declare."""
        handle, world = await self._find_world(request)
        return await self._respond(handle, world)

    @operation("POST", "/api/worlds/{id}/settings/{name}", "set-world-setting", Access.CHANGE, (404, 503))
    async def set_setting(
        self, request: web.Request, read_body: ReadBody[WorldSettingRequest]
    ) -> WorldSettingsResponse:
        """Set a setting of a world; a blank value removes it."""
        handle, world = await self._find_world(request)
        name = request.match_info["name"]
        if name not in {spec.name for spec in handle.catalog.world_settings}:
            raise build_not_found("setting of worlds", name)
        body = await read_body()
        try:
            note = await handle.world_settings.change(world.id, name, body.value, actor=None, source=SOURCE)
        except SettingError as error:
            raise HttpProblem(422, "invalid_request", str(error)) from None
        return await self._respond(handle, await handle.conversations.world(world.id) or world, note)

    async def _find_world(self, request: web.Request) -> tuple[AgentHandle, World]:
        world_id = parse_id(request.match_info["id"])
        return await self._directory.find("world", world_id, lambda handle: handle.conversations.world(world_id))

    async def _respond(self, handle: AgentHandle, world: World, note: str = "") -> WorldSettingsResponse:
        states = await handle.world_settings.states(world)
        bodies = [
            WorldSettingBody.build(state.spec, is_set=state.is_set, value="" if state.spec.is_secret else state.value)
            for state in states
        ]
        return WorldSettingsResponse(
            world_id=world.id, agent_id=handle.agent_id, name=world.name, settings=bodies, note=note
        )
