"""The state of a turn."""

from bot.domain.ledger import ProviderResult, State


def test_an_invalidated_provider_runs_again() -> None:
    state = State(results={"TIME": ProviderResult("noon"), "MOOD": ProviderResult("fine")})
    state.invalidate("TIME", "NOTHING")

    assert state.providers == {"MOOD": ProviderResult("fine")}


def test_two_states_share_nothing() -> None:
    first, second = State(), State()
    first.values["a"] = first.data["a"] = 1

    assert second == State()
