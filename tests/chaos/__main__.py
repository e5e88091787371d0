"""Kill the bot at random times and print the result: `make chaos`."""

import argparse
import asyncio
import os
import sys
import tempfile
from concurrent.futures import ProcessPoolExecutor, as_completed
from pathlib import Path

from tests.chaos.adapter import Unclear
from tests.chaos.campaign import Plan, Report, run_plan
from tests.chaos.control import run_control
from tests.chaos.loopback import Ability
from tests.chaos.program import ForkServer

SETTINGS = (
    (Ability.NONCE, Unclear.RESEND_MARKED),
    (Ability.REFUSING, Unclear.RESEND_MARKED),
    (Ability.NEITHER, Unclear.RESEND_MARKED),
    (Ability.NEITHER, Unclear.HOLD),
)
COLUMNS = (
    ("platform", 23),
    ("messages", 8),
    ("kills", 5),
    ("lost", 4),
    ("unexplained duplicates", 22),
    ("explained", 9),
    ("inversions", 10),
    ("held", 4),
    ("crowded out, told", 17),
    ("failed, told", 12),
    ("model calls", 11),
    ("seconds", 7),
)
MOST_COMPLAINTS = 10


def main() -> int:
    """Carry out one plan for each platform kind, one process a core."""
    parser = argparse.ArgumentParser(prog="python -m tests.chaos", description=__doc__)
    parser.add_argument("--messages", type=int, default=4000, help="per platform")
    parser.add_argument("--kills", type=int, default=200, help="per platform")
    parser.add_argument("--seed", type=int, default=1, help="the same one draws the same kills")
    parser.add_argument("--latest", choices=("room", "author", "queue"), default="room", help="LATEST_RESPONSE")
    parser.add_argument("--keep", type=Path, help="a folder in which everything is left for a look")
    parser.add_argument(
        "--control", action="store_true", help="kills at the stages of drafts, approvals and take-overs instead"
    )
    given = parser.parse_args()
    if given.control:
        return print_control(given.kills, given.seed)
    plans = [
        Plan(ability, given.messages, given.kills, given.seed, unclear=unclear, latest=given.latest)
        for ability, unclear in SETTINGS
    ]
    write(f"seed {given.seed}, LATEST_RESPONSE={given.latest}")
    write("  ".join(f"{name:<{width}}" for name, width in COLUMNS))
    complaints = 0
    with (
        tempfile.TemporaryDirectory(prefix="chaos-") as folder,
        ProcessPoolExecutor(max_workers=os.cpu_count()) as pool,
    ):
        place = given.keep or Path(folder)
        for done in as_completed([pool.submit(carry_out, plan, place) for plan in plans]):
            complaints += print_report(done.result())
    return 1 if complaints else 0


def print_control(kills: int, seed: int) -> int:
    """Kill at the stages of drafts and take-overs, and print what was done; return 1 if there is a complaint."""
    with tempfile.TemporaryDirectory(prefix="chaos-") as folder, ForkServer(Path(folder)) as fork_server:
        report = asyncio.run(run_control(kills, seed, Path(folder), fork_server))
    verdict = report.verdict
    write(f"seed {seed}: {sum(report.kills.values())} kills in {report.seconds:.0f} s")
    for stage, count in sorted(report.kills.items()):
        write(f"  {stage:<22}{count}")
    write(f"{verdict.messages} messages, {report.decisions} decisions about drafts, {report.take_overs} take-overs")
    write(f"lost {len(verdict.lost)}, repeated without the mark {len(verdict.doubled) + len(verdict.uncaused)}")
    write(f"repeated with the mark {verdict.explained}, out of order {len(verdict.inverted)}")
    for complaint in verdict.complaints[:MOST_COMPLAINTS]:
        write(f"    {complaint}")
    return 1 if verdict.complaints else 0


def carry_out(plan: Plan, folder: Path) -> Report:
    """Carry out one plan in a folder and with a fork server of its own."""
    own = folder / plan.title.replace(", ", "-")
    own.mkdir(parents=True)
    with ForkServer(own) as fork_server:
        return asyncio.run(run_plan(plan, own, fork_server))


def print_report(report: Report) -> int:
    """Print one line of the table and the first complaints; return the number of complaints."""
    verdict = report.verdict
    cells = (
        report.plan.title,
        verdict.messages,
        report.kills,
        len(verdict.lost),
        len(verdict.doubled) + len(verdict.uncaused),
        verdict.explained,
        len(verdict.inverted),
        verdict.held,
        verdict.crowded,
        verdict.failed,
        report.model_calls,
        round(report.seconds),
    )
    widths = [width for _, width in COLUMNS]
    write("  ".join(f"{cell!s:<{width}}" for cell, width in zip(cells, widths, strict=True)))
    for complaint in verdict.complaints[:MOST_COMPLAINTS]:
        write(f"    {complaint}")
    return len(verdict.complaints)


def write(line: str) -> None:
    """Write a line without delay: the whole run takes minutes."""
    sys.stdout.write(f"{line.rstrip()}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())
