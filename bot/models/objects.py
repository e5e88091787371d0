"""Objects of a given shape from a model that writes text: how it is asked, and how its answer is read."""

import json
from dataclasses import replace
from typing import TypeVar

from pydantic import BaseModel, ValidationError

from bot.errors import ModelError
from bot.models.types import Purpose, TextRequest
from bot.prompts.reply_parser.json_objects import object_in
from bot.text import shorten

M = TypeVar("M", bound=BaseModel)
LONGEST_QUOTE = 8_000
MOST_FAULTS = 8


def asking(shape: type[M], request: TextRequest) -> TextRequest:
    """Ask for an object: by the schema where a handler can be held to it, and in words."""
    schema = shape.model_json_schema()
    words = json.dumps(schema, ensure_ascii=False, separators=(",", ":"))
    demand = f"Answer with one JSON object that fits this JSON schema, and nothing else:\n{words}"
    return replace(request, prompt=f"{request.prompt}\n\n{demand}", schema=schema, sink=None, tools=())


def mending(request: TextRequest, written: str, faults: str) -> TextRequest:
    """Ask for the object once more, showing what was wrong with it."""
    quoted = shorten(written, LONGEST_QUOTE)
    demand = f"This was your answer:\n{quoted}\n\nIt does not fit:\n{faults}\nGive it again, corrected."
    return replace(request, prompt=f"{request.prompt}\n\n{demand}", purpose=Purpose.REPAIR)


def read_object(shape: type[M], written: str) -> M:
    """Read the object in what a model wrote; raises ModelError saying what does not fit."""
    found = object_in(written)
    try:
        return shape.model_validate(found)
    except ValidationError as error:
        problems = error.errors(include_url=False, include_input=False, include_context=False)
        faults = [f"- {'.'.join(map(str, one['loc'])) or 'all of it'}: {one['msg']}" for one in problems]
        raise ModelError("\n".join(faults[:MOST_FAULTS])) from None
