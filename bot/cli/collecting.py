"""How often the process looks for garbage: seldom, and never among what is there since the start."""

import gc

# New objects until the next look, and looks at the youngest until the next one at older ones.
THRESHOLDS = (20_000, 50, 100)


def look_seldom() -> None:
    """Leave alone what is there already, and look for circles among the rest less often.

    Nearly everything that a message leaves behind goes without a look; at Python's own thresholds looking
    takes a fifth of the time of answering.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(*THRESHOLDS)
