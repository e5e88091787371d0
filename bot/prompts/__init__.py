"""Public module: prompt templates and conversation lines that users cannot forge."""

from bot.errors import TemplateError
from bot.prompts.character_description import CharacterDescription, describe_character
from bot.prompts.history import HistoryLine, ReactionCount, ResultLine, parse_history, render_history, truncate_history
from bot.prompts.reply_parser.tag_tree import TagTree, parse_tag_tree
from bot.prompts.template_parser import render_template

__all__ = [
    "CharacterDescription",
    "HistoryLine",
    "ReactionCount",
    "ResultLine",
    "TagTree",
    "TemplateError",
    "describe_character",
    "parse_history",
    "parse_tag_tree",
    "render_history",
    "render_template",
    "truncate_history",
]
