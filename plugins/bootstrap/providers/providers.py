"""What the model may ask for on top of what it is told anyway."""

from bot import ProviderResult, Turn, provider

TOLD_ANYWAY = ("ENTITIES", "WORLD", "ATTACHMENTS", "ACTION_STATE")


@provider("PROVIDERS", "What can be looked up on demand.", position=-80)
def providers(turn: Turn) -> ProviderResult:
    """List the providers on demand that have not been composed yet."""
    found = [
        spec
        for spec in turn.agent.catalog.providers
        if spec.is_dynamic and not spec.is_private and spec.name not in TOLD_ANYWAY
    ]
    if not found:
        return ProviderResult()
    lines = [f"- {spec.name}: {spec.description}" for spec in found]
    return ProviderResult(text="\n".join(["# Providers, available on demand", *lines]))
