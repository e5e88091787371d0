"""The report of referrals: how many there were, by day and category; whose they were is not stored."""

from collections import Counter
from collections.abc import Iterable
from datetime import date

from bot.care.recognition import DistressCategory
from bot.domain.ledger import CareCount
from bot.operate.results import Result

REPORT_DAYS = 30


class CareCountBody(Result):
    """How many referrals there were on a day (UTC) for one category."""

    day: date
    category: DistressCategory
    count: int


class CareReport(Result):
    """The referrals of some days (UTC), both ends included: in total, by category, and by day and category."""

    since: date
    until: date
    total: int
    categories: dict[DistressCategory, int]
    days: list[CareCountBody]


def build_care_report(counts: Iterable[CareCount], since: date, until: date) -> CareReport:
    """Return the report of these counts, which may be of several agents."""
    sums = Counter[tuple[date, str]]()
    for item in counts:
        sums[item.day, item.category] += item.count
    days = [
        CareCountBody(day=day, category=DistressCategory(name), count=sums[day, name]) for day, name in sorted(sums)
    ]
    categories = {
        category: sum(item.count for item in days if item.category is category) for category in DistressCategory
    }
    return CareReport(since=since, until=until, total=sum(sums.values()), categories=categories, days=days)
