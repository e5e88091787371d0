"""Reservations: concurrent calls spend no more than calls one after another."""

import asyncio
import wave
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from functools import partial
from io import BytesIO
from uuid import UUID

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bot.concurrency import tasks
from bot.costs.budget import Budget, CostMeter, ReservationLedger, load_prices
from bot.domain.ids import derived_id
from bot.domain.ledger import Limit, LimitScope, ModelCall
from bot.errors import BudgetSpent, ModelError
from bot.event_bus import EventBus
from bot.models.handler import ModelHandler, estimate_usage, measure_audio, note_call
from bot.models.router import ModelRouter
from bot.models.types import (
    EmbeddingRequest,
    ImageDescriptionRequest,
    ModelInfo,
    ModelRequest,
    ModelType,
    Purpose,
    SpeechRequest,
    TextRequest,
    TextResult,
    TranscriptionRequest,
    Usage,
)
from bot.runs import Run, current_run, usage_recorder
from bot.store import InMemoryStore

ROOM, PERSON, OTHER_PERSON = (derived_id(name) for name in ("here", "Ann", "Bo"))
REQUEST = TextRequest("x" * 300, max_tokens=100)  # held to be 200 tokens
PRICES = ("scripted=1000/1000", "dearest=4000/4000")  # a thousand tokens are a dollar, or four


def noon() -> datetime:
    return datetime(2026, 5, 4, 12, tzinfo=UTC)


@dataclass
class Provider:
    """A provider that answers once it may, with the given usage."""

    usage: Usage = field(default_factory=lambda: Usage(100, 100))
    call_count: int = 0
    running: int = 0
    max_running: int = 0
    may_answer: asyncio.Event = field(default_factory=asyncio.Event)
    started: asyncio.Semaphore = field(default_factory=lambda: asyncio.Semaphore(0))
    error: Exception | None = None

    async def answer(self, request: TextRequest) -> TextResult:
        self.call_count += 1
        self.running += 1
        self.max_running = max(self.max_running, self.running)
        self.started.release()
        try:
            await self.may_answer.wait()
        finally:
            self.running -= 1
        if self.error is not None:
            raise self.error
        return TextResult("So.", "scripted", self.usage)


class MeteredRouter:
    """A router whose calls are metered within limits."""

    def __init__(self, provider: "Provider | Bill", *limits: Limit, name: str = "") -> None:
        self.budget = Budget(limits, noon)
        prices = load_prices(PRICES)
        meter = CostMeter(InMemoryStore().costs, prices, self.budget, clock=noon)
        record = usage_recorder(EventBus(), derived_id("agent"), meter.record)
        self.router = ModelRouter(reserve=ReservationLedger(self.budget, prices, record).reserve)
        handler = ModelHandler(ModelType.TEXT_LARGE, provider.answer, "shop")
        if name:
            handler = replace(handler, describe_model=partial(describe_as, name))
        self.router.register(handler)

    async def request_text(self, person: UUID | None = None) -> bool:
        """Request a text; return whether the budget allowed it."""
        with run_of(person):
            try:
                await self.router.text(REQUEST)
            except BudgetSpent:
                return False
        return True


async def describe_as(name: str) -> ModelInfo:
    return ModelInfo(name)


@contextmanager
def run_of(person: UUID | None) -> Iterator[None]:
    run = Run(derived_id("run"), ROOM, derived_id("message"), person) if person else None
    token = current_run.set(run)
    try:
        yield
    finally:
        current_run.reset(token)


def token_limit(maximum: float, scope: LimitScope = LimitScope.ALL) -> Limit:
    return Limit("BUDGET_TOKENS", scope, False, maximum)


def dollar_limit(maximum: float) -> Limit:
    return Limit("BUDGET_USD", LimitScope.ALL, True, maximum)


async def wait_started(provider: Provider, count: int) -> None:
    async with asyncio.timeout(60):
        for _ in range(count):
            await provider.started.acquire()


@pytest.mark.failure("O-02")
async def test_of_fifty_calls_at_once_on_a_limit_that_fits_three_three_are_made() -> None:
    provider = Provider()
    shop = MeteredRouter(provider, token_limit(600))
    async with asyncio.TaskGroup() as group:
        asked = [group.create_task(shop.request_text()) for _ in range(50)]
        await wait_started(provider, 3)
        assert provider.call_count == 3
        provider.may_answer.set()
    assert (provider.call_count, provider.max_running) == (3, 3)
    assert sum(call.result() for call in asked) == 3


@pytest.mark.failure("O-02")
async def test_unused_reservations_are_released_to_waiting_calls() -> None:
    provider = Provider(Usage(50, 10))
    shop = MeteredRouter(provider, token_limit(600))
    async with asyncio.TaskGroup() as group:
        for _ in range(50):
            group.create_task(shop.request_text())
        await wait_started(provider, 3)
        provider.may_answer.set()
    assert (provider.call_count, provider.max_running) == (7, 3)  # 60 tokens each; then 180 are left, and 200 needed


@pytest.mark.failure("O-02")
async def test_the_first_call_is_assumed_to_be_the_most_expensive() -> None:
    provider = Provider()
    shop = MeteredRouter(provider, dollar_limit(0.8))
    async with asyncio.TaskGroup() as group:
        for _ in range(50):
            group.create_task(shop.request_text())
        await wait_started(provider, 1)
        assert provider.call_count == 1
        provider.may_answer.set()
    assert provider.call_count == 4


@pytest.mark.failure("O-02")
async def test_calls_that_wait_for_the_first_call_do_not_exceed_the_limit_by_its_price() -> None:
    provider = Provider()
    shop = MeteredRouter(provider, dollar_limit(0.7))
    calls = [asyncio.create_task(shop.request_text()) for _ in range(50)]
    await wait_started(provider, 1)
    provider.may_answer.set()
    assert sum(await asyncio.gather(*calls)) == provider.call_count == 3  # 0.6 dollars


@pytest.mark.failure("O-02")
async def test_a_call_that_what_is_left_cannot_pay_for_is_not_made() -> None:
    provider = Provider()
    provider.may_answer.set()
    shop = MeteredRouter(provider, token_limit(500))
    made = await asyncio.gather(*(shop.request_text() for _ in range(50)))
    assert sum(made) == provider.call_count == 2  # 400 tokens


@pytest.mark.failure("O-02")
async def test_a_limit_in_tokens_that_is_smaller_than_any_call_pays_for_a_single_call() -> None:
    provider = Provider()
    provider.may_answer.set()
    shop = MeteredRouter(provider, token_limit(1))
    assert [await shop.request_text() for _ in range(3)] == [True, False, False]


@pytest.mark.failure("O-02")
async def test_a_failed_call_releases_its_reservation() -> None:
    provider = Provider(error=ModelError("no"))
    provider.may_answer.set()
    shop = MeteredRouter(provider, token_limit(200))
    for _ in range(5):
        with pytest.raises(ModelError, match="no"):
            await shop.request_text()
    provider.error = None
    assert await shop.request_text()


@pytest.mark.failure("O-02")
async def test_a_cancelled_call_releases_its_reservation_to_waiting_calls() -> None:
    provider = Provider()
    shop = MeteredRouter(provider, token_limit(300))
    first = asyncio.ensure_future(shop.request_text())
    await wait_started(provider, 1)
    second = asyncio.ensure_future(shop.request_text())
    first.cancel()
    await asyncio.wait([first])
    await wait_started(provider, 1)
    provider.may_answer.set()
    assert await second


@pytest.mark.failure("O-02")
async def test_a_call_stopped_by_force_releases_its_reservation(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tasks, "CANCEL_GRACE_SECONDS", 0)
    provider = Provider()
    shop = MeteredRouter(provider, token_limit(300))

    async def cling() -> None:
        while True:
            with suppress(asyncio.CancelledError):
                await shop.router.text(REQUEST)

    assert await tasks.run_isolated(cling(), label="code", timeout=0.01) == tasks.Failure("no answer within 0.01 s")
    provider.may_answer.set()
    async with asyncio.timeout(60):
        assert await shop.request_text()


@pytest.mark.failure("O-02")
async def test_a_call_cancelled_while_waiting_reserves_nothing() -> None:
    provider = Provider()
    shop = MeteredRouter(provider, token_limit(400))
    first = asyncio.ensure_future(shop.request_text())
    second = asyncio.ensure_future(shop.request_text())
    await wait_started(provider, 2)
    third = asyncio.ensure_future(shop.request_text())
    await asyncio.sleep(0)
    third.cancel()
    await asyncio.wait([third])
    provider.usage = Usage(10, 10)
    provider.may_answer.set()
    assert await first
    assert await second
    assert all([await shop.request_text() for _ in range(9)])  # 20 tokens each, as those before: then 180 are left
    assert not await shop.request_text()


@pytest.mark.failure("O-02")
async def test_a_persons_limit_delays_no_other_person() -> None:
    provider = Provider()
    shop = MeteredRouter(provider, token_limit(200, LimitScope.PERSON))
    async with asyncio.TaskGroup() as group:
        anns = [group.create_task(shop.request_text(PERSON)) for _ in range(20)]
        bos = [group.create_task(shop.request_text(OTHER_PERSON)) for _ in range(20)]
        await wait_started(provider, 2)
        assert provider.call_count == 2
        provider.may_answer.set()
    assert [sum(call.result() for call in theirs) for theirs in (anns, bos)] == [1, 1]


async def test_a_nested_call_does_not_wait_for_the_outer_reservation() -> None:
    provider = Provider()
    provider.may_answer.set()
    shop = MeteredRouter(provider, token_limit(7_000))

    async def describe(request: ImageDescriptionRequest) -> TextResult:
        return await shop.router.text(REQUEST)

    shop.router.register(ModelHandler(ModelType.IMAGE_DESCRIPTION, describe, "shop"))
    async with asyncio.timeout(30):
        description = await shop.router.describe(ImageDescriptionRequest(b"\x89PNG", "image/png"))
    assert description.text == "So."
    assert provider.call_count == 1


async def test_without_a_limit_nothing_is_reserved() -> None:
    provider = Provider()
    shop = MeteredRouter(provider)
    async with asyncio.TaskGroup() as group:
        for _ in range(50):
            group.create_task(shop.request_text())
        await wait_started(provider, 50)
        provider.may_answer.set()
    assert provider.max_running == 50


@pytest.mark.parametrize(
    ("kind", "request_", "tokens_in", "tokens_out"),
    [
        (ModelType.TEXT_LARGE, TextRequest("x" * 3000), 1000, 1024),
        (ModelType.TEXT_LARGE, TextRequest("x" * 300, system="y" * 300, max_tokens=50), 200, 50),
        (ModelType.TEXT_LARGE, TextRequest("{}" * 10 + "Ж" * 10 + "ab cde", max_tokens=50), 20 + 20 + 2, 50),
        (ModelType.TRANSCRIPTION, TranscriptionRequest(b"RIFF", "audio/wav", seconds=60), 60 * 32 + 1, 60 * 8 + 1),
        (ModelType.TEXT_TO_SPEECH, SpeechRequest("abcde"), 2, 0),
        (ModelType.TEXT_EMBEDDING, EmbeddingRequest(("x" * 30, "y" * 30)), 20, 0),
        (ModelType.IMAGE_DESCRIPTION, ImageDescriptionRequest(b"\x89PNG", "image/png"), 5000, 1024),
    ],
)
def test_a_call_is_estimated_by_its_bytes_and_the_longest_answer(
    kind: ModelType, request_: ModelRequest, tokens_in: int, tokens_out: int
) -> None:
    call = estimate_usage(kind, request_)
    assert (call.tokens_in, call.tokens_out, call.is_estimate) == (tokens_in, tokens_out, True)


def test_an_unknown_model_is_assumed_to_be_the_most_expensive() -> None:
    call = ModelCall("TEXT_LARGE", "reply", "", 1_000_000, 1_000_000)
    prices = load_prices(("mine=5000/5000",))
    assert prices.max_cost_of(call) == 10_000


@dataclass
class Bill:
    """A provider that bills each call by what it read and wrote, also of calls that fail or are cancelled."""

    behaviours: list[tuple[str, int]]
    cost: float = 0.0
    call_count: int = 0
    limits: list[int] = field(default_factory=list)

    async def answer(self, request: TextRequest) -> TextResult:
        kind, percent = self.behaviours[self.call_count % len(self.behaviours)]
        self.call_count += 1
        assert request.max_tokens is not None
        assert request.sink is not None
        self.limits.append(request.max_tokens)
        tokens_in, tokens_out = len(request.prompt) // 3, request.max_tokens * percent // 100
        note_call("scripted")
        if kind == "fail" and tokens_out < 10:  # it fails before it writes anything, which no provider bills
            raise ModelError("overloaded")
        self.cost += tokens_in / 1000
        for _ in range(10):
            self.cost += tokens_out // 10 / 1000
            await request.sink.write("letters!"[: 3 * (tokens_out // 10)] + "x" * max(0, 3 * (tokens_out // 10) - 8))
            await asyncio.sleep(0)
        if kind == "fail":
            raise ModelError("the connection broke")
        return TextResult("So.", "scripted", Usage(tokens_in, tokens_out // 10 * 10) if kind == "answer" else None)


@pytest.mark.long
@pytest.mark.failure("O-02")
@given(
    behaviours=st.lists(st.tuples(st.sampled_from(["answer", "uncounted", "fail"]), st.integers(0, 100)), min_size=1),
    requests=st.lists(
        st.tuples(st.integers(1, 3000), st.integers(1, 2000), st.sampled_from(list(Purpose)), st.integers(0, 40)),
        min_size=1,
        max_size=40,
    ),
    maximum=st.floats(0.001, 20),
    limit_scope=st.sampled_from([LimitScope.ALL, LimitScope.PERSON]),
)
@settings(max_examples=100, deadline=None)
def test_no_mix_of_calls_costs_more_than_the_limit(
    behaviours: list[tuple[str, int]],
    requests: list[tuple[int, int, Purpose, int]],
    maximum: float,
    limit_scope: LimitScope,
) -> None:
    bill = Bill(behaviours)
    shop = MeteredRouter(bill, Limit("BUDGET_USD", limit_scope, True, maximum), name="scripted")

    async def ask(length: int, max_tokens: int, purpose: Purpose, turns: int) -> None:
        with run_of(PERSON):
            task = asyncio.ensure_future(
                shop.router.text(TextRequest("x" * length, max_tokens=max_tokens, purpose=purpose))
            )
        if turns < 20:
            for _ in range(turns):
                await asyncio.sleep(0)
            task.cancel()
        await asyncio.wait([task])
        assert task.cancelled() or isinstance(task.exception(), ModelError | None)

    async def ask_all() -> None:
        async with asyncio.TaskGroup() as group:
            for request in requests:
                group.create_task(ask(*request))

    asyncio.run(ask_all())
    assert bill.cost <= maximum + 1e-6


def build_wave(seconds: int) -> bytes:
    file = BytesIO()
    with wave.open(file, "wb") as recording:
        recording.setnchannels(1)
        recording.setsampwidth(2)
        recording.setframerate(8000)
        recording.writeframes(bytes(16_000 * seconds))
    return file.getvalue()


@pytest.mark.long
def test_a_recording_is_as_long_as_its_header_says_if_that_is_possible() -> None:
    assert measure_audio(build_wave(90)) == pytest.approx(90, abs=0.1)
    hidden = b"RIFF" + build_wave(1)[4:] + bytes(3_000_000)
    assert measure_audio(hidden) == pytest.approx(8 * len(hidden) / 6000)


@pytest.mark.parametrize(
    "audio", [b"", b"no recording" * 100, build_wave(5)[:50], b"OggS" + bytes(500), b"ID3" + bytes(99)]
)
def test_a_recording_without_a_header_is_as_long_as_its_size_allows(audio: bytes) -> None:
    assert measure_audio(audio) == pytest.approx(8 * len(audio) / 6000)
