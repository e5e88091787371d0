"""Knowledge: what a character's documents say, told where it bears on the message."""

from bot import Plugin
from plugins.knowledge.index import Library
from plugins.knowledge.provider import begin, index, knowledge

plugin = Plugin(
    "knowledge",
    "Tells what the character's documents say about the message.",
    providers=[knowledge],
    workers=[index],
    services=[Library],
    init=begin,
)
