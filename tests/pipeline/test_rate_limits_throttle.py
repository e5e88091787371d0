"""Rate limits per person, room and world, and for other bots."""

from dataclasses import replace
from uuid import UUID

import pytest

from bot.concurrency.clock import system_clock
from bot.domain.environment import ChannelType, Room
from bot.domain.ids import new_id
from bot.pipeline.should_respond import (
    BURST_MINUTES,
    MAX_BOT_MESSAGES_IN_A_ROW,
    MAX_BOT_MESSAGES_PER_MINUTE,
    NO_LIMITS,
    PUBLIC_LIMITS,
    BotGuard,
    MessageRateLimiter,
)
from bot.settings import CoreSettings
from bot.testing import make_message


class Clock:
    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


def room(name: str = "here", kind: ChannelType = ChannelType.GROUP) -> Room:
    return make_message("hi", room=name, kind=kind, sent_at=system_clock()).room


def limits(person: int = 0, room: int = 0, world: int = 0) -> CoreSettings:
    values = {"MESSAGES_PER_PERSON": person, "MESSAGES_PER_ROOM": room, "MESSAGES_PER_WORLD": world}
    return CoreSettings.model_validate(values)


def taken(throttle: MessageRateLimiter, person: UUID, place: Room, tries: int) -> int:
    return sum(throttle.check(person, place, expects_reply=False) is None for _ in range(tries))


@pytest.mark.failure("O-01")
def test_a_flood_is_admitted_up_to_twice_the_limit_first_and_then_up_to_the_limit(clock: Clock) -> None:
    throttle, ann = MessageRateLimiter(limits(person=10), NO_LIMITS, clock=clock), new_id()
    looked_at = 0
    for _ in range(1000):
        looked_at += taken(throttle, ann, room(), 1)
        clock.now += 0.06
    assert 29 <= looked_at <= 30
    clock.now += 3600
    assert taken(throttle, ann, room(), 1000) == 10 * BURST_MINUTES


@pytest.mark.failure("O-01")
def test_a_flood_of_a_single_person_does_not_limit_others(clock: Clock) -> None:
    throttle, ann, bo = (MessageRateLimiter(limits(person=10, room=12), NO_LIMITS, clock=clock), new_id(), new_id())
    assert taken(throttle, ann, room(), 1000) == 20
    assert taken(throttle, bo, room(), 1) == 1


@pytest.mark.failure("O-03")
def test_many_accounts_share_the_limits_of_their_room_and_world(clock: Clock) -> None:
    throttle = MessageRateLimiter(limits(person=10, room=30, world=40), NO_LIMITS, clock=clock)
    assert sum(taken(throttle, new_id(), room("one"), 1) for _ in range(1000)) == 60
    assert sum(taken(throttle, new_id(), room("two"), 1) for _ in range(1000)) == 20
    alone = room("alone", ChannelType.DM)
    assert taken(throttle, new_id(), replace(alone, world_id=room().world_id), 1) == 1


@pytest.mark.failure("O-01")
def test_a_limited_author_gets_a_single_notice_per_period(clock: Clock) -> None:
    throttle, ann = MessageRateLimiter(limits(person=1), NO_LIMITS, clock=clock), new_id()

    def is_notified(is_meant: bool) -> bool | None:
        excess = throttle.check(ann, room(), expects_reply=is_meant)
        return excess.should_notify if excess else None

    assert [is_notified(True), is_notified(True)] == [None, None]
    assert [is_notified(False), is_notified(True), is_notified(True), is_notified(True)] == [False, True, False, False]
    clock.now += 60
    assert [is_notified(True), is_notified(True)] == [None, False]
    clock.now += 120
    assert [is_notified(True), is_notified(True), is_notified(True)] == [None, None, True]


def test_delayed_messages_count_for_the_minutes_in_which_they_were_written(clock: Clock) -> None:
    throttle, ann = MessageRateLimiter(limits(person=10), NO_LIMITS, clock=clock), new_id()
    ages = range(600, 0, -10)  # six a minute, while the bot was away
    late = [throttle.check(ann, room(), expects_reply=True, age=age) for age in ages]
    assert late == [None] * 60
    assert taken(throttle, ann, room(), 1000) <= 10 * BURST_MINUTES


@pytest.mark.failure("O-01")
def test_public_default_limits_apply_where_strangers_write(clock: Clock) -> None:
    throttle = MessageRateLimiter(CoreSettings(), PUBLIC_LIMITS, clock=clock)
    assert taken(throttle, new_id(), room(), 1000) == 20
    assert sum(taken(throttle, new_id(), room(), 1) for _ in range(1000)) == 100
    assert taken(MessageRateLimiter(CoreSettings(), NO_LIMITS, clock=clock), new_id(), room(), 1000) == 1000


def test_without_limits_all_messages_are_processed(clock: Clock) -> None:
    assert taken(MessageRateLimiter(limits(), NO_LIMITS, clock=clock), new_id(), room(), 10_000) == 10_000


@pytest.mark.failure("O-05")
def test_bots_are_answered_a_limited_number_of_times_until_a_person_writes(clock: Clock) -> None:
    guard, here, there = BotGuard(clock=clock), new_id(), new_id()
    bots = [new_id(), new_id()]

    def answered(place: UUID) -> int:
        return sum(not guard.refusal_for(bots[number % 2], place) for number in range(9))

    assert answered(here) == MAX_BOT_MESSAGES_IN_A_ROW
    clock.now += 3600
    assert answered(here) == 0
    assert answered(there) == MAX_BOT_MESSAGES_IN_A_ROW
    guard.note_person(here)
    assert answered(here) == MAX_BOT_MESSAGES_IN_A_ROW


@pytest.mark.failure("O-05")
def test_a_bot_that_exceeds_the_limit_is_not_answered_for_a_minute(clock: Clock) -> None:
    guard, bot = BotGuard(clock=clock), new_id()
    rooms = [new_id() for _ in range(MAX_BOT_MESSAGES_PER_MINUTE)]
    assert not any(guard.refusal_for(bot, place) for place in rooms)
    assert "more than 20 messages in a minute" in guard.refusal_for(bot, new_id())
    clock.now += 59
    assert "not answered for another" in guard.refusal_for(bot, new_id())
    assert not guard.refusal_for(new_id(), new_id())
    clock.now += 1
    assert not guard.refusal_for(bot, new_id())
