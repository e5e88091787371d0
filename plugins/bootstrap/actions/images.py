"""GENERATE_IMAGE: a picture, drawn by whichever model serves it."""

from typing import Annotated

from bot import (
    ActionResult,
    Attachment,
    Content,
    Effect,
    Example,
    ImageRequest,
    MediaKind,
    ModelError,
    ModelType,
    Purpose,
    TextRequest,
    Turn,
    action,
    derived_id,
    escape_line,
    render,
    shorten,
)
from plugins.bootstrap.actions.authority import asked_by, authorize, refused

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
    return turn.agent.models.serves(ModelType.IMAGE)


@action(
    "GENERATE_IMAGE",
    "Draw a picture and show it here.",
    similes=["DRAW", "CREATE_IMAGE", "RENDER_IMAGE", "VISUALIZE"],
    when=can_draw,
    effect=Effect.UNSAFE,
    examples=[
        [
            Example("Robin", "Draw me a steam engine"),
            Example("Ada", "Here it comes.", ("REPLY", "GENERATE_IMAGE")),
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
    prompt = render(turn.agent.templates[IMAGE], values)
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
