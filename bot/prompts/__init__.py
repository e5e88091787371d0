"""Public module: prompt templates and conversation lines that users cannot forge."""

from bot.errors import TemplateError
from bot.prompts.history import Line, last_lines, parse_history, render_history
from bot.prompts.reply_parser.tag_tree import Tree, read_tree
from bot.prompts.template_parser import render

__all__ = [
    "Line",
    "TemplateError",
    "Tree",
    "last_lines",
    "parse_history",
    "read_tree",
    "render",
    "render_history",
]
