"""Tools and resources of MCP servers that the operator names, as actions and as a provider."""

from bot import Plugin
from plugins.mcp.config import MCPSettings, missing_settings, privacy_statement
from plugins.mcp.service import MCPServers

plugin = Plugin(
    "mcp",
    "Tools and resources of the MCP servers in the file that MCP_SERVERS names.",
    services=[MCPServers],
    settings=MCPSettings,
    missing_settings=missing_settings,
    privacy_statement=privacy_statement,
)
