"""A token counts as refused only when the platform's own call says so, and the platform is asked again."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from bot.adapter.adapter import FIRST_PAUSE_SECONDS, MAX_PAUSE_SECONDS
from bot.concurrency.clock import TimeSource
from bot.platform import ConnectionState, ConnectionStatus, DisconnectCause, TokenCheck


@asynccontextmanager
async def open_check(answers: list[bool | None]) -> AsyncIterator[tuple[TokenCheck, ConnectionStatus, list[float]]]:
    """Check a token of which the platform says what `answers` has, the last one for ever."""
    pauses: list[float] = []

    async def ask() -> bool | None:
        return answers.pop(0) if len(answers) > 1 else answers[0]

    async def sleep(seconds: float) -> None:
        pauses.append(seconds)

    status = ConnectionStatus("somewhere", "Ada")
    check = TokenCheck(status, ask, "the token is refused", TimeSource(sleep=sleep))
    try:
        yield check, status, pauses
    finally:
        await check.close()


async def test_a_refused_call_stops_nothing_while_the_token_is_accepted_or_cannot_be_asked_about() -> None:
    answers: list[bool | None]
    for answers in ([True], [None]):
        async with open_check(answers) as (check, status, _):
            status.connected()
            assert not await check.confirm()
            assert not check.is_refused
            assert status.snapshot.state is ConnectionState.CONNECTED


async def test_a_confirmed_refusal_takes_the_account_off_until_the_token_is_accepted() -> None:
    async with open_check([False, None, False, True]) as (check, status, pauses):
        assert await check.confirm()
        assert (status.snapshot.state, status.snapshot.cause) == (ConnectionState.OFF, DisconnectCause.REFUSED)
        status.connected()  # a poll that went well does not mean that the token is accepted
        assert status.snapshot.state is ConnectionState.OFF
        assert check.retry_after > FIRST_PAUSE_SECONDS
        await check.wait_accepted()
        assert not check.is_refused
        status.connected()
        assert status.snapshot.state is ConnectionState.CONNECTED
    assert pauses == [FIRST_PAUSE_SECONDS, 2 * FIRST_PAUSE_SECONDS, 4 * FIRST_PAUSE_SECONDS]


async def test_the_pauses_between_two_questions_grow_to_a_quarter_of_an_hour() -> None:
    async with open_check([*[False] * 12, True]) as (check, _, pauses):
        check.refuse()
        await check.wait_accepted()
    assert max(pauses) == MAX_PAUSE_SECONDS
    assert pauses == sorted(pauses)
