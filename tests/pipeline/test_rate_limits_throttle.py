"""Rules of how much is looked at: of one person, in one room, in one world, and of other bots."""

from dataclasses import replace
from uuid import UUID

import pytest

from bot.concurrency.clock import system_clock
from bot.domain.environment import ChannelType, Room
from bot.domain.ids import new_id
from bot.pipeline.rate_limits import (
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


def test_o01_of_a_thousand_messages_a_minute_twice_the_limit_is_looked_at_and_then_the_limit(
    clock: Clock,
) -> None:
    throttle, ann = MessageRateLimiter(limits(person=10), NO_LIMITS, clock=clock), new_id()
    looked_at = 0
    for _ in range(1000):
        looked_at += taken(throttle, ann, room(), 1)
        clock.now += 0.06
    assert 29 <= looked_at <= 30
    clock.now += 3600
    assert taken(throttle, ann, room(), 1000) == 10 * BURST_MINUTES


def test_o01_one_persons_flood_takes_nothing_from_another(clock: Clock) -> None:
    throttle, ann, bo = (
        MessageRateLimiter(limits(person=10, room=12), NO_LIMITS, clock=clock),
        new_id(),
        new_id(),
    )
    assert taken(throttle, ann, room(), 1000) == 20
    assert taken(throttle, bo, room(), 1) == 1


def test_o03_many_accounts_together_have_their_rooms_and_their_worlds_limit(clock: Clock) -> None:
    throttle = MessageRateLimiter(limits(person=10, room=30, world=40), NO_LIMITS, clock=clock)
    assert sum(taken(throttle, new_id(), room("one"), 1) for _ in range(1000)) == 60
    assert sum(taken(throttle, new_id(), room("two"), 1) for _ in range(1000)) == 20
    alone = room("alone", ChannelType.DM)
    assert taken(throttle, new_id(), replace(alone, world_id=room().world_id), 1) == 1


def test_o01_whoever_waits_for_an_answer_is_told_once_until_all_may_come_again(clock: Clock) -> None:
    throttle, ann = MessageRateLimiter(limits(person=1), NO_LIMITS, clock=clock), new_id()

    def told(is_meant: bool) -> bool | None:
        excess = throttle.check(ann, room(), expects_reply=is_meant)
        return excess.should_notify if excess else None

    assert [told(True), told(True)] == [None, None]
    assert [told(False), told(True), told(True), told(True)] == [False, True, False, False]
    clock.now += 60
    assert [told(True), told(True)] == [None, False]
    clock.now += 120
    assert [told(True), told(True), told(True)] == [None, None, True]


def test_what_was_written_over_minutes_and_comes_at_once_counts_for_those_minutes(clock: Clock) -> None:
    throttle, ann = MessageRateLimiter(limits(person=10), NO_LIMITS, clock=clock), new_id()
    ages = range(600, 0, -10)  # six a minute, while the bot was away
    late = [throttle.check(ann, room(), expects_reply=True, age=age) for age in ages]
    assert late == [None] * 60
    assert taken(throttle, ann, room(), 1000) <= 10 * BURST_MINUTES


def test_o01_what_nobody_sets_is_limited_where_strangers_write(clock: Clock) -> None:
    throttle = MessageRateLimiter(CoreSettings(), PUBLIC_LIMITS, clock=clock)
    assert taken(throttle, new_id(), room(), 1000) == 20
    assert sum(taken(throttle, new_id(), room(), 1) for _ in range(1000)) == 100
    assert taken(MessageRateLimiter(CoreSettings(), NO_LIMITS, clock=clock), new_id(), room(), 1000) == 1000


def test_without_limits_everything_is_looked_at(clock: Clock) -> None:
    assert taken(MessageRateLimiter(limits(), NO_LIMITS, clock=clock), new_id(), room(), 10_000) == 10_000


def test_o05_bots_are_answered_so_many_times_in_a_row_until_a_person_speaks(clock: Clock) -> None:
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


def test_o05_a_bot_that_writes_too_much_in_a_minute_is_not_answered_for_another(clock: Clock) -> None:
    guard, bot = BotGuard(clock=clock), new_id()
    rooms = [new_id() for _ in range(MAX_BOT_MESSAGES_PER_MINUTE)]
    assert not any(guard.refusal_for(bot, place) for place in rooms)
    assert "more than 20 messages in a minute" in guard.refusal_for(bot, new_id())
    clock.now += 59
    assert "not answered for another" in guard.refusal_for(bot, new_id())
    assert not guard.refusal_for(new_id(), new_id())
    clock.now += 1
    assert not guard.refusal_for(bot, new_id())
