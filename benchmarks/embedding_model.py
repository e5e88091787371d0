"""Vectors of texts by all-MiniLM-L6-v2, with numpy: for tables and measurements, not for the program."""

import json
import re
import struct
from collections import defaultdict
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any
from unicodedata import category, normalize

import numpy

FIRST, LAST = 101, 102  # the marks around a text
UNKNOWN = "[UNK]"
LAYERS, HEADS, HEAD_SIZE, BATCH = 6, 12, 32, 64
MAX_PIECES = 254  # of a text; the model was trained with no longer ones
Array = Any


class EmbeddingModel:
    """The encoder of a BERT model in a folder with model.safetensors and tokenizer.json."""

    def __init__(self, folder: Path) -> None:
        tokenizer = json.loads((folder / "tokenizer.json").read_text(encoding="utf-8"))
        self.vocabulary: dict[str, int] = tokenizer["model"]["vocab"]
        data = (folder / "model.safetensors").read_bytes()
        start = 8 + struct.unpack("<Q", data[:8])[0]
        self._weights: dict[str, Array] = {}
        for name, entry in json.loads(data[8:start]).items():
            if entry.get("dtype") == "F32":
                first, end = entry["data_offsets"]
                values = numpy.frombuffer(data[start + first : start + end], numpy.float32)
                self._weights[name.removeprefix("bert.")] = values.reshape(entry["shape"])

    def embed_texts(self, texts: Iterable[str]) -> dict[str, Array]:
        """Return a unit vector for each text."""
        by_length = defaultdict(list)
        for text in dict.fromkeys(texts):
            pieces = self._split(text)
            by_length[len(pieces)].append((text, pieces))
        vectors = {}
        for same in by_length.values():
            for batch in (same[start : start + BATCH] for start in range(0, len(same), BATCH)):
                embedded = self.embed([pieces for _, pieces in batch])
                vectors.update(zip((text for text, _ in batch), embedded, strict=True))
        return vectors

    def _split(self, text: str) -> list[int]:
        """Return the pieces of a text: of each word the longest ones that the vocabulary has."""
        plain = "".join(char for char in normalize("NFD", text.lower()) if category(char) != "Mn")
        pieces: list[int] = []
        for word in re.findall(r"\w+|[^\w\s]", plain):
            of_word: list[int] = []
            start = 0
            while start < len(word):
                parts = ((end, "##" * bool(start) + word[start:end]) for end in range(len(word), start, -1))
                end, part = next(((end, part) for end, part in parts if part in self.vocabulary), (0, UNKNOWN))
                of_word.append(self.vocabulary[part])
                start = end or len(word)
            pieces += [self.vocabulary[UNKNOWN]] if self.vocabulary[UNKNOWN] in of_word else of_word
        return pieces[:MAX_PIECES]

    def embed(self, texts: Sequence[Sequence[int]]) -> Array:
        """Return a unit vector for each text, given as the pieces of the vocabulary; all have equally many."""
        ids = numpy.array([[FIRST, *pieces, LAST] for pieces in texts])
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
            inner = 0.5 * inner * (1 + numpy.tanh(0.7978845608 * (inner + 0.044715 * inner * inner * inner)))
            state = self._norm(state + self._linear(inner, f"{name}.output.dense"), f"{name}.output.LayerNorm")
        return to_unit(state.mean(1))

    def _linear(self, state: Array, name: str) -> Array:
        return state @ self._weights[f"{name}.weight"].T + self._weights[f"{name}.bias"]

    def _norm(self, state: Array, name: str) -> Array:
        centred = state - state.mean(-1, keepdims=True)
        scaled = centred / numpy.sqrt(state.var(-1, keepdims=True) + 1e-12)
        return scaled * self._weights[f"{name}.weight"] + self._weights[f"{name}.bias"]


def to_unit(vectors: Array) -> Array:
    """Return vectors of length 1 in the same directions."""
    return vectors / numpy.linalg.norm(vectors, axis=1, keepdims=True)
