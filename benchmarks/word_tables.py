"""Make the tables of related English words of plugins/bootstrap/recall from a folder with all-MiniLM-L6-v2.

    python -m benchmarks.word_tables FOLDER

The folder has model.safetensors and tokenizer.json. Needs numpy, and three minutes on two cores. Each whole word of
the vocabulary is embedded alone; what all words share is subtracted; the vectors of words with one stem are averaged.
"""

import lzma
import sys
from pathlib import Path

import numpy
from snowballstemmer import stemmer

from benchmarks.embedding_model import Array, EmbeddingModel, to_unit
from plugins.bootstrap.recall.index import VECTOR_LENGTH

BATCH = 256
FREQUENT_WORDS = 8_000  # the directions that all words share are found among these
SHARED_DIRECTIONS, NEAREST, MIN_LIKENESS, TYPICAL_RANK = 2, 8, 0.5, 2_000
TARGET = Path(__file__).parents[1] / "plugins" / "bootstrap" / "recall"


def main() -> None:
    """Write both tables."""
    folder = Path(sys.argv[1])
    model = EmbeddingModel(folder)
    vocabulary = model.vocabulary
    ordered = sorted(vocabulary, key=vocabulary.__getitem__)
    words = [word for word in ordered if word.isascii() and word.isalpha() and len(word) > 2]
    batches = [words[start : start + BATCH] for start in range(0, len(words), BATCH)]
    vectors = numpy.concatenate([model.embed([[vocabulary[word]] for word in batch]) for batch in batches])
    write_tables(words, vectors.astype(numpy.float64))


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
    short = numpy.clip(numpy.round(to_unit(averages @ directions.T) * 127), -127, 127)
    _write("word_vectors.en.bin.xz", short.astype(numpy.int8).tobytes())


def _without_shared_directions(vectors: Array) -> Array:
    vectors = vectors - vectors.mean(0)
    directions = numpy.linalg.svd(vectors[:FREQUENT_WORDS], full_matrices=False)[2][:SHARED_DIRECTIONS]
    return to_unit(vectors - vectors @ directions.T @ directions)


def _average_by_stem(words: list[str], vectors: Array) -> tuple[list[str], Array]:
    """Return the stems in the order of the words, and their vectors; more frequent words count more."""
    sums: dict[str, Array] = {}
    for rank, (stem, vector) in enumerate(zip(stemmer("english").stemWords(words), vectors, strict=True)):
        sums[stem] = sums.get(stem, 0) + vector / (1 + rank / TYPICAL_RANK)
    return list(sums), to_unit(numpy.array(list(sums.values())))


def _write(name: str, data: bytes) -> None:
    TARGET.joinpath(name).write_bytes(lzma.compress(data, preset=9 | lzma.PRESET_EXTREME))


if __name__ == "__main__":
    main()
