"""What time it is."""

from bot import ProviderResult, Turn, provider


@provider("TIME", "The present date and time.", position=110)
def time(turn: Turn) -> ProviderResult:
    """Tell the time in UTC, to the minute."""
    now = turn.agent.clock()
    said = f"{now:%A, %Y-%m-%d %H:%M} UTC"
    return ProviderResult(text=f"It is {said}.", values={"time": said})
