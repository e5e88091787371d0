"""What is learnt after an answer."""

from bot import ProviderResult, Turn, provider


@provider("EVALUATORS", "What looks at an answer once it has left.", position=-60, private=True)
def evaluators(turn: Turn) -> ProviderResult:
    """List the evaluators, for templates and plugins that ask for them."""
    found = turn.agent.catalog.evaluators
    lines = [f"- {spec.name}: {spec.description}" for spec in found]
    return ProviderResult(
        text="\n".join(["# Evaluators", *lines]) if lines else "",
        values={"evaluatorNames": ", ".join(spec.name for spec in found)},
        data={"evaluators": found},
    )
