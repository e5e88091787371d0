"""/why, /mute, /privacy, /forget-me, /help and their texts."""

from collections.abc import Iterable, Iterator, Sequence
from datetime import timedelta
from typing import Annotated, Any

from bot.domain.component_specs import CommandSpec
from bot.domain.content import Choice, Content, MentionContext
from bot.domain.edits import FORGOTTEN, Forgotten
from bot.domain.environment import Attendance, Role
from bot.domain.ids import new_id
from bot.domain.inbound import Arrival, Asked, Shown
from bot.domain.ledger import EventKey, Outcome, Receipt
from bot.domain.memory import Memory, MemoryKind
from bot.inbound.edits import Changes
from bot.inbound.inbox import Inbox
from bot.models.types import ModelType
from bot.plugin_system.command import Asking, Command, command
from bot.plugin_system.plugin import Plugin
from bot.settings import Settings

CONFIRMED_WITHIN = timedelta(minutes=10)
LATEST = 50
FORGET = "forget-me"
COMMANDS = "command"  # the kind of log entry for what somebody has asked the bot itself


class BuiltIn:
    """Answers what people may ask of every bot."""

    def __init__(self, inbox: Inbox, changes: Changes, plugins: Sequence[Plugin]) -> None:
        self._inbox, self._changes, self._plugins = inbox, changes, tuple(plugins)

    def commands(self) -> list[Command[Any]]:
        """List the commands, in the order in which help names them."""
        return [
            command("ask", "Ask me something.")(self.ask),
            command("why", "Why your last message was answered, or was not.")(self.why),
            command("mute", "Have me be quiet here unless I am named.", role=Role.ADMIN, free_alone=True)(
                self.mute
            ),
            command("unmute", "Have me answer here again.", role=Role.ADMIN, free_alone=True)(self.unmute),
            command("privacy", "What I keep of you, where it goes, how to delete it.")(self.privacy),
            command(FORGET, "Delete what I keep of you.")(self.forget_me),
            command("help", "What you can ask of me.")(self.help),
            command("start", "How to begin.")(self.start),
        ]

    async def ask(self, asking: Asking, question: Annotated[str, "What you want to know"]) -> Shown:
        """Put a question into the inbox; it is answered like any message that mentions the agent."""
        return Shown(receipt=await self._inbox.put(question_of(asking.asked, question)))

    async def why(self, asking: Asking) -> str:
        """Tell what became of the person's last message; of the room's last, if they decide about it."""
        asked, ledger = asking.asked, asking.agent.store.ledger
        found = await ledger.receipts(room_id=asked.room.id, limit=LATEST)
        theirs = (one for one in found if asking.decides_here or one.author_id == asked.author.id)
        last: Receipt | None = next(theirs, None)
        return why(last) if last is not None else "I know of no message of yours here."

    async def mute(self, asking: Asking) -> str:
        """Answer in the room only when named."""
        await asking.agent.store.worlds.set_attendance(asking.asked.room.id, Attendance.MUTED)
        return "I am quiet here now, unless somebody names me. /unmute ends it."

    async def unmute(self, asking: Asking) -> str:
        """Answer in the room as usual."""
        await asking.agent.store.worlds.set_attendance(asking.asked.room.id, Attendance.DEFAULT)
        return "I answer here again."

    async def privacy(self, asking: Asking) -> str:
        """Tell what is kept of people."""
        agent = asking.agent
        text = privacy(self._plugins, agent.settings)
        marks = await agent.store.entities.components(asking.asked.author.id, FORGOTTEN)
        if not marks:
            return text
        return f"{text}\nYou had everything deleted on {str(marks[-1].data.get('at', ''))[:10]}."

    async def forget_me(self, asking: Asking) -> Shown:
        """Delete what is kept of the person, once they have said so twice."""
        agent, asked = asking.agent, asking.asked
        key, cache = f"{FORGET}:{asked.author.id}", agent.store.cache
        if await cache.get(key) is None:
            await cache.set(key, asked.event_id, expires_at=agent.clock() + CONFIRMED_WITHIN)
            return Shown(
                "This deletes what I keep of you: your messages here and in every room of this platform, my "
                "answers to them, what I learnt from them, and what I know about you. It cannot be undone. "
                f"To do it, give /{FORGET} once more within ten minutes.",
                choices=(Choice("Delete it all", f"/{FORGET}"),),
            )
        found = await self._changes.forgotten(asked.author.id)
        await cache.drop(key)
        # Of whom it was is not written down: that is what was asked for.
        await agent.store.logs.log(COMMANDS, {"command": FORGET, "deleted": found.total})
        return Shown(forgotten(found))

    async def help(self, asking: Asking) -> str:
        """List the commands."""
        own = (one.spec for one in self.commands())
        return overview(asking.agent.name, (*own, *asking.agent.catalog.commands))

    async def start(self, asking: Asking) -> str:
        """Greet somebody who has just found the bot."""
        return f"Hello, I am {asking.agent.name}. Just write to me. /help tells what else there is."


def question_of(asked: Asked, question: str) -> Arrival:
    """Make the arrival of a question that was asked by a command."""
    room, message_id = asked.room, asked.message_id or asked.event_id
    content = Content(text=question, source=room.platform, mention=MentionContext(is_mention=True))
    message = Memory(
        id=new_id(),
        kind=MemoryKind.MESSAGE,
        entity_id=asked.author.id,
        room_id=room.id,
        world_id=asked.world.id,
        content=content,
        created_at=asked.created_at,
        external_id=asked.message_id,
    )
    key = EventKey(room.platform, room.account, asked.event_id, room.id, message_id)
    return Arrival(key, asked.world, room, asked.author, message)


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
