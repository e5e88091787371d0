"""HTTP handler of the counts of referrals."""

import asyncio
from dataclasses import dataclass
from datetime import date, timedelta

from aiohttp import web

from adapters.web.auth import Access
from adapters.web.openapi import operation
from adapters.web.queries import AgentDirectory
from adapters.web.schemas import AgentQuery
from bot import system_clock
from bot.platform import REPORT_DAYS, CareReport, build_care_report


class CareQuery(AgentQuery):
    """The first day (UTC) of a report of referrals; by default it is 30 days ago."""

    since: date | None = None


@dataclass(frozen=True, slots=True)
class CareApi:
    """Serves how many people in distress were referred to help; no texts and no people."""

    _directory: AgentDirectory

    @operation("GET", "/api/care", "care", Access.READ)
    async def show_report(self, request: web.Request, query: CareQuery) -> CareReport:
        """Return how many people in distress were referred to help, by day and category."""
        today = system_clock().date()
        since = query.since or today - timedelta(days=REPORT_DAYS)
        handles = self._directory.select_agents(query.agent)
        counts = await asyncio.gather(*(handle.activity.care_counts(since) for handle in handles))
        return build_care_report([item for of_agent in counts for item in of_agent], since, today)
