"""Make the tables of related English words of plugins/bootstrap/recall from a folder with all-MiniLM-L6-v2.

    python -m benchmarks.word_tables FOLDER

The folder has model.safetensors and tokenizer.json. Needs numpy, and three minutes on two cores. Each whole word of
the vocabulary is embedded alone; what all words share is subtracted; the vectors of words with one stem are averaged.
"""

import json
import lzma
import struct
import sys
from pathlib import Path
from typing import Any

import numpy
from snowballstemmer import stemmer

from plugins.bootstrap.recall.words import VECTOR_LENGTH

FIRST, LAST = 101, 102  # the marks around a text
LAYERS, HEADS, HEAD_SIZE, BATCH = 6, 12, 32, 256
FREQUENT_WORDS = 8_000  # the directions that all words share are found among these
SHARED_DIRECTIONS, NEAREST, MIN_LIKENESS, TYPICAL_RANK = 2, 8, 0.5, 2_000
TARGET = Path(__file__).parents[1] / "plugins" / "bootstrap" / "recall"
Array = Any


def main() -> None:
    """Write both tables."""
    folder = Path(sys.argv[1])
    vocabulary = json.loads((folder / "tokenizer.json").read_text(encoding="utf-8"))["model"]["vocab"]
    ordered = sorted(vocabulary, key=vocabulary.__getitem__)
    words = [word for word in ordered if word.isascii() and word.isalpha() and len(word) > 2]
    model = Model(folder / "model.safetensors")
    batches = [words[start : start + BATCH] for start in range(0, len(words), BATCH)]
    vectors = numpy.concatenate([model.embed([vocabulary[word] for word in batch]) for batch in batches])
    write_tables(words, vectors.astype(numpy.float64))


class Model:
    """The encoder of a BERT model, for texts of one word."""

    def __init__(self, file: Path) -> None:
        data = file.read_bytes()
        start = 8 + struct.unpack("<Q", data[:8])[0]
        self._weights: dict[str, Array] = {}
        for name, entry in json.loads(data[8:start]).items():
            if entry.get("dtype") == "F32":
                first, end = entry["data_offsets"]
                values = numpy.frombuffer(data[start + first : start + end], numpy.float32)
                self._weights[name.removeprefix("bert.")] = values.reshape(entry["shape"])

    def embed(self, pieces: list[int]) -> Array:
        """Return a unit vector for each piece of the vocabulary."""
        ids = numpy.array([[FIRST, piece, LAST] for piece in pieces])
        count, length = ids.shape
        state = self._weights["embeddings.word_embeddings.weight"][ids]
        state = state + self._weights["embeddings.position_embeddings.weight"][:length]
        state = self._norm(state + self._weights["embeddings.token_type_embeddings.weight"][0], "embeddings.LayerNorm")
        for layer in range(LAYERS):
            name = f"encoder.layer.{layer}"
            query, key, value = (
                self._linear(state, f"{name}.attention.self.{part}")
                .reshape(count, length, HEADS, HEAD_SIZE)
                .transpose(0, 2, 1, 3)
                for part in ("query", "key", "value")
            )
            weights = numpy.exp(query @ key.transpose(0, 1, 3, 2) / HEAD_SIZE**0.5)
            weights /= weights.sum(-1, keepdims=True)
            seen = (weights @ value).transpose(0, 2, 1, 3).reshape(count, length, HEADS * HEAD_SIZE)
            seen = self._linear(seen, f"{name}.attention.output.dense")
            state = self._norm(state + seen, f"{name}.attention.output.LayerNorm")
            inner = self._linear(state, f"{name}.intermediate.dense")
            inner = 0.5 * inner * (1 + numpy.tanh(0.7978845608 * (inner + 0.044715 * inner**3)))
            state = self._norm(state + self._linear(inner, f"{name}.output.dense"), f"{name}.output.LayerNorm")
        return _to_unit(state.mean(1))

    def _linear(self, state: Array, name: str) -> Array:
        return state @ self._weights[f"{name}.weight"].T + self._weights[f"{name}.bias"]

    def _norm(self, state: Array, name: str) -> Array:
        centred = state - state.mean(-1, keepdims=True)
        scaled = centred / numpy.sqrt(state.var(-1, keepdims=True) + 1e-12)
        return scaled * self._weights[f"{name}.weight"] + self._weights[f"{name}.bias"]


def write_tables(words: list[str], vectors: Array) -> None:
    """Write the nearest stems of each stem, and the vectors of the stems in few dimensions."""
    stems, averages = _average_by_stem(words, _without_shared_directions(vectors))
    rows = []
    for number, stem in enumerate(stems):
        likeness = averages @ averages[number]
        likeness[number] = 0
        best = [place for place in numpy.argsort(-likeness)[:NEAREST] if likeness[place] >= MIN_LIKENESS]
        rows.append(f"{stem} " + " ".join(f"{place}:{round(likeness[place] * 100)}" for place in best))
    _write("related_words.en.txt.xz", "\n".join(rows).encode())
    centred = averages - averages.mean(0)
    directions = numpy.linalg.svd(centred[:FREQUENT_WORDS], full_matrices=False)[2][:VECTOR_LENGTH]
    short = numpy.clip(numpy.round(_to_unit(averages @ directions.T) * 127), -127, 127)
    _write("word_vectors.en.bin.xz", short.astype(numpy.int8).tobytes())


def _without_shared_directions(vectors: Array) -> Array:
    vectors = vectors - vectors.mean(0)
    directions = numpy.linalg.svd(vectors[:FREQUENT_WORDS], full_matrices=False)[2][:SHARED_DIRECTIONS]
    return _to_unit(vectors - vectors @ directions.T @ directions)


def _average_by_stem(words: list[str], vectors: Array) -> tuple[list[str], Array]:
    """Return the stems in the order of the words, and their vectors; more frequent words count more."""
    sums: dict[str, Array] = {}
    for rank, (stem, vector) in enumerate(zip(stemmer("english").stemWords(words), vectors, strict=True)):
        sums[stem] = sums.get(stem, 0) + vector / (1 + rank / TYPICAL_RANK)
    return list(sums), _to_unit(numpy.array(list(sums.values())))


def _to_unit(vectors: Array) -> Array:
    return vectors / numpy.linalg.norm(vectors, axis=1, keepdims=True)


def _write(name: str, data: bytes) -> None:
    TARGET.joinpath(name).write_bytes(lzma.compress(data, preset=9 | lzma.PRESET_EXTREME))


if __name__ == "__main__":
    main()
