"""Whether a text tells that something has changed or was wrong: by signs of several languages and by weighted words.

`python -m benchmarks.train_recall` makes the weights, for English, from the topics that are for tuning.
"""

import json
import re
from collections.abc import Mapping
from functools import cache, lru_cache
from importlib.resources import files

from plugins.bootstrap.recall.words import split_words

WEIGHTS_NAME = "change_words.json"
MAX_LENGTH = 1_000  # characters that are read: a correction is short, and a long text costs time
_SIGNS = re.compile(
    r"\b(?:now|actually|instead|anymore|any more|no longer|not any|correct(?:ion|ed)|update[ds]?|"
    r"chang(?:e[ds]?|ing)|switch(?:ed|ing)|mov(?:ed|ing)|re(?:located|assigned|placed|scheduled|measured|named)|new|"
    r"scrap|meant|mistake|sorry|since then|these days|finally|as of|decided|ended up|turn(?:s|ed) out|transferred|"
    r"migrated|dropp?ed|quit|left(?! an? \w+)|gave up|give up|given up|done with|broke up|sold|closed|cancell?ed|"
    r"postponed|over to|on to|got rid|became|wiped|handed|make (?:that|it)|started|rather than|oops|whoops|typo|"
    r"mis(?:read|typed|spoke|counted|remembered|heard)|wrong|mixed up|(?:scratch|strike) that|my bad|"
    r"(?:take|took) (?:it|that) back|on second thoughts?|after all|in the end|eventually|at last|reconsidered|"
    r"(?:i'd|would) rather|nowadays|from (?:here|now|today|this \w+|next \w+) on(?:wards?)?|from today|for good|"
    r"since (?:last|yesterday|this)|lately|swap(?:ped|ping)?|traded|(?:up|down)graded|converted|withdrew|"
    r"(?:pulled|backed) out|opted|settled (?:on|for)|talked me into|won me over|bumped|pushed (?:back|to)|"
    r"brought forward|delay(?:ed)?|re(?:planted|booked|painted|homed|made|built|newed)|went (?:for|with|back)|"
    r"fell through|(?:takes|took) over|broke down|promoted|expired|ran out|made way|stopped|not going back|"
    r"(?:forget|ignore) (?:that|what|the|about|it)|never mind|(?:is|it's|it’s) (?:correct|right)|make do|the real|"
    r"pulling your leg|(?:an)?other one|different one|(?:even|way|much|something) better|too \w+,? (?:to|for|so)|"
    r"no[,.;:!] (?!thanks?|problem|worries|idea|clue|need)|ditched|dumped|scrapped|chose|picked|persuaded|convinced|"
    r"kidding|joking|i lied|edit:|in fact|to be (?:exact|precise)|(?:should|must) (?:be|have been|read|say)|"
    r"truth is|full story|grown into|turned into|replacement|had to|did ?n[o']?t (?:work out|fit|last|suit)|"
    r"wo ?n[o']?t (?:do|fit|work)|fell apart|died|broke|got stolen|lost my|was taken|sold out|booked out|"
    r"fully booked|let go of|said goodbye|farewell|in favou?r of|on reflection|thinking about it|last.minute|"
    r"short notice|extended|shortened|slipped|gone up|went (?:up|down|over)|grew|raised|cut (?:down|back|to)|"
    r"one more|(?:re)?counted|"
    r"(?:checked|looked|measured|counted|asked|tried|weighed)(?: \w+)? (?:again|properly|out|on)|double.checked|"
    r"by now|no more|meanwhile|stuck with|hooked on|fell for|tempted|changed hands|passed (?:it|them|on)|"
    r"gave (?:it|them|him|her)|not (?:\w+ ){0,2}(?:as|what) (?:i|we|you)|than i (?:said|thought|told)|used to|"
    r"these are|for me (?:now|then|this)|next time|luckily|unfortunately|sadly|turns? into|doch|jetzt|mittlerweile|"
    r"inzwischen|korrektur|statt\w*|nicht mehr|umgezogen|geändert|verschoben|gewechselt|"
    r"maintenant|désormais|finalement|changé|ahora|ya no|cambi\w+|adesso|agora|теперь|больше не)\b",
    re.IGNORECASE,
)


def tells_change(text: str) -> bool:
    """Return whether a text says that something has changed or was wrong; reads its first `MAX_LENGTH` characters."""
    return _tells_change(text[:MAX_LENGTH])


@lru_cache(maxsize=4096)
def _tells_change(text: str) -> bool:
    if _SIGNS.search(text) is not None:
        return True
    weights, bias = _load_weights()
    return sum(weights.get(word, 0.0) for word in change_words(text)) + bias >= 0


def change_words(text: str) -> set[str]:
    """Return the words of a text as the weights have them."""
    return {word.replace("’", "'") for word in split_words(text)}


@cache
def _load_weights() -> tuple[Mapping[str, float], float]:
    stored = json.loads(files("plugins.bootstrap.recall").joinpath(WEIGHTS_NAME).read_text(encoding="utf-8"))
    return stored["words"], stored["bias"]
