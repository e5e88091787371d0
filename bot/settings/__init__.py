"""Settings: the models that declare variables, and the layers in which their values are looked up."""

from bot.settings.core import CoreSettings, NetworkSettings, room_setting
from bot.settings.layers import (
    CHARACTER_FILE,
    MIN_SECRET_LENGTH,
    NETWORK_VARIABLES,
    Layer,
    Settings,
    find_unreadable_lines,
    load_settings,
    reject_redirected_key,
)
from bot.settings.model import (
    AllowList,
    BaseUrl,
    CommaList,
    HostList,
    Secret,
    SettingsModel,
    address_variables,
    character_settings,
    is_secret_name,
    secret_fields,
)
from bot.settings.time_zones import QuietHours, TimeZoneName, find_time_zone, is_quiet

__all__ = [
    "CHARACTER_FILE",
    "MIN_SECRET_LENGTH",
    "NETWORK_VARIABLES",
    "AllowList",
    "BaseUrl",
    "CommaList",
    "CoreSettings",
    "HostList",
    "Layer",
    "NetworkSettings",
    "QuietHours",
    "Secret",
    "Settings",
    "SettingsModel",
    "TimeZoneName",
    "address_variables",
    "character_settings",
    "find_time_zone",
    "find_unreadable_lines",
    "is_quiet",
    "is_secret_name",
    "load_settings",
    "reject_redirected_key",
    "room_setting",
    "secret_fields",
]
