"""What the services beside the conversation let the character do."""

from bot import ProviderResult, Service, Turn, provider


@provider("CAPABILITIES", "What the services that run let the character do.", position=-85)
def capabilities(turn: Turn) -> ProviderResult:
    """List what the running services say of themselves, in the order in which they started."""
    running = (one for one in turn.agent.services if isinstance(one, Service))
    told = tuple(one.capability for one in running if one.capability)
    return ProviderResult(
        text="\n".join(["# Abilities", *(f"- {one}" for one in told)]) if told else "",
        data={"capabilities": told},
    )
