"""HTTP handlers of the session, the agents, their files and tasks, and the program around them."""

import asyncio
import time
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import datetime
from typing import Annotated, Literal
from uuid import UUID

from aiohttp import web
from pydantic import BeforeValidator, Field, StringConstraints

from adapters.web import schemas
from adapters.web.auth import GRANT, Access, Credential, CredentialKind, Grant, TokenAuth
from adapters.web.config import Limits
from adapters.web.files_api import FILE_POLICY, build_file_limits
from adapters.web.json_io import HttpProblem, JsonResponder, build_not_found, build_wrong_token
from adapters.web.openapi import ReadBody, operation, package_version
from adapters.web.outgoing import build_agent_body
from adapters.web.people_api import SOURCE, load_names
from adapters.web.queries import AgentDirectory, build_cursor, collect_page, parse_id, parse_position
from bot import ConfigError, Role, SettingError, Task, World, platform, system_clock
from bot.models import ModelError
from bot.text import translate


class SignInRequest(schemas.RequestModel):
    """The server's token, or one with a scope."""

    token: Annotated[str, StringConstraints(strip_whitespace=True, min_length=1, max_length=500)]


class SizeLimits(schemas.ResponseModel):
    """Largest sizes, in bytes, of a request and of a frame of the WebSocket, and files of a message."""

    body_bytes: int
    frame_bytes: int
    files: int


class SessionResponse(schemas.ResponseModel):
    """What the token allows (`role` is its scope), its name, and the characters it may talk with."""

    role: platform.TokenScope
    name: str
    agents: list[schemas.AgentBody]
    version: str
    limits: SizeLimits
    files: schemas.FileLimits


class SignedOutResponse(schemas.ResponseModel):
    """The browser's cookies of this server are removed."""

    is_signed_in: bool = False


@dataclass(frozen=True, slots=True)
class SessionApi:
    """Handlers for the session of a browser; the cookie holds the session, so nothing is stored."""

    _directory: AgentDirectory
    _auth: TokenAuth
    _guess_limiter: platform.GuessLimiter
    _proxies: platform.TrustedProxies
    _responder: JsonResponder
    _limits: Limits

    @operation("GET", "/api/session", "session", Access.ANY)
    async def show_session(self, request: web.Request) -> SessionResponse:
        """Return what the token of the request allows."""
        return self._describe(GRANT.get())

    @operation("POST", "/api/session", "sign-in", Access.PUBLIC, response=SessionResponse)
    async def sign_in(self, request: web.Request, read_body: ReadBody[SignInRequest]) -> web.StreamResponse:
        """Exchange a token for a cookie of the browser, which scripts of pages cannot read."""
        body = await read_body()
        credential = Credential(CredentialKind.BEARER, body.token)
        grant = self._auth.find_grant(credential)
        if grant is None:
            client = self._proxies.find_client(request.remote, request.headers)
            self._guess_limiter.refuse(client, build_wrong_token())
        response = self._responder.respond(self._describe(grant))
        self._auth.set_cookie(response, grant, credential, request.cookies)
        return response

    @operation("DELETE", "/api/session", "sign-out", Access.ANY, response=SignedOutResponse)
    async def sign_out(self, request: web.Request) -> web.StreamResponse:
        """Remove the cookies of the browser; the token itself stays valid."""
        response = self._responder.respond(SignedOutResponse())
        self._auth.remove_cookies(response, request.cookies)
        return response

    def _describe(self, grant: Grant) -> SessionResponse:
        limits = SizeLimits(
            body_bytes=self._limits.max_body_bytes,
            frame_bytes=self._limits.max_frame_bytes,
            files=schemas.MAX_ATTACHMENTS,
        )
        return SessionResponse(
            role=grant.scope,
            name=grant.name,
            agents=[build_agent_body(handle) for handle in self._directory],
            version=package_version(),
            limits=limits,
            files=build_file_limits(self._limits),
        )


class AgentsResponse(schemas.ResponseModel):
    """All agents of the process, and the limits of uploaded files."""

    agents: list[schemas.AgentBody]
    files: schemas.FileLimits


class CommandBody(schemas.ResponseModel):
    """A command, such as `/help`, and what it does."""

    name: str
    description: str


class CommandsResponse(schemas.ResponseModel):
    """The commands that a person may run on the page, by name."""

    commands: list[CommandBody]


class ReloadResponse(schemas.ResponseModel):
    """What was taken up from a character's file, and what counts after the next start only."""

    agent_id: UUID
    name: str
    file: str
    changed: list[str]
    needs_restart: list[str]


@dataclass(frozen=True, slots=True)
class AgentsApi:
    """Handlers for the agents of the process."""

    _directory: AgentDirectory
    _limits: Limits

    @operation("GET", "/api/agents", "agents", Access.ANY)
    async def list_agents(self, request: web.Request) -> AgentsResponse:
        """List the agents."""
        bodies = [build_agent_body(handle) for handle in self._directory]
        return AgentsResponse(agents=bodies, files=build_file_limits(self._limits))

    @operation("GET", "/api/agents/{agent}/commands", "commands", Access.ANY, (404,))
    async def list_commands(self, request: web.Request) -> CommandsResponse:
        """List the commands of an agent that need no role on the page."""
        handle = self._directory.find_agent(request.match_info["agent"])
        commands = [
            CommandBody(name=command.name, description=translate(command.description))
            for command in sorted(handle.commands, key=lambda command: command.name)
            if command.role is Role.NONE or command.is_open_in_direct_chat
        ]
        return CommandsResponse(commands=commands)

    @operation("GET", "/api/agents/{agent}/picture", "picture", Access.ANY, (404,), is_file=True)
    async def show_picture(self, request: web.Request) -> web.StreamResponse:
        """Return the picture of an agent's character; 404 without one, or if it cannot be used."""
        handle = self._directory.find_agent(request.match_info["agent"])
        picture = await handle.read_picture()
        if picture is None:
            raise build_not_found("picture of", handle.character.name)
        response = web.Response(body=picture.body, content_type=picture.content_type)
        response.headers["Cache-Control"] = "private, max-age=600"
        response.headers["Content-Security-Policy"] = FILE_POLICY
        return response

    @operation("POST", "/api/agents/{agent}/reload", "reload", Access.CHANGE, (404, 422))
    async def reload_agent(self, request: web.Request) -> ReloadResponse:
        """Read an agent's character file again and take up what can change while it runs."""
        handle = self._directory.find_agent(request.match_info["agent"])
        result = await handle.reload()
        if result.error:
            raise HttpProblem(422, "character_refused", result.error)
        return ReloadResponse.build(result, agent_id=handle.agent_id, name=handle.character.name)


MAX_RUNNING_CHECKS = 2  # at a time: each takes a thread
PlaceInFile = Annotated[int | None, BeforeValidator(lambda number: number or None)]  # 0 is unknown
NO_FILE = "no file of this character can be edited here: it was not started with `bot run` or `bot dev`"


class CharacterRequest(schemas.RequestModel):
    """The text of a character's file; `[secret 1]` stands for the first secret of the file, which is not shown."""

    text: schemas.Text


class CharacterChangeRequest(CharacterRequest):
    """The new text of the file, and the `etag` of the one that it replaces."""

    etag: Annotated[str, StringConstraints(pattern="^[0-9a-f]{1,64}$")]


class TrialRequest(CharacterRequest):
    """The text of a character's file, and a message to it."""

    message: Annotated[schemas.Text, StringConstraints(min_length=1, max_length=4000)] = "Hello!"


class CharacterResponse(schemas.ResponseModel):
    """A character's file as it is now, and the version that the agent runs; both are null for older versions."""

    agent_id: UUID
    file: str
    text: str
    etag: str
    is_writable: bool
    running_etag: str | None
    running_since: datetime | None


class CharacterVersionBody(schemas.ResponseModel):
    """A version of the file that was replaced by a newer one."""

    id: str
    replaced_at: datetime
    bytes: int


class VersionsResponse(schemas.ResponseModel):
    """The stored versions, the newest first; of older ones than the last twenty none is stored."""

    versions: list[CharacterVersionBody]


class CharacterProblemBody(schemas.ResponseModel):
    """What is wrong at a place of the file; `line` and `column` are null where the place is not known."""

    line: PlaceInFile
    column: PlaceInFile
    path: str
    message: str


class SectionShareBody(platform.SectionShare):
    """A section of the file, as the API names it."""


class CheckResponse(schemas.ResponseModel):
    """What `bot character check` would say; the file can be used if there are no errors.

    `untrusted_code` are plugins named by their paths, which wait until `bot character trust` was run.
    `sections` say what of the file the prompts of chats and of feeds hold.
    """

    errors: list[CharacterProblemBody]
    warnings: list[CharacterProblemBody]
    name: str
    plugin_notes: list[str]
    untrusted_code: list[str]
    sections: dict[str, list[SectionShareBody]]


class PromptSectionBody(schemas.ResponseModel):
    """A part of the prompt; `kind` is `character`, `actions`, `rules` or `providers`, `size` is in bytes."""

    kind: str
    name: str
    plugin: str
    size: int
    text: str


class PreviewResponse(schemas.ResponseModel):
    """The prompt that the model would get with a first private message, in its order."""

    size: int
    sections: list[PromptSectionBody]


class TrialResponse(platform.TrialReply):
    """What the model answered, as the API names it."""


class SavedResponse(CharacterResponse):
    """The file after it was saved, and what of it the agent has taken up.

    With a `problem` the agent runs the version before it. `needs_restart` counts after the next start;
    `untrusted_code` waits until `bot character trust` was run.
    """

    changed: list[str]
    needs_restart: list[str]
    untrusted_code: list[str]
    problem: str


@dataclass(frozen=True, slots=True)
class CharacterApi:
    """Handlers for the files of characters; the operator's alone."""

    _directory: AgentDirectory
    _checks: asyncio.Semaphore = field(default_factory=lambda: asyncio.Semaphore(MAX_RUNNING_CHECKS))

    @operation("GET", "/api/agents/{agent}/character", "character", Access.CHANGE, (404, 422))
    async def show(self, request: web.Request) -> CharacterResponse:
        """Return a character's file, and which version of it runs."""
        handle, tools = self._find_tools(request)
        with _reporting_refusals():
            return _build_response(handle, await tools.read())

    @operation("GET", "/api/agents/{agent}/character/versions", "character-versions", Access.CHANGE, (404,))
    async def list_versions(self, request: web.Request) -> VersionsResponse:
        """List the versions of a character's file before the current one."""
        _, tools = self._find_tools(request)
        versions = await tools.versions()
        bodies = [CharacterVersionBody.build(item, id=item.version, bytes=item.size) for item in versions]
        return VersionsResponse(versions=bodies)

    @operation("GET", "/api/agents/{agent}/character/versions/{id}", "character-version", Access.CHANGE, (404, 422))
    async def show_version(self, request: web.Request) -> CharacterResponse:
        """Return an older version of a character's file."""
        handle, tools = self._find_tools(request)
        version = request.match_info["id"]
        try:
            with _reporting_refusals():
                response = _build_response(handle, await tools.read(version))
        except LookupError:
            raise build_not_found("version", version) from None
        return response.model_copy(update={"is_writable": False, "running_etag": None, "running_since": None})

    @operation("POST", "/api/agents/{agent}/character/check", "check-character", Access.CHANGE, (404,))
    async def check(self, request: web.Request, read_body: ReadBody[CharacterRequest]) -> CheckResponse:
        """Check a text as `bot character check` checks a file."""
        _, tools = self._find_tools(request)
        body = await read_body()
        async with self._checks:
            result = await tools.check(body.text)
        return CheckResponse.model_validate(result)

    @operation("POST", "/api/agents/{agent}/character/preview", "preview-character", Access.CHANGE, (404,))
    async def preview(self, request: web.Request, read_body: ReadBody[TrialRequest]) -> PreviewResponse:
        """Return the prompt that a text would lead to."""
        _, tools = self._find_tools(request)
        body = await read_body()
        with _reporting_refusals():
            async with self._checks:
                sections = await tools.preview(body.text, body.message)
        return PreviewResponse.model_validate({"size": sum(item.size for item in sections), "sections": sections})

    @operation("POST", "/api/agents/{agent}/character/try", "try-character", Access.CHANGE, (404, 503))
    async def try_reply(self, request: web.Request, read_body: ReadBody[TrialRequest]) -> TrialResponse:
        """Ask the model to answer a message as the character of a text."""
        _, tools = self._find_tools(request)
        body = await read_body()
        with _reporting_refusals():
            return TrialResponse.model_validate(await tools.try_reply(body.text, body.message))

    @operation("PUT", "/api/agents/{agent}/character", "save-character", Access.CHANGE, (404, 409, 503))
    async def save(self, request: web.Request, read_body: ReadBody[CharacterChangeRequest]) -> SavedResponse:
        """Replace a character's file and take it up; the version before it is stored."""
        handle, tools = self._find_tools(request)
        body = await read_body()
        with _reporting_refusals():
            async with self._checks:
                saved = await tools.save(body.text, body.etag)
                result = await tools.check(saved.text)
        reloaded = await handle.reload()
        return SavedResponse(
            **dict(_build_response(handle, saved)),
            changed=list(reloaded.changed),
            needs_restart=list(reloaded.needs_restart),
            untrusted_code=list(result.untrusted_code),
            problem=reloaded.error,
        )

    def _find_tools(self, request: web.Request) -> tuple[platform.AgentHandle, platform.CharacterTools]:
        handle = self._directory.find_agent(request.match_info["agent"])
        if handle.operator_tools is None:
            raise HttpProblem(404, "not_found", NO_FILE)
        return handle, handle.operator_tools.character


def _build_response(handle: platform.AgentHandle, text: platform.CharacterText) -> CharacterResponse:
    definition = handle.definition
    return CharacterResponse(
        agent_id=handle.agent_id,
        file=text.path,
        text=text.text,
        etag=text.version,
        is_writable=text.is_writable,
        running_etag=definition.version or None,
        running_since=definition.loaded_at,
    )


@contextmanager
def _reporting_refusals() -> Iterator[None]:
    """Raise HttpProblem for a file that cannot be used, or saved; without the lines of it that the error quotes."""
    try:
        yield
    except platform.FileConflict as error:
        raise HttpProblem(409, "conflict", str(error)) from None
    except ModelError as error:
        raise HttpProblem(503, "model_failed", str(error)) from None
    except ConfigError as error:
        lines = [line for line in str(error).splitlines() if not line.startswith(" ")]
        raise HttpProblem(422, "character_refused", "; ".join(lines)) from None


NO_TOOLS = "not available: this agent was not started with `bot run` or `bot dev`"


class PluginBody(platform.PluginState):
    """An installed plugin, as the API names it."""


class PluginsResponse(schemas.ResponseModel):
    """The installed plugins, and those that the character names by path; problems first."""

    agent_id: UUID
    plugins: list[PluginBody]


class SettingsQuery(schemas.AgentQuery):
    """Selection of variables: by a text in name, part or meaning, and those that are set."""

    q: Annotated[str, StringConstraints(strip_whitespace=True, max_length=200)] = ""
    is_set: bool | None = None


class SettingBody(schemas.ResponseModel):
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


class SettingsResponse(schemas.ResponseModel):
    """The variables of the program as an agent sees them, part by part."""

    agent_id: UUID
    settings: list[SettingBody]


class LogsQuery(schemas.Query):
    """Selection of log lines: from a level on, those that contain a text, those before a cursor."""

    level: Literal["DEBUG", "INFO", "WARNING", "ERROR", "CRITICAL"] = "DEBUG"
    q: Annotated[str, StringConstraints(strip_whitespace=True, max_length=200)] = ""
    before: Annotated[str, StringConstraints(pattern="^[0-9]{1,15}$")] | None = None
    limit: Annotated[int, Field(ge=1, le=200)] = 50


class LogLineBody(schemas.ResponseModel):
    """A line of the log without secrets; `error` is a traceback, if there is one."""

    id: str
    at: datetime
    level: str
    logger: str
    text: str
    error: str


class LogsResponse(schemas.ResponseModel):
    """Lines of the log, the newest first; those of the last thousands that the process has written."""

    lines: list[LogLineBody]
    next: str | None


class FindingBody(schemas.ResponseModel):
    """A result of a check: what it was about, what was found, what to do.

    `is_outside` is true if it failed because another service does not answer.
    """

    state: platform.FindingStatus
    subject: str
    text: str
    fix: str
    is_outside: bool


class DoctorResponse(schemas.ResponseModel):
    """The last results of the checks, problems first; `ran_at` is null if they have not run yet."""

    agent_id: UUID
    ran_at: datetime | None
    seconds: float | None
    findings: list[FindingBody]


WORST_FIRST = (platform.FindingStatus.FAIL, platform.FindingStatus.WARN, platform.FindingStatus.OK)


@dataclass(frozen=True, slots=True)
class SystemApi:
    """Handlers for plugins, settings, the log and the checks; the operator's alone."""

    _directory: AgentDirectory
    _requests: platform.TaskSet
    _running: dict[UUID, asyncio.Task[DoctorResponse]] = field(default_factory=dict)
    _results: dict[UUID, DoctorResponse] = field(default_factory=dict)

    @operation("GET", "/api/plugins", "plugins", Access.CHANGE, (404,))
    async def list_plugins(self, request: web.Request, query: schemas.AgentQuery) -> PluginsResponse:
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
        buffer = platform.find_log_buffer()
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
    async def show_checks(self, request: web.Request, query: schemas.AgentQuery) -> DoctorResponse:
        """Return the last results of the checks of `bot doctor`."""
        handle, _ = self._find_tools(query.agent)
        empty = DoctorResponse(agent_id=handle.agent_id, ran_at=None, seconds=None, findings=[])
        return self._results.get(handle.agent_id, empty)

    @operation("POST", "/api/doctor", "run-doctor", Access.CHANGE, (404,))
    async def run_checks(self, request: web.Request, query: schemas.AgentQuery) -> DoctorResponse:
        """Run the checks of `bot doctor` beside the agent; it takes seconds, and a small call to the model."""
        handle, tools = self._find_tools(query.agent)
        task = self._running.get(handle.agent_id)
        if task is None:
            task = self._running[handle.agent_id] = self._requests.start(self._run_checks(handle, tools))
            task.add_done_callback(lambda _: self._running.pop(handle.agent_id, None))
        return await asyncio.shield(task)

    async def _run_checks(self, handle: platform.AgentHandle, tools: platform.OperatorTools) -> DoctorResponse:
        started, ran_at = time.monotonic(), system_clock()
        findings = [*await platform.check_running([handle], ran_at), *await tools.program.run_checks()]
        bodies = [
            FindingBody.build(item, state=item.status, subject=item.check, text=item.message, fix=item.advice)
            for item in dict.fromkeys(findings)
        ]
        bodies.sort(key=lambda item: WORST_FIRST.index(item.state))
        seconds = time.monotonic() - started
        result = DoctorResponse(agent_id=handle.agent_id, ran_at=ran_at, seconds=seconds, findings=bodies)
        self._results[handle.agent_id] = result
        return result

    def _find_tools(self, agent: str | None) -> tuple[platform.AgentHandle, platform.OperatorTools]:
        handle = self._directory.find_agent(agent)
        if handle.operator_tools is None:
            raise HttpProblem(404, "not_found", NO_TOOLS)
        return handle, handle.operator_tools


Decision = Callable[[platform.TaskControl, UUID], Awaitable[platform.TaskDecision | None]]


class TasksQuery(schemas.PageQuery):
    """Selection of tasks."""

    state: Literal["waiting", "running", "paused", "failed", "asking"] | None = None


class TaskBody(schemas.ResponseModel):
    """A scheduled task: when it runs next, how it repeats, and what failed the last time.

    `every_s` and `cron` are how it repeats, `late_s` how long a waiting one is past its time, from a minute on.
    """

    id: UUID
    agent_id: UUID
    name: str
    description: str
    state: platform.TaskState
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


class TasksResponse(schemas.ResponseModel):
    """Tasks by the time of their next run, and where the list continues."""

    tasks: list[TaskBody]
    next: str | None


class DeletedTaskResponse(schemas.ResponseModel):
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
        ) -> Sequence[tuple[tuple[datetime, UUID], tuple[platform.AgentHandle, Task]]]:
            found = [(handle, task) for handle in handles for task in await handle.tasks.tasks(limit, after)]
            keyed = [((task.next_run, task.id), (handle, task)) for handle, task in found]
            return sorted(keyed, key=lambda item: item[0])[:limit]

        def is_wanted(item: tuple[platform.AgentHandle, Task]) -> bool:
            return query.state in (None, item[0].tasks.state_of(item[1]))

        page, cursor = await collect_page(fetch, is_wanted, query.limit, parse_position(query.before))
        next_page = None if cursor is None else build_cursor(*cursor)
        return TasksResponse(tasks=await _build_bodies(page), next=next_page)

    @operation("POST", "/api/tasks/{id}/run", "run-task", Access.CHANGE, (404, 409, 503))
    async def run_task(self, request: web.Request) -> TaskBody:
        """Make a task due now."""
        return await self._decide(request.match_info["id"], platform.TaskControl.run)

    @operation("POST", "/api/tasks/{id}/pause", "pause-task", Access.CHANGE, (404, 409, 503))
    async def pause_task(self, request: web.Request) -> TaskBody:
        """Leave a task out until it is resumed."""
        return await self._decide(request.match_info["id"], platform.TaskControl.pause)

    @operation("POST", "/api/tasks/{id}/resume", "resume-task", Access.CHANGE, (404, 409, 503))
    async def resume_task(self, request: web.Request) -> TaskBody:
        """Queue a task again that was paused or failed too often."""
        return await self._decide(request.match_info["id"], platform.TaskControl.resume)

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


async def _build_bodies(page: Sequence[tuple[platform.AgentHandle, Task]]) -> list[TaskBody]:
    """Return the bodies of tasks; the rooms and people of an agent are read together."""
    names: dict[UUID | None, str] = {}
    for handle in {handle.agent_id: handle for handle, _ in page}.values():
        tasks = [task for owner, task in page if owner is handle]
        names |= await load_names(handle, (item_id for task in tasks for item_id in (task.room_id, task.entity_id)))
    return [_build_body(handle, task, names) for handle, task in page]


def _build_body(handle: platform.AgentHandle, task: Task, names: Mapping[UUID | None, str]) -> TaskBody:
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
    return TaskBody.build(
        task,
        agent_id=handle.agent_id,
        state=handle.tasks.state_of(task),
        due_at=task.next_run,
        every_s=every,
        cron=cron,
        timezone=timezone,
        late_s=handle.tasks.late_seconds(task),
        last_at=platform.last_run_of(task),
        problem=task.last_error or problem,
        room=names.get(task.room_id, ""),
        person_id=task.entity_id,
        person=names.get(task.entity_id, ""),
    )


class WorldSettingRequest(schemas.RequestModel):
    """The new value of a setting; blank to remove it."""

    value: Annotated[schemas.Text, StringConstraints(max_length=4000)]


class WorldSettingBody(schemas.ResponseModel):
    """A setting of a world; `value` is empty for a secret, whether it is set or not."""

    name: str
    description: str
    usage: str
    plugin: str
    is_secret: bool
    is_required: bool
    is_set: bool
    value: str


class WorldSettingsResponse(schemas.ResponseModel):
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

    async def _find_world(self, request: web.Request) -> tuple[platform.AgentHandle, World]:
        world_id = parse_id(request.match_info["id"])
        return await self._directory.find("world", world_id, lambda handle: handle.conversations.world(world_id))

    async def _respond(self, handle: platform.AgentHandle, world: World, note: str = "") -> WorldSettingsResponse:
        states = await handle.world_settings.states(world)
        bodies = [
            WorldSettingBody.build(state.spec, is_set=state.is_set, value="" if state.spec.is_secret else state.value)
            for state in states
        ]
        return WorldSettingsResponse(
            world_id=world.id, agent_id=handle.agent_id, name=world.name, settings=bodies, note=note
        )
