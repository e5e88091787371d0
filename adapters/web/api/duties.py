"""HTTP handler of what a bot owes people: notices, referrals, people who are not read, minors."""

import asyncio
from dataclasses import dataclass
from datetime import datetime, timedelta
from uuid import UUID

from aiohttp import web

from adapters.web.auth import Access
from adapters.web.openapi import operation
from adapters.web.queries import AgentDirectory
from adapters.web.schemas import AgentQuery, ResponseModel
from bot import system_clock
from bot.platform import REPORT_DAYS, AgentHandle, CareReport, build_care_report

SETTINGS = (
    *("AI_NOTICE", "AI_NOTICE_TEXT", "AI_NOTICE_POSTS"),
    *("CARE", "CARE_COUNTRY", "CARE_IN_GROUPS", "CARE_TEXT"),
    *("MINORS", "IGNORED_ROLES"),
)


class MarkBody(ResponseModel):
    """A person who is not read (`not_read`) or a minor (`minor`), who set that (person, operator, role), and when."""

    person: UUID
    agent: UUID
    mark: str
    origin: str
    platform: str
    external_id: str
    at: datetime


class DutySetting(ResponseModel):
    """A setting of a character; `value` is null where it is not set."""

    agent: UUID
    name: str
    value: str | None


class DutiesBody(ResponseModel):
    """How many people were told that an AI writes, the referrals of the last 30 days, marked people, and settings."""

    notified_people: int
    care: CareReport
    marks: list[MarkBody]
    content: dict[UUID, str]
    settings: list[DutySetting]


@dataclass(frozen=True, slots=True)
class DutiesApi:
    """Serves what a bot owes the people whom it meets, as far as it is recorded."""

    _directory: AgentDirectory

    @operation("GET", "/api/duties", "duties", Access.READ)
    async def show_duties(self, request: web.Request, query: AgentQuery) -> DutiesBody:
        """Return notices, referrals, people who are not read, minors, and the settings for them."""
        today, handles = system_clock().date(), self._directory.select_agents(query.agent)
        since = today - timedelta(days=REPORT_DAYS)
        counts = await asyncio.gather(*(handle.activity.care_counts(since) for handle in handles))
        notified = await asyncio.gather(*(handle.activity.count_notified() for handle in handles))
        return DutiesBody(
            notified_people=sum(notified),
            care=build_care_report([item for of_agent in counts for item in of_agent], since, today),
            marks=[mark for handle in handles for mark in _list_marks(handle)],
            content={handle.agent_id: str(handle.character.content) for handle in handles},
            settings=[
                DutySetting(agent=handle.agent_id, name=name, value=handle.settings.get(name) or None)
                for handle in handles
                for name in SETTINGS
            ],
        )


def _list_marks(handle: AgentHandle) -> list[MarkBody]:
    return [
        MarkBody(
            person=item.entity_id,
            agent=handle.agent_id,
            mark=item.mark,
            origin=item.origin,
            platform=item.platform,
            external_id=item.external_id,
            at=item.at,
        )
        for item in handle.people.marks()
    ]
