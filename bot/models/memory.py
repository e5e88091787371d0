"""How much memory requests and responses of models take."""

from collections.abc import AsyncIterable, AsyncIterator

from bot.concurrency.tasks import MemorySemaphore
from bot.errors import MemoryLimitReached, ModelError
from bot.models.types import (
    EmbeddingRequest,
    ImageDescriptionRequest,
    ImageRequest,
    ModelRequest,
    SpeechRequest,
    TextRequest,
    TranscriptionRequest,
)

IMAGE_COPIES, AUDIO_COPIES = 5, 2  # of a file in a request, besides the file: base64 in JSON; the parts of a form
BYTES_PER_VECTOR = 128 * 1024  # of a response, as JSON and as numbers
IMAGE_BYTES, SPEECH_BYTES = 32 * 2**20, 16 * 2**20  # of responses with a generated image or speech
FREE_BYTES = 256 * 1024  # an ordinary answer takes less, and waits for no memory
STEP_BYTES = 1024 * 1024
COPIES = 4  # of what is read of a response: as bytes, as text, joined, and parsed


def count_bytes(request: ModelRequest) -> int:
    """Return how many bytes a call is expected to take at most, besides a file in its request; 0 for few.

    An answer that is longer than FREE_BYTES takes them while it comes, see `ResponseMemory`.
    """
    match request:
        case TextRequest():
            size = 0
        case EmbeddingRequest():
            size = BYTES_PER_VECTOR * len(request.texts)
        case ImageDescriptionRequest():
            size = IMAGE_COPIES * len(request.image)
        case TranscriptionRequest():
            size = AUDIO_COPIES * len(request.audio)
        case ImageRequest():
            size = IMAGE_BYTES
        case SpeechRequest():
            size = SPEECH_BYTES
    return size if size > FREE_BYTES else 0


class ResponseMemory:
    """The memory of one response, which grows while it is read; all of it is given back when the call ends.

    `label` begins its errors: the provider and the model.
    """

    def __init__(self, memory: MemorySemaphore, label: str) -> None:
        self._memory = memory
        self._label = label
        self._size = FREE_BYTES
        self._pending = 0

    async def count(self, chunks: AsyncIterable[bytes]) -> AsyncIterator[bytes]:
        """Yield the chunks of a body, and take what all of them need that came since the last `reset`.

        Raises as `extend` does.
        """
        async for chunk in chunks:
            self._pending += len(chunk)
            self.extend(self._pending)
            yield chunk

    def reset(self) -> None:
        """Count from here on: what came before has been read, and is not held any more."""
        self._pending = 0

    def extend(self, length: int) -> None:
        """Take what so many bytes or characters need that are held of the response now.

        Raises ModelError if MEMORY_LIMIT leaves too little: to ask again would cost the same again.
        """
        missing = COPIES * length - self._size
        if missing <= 0:
            return
        missing += STEP_BYTES
        try:
            self._memory.grow(missing)
        except MemoryLimitReached as error:
            raise ModelError(f"{self._label}: the response is too long: {error}") from None
        self._size += missing
