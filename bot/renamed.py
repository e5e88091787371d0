"""Where the names of version 0.1.0 of `bot` and `bot.testing` are now; removed with the next release."""

from collections.abc import Collection, Mapping
from datetime import datetime
from types import MappingProxyType
from uuid import UUID

from bot.domain.choices import ChoiceRequest
from bot.domain.content import Choice
from bot.domain.environment import Role
from bot.domain.task import Task


def _parse_table(table: Mapping[str, str]) -> Mapping[str, str]:
    """Return old names with their places, "module:Name", from the names of each module.

    A name is written as `old=new`, or alone if only its module changed.
    """
    return MappingProxyType(
        {
            old: f"{module}:{new or old}"
            for module, names in table.items()
            for old, _, new in (name.partition("=") for name in names.split())
        }
    )


BOT = _parse_table(
    {
        "bot": """
            ABORT=ChoiceRequest.ABORT AWAITING_CHOICE=TaskTag.AWAITING_CHOICE Asking=CommandContext
            Attendance=ParticipantState Blueprint=AgentConfig Example=ExampleLine FORGOTTEN=Rule.ERASED
            IMMEDIATE=TaskTag.IMMEDIATE QUEUE=TaskTag.QUEUE REPEAT=TaskTag.REPEAT Reach=RecallScope
            Scope=MemoryScope Shown=CommandResponse TryAgain=TemporaryError
            WORLD_SETTINGS=CoreSettings.WORLD_SETTINGS Words=CommaList folded_name=fold_name
            keep_key=reject_redirected_key reached=crash_point
        """,
        "bot.domain.component_specs": "EvaluatorSpec ProviderSpec",
        "bot.domain.ids": "delivery_id",
        "bot.domain.results": "PlanStep StepStatus",
        "bot.events": """
            ActionCompleted ActionStarted ChannelCleared ControlMessage EmbeddingCompleted EmbeddingFailed
            EmbeddingRequested EntityForgotten=EntityErased EntityJoined EntityLeft EntityUpdated EvaluatorCompleted
            EvaluatorStarted Event InteractionReceived MessageDeleted MessageEdited MessageReceived MessageSent
            ModelUsed PostGenerated ReactionReceived RoomJoined RoomLeft RoomMoved=RoomMigrated RunEnded RunStarted
            RunStatus RunTimedOut VoiceMessageReceived VoiceMessageSent WorldConnected WorldJoined WorldLeft
            event_class
        """,
        "bot.models": """
            EmbeddingRequest EmbeddingResult ImageDescriptionRequest ImageRequest ImageResult ModelBusy ModelCall
            ModelError ModelRefused ModelUnavailable PromptTooLong Purpose SpeechRequest SpeechResult TextRequest
            TextResult TextSink Tool ToolCall TranscriptionRequest Usage read_retry_after=parse_retry_after
            told_host=host_label
        """,
        "bot.platform": """
            ANY_ADDRESS=WILDCARD_HOSTS AdapterSpec Allowed=AllowList Answers=AnswerPolicy Arrival=InboundMessage
            Asked=CommandInvocation BaseUrl BoundRoute Cause=DisconnectCause Check=AccountCheck CommandSpec
            Cursor=StreamCursor Decided=DeliveryDecision Deferred=LazyImport Delivery DeliveryError DeliveryState
            Door=AgentHandle EventKey Feed FetchError FoundPost Gathering=Batcher IntakeClosed=InboxClosed
            Link=ConnectionStatus LinkState=ConnectionSnapshot MentionContext News=MembershipReporter NotSent
            Outgoing=OutgoingReply Pressed=ChoiceSelection Reaction ReadCursor=CursorReader Remembered=BoundedSet
            RoomRule RoomRules Standing=ConnectionState TakenAway=MessageGone Trial=EmulatedPlatform
            Unclear=DeliveryUnknown Undeliverable Unsent=UndeliveredParts allowed_hosts cause_of=disconnect_cause
            cleared_so_far=filter_partial_text host_name=parse_host_header is_foreign=is_cross_site
            is_own_page=is_same_origin put_surely=AgentHandle.submit_tolerant
        """,
        "bot.plugin_system.action": "Action",
        "bot.plugin_system.command": "Command",
        "bot.plugin_system.components": "Evaluator Listener Model Provider Worker",
        "bot.plugin_system.routes": "Route",
        "bot.prompts": """
            Line=HistoryLine TemplateError Tree=TagTree last_lines=truncate_history parse_history
            read_tree=parse_tag_tree render=render_template render_history
        """,
        "bot.renamed": "choices_of chosen is_open objection option_named options_of",
        "bot.store": """
            AUDIT=LogKind.AUTHORIZATION Checkup=CheckReport Commitment=TurnCommit Forgotten=ErasureResult
            Health=StoreHealth LAST_SAID=MAX_TRANSCRIPT_SCAN LATEST=MAX_SCANNED_ROWS LaneLost=LeaseLost LogEntry
            MOST_NAMES=MAX_NAME_MATCHES NO_SCHEMAS Notice=MembershipUpdate Noticed=MembershipChange OpenWork
            REMEMBERED=MEMBERSHIP_EVENT_TTL RUN_LOG=LogKind.RUN Recalled=MemoryMatch Received=StoredEvent
            Removed=DeletionResult Revised=EditResult SAID=TRANSCRIPT_KINDS Schema Schemas Sharing=WorkSharing
            Spending=CostEntry Step StepState Storage Store StoreRefused=StoreInaccessible StoreUnavailable
            Tables=PluginTables Trouble=StoreProblem Unembedded=UnembeddedPage Upgraded=UpgradeResult
            audience_of=recall_audience best_by_words=top_by_word_overlap blotted=redact_receipt
            cancelled=cancel_receipt cosine first_claim=new_receipt nobody=anonymize_entity
            opted_out=opt_out_component ranked_by_words=rank_by_word_overlap sent_as=messages_by_external_id
            summed=sum_costs unasked=orphaned_deliveries weighed=plan_edit withheld=cancel_unsent word_weights
            wording=normalize_wording words_of=index_words
        """,
        "bot.text": """
            clean_name=sanitize_name cut_line=truncate_line escape_line is_blank last_break=grapheme_boundary_before
            shorten
        """,
    }
)
TESTING = _parse_table(
    {
        "bot.store": "InMemoryStore",
        "bot.testing": """
            FaultyAnswer=FaultResponse Person=EmulatorUser Pieces=StreamedText Place=EmulatorRoom
            Said=EmulatorMessage Scene=EmulatorView Stage=AgentHarness TalkPage=EmulatorPage answer=model_answer
            make_arrival=make_message on_stage=running_agent only_from_here=loopback_only
        """,
    }
)


def options_of(task: Task) -> list[str]:
    """Return the names of a task's options; now `ChoiceRequest.options`."""
    return list(ChoiceRequest.from_metadata(task.metadata).options)


def option_named(text: str, options: Collection[str]) -> str:
    """Return the option that a text names; now `ChoiceRequest.match`."""
    return ChoiceRequest(options=tuple(options)).match(text)


def objection(task: Task, authors: Collection[UUID], role: Role) -> str:
    """Return why these people may not choose; now `ChoiceRequest.refusal_for`."""
    return ChoiceRequest.from_metadata(task.metadata).refusal_for(authors, role)


def is_open(task: Task, now: datetime) -> bool:
    """Return whether a task waits for a choice; now `ChoiceRequest.is_open`."""
    return ChoiceRequest.from_metadata(task.metadata).is_open(task, now)


def chosen(task: Task, choice: str, by: UUID, at: datetime) -> Task:
    """Return the task with its choice; now `ChoiceRequest.choose`."""
    return ChoiceRequest.from_metadata(task.metadata).choose(task, choice, by, at)


def choices_of(task: Task) -> tuple[Choice, ...]:
    """Return a task's options as choices; now `ChoiceRequest.choices`."""
    return ChoiceRequest.from_metadata(task.metadata).choices(task.id)
