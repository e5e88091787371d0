"""The settings of the mcp plugin, and the file of servers that they name."""

import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError, model_validator

from bot import Effect, Role, Secret, SettingError, Settings, SettingsModel
from bot.models import host_label
from bot.platform import BaseUrl
from bot.text import user_text

VARIABLE = "MCP_SERVERS"
REFERENCE = re.compile(r"\$\{(?:env:)?([A-Za-z_][A-Za-z0-9_]*)\}")
ANY_TOOL = "*"
MAX_SERVERS = 32


class MCPSettings(SettingsModel):
    """The file of MCP servers. Only the operator sets it: it names programs that are started."""

    CHARACTER_SETTINGS = frozenset()

    mcp_servers: Path | None = Field(
        None, description="A JSON file that names MCP servers, in the form that other clients use; see docs/mcp.md."
    )
    mcp_token: Secret | None = Field(
        None,
        description="The token with which `bot mcp` calls the running bot; its scope decides what other agents may "
        "do. `bot token new` creates one.",
    )


def _read_role(value: object) -> object:
    return value.upper() if isinstance(value, str) else value


RoleName = Annotated[Role, BeforeValidator(_read_role)]


class ToolPolicy(BaseModel):
    """What the operator decides about a tool; without a decision it may do anything, and only for owners."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    enabled: bool = True
    effect: Effect = Effect.UNSAFE
    role: RoleName = Role.OWNER
    confirm: bool | None = None
    name: str | None = Field(None, pattern="^[A-Z][A-Z0-9_]{0,63}$")
    description: str | None = Field(None, max_length=1_000)

    @model_validator(mode="after")
    def _check_effect(self) -> "ToolPolicy":
        if self.effect is Effect.KEYED:
            raise ValueError("effect is one of pure, idempotent, unsafe: a tool of MCP takes no key")
        return self

    @property
    def must_confirm(self) -> bool:
        """Whether a person confirms each call: unless the operator says otherwise, all but that of a pure tool."""
        return self.effect is not Effect.PURE if self.confirm is None else self.confirm


class ResourcePolicy(BaseModel):
    """A resource whose text is shown to the model, for people with a role."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    uri: str
    role: RoleName = Role.NONE

    @model_validator(mode="before")
    @classmethod
    def _read_text(cls, value: object) -> object:
        return {"uri": value} if isinstance(value, str) else value


class ServerConfig(BaseModel):
    """One server: a command to start, or an address. Keys that only other clients know are ignored."""

    model_config = ConfigDict(extra="ignore", frozen=True)

    command: str | None = None
    args: tuple[str, ...] = ()
    env: Mapping[str, str] = {}
    cwd: str | None = None
    url: BaseUrl | None = None
    headers: Mapping[str, str] = {}
    disabled: bool = False
    timeout: float = Field(30.0, gt=0, le=50)
    tools: Mapping[str, ToolPolicy] = {}
    resources: tuple[ResourcePolicy, ...] = ()
    refresh: float = Field(300.0, ge=1)

    @model_validator(mode="after")
    def _check_place(self) -> "ServerConfig":
        if (self.command is None) == (self.url is None):
            raise ValueError("it needs either `command` or `url`")
        return self

    def policy_for(self, tool: str) -> ToolPolicy:
        """Return what the operator decides about a tool: its own entry, else the one for `*`, else the default."""
        return self.tools.get(tool) or self.tools.get(ANY_TOOL) or ToolPolicy()


class ServerFile(BaseModel):
    """The file, as other clients have it: the servers by name."""

    model_config = ConfigDict(extra="ignore", populate_by_name=True)

    servers: dict[Annotated[str, Field(pattern=r"^[A-Za-z][A-Za-z0-9_. -]{0,39}$")], ServerConfig] = Field(
        alias="mcpServers", max_length=MAX_SERVERS
    )


def load_servers(settings: Settings) -> dict[str, ServerConfig]:
    """Return the servers that the operator's file names, without the disabled ones.

    `${NAME}` in `args`, `env`, `url` and `headers` is replaced by the operator's variable. Raises SettingError
    that names the file and each problem in it.
    """
    operator = settings.operator_only()
    path = operator.load(MCPSettings).mcp_servers
    if path is None:
        return {}
    try:
        content = json.loads(path.expanduser().read_text(encoding="utf-8-sig"))
        servers = ServerFile.model_validate(_replace_references(content, operator)).servers
    except OSError as error:
        raise SettingError(f"{VARIABLE}: {path} cannot be read: {error.strerror or error}") from None
    except ValidationError as error:
        problems = error.errors(include_url=False, include_input=False, include_context=False)
        places = (f"{'.'.join(map(str, problem['loc']))}: {problem['msg']}" for problem in problems)
        raise SettingError(f"{VARIABLE}: {path}: {'; '.join(places)}") from None
    except (ValueError, RecursionError) as error:
        raise SettingError(f"{VARIABLE}: {path} is not JSON: {error}") from None
    return {name: server for name, server in servers.items() if not server.disabled}


def _replace_references(value: Any, settings: Settings) -> Any:
    if isinstance(value, str):
        return REFERENCE.sub(lambda match: settings.require(match[1]), value)
    if isinstance(value, list):
        return [_replace_references(item, settings) for item in value]
    if isinstance(value, dict):
        return {key: _replace_references(item, settings) for key, item in value.items()}
    return value


def missing_settings(settings: Settings) -> str:
    """Return what is missing; empty if the file is set. Raises SettingError for a file that cannot be used."""
    if settings.operator_only().load(MCPSettings).mcp_servers is None:
        return f"set {VARIABLE} in .env"
    load_servers(settings)
    return ""


def privacy_statement(settings: Settings) -> str:
    """Return the statement to which servers words of users may be sent."""
    servers = load_servers(settings).items()
    hosts = ", ".join(host_label(server.url) if server.url else f"MCP server {name}" for name, server in servers)
    return user_text("privacy.sent", host=hosts, data=user_text("privacy.data.text")) if hosts else ""
