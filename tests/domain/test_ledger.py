"""The ledger."""

from bot.domain.ledger import Outcome


def test_an_event_is_open_until_it_has_an_outcome_of_the_seven() -> None:
    final = [outcome for outcome in Outcome if outcome.is_final]

    assert len(final) == 7
    assert not Outcome.RECEIVED.is_final
    assert not Outcome.CLAIMED.is_final
