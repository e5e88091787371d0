"""Train the weights of the address classifier: `python -m benchmarks.train_addressed FOLDER [--cross-validate]`.

FOLDER holds annotated logs, one *.jsonl a log, a line each with `n`, `minute`, `author`, `text`, `answers` (the
numbers of the lines that it answers) and `annotated`. The same logs and LightGBM (the version in the
dependency group `training`) lead to the same file. `--cross-validate` prints instead how well each quarter of the logs
is judged by trees that were trained on the others.
"""

import json
import re
import sys
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from importlib import import_module
from pathlib import Path
from typing import Any
from zlib import crc32

from benchmarks.addressed import read_talk
from bot.pipeline.talk import FEATURES, LEAF, WEIGHTS, AddressClassifier, Node

Log = list[dict[str, Any]]
Cases = list[tuple[tuple[float, ...], bool]]

MIN_LINES = 8  # annotated lines of an author who takes the agent's place
MIN_QUIET_LINES = 4
TALKS_IN_QUIET_ROOM = 3
DIGITS = 5
ROUNDS = 80
PARAMETERS = {
    "objective": "binary",
    "num_leaves": 16,
    "learning_rate": 0.12,
    "min_data_in_leaf": 60,
    "lambda_l2": 3,
    "feature_fraction": 0.6,
    "max_bin": 63,
    "seed": 1,
    "num_threads": 1,
    "deterministic": True,
    "force_row_wise": True,
    "verbose": -1,
}
SOURCE = (
    "Trained on the training logs of the IRC disentanglement corpus by J. Kummerfeld et al. (ACL 2019, "
    "jkk.name/irc-disentanglement), licensed CC BY 4.0; the logs are not part of this project."
)
_OPENING_NAME = re.compile(r"^\S+[,:]\s+")


def main() -> int:
    """Train on all logs of a folder and write the weights file."""
    folder, *options = sys.argv[1:] or [""]
    if not Path(folder).is_dir() or options not in ([], ["--cross-validate"]):
        print(__doc__, file=sys.stderr)
        return 2
    logs = list(read_logs(Path(folder)))
    if options:
        print(describe(list(cross_validate(logs))))
        return 0
    cases = [case for log in logs for case in build_cases(log)]
    trees = train(cases)
    rows = ",\n".join(json.dumps(tree, separators=(",", ":")) for tree in trees)
    head = json.dumps({"source": SOURCE, "features": FEATURES}, indent=1)[:-2]
    WEIGHTS.write_text(f'{head},\n "trees": [\n{rows}\n]}}\n', encoding="utf-8")
    print(f"{WEIGHTS.name}: {len(trees)} trees, from {len(cases)} cases")
    return 0


def read_logs(folder: Path) -> Iterator[Log]:
    """Yield the logs of a folder in the order of their names."""
    for path in sorted(folder.glob("*.jsonl")):
        yield [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines() if line]


def build_cases(log: Log) -> Cases:
    """Return the cases of a log: as it is, and cut into quiet rooms, with and without the names that open lines.

    People of a busy channel open their lines with names; those of a quiet room do not.
    """
    cases = list(find_cases(log, MIN_LINES))
    for room in split_quiet(log):
        cases += find_cases(room, MIN_QUIET_LINES)
        cases += find_cases([_drop_opening(line) for line in room], MIN_QUIET_LINES)
    return cases


def find_cases(log: Log, min_lines: int) -> Iterator[tuple[tuple[float, ...], bool]]:
    """Yield features and truth of each annotated line, with each author of enough lines in the agent's place."""
    authors = {line["n"]: line["author"] for line in log}
    counts = Counter(line["author"] for line in log if line["annotated"])
    for me in sorted(author for author, count in counts.items() if count >= min_lines):
        for line, (spoken, features) in zip(log, read_talk(log, me), strict=True):
            if line["annotated"] and spoken.author != me:
                yield features, any(authors.get(number) == me for number in line["answers"])


def split_quiet(log: Log) -> list[Log]:
    """Return rooms that hold a few neighbouring conversations of a log and nothing else."""
    talk_of: dict[int, int] = {}
    talks: dict[int, list[dict[str, Any]]] = defaultdict(list)
    for line in log:
        first = next((talk_of[number] for number in line["answers"] if number in talk_of), line["n"])
        talk_of[line["n"]] = first
        talks[first].append(line)
    long = [lines for lines in talks.values() if len(lines) >= 2 * MIN_QUIET_LINES]
    rooms = [long[start : start + TALKS_IN_QUIET_ROOM] for start in range(0, len(long), TALKS_IN_QUIET_ROOM)]
    return [sorted((line for talk in room for line in talk), key=lambda line: int(line["n"])) for room in rooms]


def _drop_opening(line: Mapping[str, Any]) -> dict[str, Any]:
    """Return a line without the name that opens it, three times of four."""
    if crc32(line["text"].encode()) % 4 == 0:
        return dict(line)
    return {**line, "text": _OPENING_NAME.sub("", line["text"]) or line["text"]}


def train(cases: Cases) -> list[list[Node]]:
    """Return the trees that fit the cases best."""
    lightgbm, numpy = import_module("lightgbm"), import_module("numpy")
    data = numpy.array([features for features, _ in cases], dtype=numpy.float64)
    truth = numpy.array([is_addressed for _, is_addressed in cases], dtype=numpy.float64)
    dataset = lightgbm.Dataset(data, truth, params=PARAMETERS)
    model = lightgbm.train(PARAMETERS, dataset, ROUNDS).dump_model()
    return [_flatten(tree["tree_structure"]) for tree in model["tree_info"]]


def _flatten(root: Mapping[str, Any]) -> list[Node]:
    nodes: list[Node] = []

    def place(node: Mapping[str, Any]) -> int:
        number = len(nodes)
        if "leaf_value" in node:
            nodes.append((LEAF, 0.0, 0, 0, round(node["leaf_value"], DIGITS)))
            return number
        nodes.append((LEAF, 0.0, 0, 0, 0.0))  # takes the number before its branches do
        low, high = place(node["left_child"]), place(node["right_child"])
        threshold, value = round(node["threshold"], DIGITS), round(node["internal_value"], DIGITS)
        nodes[number] = (node["split_feature"], threshold, low, high, value)
        return number

    place(root)
    return nodes


def cross_validate(logs: Sequence[Log], folds: int = 4) -> Iterator[tuple[float, bool]]:
    """Yield probability and truth of each case, from trees that have not seen its log."""
    for fold in range(folds):
        seen = [log for number, log in enumerate(logs) if number % folds != fold]
        classifier = AddressClassifier(train([case for log in seen for case in build_cases(log)]))
        for log in logs[fold::folds]:
            for features, is_addressed in find_cases(log, MIN_LINES):
                yield classifier.probability(features), is_addressed


def describe(found: Sequence[tuple[float, bool]]) -> str:
    """Return the best F1, and the recall where nine of ten that are said to be addressed are."""
    positives = sum(truth for _, truth in found)
    best_f1, sure_recall, hits = 0.0, 0.0, 0
    for number, (_, truth) in enumerate(sorted(found, reverse=True), start=1):
        hits += truth
        best_f1 = max(best_f1, 2 * hits / (number + positives))
        if hits >= 0.9 * number:
            sure_recall = hits / positives
    return f"{len(found)} cases, {positives} addressed: F1 {best_f1:.3f}, recall {sure_recall:.3f} at precision 0.90"


if __name__ == "__main__":
    sys.exit(main())
