"""/why, /mute, /privacy, /forget-me, /help and their texts."""

from collections.abc import Iterable, Iterator, Sequence
from datetime import timedelta
from typing import Annotated, Any

from bot.domain.component_specs import CommandSpec
from bot.domain.content import Choice, Content, MentionContext
from bot.domain.edits import ERASURE_COMPONENT, ErasureResult
from bot.domain.environment import ParticipantState, Role
from bot.domain.ids import new_id
from bot.domain.inbound import CommandInvocation, CommandResponse, InboundMessage
from bot.domain.ledger import EventKey, Outcome, Receipt, Rule
from bot.domain.memory import Memory, MemoryKind
from bot.inbound.edits import EditReporter
from bot.inbound.inbox import Inbox
from bot.models.types import ModelType
from bot.plugin_system.command import Command, CommandContext, command
from bot.plugin_system.plugin import Plugin
from bot.settings import Settings

CONFIRMATION_TTL = timedelta(minutes=10)
MAX_SCANNED_RECEIPTS = 50
FORGET_COMMAND = "forget-me"
COMMAND_LOG_KIND = "command"  # the kind of log entry for a command


class BuiltinCommands:
    """The commands of every bot."""

    def __init__(self, inbox: Inbox, edits: EditReporter, plugins: Sequence[Plugin]) -> None:
        self._inbox, self._edits, self._plugins = inbox, edits, tuple(plugins)

    def commands(self) -> list[Command[Any]]:
        """Return the commands, in the order of /help."""
        return [
            command("ask", "Ask me something.")(self.ask),
            command("why", "Why your last message was answered, or was not.")(self.why),
            command("mute", "Have me be quiet here unless I am named.", role=Role.ADMIN, open_in_direct=True)(
                self.mute
            ),
            command("unmute", "Have me answer here again.", role=Role.ADMIN, open_in_direct=True)(
                self.unmute
            ),
            command("privacy", "What I keep of you, where it goes, how to delete it.")(self.privacy),
            command(FORGET_COMMAND, "Delete what I keep of you.")(self.forget_me),
            command("help", "What you can ask of me.")(self.help),
            command("start", "How to begin.")(self.start),
        ]

    async def ask(
        self, context: CommandContext, question: Annotated[str, "What you want to know"]
    ) -> CommandResponse:
        """Submit a question; it is answered like any message that mentions the agent."""
        return CommandResponse(receipt=await self._inbox.submit(build_question(context.invocation, question)))

    async def why(self, context: CommandContext) -> str:
        """Explain the outcome of the person's last message; of the room's last, if they decide about it."""
        invocation, ledger = context.invocation, context.agent.store.ledger
        receipts = await ledger.receipts(room_id=invocation.room.id, limit=MAX_SCANNED_RECEIPTS)
        candidates = (
            receipt
            for receipt in receipts
            if context.is_room_admin or receipt.author_id == invocation.author.id
        )
        last_receipt: Receipt | None = next(candidates, None)
        return (
            describe_outcome(last_receipt)
            if last_receipt is not None
            else "I know of no message of yours here."
        )

    async def mute(self, context: CommandContext) -> str:
        """Answer in the room only when named."""
        await context.agent.store.worlds.set_participant_state(
            context.invocation.room.id, ParticipantState.MUTED
        )
        return "I am quiet here now, unless somebody names me. /unmute ends it."

    async def unmute(self, context: CommandContext) -> str:
        """Answer in the room as usual."""
        await context.agent.store.worlds.set_participant_state(
            context.invocation.room.id, ParticipantState.DEFAULT
        )
        return "I answer here again."

    async def privacy(self, context: CommandContext) -> str:
        """Describe the stored personal data."""
        agent = context.agent
        text = describe_privacy(self._plugins, agent.settings)
        marks = await agent.store.entities.components(context.invocation.author.id, ERASURE_COMPONENT)
        if not marks:
            return text
        return f"{text}\nYou had everything deleted on {str(marks[-1].data.get('at', ''))[:10]}."

    async def forget_me(self, context: CommandContext) -> CommandResponse:
        """Delete the person's data, once they have confirmed it."""
        agent, invocation = context.agent, context.invocation
        key, cache = f"{FORGET_COMMAND}:{invocation.author.id}", agent.store.cache
        if await cache.get(key) is None:
            await cache.set(key, invocation.event_id, expires_at=agent.clock() + CONFIRMATION_TTL)
            return CommandResponse(
                "This deletes what I keep of you: your messages here and in every room of this platform, my "
                "answers to them, what I learnt from them, and what I know about you. It cannot be undone. "
                f"To do it, give /{FORGET_COMMAND} once more within ten minutes.",
                choices=(Choice("Delete it all", f"/{FORGET_COMMAND}"),),
            )
        erasure = await self._edits.erase_entity(invocation.author.id)
        await cache.delete(key)
        # Of whom it was is not written down: that is what was asked for.
        await agent.store.logs.log(COMMAND_LOG_KIND, {"command": FORGET_COMMAND, "deleted": erasure.total})
        return CommandResponse(describe_erasure(erasure))

    async def help(self, context: CommandContext) -> str:
        """List the commands."""
        builtin_specs = (builtin.spec for builtin in self.commands())
        return describe_commands(context.agent.name, (*builtin_specs, *context.agent.catalog.commands))

    async def start(self, context: CommandContext) -> str:
        """Greet a new user."""
        return f"Hello, I am {context.agent.name}. Just write to me. /help tells what else there is."


def build_question(invocation: CommandInvocation, question: str) -> InboundMessage:
    """Build the inbound message of a question that was asked by command."""
    room, message_id = invocation.room, invocation.message_id or invocation.event_id
    content = Content(text=question, source=room.platform, mention=MentionContext(is_mention=True))
    message = Memory(
        id=new_id(),
        kind=MemoryKind.MESSAGE,
        entity_id=invocation.author.id,
        room_id=room.id,
        world_id=invocation.world.id,
        content=content,
        created_at=invocation.created_at,
        external_id=invocation.message_id,
    )
    key = EventKey(room.platform, room.account, invocation.event_id, room.id, message_id)
    return InboundMessage(key, invocation.world, room, invocation.author, message)


TEXT_TYPES = (ModelType.TEXT_SMALL, ModelType.TEXT_MEDIUM, ModelType.TEXT_LARGE)
# Under these rules the reason of a receipt was written by a model or a service and may repeat the words of
# other people, so it is replaced by a fixed text.
MODEL_DECISIONS = {
    Rule.DECIDED_RESPOND: "the model found that it was meant for me",
    Rule.DECIDED_IGNORE: "the model found that it was not meant for me",
    Rule.DECIDED_STOP: "the model found that it asked me to be quiet",
    Rule.CHOSE_SILENCE: "I chose to say nothing",
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


def describe_outcome(receipt: Receipt) -> str:
    """Describe the outcome of a message in plain words, without secrets or another person's words."""
    if not receipt.outcome.is_final:
        return "I am still working on it."
    opening, reason = OPENINGS[receipt.outcome], _describe_reason(receipt)
    models = sorted({call.model for call in receipt.model_calls if call.model})
    models_text = f" Asked: {', '.join(models)}." if models else " No model was asked."
    return f"{opening}{f': {reason}' if reason else ''}.{models_text}\n(Its receipt is {receipt.id}.)"


def _describe_reason(receipt: Receipt) -> str:
    if receipt.outcome is Outcome.FAILED:
        if receipt.rule == Rule.RESPONSE_TIMEOUT:
            return "it took too long"
        return "the model, or something of mine, has failed; whoever runs me can look it up"
    if receipt.is_reason_generated:
        return MODEL_DECISIONS.get(Rule(receipt.rule), "the model decided so")
    return receipt.reason.rstrip(".")


def describe_privacy(plugins: Sequence[Plugin], settings: Settings) -> str:
    """Describe which personal data is stored, for how long, where it goes, and how to delete it."""
    lines = [
        "What I keep: your name and your id here, the messages and reactions that I can see, my answers to "
        "you, and what I have concluded from what you said (facts, and how people stand to one another).",
        *_build_retention_lines([plugin for plugin in plugins if not plugin.models], settings),
        f"Where it goes: what is said here is shown to {_join_model_names(plugins)}, to find an answer.",
        *_build_plugin_statements([plugin for plugin in plugins if plugin.models], settings),
        "Deleting it: /forget-me deletes what I keep of you here. Taking a message back deletes that message "
        "and what I have learnt from it alone.",
    ]
    return "\n".join(lines)


def _build_retention_lines(plugins: Iterable[Plugin], settings: Settings) -> Iterator[str]:
    has_store = any(plugin.store is not None for plugin in plugins)
    until = "you have it deleted" if has_store else "I stop"
    yield from _build_plugin_statements(plugins, settings) or [f"For how long: until {until}."]


def _build_plugin_statements(plugins: Iterable[Plugin], settings: Settings) -> list[str]:
    return [
        line
        for plugin in plugins
        if plugin.privacy_statement is not None and (line := plugin.privacy_statement(settings))
    ]


def _join_model_names(plugins: Iterable[Plugin]) -> str:
    names = [plugin.name for plugin in plugins if any(model.type in TEXT_TYPES for model in plugin.models)]
    return f"the model of {' or '.join(dict.fromkeys(names))}" if names else "no model"


def describe_erasure(erasure: ErasureResult) -> str:
    """Describe what was deleted, and what is left."""
    counts = {
        "messages of yours": erasure.messages,
        "answers to you": erasure.replies,
        "facts, reactions and notes": erasure.derived,
        "details about you": erasure.components,
        "relationships": erasure.relationships,
        "things to do for you": erasure.tasks,
    }
    deleted = ", ".join(f"{label} ({count})" for label, count in counts.items() if count)
    return (
        f"Deleted: {deleted or 'there was nothing'}. Left are ids by which I recognise messages that reach "
        "me twice, and a mark that you have asked for this. What you write from now on is kept again."
    )


def describe_commands(name: str, commands: Iterable[CommandSpec]) -> str:
    """List the commands."""
    lines = [f"/{spec.name}{_format_parameters(spec)}  {spec.description}" for spec in commands]
    return "\n".join([f"I am {name}. Write to me, or:", *lines])


def _format_parameters(spec: CommandSpec) -> str:
    required = spec.parameters.get("required", ())
    names = [name if name in required else f"[{name}]" for name in spec.parameters.get("properties", ())]
    return "".join(f" {name}" for name in names)
