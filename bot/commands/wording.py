"""What commands say: why a message was answered or not, and what is kept of people."""

from collections.abc import Iterable, Iterator, Sequence

from bot.domain.component_specs import CommandSpec
from bot.domain.edits import Forgotten
from bot.domain.ledger import Outcome, Receipt
from bot.models.types import ModelType
from bot.plugin_system.plugin import Plugin
from bot.settings import Settings

TEXT_TYPES = (ModelType.TEXT_SMALL, ModelType.TEXT_MEDIUM, ModelType.TEXT_LARGE)
# What stands in a receipt was written by rules of ours, except under these: there the model has spoken, or
# a service's error, and either may repeat what others have said.
GENERATED = ("shouldRespond", "IGNORE")
JUDGED = {
    "shouldRespond: RESPOND": "the model found that it was meant for me",
    "shouldRespond: IGNORE": "the model found that it was not meant for me",
    "shouldRespond: STOP": "the model found that it asked me to be quiet",
    "IGNORE": "I chose to say nothing",
}
OPENINGS = {
    Outcome.ANSWERED: "I answered it",
    Outcome.IGNORED: "I did not answer it",
    Outcome.SUPERSEDED: "It was answered together with a newer message, or edited",
    Outcome.CANCELLED: "It was not answered",
    Outcome.EXPIRED: "It was not answered",
    Outcome.PARKED: "It was put aside",
    Outcome.FAILED: "I tried and could not answer it",
}


def why(receipt: Receipt) -> str:
    """Tell in plain words what became of a message; nothing in it is a secret or another person's words."""
    if not receipt.outcome.is_final:
        return "I am still working on it."
    opening, reason = OPENINGS[receipt.outcome], _reason(receipt)
    asked = sorted({call.model for call in receipt.model_calls if call.model})
    told = f" Asked: {', '.join(asked)}." if asked else " No model was asked."
    return f"{opening}{f': {reason}' if reason else ''}.{told}\n(Its receipt is {receipt.id}.)"


def _reason(receipt: Receipt) -> str:
    if receipt.outcome is Outcome.FAILED:
        if receipt.rule == "RESPONSE_TIMEOUT":
            return "it took too long"
        return "the model, or something of mine, has failed; whoever runs me can look it up"
    if receipt.rule.startswith(GENERATED):
        return JUDGED.get(receipt.rule, "the model decided so")
    return receipt.reason.rstrip(".")


def privacy(plugins: Sequence[Plugin], settings: Settings) -> str:
    """Tell what is kept of people, for how long, where it goes, and how to have it deleted."""
    lines = [
        "What I keep: your name and your id here, the messages and reactions that I can see, my answers to "
        "you, and what I have concluded from what you said (facts, and how people stand to one another).",
        *_promises([one for one in plugins if not one.models], settings),
        f"Where it goes: what is said here is shown to {_models(plugins)}, to find an answer.",
        *_told([one for one in plugins if one.models], settings),
        "Deleting it: /forget-me deletes what I keep of you here. Taking a message back deletes that message "
        "and what I have learnt from it alone.",
    ]
    return "\n".join(lines)


def _promises(plugins: Iterable[Plugin], settings: Settings) -> Iterator[str]:
    keeps = any(plugin.store is not None for plugin in plugins)
    end = "you have it deleted" if keeps else "I stop"
    yield from _told(plugins, settings) or [f"For how long: until {end}."]


def _told(plugins: Iterable[Plugin], settings: Settings) -> list[str]:
    return [line for plugin in plugins if plugin.privacy is not None and (line := plugin.privacy(settings))]


def _models(plugins: Iterable[Plugin]) -> str:
    names = [plugin.name for plugin in plugins if any(one.type in TEXT_TYPES for one in plugin.models)]
    return f"the model of {' or '.join(dict.fromkeys(names))}" if names else "no model"


def forgotten(found: Forgotten) -> str:
    """Tell what was deleted, and what is left."""
    counts = {
        "messages of yours": found.messages,
        "answers to you": found.answers,
        "facts, reactions and notes": found.drawn,
        "details about you": found.details,
        "relationships": found.relationships,
        "things to do for you": found.tasks,
    }
    deleted = ", ".join(f"{what} ({count})" for what, count in counts.items() if count)
    return (
        f"Deleted: {deleted or 'there was nothing'}. Left are ids by which I recognise messages that reach "
        "me twice, and a mark that you have asked for this. What you write from now on is kept again."
    )


def overview(name: str, commands: Iterable[CommandSpec]) -> str:
    """List the commands."""
    lines = [f"/{one.name}{_taken(one)}  {one.description}" for one in commands]
    return "\n".join([f"I am {name}. Write to me, or:", *lines])


def _taken(spec: CommandSpec) -> str:
    required = spec.parameters.get("required", ())
    names = [name if name in required else f"[{name}]" for name in spec.parameters.get("properties", ())]
    return "".join(f" {name}" for name in names)
