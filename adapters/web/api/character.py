"""HTTP handlers of an agent's character file: read, check, preview, try, save; its secrets are never shown."""

import asyncio
from dataclasses import dataclass, field
from datetime import datetime
from typing import Annotated
from uuid import UUID

from aiohttp import web
from pydantic import BeforeValidator, StringConstraints

from adapters.web.auth import Access
from adapters.web.json_io import HttpProblem, build_not_found
from adapters.web.openapi import ReadBody, operation
from adapters.web.queries import AgentDirectory
from adapters.web.schemas import RequestModel, ResponseModel, Text
from bot import ConfigError
from bot.models import ModelError
from bot.platform import AgentHandle, CharacterText, CharacterTools, FileConflict, SectionShare, TrialReply

MAX_RUNNING_CHECKS = 2  # at a time: each takes a thread
PlaceInFile = Annotated[int | None, BeforeValidator(lambda number: number or None)]  # 0 is unknown
NO_FILE = "no file of this character can be edited here: it was not started with `bot run` or `bot dev`"


class CharacterRequest(RequestModel):
    """The text of a character's file; `[secret 1]` stands for the first secret of the file, which is not shown."""

    text: Text


class CharacterChangeRequest(CharacterRequest):
    """The new text of the file, and the `etag` of the one that it replaces."""

    etag: Annotated[str, StringConstraints(pattern="^[0-9a-f]{1,64}$")]


class TrialRequest(CharacterRequest):
    """The text of a character's file, and a message to it."""

    message: Annotated[Text, StringConstraints(min_length=1, max_length=4000)] = "Hello!"


class CharacterResponse(ResponseModel):
    """A character's file as it is now, and the version that the agent runs; both are null for older versions."""

    agent_id: UUID
    file: str
    text: str
    etag: str
    is_writable: bool
    running_etag: str | None
    running_since: datetime | None


class CharacterVersionBody(ResponseModel):
    """A version of the file that was replaced by a newer one."""

    id: str
    replaced_at: datetime
    bytes: int


class VersionsResponse(ResponseModel):
    """The stored versions, the newest first; of older ones than the last twenty none is stored."""

    versions: list[CharacterVersionBody]


class CharacterProblemBody(ResponseModel):
    """What is wrong at a place of the file; `line` and `column` are null where the place is not known."""

    line: PlaceInFile
    column: PlaceInFile
    path: str
    message: str


class SectionShareBody(SectionShare):
    """A section of the file, as the API names it."""


class CheckResponse(ResponseModel):
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


class PromptSectionBody(ResponseModel):
    """A part of the prompt; `kind` is `character`, `actions`, `rules` or `providers`, `size` is in bytes."""

    kind: str
    name: str
    plugin: str
    size: int
    text: str


class PreviewResponse(ResponseModel):
    """The prompt that the model would get with a first private message, in its order."""

    size: int
    sections: list[PromptSectionBody]


class TrialResponse(TrialReply):
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
        try:
            text = await tools.read()
        except ConfigError as error:
            raise _refused(error) from None
        return _build_response(handle, text)

    @operation("GET", "/api/agents/{agent}/character/versions", "character-versions", Access.CHANGE, (404,))
    async def list_versions(self, request: web.Request) -> VersionsResponse:
        """List the versions of a character's file before the current one."""
        _, tools = self._find_tools(request)
        versions = [
            CharacterVersionBody(id=item.version, replaced_at=item.replaced_at, bytes=item.size)
            for item in await tools.versions()
        ]
        return VersionsResponse(versions=versions)

    @operation("GET", "/api/agents/{agent}/character/versions/{id}", "character-version", Access.CHANGE, (404, 422))
    async def show_version(self, request: web.Request) -> CharacterResponse:
        """Return an older version of a character's file."""
        handle, tools = self._find_tools(request)
        version = request.match_info["id"]
        try:
            text = await tools.read(version)
        except LookupError:
            raise build_not_found("version", version) from None
        except ConfigError as error:
            raise _refused(error) from None
        return CharacterResponse(
            agent_id=handle.agent_id,
            file=text.path,
            text=text.text,
            etag=text.version,
            is_writable=False,
            running_etag=None,
            running_since=None,
        )

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
        try:
            async with self._checks:
                sections = await tools.preview(body.text, body.message)
        except ConfigError as error:
            raise _refused(error) from None
        return PreviewResponse.model_validate({"size": sum(item.size for item in sections), "sections": sections})

    @operation("POST", "/api/agents/{agent}/character/try", "try-character", Access.CHANGE, (404, 503))
    async def try_reply(self, request: web.Request, read_body: ReadBody[TrialRequest]) -> TrialResponse:
        """Ask the model to answer a message as the character of a text."""
        _, tools = self._find_tools(request)
        body = await read_body()
        try:
            reply = await tools.try_reply(body.text, body.message)
        except ConfigError as error:
            raise _refused(error) from None
        except ModelError as error:
            raise HttpProblem(503, "model_failed", str(error)) from None
        return TrialResponse.model_validate(reply)

    @operation("PUT", "/api/agents/{agent}/character", "save-character", Access.CHANGE, (404, 409, 503))
    async def save(self, request: web.Request, read_body: ReadBody[CharacterChangeRequest]) -> SavedResponse:
        """Replace a character's file and take it up; the version before it is stored."""
        handle, tools = self._find_tools(request)
        body = await read_body()
        try:
            async with self._checks:
                saved = await tools.save(body.text, body.etag)
                result = await tools.check(saved.text)
        except FileConflict as error:
            raise HttpProblem(409, "conflict", str(error)) from None
        except ConfigError as error:
            raise _refused(error) from None
        reloaded = await handle.reload()
        return SavedResponse(
            **dict(_build_response(handle, saved)),
            changed=list(reloaded.changed),
            needs_restart=list(reloaded.needs_restart),
            untrusted_code=list(result.untrusted_code),
            problem=reloaded.error,
        )

    def _find_tools(self, request: web.Request) -> tuple[AgentHandle, CharacterTools]:
        handle = self._directory.find_agent(request.match_info["agent"])
        if handle.operator_tools is None:
            raise HttpProblem(404, "not_found", NO_FILE)
        return handle, handle.operator_tools.character


def _build_response(handle: AgentHandle, text: CharacterText) -> CharacterResponse:
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


def _refused(error: ConfigError) -> HttpProblem:
    """Return the problem for a file that cannot be used; without the lines of it that the error quotes."""
    lines = [line for line in str(error).splitlines() if not line.startswith(" ")]
    return HttpProblem(422, "character_refused", "; ".join(lines))
