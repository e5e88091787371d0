"""What a router learns of each model: its speed, how many tokens it writes and reads, and the limits of its answers."""

import logging
import re
from dataclasses import dataclass, replace

from bot.domain.ledger import ModelCall
from bot.models.attempt import CallTimer
from bot.models.types import ModelInfo, Purpose, TextRequest, TextResult
from bot.prompts.reply_parser.dialects import peel
from bot.prompts.reply_parser.reader import read_reply

logger = logging.getLogger(__name__)

# The limit of an answer in tokens by its purpose, where neither the request nor the operator sets one.
OUTPUT_TOKENS = {Purpose.SHOULD_RESPOND: 256, Purpose.CHECK: 256, Purpose.REFLECTION: 2048, Purpose.OTHER: 2048}
DEFAULT_OUTPUT_TOKENS = 1024
THINKING_TOKENS = 8192  # in addition, for a model that thinks
MORE_TOKENS = 4  # times the limit, after an answer that ended before its text began
MIN_OUTPUT_TOKENS = 64
MIN_ANSWER_TOKENS, MIN_THINKING_TOKENS = 256, 2048  # a shorter answer or thought is not worth its price
SHORTENED_PURPOSES = frozenset({Purpose.REPLY, Purpose.SUMMARY})  # others are of no use when they are cut
MIN_WINDOW = 256  # tokens; a smaller number is not a context window in which a prompt fits
MAX_OUTPUT_SHARE = 4  # an answer has at least this part of a small context window
MARGIN_TOKENS = 64  # of a context window, for the template of the server
BYTES_PER_TOKEN, MIN_BYTES_PER_TOKEN = 3.0, 1.0  # assumed before the first answer, and the smallest plausible
MIN_COUNTED_TOKENS = 64  # in a shorter prompt, the server's own text is too large a part
TINY_PARAMETERS = 1_000_000_000
SPEED_MARGIN = 2.0
MAX_EXTENSION = 10  # times the deadline for a first piece, for a server on this machine
MIN_THOUGHT_LENGTH = 32  # characters in front of an answer; headers are shorter
WINDOW = re.compile(
    r"(?:context (?:length|size|window|limit)|n_ctx|num_ctx|max_model_len)\W{0,8}(?:\w+ ){0,4}?\W{0,4}(\d[\d,]{2,8})\b"
    r"|>\s*(\d[\d,]{2,8})\s*(?:tokens\s*)?maximum",
    re.IGNORECASE,
)


@dataclass(slots=True)
class ModelProfile:
    """What is known of one model.

    `window` is its context window in tokens, None if it is unknown. `prompt_speed` is the slowest so far, in bytes a
    second. `factor` multiplies the limit of its answers. `thinks` says that it has written thoughts before an answer.
    """

    name: str
    is_local: bool = False
    window: int | None = None
    bytes_per_token: float = BYTES_PER_TOKEN
    prompt_speed: float | None = None
    factor: int = 1
    thinks: bool = False
    parameter_count: int | None = None

    @property
    def is_tiny(self) -> bool:
        """Whether the model is too small to write an answer in a form."""
        return 0 < (self.parameter_count or 0) < TINY_PARAMETERS

    def update(self, info: ModelInfo) -> None:
        """Take over what the server reports now."""
        self.name, self.is_local = info.name or self.name, info.is_local
        if info.context_length is not None and info.context_length >= MIN_WINDOW:
            self.window = info.context_length
        self.parameter_count = info.parameter_count

    def output_tokens(self, request: TextRequest) -> int:
        """Return the limit of the visible answer to a request, in tokens."""
        tokens = request.max_tokens or OUTPUT_TOKENS.get(request.purpose, DEFAULT_OUTPUT_TOKENS)
        tokens *= self.factor
        return tokens if self.window is None else min(tokens, max(MIN_OUTPUT_TOKENS, self.window // MAX_OUTPUT_SHARE))

    def min_tokens(self, request: TextRequest) -> int:
        """Return the lowest limit with which an answer to a request is worth its price, in tokens."""
        tokens = self.output_tokens(request)
        if request.purpose in SHORTENED_PURPOSES:
            tokens = min(tokens, MIN_ANSWER_TOKENS)
        return tokens + MIN_THINKING_TOKENS if self.thinks else tokens

    def max_prompt_bytes(self, request: TextRequest) -> int | None:
        """Return how long the prompt of a request may be; None if the model's context window is unknown."""
        if self.window is None:
            return None
        return max(0, int((self.window - self.output_tokens(request) - MARGIN_TOKENS) * self.bytes_per_token))

    def with_limit(self, request: TextRequest, prompt_bytes: int) -> TextRequest:
        """Return the request with the limit of its answer, which a model that thinks may exceed by an allowance."""
        tokens = self.output_tokens(request) + (THINKING_TOKENS if self.thinks else 0)
        return self.clamp(replace(request, max_tokens=tokens), prompt_bytes)

    def clamp(self, request: TextRequest, prompt_bytes: int) -> TextRequest:
        """Return the request with a limit that fits into the context window beside the prompt."""
        if self.window is None or request.max_tokens is None:
            return request
        left = self.window - MARGIN_TOKENS - int(prompt_bytes / self.bytes_per_token)
        return replace(request, max_tokens=min(request.max_tokens, max(MIN_OUTPUT_TOKENS, left)))

    def first_seconds(self, prompt_bytes: int, minimum: float) -> float:
        """Return the seconds to wait for the first piece of an answer.

        A server on this machine has no fewer than it needs to read the prompt, as far as its speed is known.
        """
        if not self.is_local or self.prompt_speed is None:
            return minimum
        return min(max(minimum, SPEED_MARGIN * prompt_bytes / self.prompt_speed), MAX_EXTENSION * minimum)

    def learn(self, result: TextResult, call: ModelCall, timer: CallTimer) -> None:
        """Learn from an answer and its record."""
        if timer.first_piece_at is not None and call.prompt_bytes:
            self._learn_speed(call.prompt_bytes, timer.first_piece_at - timer.started_at)
        if not call.is_estimate and call.tokens_in >= MIN_COUNTED_TOKENS:
            self.bytes_per_token = max(MIN_BYTES_PER_TOKEN, call.prompt_bytes / call.tokens_in)
        if not self.thinks and (result.has_thoughts or _has_thoughts(result.text)):
            self.thinks = True

    def learn_slowness(self, prompt_bytes: int, timer: CallTimer, seconds: float) -> None:
        """Learn that no piece of an answer came in this time: the next call may take longer."""
        if timer.first_piece_at is None and prompt_bytes:
            self._learn_speed(prompt_bytes, seconds)

    def _learn_speed(self, prompt_bytes: int, seconds: float) -> None:
        speed = prompt_bytes / max(seconds, 1e-3)
        self.prompt_speed = speed if self.prompt_speed is None else min(speed, 2 * self.prompt_speed)

    def learn_window(self, message: str) -> None:
        """Learn the context window from the error for a prompt that is too long, if it contains the number."""
        for match in WINDOW.finditer(message):
            tokens = int((match[1] or match[2]).replace(",", ""))
            if tokens >= MIN_WINDOW and (self.window is None or tokens < self.window):
                self.window = tokens
                logger.info("%s: its context window has %d tokens, says its server", self.name, tokens)

    def learn_factor(self) -> None:
        """Remember that answers need more tokens."""
        if self.factor == 1:
            self.factor = MORE_TOKENS
            logger.warning(
                "%s reached the limit of an answer before its text began; from now on the limit is %d times as high",
                self.name,
                MORE_TOKENS,
                extra={"once": True},
            )


def ends_too_early(result: TextResult) -> bool:
    """Return whether the limit ended an answer before its text began, or within the arguments of a call."""
    if not result.is_truncated:
        return False
    reply = read_reply(result.text)
    if result.has_cut_call or not all(name for name, _ in reply.calls):
        return True
    if reply.text and (reply.is_tagged or reply.is_complete):
        return False
    return not (result.tool_calls or (reply.actions and reply.is_complete))


def _has_thoughts(text: str) -> bool:
    return len(text) - len(peel(text).text) >= MIN_THOUGHT_LENGTH
