"""`ModelRouter`: priority, failover, retries, circuit breakers, refused tools and structured output.

Read the arguments of function calls, which models and servers write in several forms.
"""

import asyncio
import json
import logging
import re
from collections import defaultdict, deque
from collections.abc import Awaitable, Callable, Collection, Hashable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, contextmanager, nullcontext, suppress
from contextvars import ContextVar
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from functools import partial
from math import inf
from statistics import median
from typing import Any, TypeVar

from pydantic import BaseModel, ValidationError

from bot.concurrency.clock import TimeSource
from bot.concurrency.tasks import FairSlots
from bot.domain.ledger import ModelCall
from bot.errors import (
    BudgetSpent,
    InvalidAnswer,
    MemoryLimitReached,
    ModelBusy,
    ModelError,
    ModelRefused,
    ModelTooSlow,
    ModelUnavailable,
    ModelUnreachable,
    PromptTooLong,
    ToolsRefused,
)
from bot.models import types
from bot.models.handler import (
    MAX_RETRY_SECONDS,
    MORE_TOKENS,
    AnswerFormSetting,
    Attempt,
    CallPolicy,
    ModelHandler,
    ModelProfile,
    PendingCall,
    R,
    Reserve,
    StreamOutput,
    count_bytes,
    count_prompt_bytes,
    measure_audio,
)
from bot.models.types import ModelType
from bot.prompts.reply_parser.field_scanner import first_object, read_mapping
from bot.prompts.reply_parser.offered_calls import read_loose_arguments
from bot.prompts.reply_parser.reader import read_reply
from bot.text import shorten

logger = logging.getLogger(__name__)

MAX_CALLS = 24  # of one search
INDEX = re.compile(r"(?:tools|functions?|function_?declarations)\W{1,4}(\d+)", re.IGNORECASE)


@dataclass(slots=True, eq=False)
class RefusedTools:
    """The tools that the provider behind one handler refuses; they are left out of all later requests.

    A provider refuses a whole request for the schema of one tool, and does not always say which one it is.
    """

    _provider: str
    _refused: set[str] = field(default_factory=set)

    async def call(self, request: types.TextRequest, send: Callable[[types.TextRequest], Awaitable[R]]) -> R:
        """Return what `send` returns for the request without the tools that are refused.

        Those not known yet are found by leaving out those that the refusal names, else half of them: n tools, one of
        which is refused, take at most log2 n + 2 calls. After `MAX_CALLS` calls, all tools that no successful call
        contained are left out. Raises as `send` does; ToolsRefused if a request without tools is refused too.
        """
        known = self._refused
        tools = dict(enumerate(tool for tool in request.tools if not (known and _identify(tool) in known)))
        trial, suspects = list(tools), list[int]()
        accepted: list[int] = []
        result: R | None = None
        cause = ""
        for _ in range(MAX_CALLS):
            named: list[int] = []
            try:
                result = await send(replace(request, tools=tuple(tools[key] for key in trial)))
            except ToolsRefused as error:
                if not trial:
                    raise
                cause = str(error)
                suspects = [key for key in trial if key not in accepted]
                named = _find_named(cause, trial, tools)
            else:
                accepted, suspects = trial, [key for key in suspects if key not in trial]
            if len(suspects) == 1:
                self._leave_out([tools.pop(suspects.pop())], cause)
            if result is not None and len(accepted) == len(tools):
                return result
            others = [key for key in suspects if key not in named]
            half: list[int] = others if 0 < len(others) < len(suspects) else suspects[: len(suspects) // 2]
            trial = [*accepted, *half] if suspects else list(tools)
        self._leave_out([tool for key, tool in tools.items() if key not in accepted], cause)
        return result if result is not None else await send(replace(request, tools=()))

    def _leave_out(self, tools: Iterable[types.Tool], cause: str) -> None:
        for tool in tools:
            self._refused.add(_identify(tool))
            logger.warning(
                "%s refuses the tool %s, which is left out from now on: %s",
                self._provider,
                tool.name,
                cause,
                extra={"once": True},
            )


def _identify(tool: types.Tool) -> str:
    return f"{tool.name} {json.dumps(dict(tool.parameters), sort_keys=True)}"


def _find_named(cause: str, sent: Sequence[int], tools: Mapping[int, types.Tool]) -> list[int]:
    """Return the tools that the cause of a refusal names, or the one whose index it names."""
    named = [key for key in sent if re.search(rf"(?<![\w-]){re.escape(tools[key].name)}(?![\w-])", cause)]
    indexes = [int(index) for index in INDEX.findall(cause) if int(index) < len(sent)]
    return named or [sent[index] for index in indexes[-1:]]


FAILURE_THRESHOLD = 3
OPEN_SECONDS = 30.0
FAILING_CALLS = 2  # in a row that were refused: a single one may have been for what it asks
LOG_INTERVAL_SECONDS = 3600.0
LASTING_SECONDS = 60.0
MAX_DURATIONS = 200  # of the latest answers, for their median
MAX_CONCURRENT_CALLS = 128  # per handler; waiting calls see the breaker open
MIN_EPOCH_SECONDS = 1e9  # a smaller time of a reset is relative; one a hundred times as large is in milliseconds
DURATION = (
    r"(?=\d)(?:([\d.]+)\s*h[a-z]*\W*)?(?:([\d.]+)\s*m(?!s|illi)[a-z]*\W*(?:and\s)?)?"
    r"(?:([\d.]+)\s*s[a-z]*)?(?:([\d.]+)\s*(?:ms|milli)[a-z]*)?"
)
RETRY_DURATION = re.compile(DURATION, re.IGNORECASE)
RETRY_MESSAGE = re.compile(
    rf"\b(?:again|retry|wait|retryDelay|resets? (?:in|after))\b\D{{0,30}}?{DURATION}", re.IGNORECASE
)
# The headers of seconds or milliseconds: that of HTTP, and those of a draft of the IETF and of Discord's API.
RETRY_HEADERS = (
    *(("retry-after-ms", 1000.0), ("retry-after", 1.0)),
    *(("x-ratelimit-reset-after", 1.0), ("ratelimit-reset", 1.0)),
)
RESETS = ("requests", "tokens")  # have each a header for what remains, and for when it is reset
MAX_BILLED_RETRIES = 2  # of answers that broke off: the provider bills each of them
RETRY_UNITS = (3600.0, 60.0, 1.0, 0.001)  # seconds
OnRetry = Callable[[ModelHandler, ModelError, float], None]  # the delay in seconds
ListOwners = Callable[[], Collection[Hashable]]  # for whom a call is made: a person, a room, a token
LeaveSlot = Callable[[], AbstractAsyncContextManager[None]]


@dataclass(slots=True)
class FailedAttempts:
    """How many attempts have failed for one message, over all its calls and handlers, and how many of them cost."""

    total: int = 0
    billed: int = 0

    def is_enough(self, max_retries: int) -> bool:
        """Return whether no attempt is repeated any more."""
        return self.total > max_retries or self.billed > MAX_BILLED_RETRIES


failed_attempts: ContextVar[FailedAttempts | None] = ContextVar("failed_attempts", default=None)


def parse_retry_after(headers: Mapping[str, str], now: datetime, message: str = "") -> float | None:
    """Return the seconds after which a server wants to be called again, from its headers or the message of its error.

    Header names are in lower case. None if there is no valid value.
    """
    for name, unit in RETRY_HEADERS:
        value = headers.get(name, "").strip(' "')
        if value.replace(".", "", 1).isdecimal():
            return float(value) / unit
        if (seconds := _read_duration(RETRY_DURATION.fullmatch(value))) is not None:
            return seconds
    for parse in (parsedate_to_datetime, datetime.fromisoformat):
        with suppress(ValueError, TypeError, OverflowError):
            retry_at = parse(headers.get("retry-after", "").strip(' "'))
            retry_at = retry_at if retry_at.tzinfo else retry_at.replace(tzinfo=UTC)
            return max(0.0, (retry_at - now).total_seconds())
    reset = headers.get("x-ratelimit-reset", "").strip()
    if reset.replace(".", "", 1).isdecimal():
        seconds = float(reset)
        if seconds > MIN_EPOCH_SECONDS:
            seconds = (seconds / 1000 if seconds > MIN_EPOCH_SECONDS * 100 else seconds) - now.timestamp()
        if seconds > 0:  # a time that is over says nothing
            return seconds
    if (seconds := _read_duration(RETRY_MESSAGE.search(message))) is not None:
        return seconds
    spent = [name for name in RESETS if headers.get(f"x-ratelimit-remaining-{name}", "").strip() == "0"]
    resets = (RETRY_DURATION.fullmatch(headers.get(f"x-ratelimit-reset-{name}", "").strip()) for name in spent)
    return max((seconds for seconds in map(_read_duration, resets) if seconds is not None), default=None)


def _read_duration(match: re.Match[str] | None) -> float | None:
    """Return the seconds in a match of `DURATION`; None if there are none."""
    if match is None or not any(match.groups()):
        return None
    numbers = (number.strip(".") for number in match.groups("0"))
    with suppress(ValueError):
        return sum(float(number) * unit for number, unit in zip(numbers, RETRY_UNITS, strict=True))
    return None


@dataclass(frozen=True, slots=True)
class ModelStatus:
    """How the model behind one handler has answered since the start of the process.

    `model` is empty until it has answered. `calls` and `failed` count each attempt, as the costs do, but no refusal of
    a tool that is then left out. `median_seconds` is that of the latest answers, with the attempts before them. While
    it rests after failures, it is not called for `rest_seconds`. `cause` is the last failure if it rests, if the server
    was busy or not there at the last attempt, also while that is repeated, or if the last two calls were refused.
    """

    provider: str
    type: ModelType
    model: str = ""
    calls: int = 0
    failed: int = 0
    median_seconds: float | None = None
    rest_seconds: float = 0.0
    cause: str = ""


class HandlerHealth:
    """How one handler answers: its circuit breaker, its outages in the log, and its status.

    After three failures in a row the handler is not called for half a minute. Then one trial call is allowed: if it
    fails, the breaker opens again. Outages are logged at most once an hour, but one that
    lasts a minute without having been logged, or that fails in another way by then, is logged again.
    """

    def __init__(self, handler: ModelHandler, time: TimeSource) -> None:
        self._handler, self._clock, self._sleep = handler, time.monotonic, time.sleep
        self._label = f"{handler.name} ({handler.type})"
        self._outages_in_row, self._open_until, self._has_trial = 0, 0.0, False
        self._asked_until = 0.0  # a busy server has asked not to be called before
        self._reopened = asyncio.Event()
        self._failures_in_row, self._cause = 0, ""
        self._down_since: float | None = None
        self._logged_at, self._unlogged_count, self._is_logged = -inf, 0, False
        self._logged_kind: type[ModelError] | None = None
        self._durations = deque[float](maxlen=MAX_DURATIONS)
        self.model, self.calls, self.failed = "", 0, 0

    def status(self) -> ModelStatus:
        """Return how the handler has answered."""
        return ModelStatus(
            self._handler.name,
            self._handler.type,
            self.model,
            self.calls,
            self.failed,
            median(self._durations) if self._durations else None,
            self._find_rest(),
            self._cause if self._failures_in_row >= FAILING_CALLS else "",
        )

    def _find_rest(self) -> float:
        """Return for how many seconds the handler is not called."""
        return max(0.0, self._open_until - self._clock()) if self._outages_in_row >= FAILURE_THRESHOLD else 0.0

    def find_obstacle(self) -> str:
        """Return why no call may be made now, empty if one may: the breaker is open, or a trial call is running."""
        if rest := self._find_rest():
            return f"{self._handler.name}: failed repeatedly, next attempt in {rest:.0f} s"
        if self._has_trial and self._outages_in_row >= FAILURE_THRESHOLD:
            return f"{self._handler.name}: failed repeatedly, a trial call is running"
        return ""

    def find_delay(self) -> float:
        """Return in how many seconds a trial call may succeed; 0 while one is running."""
        return max(0.0, max(self._open_until, self._asked_until) - self._clock()) if self._find_rest() else 0.0

    async def wait(self, seconds: float) -> None:
        """Wait so long, or until a trial call has ended or the breaker has closed."""
        reopened, sleep = (asyncio.ensure_future(wait) for wait in (self._reopened.wait(), self._sleep(seconds)))
        try:
            await asyncio.wait((reopened, sleep), return_when=asyncio.FIRST_COMPLETED)
        finally:
            reopened.cancel()
            sleep.cancel()

    @contextmanager
    def guard(self) -> Iterator[None]:
        """Wrap one call that has no obstacle, and record how it ends."""
        is_trial = self._outages_in_row >= FAILURE_THRESHOLD
        self._has_trial |= is_trial
        started_at = self._clock()
        try:
            yield
        except BudgetSpent:
            raise  # the handler was not called
        except ModelError as error:
            is_outage = isinstance(error, ModelBusy | ModelTooSlow | ModelUnreachable)
            self._outages_in_row = self._outages_in_row + 1 if is_outage else 0  # it is reachable
            self._open_until = self._clock() + OPEN_SECONDS
            self._asked_until = self._clock() + ((error.retry_after or 0.0) if isinstance(error, ModelBusy) else 0.0)
            if not isinstance(error, PromptTooLong):
                self.failed += 1
                self.record_failure(error)
                self._log_outage(error)
            raise
        else:
            self._durations.append(self._clock() - started_at)
            self._outages_in_row = self._failures_in_row = 0
            if self._down_since is not None and self._is_logged:
                logger.warning("model %s answers again, after %.0f s", self._label, self._clock() - self._down_since)
            self._down_since = None
        finally:
            if is_trial:  # not a call that was running before the breaker opened
                self._has_trial = False
            if is_trial or self._outages_in_row < FAILURE_THRESHOLD:
                self._reopened.set()
                self._reopened = asyncio.Event()

    def record_failure(self, error: ModelError) -> None:
        """Record the cause of a failed attempt."""
        is_outage = isinstance(error, ModelBusy | ModelUnreachable)
        self._failures_in_row = max(self._failures_in_row + 1, FAILING_CALLS if is_outage else 0)
        self._cause = str(error)

    def _log_outage(self, error: ModelError) -> None:
        now = self._clock()
        if self._down_since is None:
            self._down_since, self._is_logged = now, False
        self._unlogged_count += 1
        unlogged_since = self._logged_at if self._is_logged else self._down_since
        is_known = self._is_logged and type(error) is self._logged_kind
        is_lasting = not is_known and now - unlogged_since >= LASTING_SECONDS
        if is_lasting or now - self._logged_at >= LOG_INTERVAL_SECONDS:
            others = f", {self._unlogged_count} failures since the last message" if self._logged_at > -inf else ""
            logger.error("model %s does not answer%s: %s", self._label, others, error)
            self._logged_at, self._unlogged_count, self._is_logged = now, 0, True
            self._logged_kind = type(error)


class HandlerClient:
    """Calls one handler of a router, with a limit of concurrent calls, which their owners share."""

    def __init__(self, handler: ModelHandler, router: "ModelRouter") -> None:
        self.handler, self._router, self._policy = handler, router, router.policy
        self.health = HandlerHealth(handler, self._policy.time)
        self._refused_tools = RefusedTools(f"{self.handler.name} ({self.handler.type})")
        self._slots = FairSlots(MAX_CONCURRENT_CALLS)

    async def call(self, pending: PendingCall[R]) -> R:
        """Call the handler and retry while it is busy; for a shorter time if another follows. An invalid answer is
        retried once, an unreachable server never. Tools that the provider refuses are left out. While the handler
        rests after failures, a call waits for it as long as it could be retried, unless another follows.

        Raises ModelUnavailable if it stays busy or rests, ModelError for other failures of the handler.
        """
        try:
            while True:
                pending = await self._wait_for_health(pending)
                owners, size = self._router.list_owners(), count_bytes(pending.request)
                # The memory first: what holds some, such as an attachment, also waits for a slot.
                async with self._policy.memory.hold(size), self._slots.hold(owners):
                    if self.health.find_obstacle():  # it came while the call waited for its slot
                        continue
                    with self.health.guard():
                        return await self._send(pending)
        except MemoryLimitReached as error:
            raise ModelError(f"{self.handler.name}: {error}") from error
        except (ModelBusy, ModelTooSlow, ModelUnreachable) as error:
            raise ModelUnavailable(str(error)) from error

    async def _wait_for_health(self, pending: PendingCall[R]) -> PendingCall[R]:
        """Wait until the handler may be called, and return the call with the time that it has waited.

        Raises ModelUnavailable once it has waited as long as retries may take, at once if a trial call comes too late
        for it, or if its retries have a limit of their own: something else waits for it then.
        """
        if not self.health.find_obstacle():
            return pending
        monotonic = self._policy.time.monotonic
        can_wait = not pending.has_next and pending.max_retries is None and self._policy.max_retries > 0
        end_time = monotonic() + MAX_RETRY_SECONDS - pending.waited_seconds if can_wait else -inf
        started_at = monotonic()
        async with self._router.leave_slot():
            while obstacle := self.health.find_obstacle():
                left, delay = end_time - monotonic(), self.health.find_delay()
                if left <= 0 or delay > left:
                    raise ModelUnavailable(obstacle)
                self._router.on_retry(self.handler, ModelUnavailable(obstacle), delay)
                await self.health.wait(delay or left)
        return replace(pending, waited_seconds=pending.waited_seconds + monotonic() - started_at)

    async def profile(self) -> ModelProfile:
        """Return what is known of the model that will answer."""
        info = None
        if self.handler.describe_model is not None:
            try:
                info = await self.handler.describe_model()
            except Exception as error:  # the call itself reports what is wrong with the server
                logger.debug("%s: the model is not described: %s", self.handler.name, error)
        key = (self.handler.name, (info and info.name) or self.handler.type)
        profile = self._router.profiles.setdefault(key, ModelProfile(self.handler.name))
        if info is not None:
            profile.update(info)
        return profile

    async def _send(self, pending: PendingCall[R]) -> R:
        profile = await self.profile()
        named = pending.request.model if isinstance(pending.request, types.TextRequest) else ""
        pending = replace(pending, model=named or ("" if profile.name == self.handler.name else profile.name))
        if not isinstance(pending.request, types.TextRequest):
            return await self._retry(pending, profile)
        prompt_bytes = count_prompt_bytes(pending.request) if profile.window is not None else 0
        max_bytes = profile.max_prompt_bytes(pending.request)
        if max_bytes is not None and prompt_bytes > max_bytes:
            raise PromptTooLong(
                f"{self.handler.name}: a prompt of {prompt_bytes} bytes is too long for {profile.name}, whose context "
                f"window has {profile.window} tokens"
            )

        def send(request: types.TextRequest, min_tokens: int) -> Awaitable[R]:
            min_tokens = min(min_tokens, request.max_tokens or min_tokens)
            return self._retry(replace(pending, request=request, min_tokens=min_tokens), profile)

        request = profile.with_limit(pending.request, prompt_bytes)
        thought_before, factor = profile.thinks, profile.factor
        min_tokens = profile.min_tokens(pending.request)
        result = await self._refused_tools.call(request, partial(send, min_tokens=min_tokens))
        if factor > 1 or not (isinstance(result, types.TextResult) and ends_too_early(result)):
            return result
        if profile.thinks == thought_before:
            profile.learn_factor()
        sent_tokens = request.max_tokens or 1
        more = profile.clamp(replace(request, max_tokens=MORE_TOKENS * sent_tokens), prompt_bytes)
        if more.max_tokens == sent_tokens:
            return result
        try:
            return await self._refused_tools.call(more, partial(send, min_tokens=sent_tokens + 1))
        except BudgetSpent:
            return result

    async def _attempt(self, pending: PendingCall[R], profile: ModelProfile, failed: FailedAttempts) -> R:
        """Call the handler once, and learn from its answer."""
        prompt_bytes = count_prompt_bytes(pending.request) if profile.is_local else 0  # for its speed
        first_seconds = 2 * self._policy.first_seconds  # if it is not streamed
        if isinstance(pending.request, types.TextRequest):
            first_seconds = profile.first_seconds(prompt_bytes, self._policy.first_seconds)
        queue = self._router.queues.setdefault(self.handler.name, []) if profile.is_local else None
        attempt = Attempt(self.handler, pending, self._policy, first_seconds, queue, self.health.model)
        try:
            result = await attempt.run(self._router.reserve)
        except PromptTooLong as error:
            profile.learn_window(str(error))
            raise
        except ModelTooSlow:
            if attempt.first_piece_seconds is None and prompt_bytes:
                profile.learn_speed(prompt_bytes, first_seconds)
            raise
        except (ModelBusy, InvalidAnswer):
            failed.total += 1
            failed.billed += attempt.call is not None and attempt.call.is_counted
            raise
        finally:
            self.health.calls += attempt.call is not None  # as the costs count them: each attempt
        self.health.model = result.model
        if isinstance(result, types.TextResult) and attempt.call is not None:
            profile.learn(result, attempt.call)
            if attempt.first_piece_seconds is not None and prompt_bytes:
                profile.learn_speed(prompt_bytes, attempt.first_piece_seconds)
        return result

    async def _retry(self, pending: PendingCall[R], profile: ModelProfile) -> R:
        policy, failed = self._policy, failed_attempts.get() or FailedAttempts()
        max_retries = policy.max_retries
        if pending.max_retries is not None:
            max_retries = min(max_retries, pending.max_retries)
        started_at, failures, has_invalid = policy.time.monotonic(), 0, False
        while True:
            try:
                return await self._attempt(pending, profile, failed)
            except ModelBusy as error:
                failures += 1
                self.health.record_failure(error)
                elapsed = pending.waited_seconds + policy.time.monotonic() - started_at
                delay = policy.next_delay(failures, elapsed, error.retry_after, has_next=pending.has_next)
                if delay is None or failed.is_enough(max_retries):
                    raise
                self._router.on_retry(self.handler, error, delay)
            except InvalidAnswer:
                if has_invalid or failed.is_enough(max_retries):
                    raise
                has_invalid, delay = True, 0.0
            self.health.failed += 1
            await policy.time.sleep(delay)


M = TypeVar("M", bound=BaseModel)

# The types to use, in this order, if no handler serves a type.
FALLBACK_TYPES: dict[ModelType, tuple[ModelType, ...]] = {
    ModelType.TEXT_SMALL: (ModelType.TEXT_MEDIUM, ModelType.TEXT_LARGE),
    ModelType.TEXT_MEDIUM: (ModelType.TEXT_LARGE, ModelType.TEXT_SMALL),
    ModelType.TEXT_LARGE: (ModelType.TEXT_MEDIUM, ModelType.TEXT_SMALL),
    ModelType.OBJECT_SMALL: (ModelType.TEXT_SMALL, ModelType.TEXT_MEDIUM, ModelType.TEXT_LARGE),
    ModelType.OBJECT_MEDIUM: (ModelType.TEXT_MEDIUM, ModelType.TEXT_LARGE, ModelType.TEXT_SMALL),
    ModelType.OBJECT_LARGE: (ModelType.TEXT_LARGE, ModelType.TEXT_MEDIUM, ModelType.TEXT_SMALL),
}
MAX_QUOTE_LENGTH = 8_000
MAX_PROBLEMS = 8
MAX_READING_RETRIES = 1  # a reply waits for the description of an attachment, and goes on without it


def ends_too_early(result: types.TextResult) -> bool:
    """Return whether the limit ended an answer before its text began, or within the arguments of a call."""
    if not result.is_truncated:
        return False
    reply = read_reply(result.text)
    if result.has_cut_call or not all(name for name, _ in reply.calls):
        return True
    if reply.text and (reply.is_tagged or reply.is_complete):
        return False
    return not (result.tool_calls or (reply.actions and reply.is_complete))


@dataclass(kw_only=True, eq=False, repr=False)
class ModelRouter:
    """Calls the handlers of a model type in order of priority until one succeeds.

    `reserve` is awaited before every attempt and returns the function that records it, failed or not, and the request
    with a limit of its answer that the budget can pay for. `on_retry` is called before a busy handler is called again,
    with its error and the delay in seconds. `record` counts a call of a paid service that is no model, such as a
    search, for the room and the person of the run; it costs what MODEL_PRICES says under the name of its model, else
    what the call itself says. `list_owners` returns for whom a call is made; many calls of one owner leave room for
    those of others. `sampling` fills in what a text request of a type leaves open. `answer_form` is the operator's
    choice of the form of answers. Texts are returned storable and bounded, vectors finite and as many as texts.
    `leave_slot` gives a context in which a call waits while its handler rests after failures. What is known of models
    is in `profiles`, by plugin and model; attempts at servers on this machine in `queues`, by plugin.
    """

    reserve: Reserve
    on_retry: OnRetry = lambda handler, error, delay: None
    record: Callable[[ModelCall], None] = lambda call: None
    list_owners: ListOwners = tuple
    policy: CallPolicy = field(default_factory=CallPolicy)
    sampling: Mapping[ModelType, Mapping[str, Any]] = field(default_factory=dict)
    answer_form: AnswerFormSetting = AnswerFormSetting.AUTO
    leave_slot: LeaveSlot = nullcontext
    profiles: dict[tuple[str, str], ModelProfile] = field(default_factory=dict)
    queues: dict[str, list[Attempt[Any]]] = field(default_factory=dict)
    _clients: defaultdict[ModelType, list[HandlerClient]] = field(default_factory=lambda: defaultdict(list))

    def register(self, handler: ModelHandler) -> None:
        """Add a handler; of equal priorities the earlier registered is called first."""
        clients = self._clients[handler.type]
        clients.append(HandlerClient(handler, self))
        clients.sort(key=lambda client: -client.handler.priority)

    def statuses(self) -> list[ModelStatus]:
        """Return how every handler has answered, in the order in which those of a type are called."""
        return [client.health.status() for clients in self._clients.values() for client in clients]

    def has_handler_for(self, kind: ModelType) -> bool:
        """Return whether a handler or a fallback type serves this type."""
        return bool(self._candidates(kind))

    def can_call_tools(self, kind: ModelType) -> bool:
        """Return whether the first handler for this type can call tools."""
        answers = [client.handler.can_call_tools for client in self._candidates(kind)[:1]]
        return any(answer() if callable(answer) else answer for answer in answers)

    def can_write_json(self, kind: ModelType) -> bool:
        """Return whether answers are requested as JSON.

        The operator says so, or the first handler for this type makes a model write JSON by a schema.
        """
        if self.answer_form is not AnswerFormSetting.AUTO:
            return self.answer_form is AnswerFormSetting.JSON
        questions = [client.handler.can_write_json for client in self._candidates(kind)[:1]]
        return any(question is not None and question() for question in questions)

    async def profile(self, kind: ModelType) -> ModelProfile | None:
        """Return what is known of the model that is asked first for this type; None without a handler."""
        candidates = self._candidates(kind)
        return await candidates[0].profile() if candidates else None

    async def described_profiles(self) -> list[ModelProfile]:
        """Return what is known of each model whose name its plugin knows before the model has answered."""
        clients = [client for clients in self._clients.values() for client in clients]
        profiles = [(client.handler.name, await client.profile()) for client in clients]
        return [profile for plugin, profile in profiles if profile.name != plugin]

    async def writes_plain_text(self, kind: ModelType) -> bool:
        """Return whether answers are requested as plain text: the operator says so, or the model is too small."""
        if self.answer_form is not AnswerFormSetting.AUTO:
            return self.answer_form is AnswerFormSetting.TEXT
        profile = await self.profile(kind)
        return profile is not None and profile.is_tiny

    async def text(self, request: types.TextRequest, kind: ModelType = ModelType.TEXT_LARGE) -> types.TextResult:
        """Generate a text.

        Raises ModelUnavailable with every handler's failure, or the only ModelError there was; ModelRefused
        if all have refused; PromptTooLong if the prompt is too long for all that are reachable.
        """
        values = self.sampling.get(kind, {})
        missing = {name: value for name, value in values.items() if getattr(request, name) is None}
        return await self._call(kind, replace(request, **missing) if missing else request, types.TextResult)

    async def object(
        self, object_type: type[M], request: types.TextRequest, kind: ModelType = ModelType.OBJECT_SMALL
    ) -> M:
        """Generate an object that fits a pydantic model; ask for a repair once if it does not.

        Raises ModelError if the repaired object does not fit either, and as `text` does.
        """
        schema = object_type.model_json_schema()
        schema_text = json.dumps(schema, ensure_ascii=False, separators=(",", ":"))
        prompt = (
            f"{request.prompt}\n\nAnswer with one JSON object that fits this JSON schema, and nothing else:\n"
            f"{schema_text}"
        )
        request = replace(request, prompt=prompt, schema=schema, sink=None, tools=())
        for purpose in (request.purpose, types.Purpose.REPAIR):
            result = await self.text(replace(request, purpose=purpose), kind)
            try:
                return _parse_object(object_type, result.text)
            except ValueError as error:
                problems = str(error)
            repair = (
                f"{prompt}\n\nThis was your answer:\n{shorten(result.text, MAX_QUOTE_LENGTH)}\n\n"
                f"It does not fit:\n{problems}\nGive it again, corrected."
            )
            request = replace(request, prompt=repair)
        raise ModelError(f"{result.model} returned no {object_type.__name__}:\n{problems}")

    async def embed(
        self, texts: Sequence[str], *, first_handler_only: bool = False, is_question: bool = False
    ) -> types.EmbeddingResult:
        """Return the embeddings of texts; raises as `text` does.

        With `first_handler_only` there is no failover, because vectors of different models cannot be
        compared. With `is_question` the texts are not stored but searched for: a reply waits, so the request is not
        retried.
        """
        request = types.EmbeddingRequest(tuple(texts), is_question=is_question)
        max_handlers = 1 if first_handler_only else None
        max_retries = 0 if is_question else None
        return await self._call(
            ModelType.TEXT_EMBEDDING, request, types.EmbeddingResult, max_handlers, max_retries=max_retries
        )

    async def embed_question(self, text: str) -> tuple[Sequence[float] | None, str]:
        """Return the vector of a question and its model; None if there is no embedding model, or it fails."""
        if self.has_handler_for(ModelType.TEXT_EMBEDDING):
            with suppress(ModelError):  # the words alone decide
                result = await self.embed([text], is_question=True)
                return result.vectors[0], result.model
        return None, ""

    async def describe(self, request: types.ImageDescriptionRequest) -> types.TextResult:
        """Describe an image, with at most one retry of a busy model; raises as `text` does."""
        return await self._call(ModelType.IMAGE_DESCRIPTION, request, types.TextResult, max_retries=MAX_READING_RETRIES)

    async def transcribe(self, request: types.TranscriptionRequest) -> types.TextResult:
        """Transcribe a recording, with at most one retry of a busy model; raises as `text` does."""
        seconds = await asyncio.to_thread(measure_audio, request.audio)
        request = replace(request, seconds=seconds)
        return await self._call(ModelType.TRANSCRIPTION, request, types.TextResult, max_retries=MAX_READING_RETRIES)

    async def draw(self, request: types.ImageRequest) -> types.ImageResult:
        """Generate an image; raises as `text` does."""
        return await self._call(ModelType.IMAGE, request, types.ImageResult)

    async def speak(self, request: types.SpeechRequest) -> types.SpeechResult:
        """Generate speech from a text; raises as `text` does."""
        return await self._call(ModelType.TEXT_TO_SPEECH, request, types.SpeechResult)

    async def moderate(self, request: types.ModerationRequest) -> types.ModerationResult:
        """Find out whether a text is harmful, without a retry: a message waits for it. Raises as `text` does."""
        return await self._call(ModelType.MODERATION, request, types.ModerationResult, max_retries=0)

    def _candidates(self, kind: ModelType) -> list[HandlerClient]:
        for candidate in (kind, *FALLBACK_TYPES.get(kind, ())):
            if self._clients[candidate]:
                return self._clients[candidate]
        return []

    async def _call(
        self,
        kind: ModelType,
        request: types.ModelRequest,
        result_type: type[R],
        max_handlers: int | None = None,
        *,
        max_retries: int | None = None,
    ) -> R:
        candidates = self._candidates(kind)[:max_handlers]
        if not candidates:
            raise ModelUnavailable(f"no plugin of this agent provides {kind}; load one that does")
        sink = request.sink if isinstance(request, types.TextRequest) else None
        pending = PendingCall(kind, request, result_type, StreamOutput(sink), max_retries)
        attempts: list[tuple[HandlerClient, PendingCall[R]]] = [(client, pending) for client in candidates]
        if isinstance(request, types.TextRequest) and request.model:  # only the first handler is meant
            unnamed: PendingCall[R] = replace(pending, request=replace(request, model=""))
            attempts = attempts[:1] + [(client, unnamed) for client in candidates]
        errors: list[ModelError] = []
        for number, (client, call) in enumerate(attempts, start=1):
            try:
                return await client.call(replace(call, has_next=number < len(attempts)))
            except BudgetSpent:
                raise
            except ModelError as error:
                errors.append(error)
        raise _combine_errors(errors)


def _combine_errors(errors: Sequence[ModelError]) -> ModelError:
    """Return one error for all, of the class that they have in common.

    A prompt that is too long for every reachable handler may be retried with a shorter one.
    """
    if len(errors) == 1:
        return errors[0]
    causes = "; ".join(map(str, errors))
    reachable = [error for error in errors if not isinstance(error, ModelUnavailable)]
    if reachable and all(isinstance(error, PromptTooLong) for error in reachable):
        return PromptTooLong(causes)
    if all(isinstance(error, ModelRefused) for error in errors):
        return ModelRefused(causes)
    return ModelUnavailable(causes)


def _parse_object(object_type: type[M], response: str) -> M:
    """Return the object in a model's answer; raises ValueError with what does not fit."""
    try:
        return object_type.model_validate(first_object(response))
    except ValidationError as error:
        problems = error.errors(include_url=False, include_input=False, include_context=False)
        messages = [f"- {'.'.join(map(str, problem['loc'])) or 'all of it'}: {problem['msg']}" for problem in problems]
        raise ValueError("\n".join(messages[:MAX_PROBLEMS])) from None


FENCES = re.compile(r"\A```\w*\s*|(?<!\s)\s*```\Z")
VALUE_START = re.compile(r"[^\s,]")
MAX_ENCODINGS = 3  # how often JSON may be encoded as a text in JSON
_DECODER = json.JSONDecoder(strict=False)


def parse_values(text: str) -> tuple[list[Any], str]:
    """Return the JSON values that a text consists of, and the rest that is not JSON."""
    values, position = [], 0
    try:
        while start := VALUE_START.search(text, position):
            position = start.start()
            value, position = _DECODER.raw_decode(text, position)
            values.append(value)
    except (ValueError, RecursionError):
        return values, text[position:]
    return values, ""


def read_arguments(value: object, encodings: int = MAX_ENCODINGS) -> list[dict[str, Any]]:
    """Return the arguments of one call, or of several that were written one after another.

    They may be an object, its JSON (also encoded twice, or in a list), a Python literal, or nothing. Raises ValueError
    if they cannot be read.
    """
    if isinstance(value, dict):
        return [{str(name): item for name, item in value.items()}]
    if value is None or value == []:
        return [{}]
    if isinstance(value, str) and encodings:
        values = _parse(FENCES.sub("", value.strip()))
    elif isinstance(value, list):
        values = value
    else:
        raise ValueError(value)
    objects = [found for item in values for found in read_arguments(item, encodings - 1)]
    return [found for found in objects if found] or [{}]


def _parse(text: str) -> list[Any]:
    """Return the values of a text. Raises ValueError if it is neither JSON nor Python."""
    values, rest = parse_values("null" if text in ("", "None") else text)
    if not values and (value := read_mapping(text)[0]) is not None:
        return [value]
    if not values or "{" in rest:
        if arguments := read_loose_arguments(text):
            return [arguments]
        raise ValueError(text)
    return values
