"""Let the hostile model act in running agents and print the effects beyond rights: `make hostile`.

`python -m tests.hostile --turns 1000000 --state FILE` goes on where FILE ends, if it was interrupted.
"""

import argparse
import json
import os
import sys
import tempfile
import time
from collections import Counter
from concurrent.futures import ProcessPoolExecutor
from dataclasses import fields
from functools import partial
from itertools import chain
from pathlib import Path

from bot.cli.process.shutdown import reduce_gc_frequency
from tests.hostile.attacks import DOWNLOADED, read_attack_texts
from tests.hostile.campaign import EVENTS_PER_EPISODE, Report, run_episode

SQLITE_SHARE = 50  # one episode of so many runs on SQLite
PROGRESS_SECONDS = 30


def main() -> int:
    """Run the episodes, one process a core; return 1 if there were effects beyond rights."""
    parser = argparse.ArgumentParser(prog="python -m tests.hostile", description=__doc__)
    parser.add_argument("--turns", type=int, default=100_000)
    parser.add_argument("--seed", type=int, default=1, help="the same one sends the same events")
    parser.add_argument("--state", type=Path, help="a file with the figures so far, to go on from")
    parser.add_argument("--processes", type=int, default=os.cpu_count())
    parser.add_argument("--texts", type=Path, default=DOWNLOADED, help="a folder with wheels of attack texts")
    given = parser.parse_args()
    texts = read_attack_texts(given.texts)
    write(f"seed {given.seed}, attack texts: {texts.source}")
    report, first = read_state(given.state, given.seed)
    episodes = range(first, -(-given.turns // EVENTS_PER_EPISODE))
    started = shown_at = time.monotonic()
    turns_before = report.turns
    with ProcessPoolExecutor(given.processes, initializer=reduce_gc_frequency) as pool:
        for number, figures in zip(episodes, pool.map(partial(run, given.seed, given.texts), episodes), strict=True):
            report.add(figures)
            write_state(given.state, given.seed, report, number + 1)
            if (now := time.monotonic()) - shown_at > PROGRESS_SECONDS:
                shown_at = now
                rate = (report.turns - turns_before) / (now - started)
                write(f"{report.turns} turns, {report.beyond.total()} effects beyond rights, {rate:.0f} turns/s")
    print_report(report, time.monotonic() - started, report.turns - turns_before)
    return 1 if report.beyond else 0


def run(seed: int, folder_of_texts: Path, number: int) -> Report:
    """Run one episode, in memory or in a SQLite file of its own."""
    texts = read_attack_texts(folder_of_texts)
    if number % SQLITE_SHARE:
        return run_episode(seed, number, texts=texts)
    with tempfile.TemporaryDirectory(prefix="hostile-") as folder:
        return run_episode(seed, number, texts=texts, folder=Path(folder))


def read_state(path: Path | None, seed: int) -> tuple[Report, int]:
    """Return the figures of an interrupted run and the number of its next episode."""
    if path is None or not path.exists():
        return Report(), 0
    state = json.loads(path.read_text(encoding="utf-8"))
    if state["seed"] != seed:
        raise SystemExit(f"{path} belongs to seed {state['seed']}: name another file, or --seed {state['seed']}")
    counts = {name: Counter(state["report"][name]) for name in ("tried", "events", "entitled", "beyond")}
    return Report(**{**state["report"], **counts}), state["next"]


def write_state(path: Path | None, seed: int, report: Report, next_episode: int) -> None:
    """Replace the file with the figures so far."""
    if path is None:
        return
    figures = {item.name: getattr(report, item.name) for item in fields(report)}
    partial_path = path.with_suffix(".partial")
    partial_path.write_text(json.dumps({"seed": seed, "next": next_episode, "report": figures}))
    partial_path.replace(path)


def print_report(report: Report, seconds: float, turns: int) -> None:
    """Print the figures, then examples of effects beyond rights."""
    rate = turns / seconds if seconds else 0.0
    write(f"{report.turns} turns, {report.beyond.total()} effects beyond rights ({rate:.0f} turns/s)")
    write(f"{report.model_calls} model calls, {report.prompts_with_orders} prompts with an attacker's order")
    write(f"calls tried: {report.tried.total()}, questions: {report.questions}")
    for title, counts in (("events", report.events), ("entitled", report.entitled), ("beyond rights", report.beyond)):
        write(f"{title}: {', '.join(f'{name} {count}' for name, count in counts.most_common()) or 'none'}")
    for example in chain.from_iterable(report.examples.values()):
        write(f"    {example}")


def write(line: str) -> None:
    """Write a line without delay: a whole run takes long."""
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())
