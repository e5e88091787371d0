"""The three actions every answer can name: say it, say nothing, do nothing more."""

from bot import ActionResult, Effect, Turn, action


@action(
    "REPLY",
    "Say the text of the answer.",
    similes=["GREET", "REPLY_TO_MESSAGE", "SEND_REPLY", "RESPOND", "RESPONSE"],
    effect=Effect.KEYED,
)
async def reply(turn: Turn, text: str = "") -> ActionResult:
    """Say something; within an answer the text is the answer's own and needs no second model call."""
    said = await turn.reply(text) if text else None
    return ActionResult(success=said is not None, text=said.content.text if said else "")


@action(
    "IGNORE",
    "Say and do nothing: the talk is over, or not meant for you.",
    similes=["STOP", "STOP_TALKING", "STOP_CHATTING", "STOP_CONVERSATION"],
    effect=Effect.PURE,
)
async def ignore(turn: Turn) -> ActionResult:
    """Stay silent."""
    return ActionResult()


@action(
    "NONE",
    "Do nothing beyond what is already done.",
    similes=["NO_ACTION", "NO_RESPONSE", "NO_REACTION"],
    effect=Effect.PURE,
)
async def none(turn: Turn) -> ActionResult:
    """Do nothing."""
    return ActionResult()
