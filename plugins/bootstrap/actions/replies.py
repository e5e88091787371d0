"""REPLY, IGNORE, NONE, GENERATE_IMAGE."""

from typing import Annotated

from bot import ActionResult, Attachment, Content, Effect, ExampleLine, MediaKind, Turn, action, derived_id
from bot.models import ImageRequest, ModelError, ModelType, Purpose, TextRequest
from bot.prompts import render_template
from bot.text import escape_line, shorten
from plugins.bootstrap.actions.permissions import asked_by, authorize, refused


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


IMAGE = "imageGenerationTemplate"
LONGEST = 2_000
DRAWING = """\
Describe a picture for somebody who draws it without knowing this conversation: what it shows, in which \
style, light and mood. One paragraph; no names of living people, no words in the picture unless asked for.

The picture is meant to show: {{subject}}
{{#if messageText}}
It was asked for like this: {{messageText}}
{{/if}}

Write only the description.
"""


def can_draw(turn: Turn) -> bool:
    """Whether any model draws."""
    return turn.agent.models.has_handler_for(ModelType.IMAGE)


@action(
    "GENERATE_IMAGE",
    "Draw a picture and show it here.",
    similes=["DRAW", "CREATE_IMAGE", "RENDER_IMAGE", "VISUALIZE"],
    when=can_draw,
    effect=Effect.UNSAFE,
    examples=[
        [
            ExampleLine("Robin", "Draw me a steam engine"),
            ExampleLine("Ada", "Here it comes.", ("REPLY", "GENERATE_IMAGE")),
        ]
    ],
)
async def generate_image(
    turn: Turn, subject: Annotated[str, "What the picture shows, in a sentence"]
) -> ActionResult:
    """Have the small model describe the picture, the image model draw it, and show it."""
    subject = shorten(subject.strip(), LONGEST)
    if not subject:
        return refused("what shall the picture show?")
    if cause := await authorize(turn.agent, asked_by(turn, "GENERATE_IMAGE", {"subject": subject})):
        return refused(cause)
    models = turn.agent.models
    values = {**turn.state.values, "subject": escape_line(subject)}
    prompt = render_template(turn.agent.templates[IMAGE], values)
    try:
        described = await models.text(TextRequest(prompt, Purpose.IMAGE), ModelType.TEXT_SMALL)
        drawn = await models.draw(ImageRequest(shorten(described.text.strip() or subject, LONGEST)))
    except ModelError as error:
        return refused(f"the picture could not be drawn: {error}")
    picture = Attachment(
        id=str(derived_id(turn.id, "picture", subject)),
        kind=MediaKind.IMAGE,
        url=drawn.url,
        content_type=drawn.content_type,
        name=f"picture.{drawn.content_type.rpartition('/')[2]}",
        description=subject,
        data=drawn.data,
    )
    said = await turn.reply(Content(attachments=(picture,)))
    return ActionResult(said is not None, text=f"shown: a picture of {subject}")
