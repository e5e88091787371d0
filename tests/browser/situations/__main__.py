"""Print what keeps bots from answering, and how soon its cause is found: `python -m tests.browser.situations`."""

import asyncio
import sys

from tests.browser.situations import accounts, deliveries, models, outages, silences, troubles
from tests.browser.situations.finding import Finding, look_for_causes

GROUPS = (accounts.GROUP, models.GROUP, silences.GROUP, deliveries.GROUP, *troubles.GROUPS, *outages.GROUPS)
MAX_TEXT = 110


def write(text: str) -> None:
    """Write a line."""
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


async def print_table(names: list[str]) -> int:
    """Print a line for each situation of these groups, of all without any; return how many causes were not found."""
    findings: list[Finding] = []
    write(f"{'situation':46} clicks  found")
    for group in GROUPS:
        if names and group.name not in names:
            continue
        async for finding in look_for_causes(group):
            findings.append(finding)
            found = finding.text[:MAX_TEXT] or f"NOT FOUND: {finding.problem}"
            write(f"{finding.situation.name[:46]:46} {finding.clicks:6}  {found}")
    missing = sum(not finding.is_good for finding in findings)
    clicks = [sum(finding.clicks == number for finding in findings) for number in range(4)]
    write(f"{len(findings)} situations, {missing} not found; by 0, 1, 2 and 3 clicks: {clicks}")
    return missing


if __name__ == "__main__":
    sys.exit(1 if asyncio.run(print_table(sys.argv[1:])) else 0)
