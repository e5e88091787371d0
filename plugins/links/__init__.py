"""Links plugin: reads the pages that people post, and searches the web, with the links in the answer."""

from bot import Plugin
from bot.platform import install_command
from plugins.links.pages import LinkReader, LinkSettings, has_library
from plugins.links.prompt import links, read_link, web_search

plugin = Plugin(
    "links",
    "Reads the pages that people post, and searches the web.",
    actions=[read_link, web_search],
    providers=[links],
    services=[LinkReader],
    settings=LinkSettings,
    missing_settings=lambda settings: settings.load(LinkSettings).find_problem(),
    privacy_statement=lambda settings: settings.load(LinkSettings).describe_privacy(),
    notice=""
    if has_library("trafilatura")
    else f"{{name}} reads all text of a page with its menus; `{install_command('links')}` finds its main text.",
)
