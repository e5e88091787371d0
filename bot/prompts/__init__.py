"""Public module: prompt templates, conversation lines that users cannot forge, and the authority of their authors."""

from bot.domain.environment import ANYBODY, Authority, contains_words, is_all_own, own_words
from bot.domain.ledger import SOURCES_KEY, ActionPreview
from bot.domain.memory import AUTHORS_KEY
from bot.errors import TemplateError
from bot.prompts.character_description import CharacterDescription, describe_character, describe_final_rules
from bot.prompts.reply_parser.reader import TagTree, parse_tag_tree
from bot.prompts.template_language import render_template
from bot.prompts.templates import CARE_RULE
from bot.text import HistoryLine, ReactionCount, ResultLine, parse_history, render_history, truncate_history

__all__ = [
    "ANYBODY",
    "AUTHORS_KEY",
    "CARE_RULE",
    "SOURCES_KEY",
    "ActionPreview",
    "Authority",
    "CharacterDescription",
    "HistoryLine",
    "ReactionCount",
    "ResultLine",
    "TagTree",
    "TemplateError",
    "contains_words",
    "describe_character",
    "describe_final_rules",
    "is_all_own",
    "own_words",
    "parse_history",
    "parse_tag_tree",
    "render_history",
    "render_template",
    "truncate_history",
]
