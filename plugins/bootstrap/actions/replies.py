"""The actions REPLY, IGNORE, NONE and GENERATE_IMAGE."""

import logging
from dataclasses import replace
from typing import Annotated

from bot import ActionResult, Attachment, Content, Effect, MediaKind, Turn, action, derived_id
from bot.models import ImageRequest, ImageResult, ModelError, ModelType, Purpose, TextRequest
from bot.platform import FetchError
from bot.prompts import Authority, parse_tag_tree, render_template
from bot.text import escape_line, shorten
from plugins.bootstrap.actions.permissions import authorize, build_request, refusal_result, request_example


@action(
    "REPLY",
    "Say the text of the answer.",
    similes=["GREET", "REPLY_TO_MESSAGE", "SEND_REPLY", "RESPOND", "RESPONSE"],
    effect=Effect.KEYED,
    authority=Authority.harmless("it sends the answer in the room of the message"),
)
async def reply(turn: Turn, text: Annotated[str, "What to say"] = "") -> ActionResult:
    """Send the text of the model's answer; no second model call is needed."""
    message = await turn.reply(text) if text else None
    return ActionResult(success=message is not None, text=message.content.text if message else "")


@action(
    "IGNORE",
    "Say and do nothing: the talk is over, or not meant for you.",
    similes=["STOP", "STOP_TALKING", "STOP_CHATTING", "STOP_CONVERSATION"],
    effect=Effect.PURE,
    authority=Authority.harmless("it does nothing"),
)
async def ignore(turn: Turn) -> ActionResult:
    """Send nothing."""
    return ActionResult()


@action(
    "NONE",
    "Do nothing beyond what is already done.",
    similes=["NO_ACTION", "NO_RESPONSE", "NO_REACTION"],
    effect=Effect.PURE,
    authority=Authority.harmless("it does nothing"),
)
async def none(turn: Turn) -> ActionResult:
    """Do nothing."""
    return ActionResult()


logger = logging.getLogger(__name__)
IMAGE = "imageGenerationTemplate"
IMAGE_PROMPT_FIELDS = ("prompt", "imageprompt", "image_prompt", "description", "text")
MAX_SUBJECT_LENGTH = 2_000


def can_generate_image(turn: Turn) -> bool:
    """Return whether a model can generate images."""
    return turn.agent.models.has_handler_for(ModelType.IMAGE)


def _read_image_prompt(answer: str) -> str:
    """Return the description in an answer: prose, or in `<prompt>` or such a key of JSON, as templates request it."""
    tree = parse_tag_tree(answer)
    if isinstance(tree, str):
        return tree.strip()
    members = {name.lower(): value for name, value in tree.items()} if isinstance(tree, dict) else {}
    found = next((members[name] for name in IMAGE_PROMPT_FIELDS if members.get(name)), "")
    return found.strip() if isinstance(found, str) else ""


async def _with_data(turn: Turn, result: ImageResult) -> ImageResult:
    """Return an image with its bytes: the address that a provider gives for one is valid for a short time only."""
    if result.data or not result.url:
        return result
    try:
        file = await turn.agent.fetcher.get(result.url)
    except FetchError as error:
        logger.info("a generated picture is sent as a link: %s", error)
        return result
    if not file.content_type.startswith("image/"):
        logger.info("a generated picture is sent as a link: its address has %s", file.content_type)
        return result
    return replace(result, data=file.body, url="", content_type=file.content_type)


@action(
    "GENERATE_IMAGE",
    "Draw a picture and show it here.",
    similes=["DRAW", "CREATE_IMAGE", "RENDER_IMAGE", "VISUALIZE"],
    when=can_generate_image,
    effect=Effect.UNSAFE,
    authority=Authority.harmless("it answers with a picture in the room of the message, within the budget"),
    examples=[request_example("Draw me a steam engine", "Here it comes.", "GENERATE_IMAGE")],
)
async def generate_image(turn: Turn, subject: Annotated[str, "What the picture shows, in a sentence"]) -> ActionResult:
    """Describe the picture with the small model, draw it with the image model, and send it."""
    subject = shorten(subject.strip(), MAX_SUBJECT_LENGTH)
    if not subject:
        return refusal_result("what shall the picture show?")
    if refusal := await authorize(turn.agent, build_request(turn, "GENERATE_IMAGE", {"subject": subject})):
        return refusal_result(refusal)
    models = turn.agent.models
    values = {**turn.template_values(), **turn.state.values, "subject": escape_line(subject)}
    prompt = render_template(turn.find_template(IMAGE), values)
    try:
        description = await models.text(TextRequest(prompt, Purpose.IMAGE), ModelType.TEXT_SMALL)
        drawn = _read_image_prompt(description.text) or subject
        result = await models.draw(ImageRequest(shorten(drawn, MAX_SUBJECT_LENGTH)))
        result = await _with_data(turn, result)
    except ModelError as error:
        return refusal_result(f"the picture could not be drawn: {error}")
    picture = Attachment(
        id=str(derived_id(turn.id, "picture", subject)),
        kind=MediaKind.IMAGE,
        url=result.url,
        content_type=result.content_type,
        name=f"picture.{result.content_type.rpartition('/')[2]}",
        description=subject,
        data=result.data,
    )
    message = await turn.reply(Content(attachments=(picture,)))
    return ActionResult(message is not None, text=f"shown: a picture of {subject}")
