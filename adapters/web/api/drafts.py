"""HTTP handlers of replies and posts that wait for a person."""

from dataclasses import dataclass
from typing import Annotated, Literal

from aiohttp import web
from pydantic import Field

from adapters.web.auth import GRANT, Access
from adapters.web.incoming import name_room
from adapters.web.json_io import HttpProblem, build_not_found
from adapters.web.openapi import ReadBody, operation
from adapters.web.queries import AgentDirectory
from adapters.web.schemas import AgentQuery, RequestModel, ResponseModel
from bot.platform import AgentHandle, DraftBody, ProposalDecision
from bot.store import ProposalState

ACTOR = "an operator"
MAX_TEXT_LENGTH = 20_000


class DraftsQuery(AgentQuery):
    """Selection of drafts: those that wait, those in another state, or all."""

    state: ProposalState | Literal["all"] = ProposalState.WAITING
    limit: Annotated[int, Field(ge=1, le=500)] = 100


class DraftsResponse(ResponseModel):
    """The latest drafts, oldest first; `waiting` is how many wait in all."""

    drafts: list[DraftBody]
    waiting: int


class DraftRequest(RequestModel):
    """A decision about a draft, as it was shown in a revision; without one, as it is now."""

    revision: Annotated[int, Field(ge=1)] | None = None


class DraftEditRequest(DraftRequest):
    """Another text for a draft; null says that a person is writing one, so that nothing replaces it meanwhile."""

    text: Annotated[str, Field(max_length=MAX_TEXT_LENGTH)] | None = None


class DraftResponse(DraftBody):
    """A draft after a decision about it, with a note."""

    note: str


@dataclass(frozen=True, slots=True)
class DraftsApi:
    """Handlers for drafts; a decision that cannot be carried out is a conflict, whose message says why."""

    _directory: AgentDirectory

    @operation("GET", "/api/drafts", "drafts", Access.READ)
    async def list_drafts(self, request: web.Request, query: DraftsQuery) -> DraftsResponse:
        """List the replies and posts that wait for a person."""
        state = None if query.state == "all" else query.state
        handles = self._directory.select_agents(query.agent)
        drafts = [
            draft
            for handle in handles
            for draft in await handle.operations.drafts(state=state, limit=query.limit, name_room=name_room)
        ]
        waiting = sum([len(await handle.operations.proposals.waiting()) for handle in handles])
        newest = sorted(drafts, key=lambda draft: draft.created_at)[-query.limit :]
        return DraftsResponse(drafts=newest, waiting=waiting)

    @operation("POST", "/api/drafts/{id}/send", "send-draft", Access.CHANGE, (404, 409))
    async def send_draft(self, request: web.Request, read_body: ReadBody[DraftRequest]) -> DraftResponse:
        """Send a draft."""
        handle, body = await self._find(request), await read_body()
        return await self._decide(handle, request, ProposalDecision.SEND, body)

    @operation("POST", "/api/drafts/{id}/edit", "edit-draft", Access.CHANGE, (404, 409))
    async def edit_draft(self, request: web.Request, read_body: ReadBody[DraftEditRequest]) -> DraftResponse:
        """Change the text of a draft."""
        handle, body = await self._find(request), await read_body()
        return await self._decide(handle, request, ProposalDecision.EDIT, body, body.text)

    @operation("POST", "/api/drafts/{id}/drop", "drop-draft", Access.CHANGE, (404, 409))
    async def drop_draft(self, request: web.Request, read_body: ReadBody[DraftRequest]) -> DraftResponse:
        """Drop a draft."""
        handle, body = await self._find(request), await read_body()
        return await self._decide(handle, request, ProposalDecision.DROP, body)

    async def _find(self, request: web.Request) -> AgentHandle:
        """Return the agent that has a draft, before the body is read."""
        draft_id = request.match_info["id"]
        for handle in self._directory:
            if await handle.operations.has_draft(draft_id):
                return handle
        raise build_not_found("draft", draft_id)

    async def _decide(
        self,
        handle: AgentHandle,
        request: web.Request,
        decision: ProposalDecision,
        body: DraftRequest,
        text: str | None = None,
    ) -> DraftResponse:
        draft_id = request.match_info["id"]
        actor = GRANT.get().name or ACTOR
        result = await handle.operations.decide_draft(
            draft_id, decision, actor=actor, revision=body.revision, text=text, name_room=name_room
        )
        if result.draft is None:
            raise build_not_found("draft", draft_id)
        if not result.is_done:
            raise HttpProblem(409, "conflict", result.note)
        return DraftResponse(**dict(result.draft), note=result.note)
