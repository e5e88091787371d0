"""Play with a hostile model and people of four roles, for as many turns as you like, and count misdeeds."""

import argparse
import asyncio
import logging
import os
import sys
import time
from collections import Counter
from concurrent.futures import ProcessPoolExecutor, as_completed

from tests.roleplay.playing import Chapter, played
from tests.roleplay.scenes import SCENES

CHAPTER = 1_000
MOST_SHOWN = 10


def main() -> int:
    """Play every scene for its share of the turns, a chapter of a thousand at a time."""
    parser = argparse.ArgumentParser(prog="python -m tests.roleplay", description=__doc__)
    parser.add_argument("--turns", type=int, default=100_000, help="of all scenes together")
    parser.add_argument("--seed", type=int, default=1, help="the same one draws the same play")
    given = parser.parse_args()
    chapters = -(-given.turns // (CHAPTER * len(SCENES)))
    plan = [(name, CHAPTER, given.seed + number) for number in range(chapters) for name in SCENES]
    turns, refused, done = Counter[str](), Counter[str](), {name: set[str]() for name in SCENES}
    unlawful: list[str] = []
    begun = time.monotonic()
    with ProcessPoolExecutor(max_workers=os.cpu_count()) as pool:
        for future in as_completed([pool.submit(play, *arguments) for arguments in plan]):
            chapter = future.result()
            turns[chapter.scene] += chapter.turns
            refused[chapter.scene] += chapter.refused
            done[chapter.scene] |= chapter.done
            unlawful += [f"{chapter.scene}, seed {chapter.seed}: {description}" for description in chapter.unlawful]
    for name in SCENES:
        changed = ", ".join(sorted(done[name]))
        write(f"{name}: {turns[name]} turns, {refused[name]} with a refusal; changed: {changed}")
    write(f"{sum(turns.values())} turns in {time.monotonic() - begun:.0f} s, {len(unlawful)} misdeeds")
    for item in unlawful[:MOST_SHOWN]:
        write(f"    {item}")
    return 1 if unlawful else 0


def play(name: str, turns: int, seed: int) -> Chapter:
    """Play one chapter in a process of its own, without a word."""
    logging.disable(logging.CRITICAL)
    return asyncio.run(played(name, turns, seed))


def write(line: str) -> None:
    """Print a line at once."""
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())
