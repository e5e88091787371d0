"""Writes `plugins/bundled.json`: what the bundled plugins are, bring and read.

The pages of a running bot show it of plugins that are off, so that none of them is imported. A test compares it with
the plugins: `PYTHONPATH=. python .ci/describe_plugins.py` renews it.
"""

from bot.cli.plugins import describe_bundled_plugins
from bot.plugin_system.loading import DESCRIPTIONS

DESCRIPTIONS.write_text(describe_bundled_plugins(), encoding="utf-8")
