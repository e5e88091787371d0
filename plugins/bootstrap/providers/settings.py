"""What the people of this world have set, or may set, for it; no secret is among it."""

from bot import WORLD_SETTINGS, CoreSettings, ProviderResult, Role, Turn, escape_line, provider, shorten

LONGEST = 100


@provider("SETTINGS", "What is set for this place, for those who look after it.", position=-35, dynamic=True)
def settings(turn: Turn) -> ProviderResult:
    """List what can be set here and how it is set now; everything else is the operator's and stays unsaid."""
    if not turn.role.reaches(Role.ADMIN):
        return ProviderResult()
    values = {name: _value(turn, name) for name in sorted(WORLD_SETTINGS)}
    lines = [
        f"- {name}: {escape_line(shorten(value, LONGEST)) or 'not set'}" for name, value in values.items()
    ]
    return ProviderResult(text="\n".join(["# Settings of this place", *lines]), data={"settings": values})


def _value(turn: Turn, name: str) -> str:
    default = CoreSettings.model_fields[name.lower()].get_default()
    written = ",".join(default) if isinstance(default, tuple) else str(default)
    return turn.setting(name) or written
