"""Test tools for plugins and adapters: a running agent, a scripted model, a recording adapter, emulators."""

from bot.testing.adapter_contract import PlatformControl, SendFault, check_adapter_contract
from bot.testing.emulator import EmulatorServer, EventRecorder, FaultResponse, TypingIndicators, loopback_only
from bot.testing.emulator_page import (
    Ability,
    ActionRefused,
    EmulatorActions,
    EmulatorFile,
    EmulatorMessage,
    EmulatorPage,
    EmulatorRoom,
    EmulatorUser,
    EmulatorView,
    FileContent,
)
from bot.testing.harness import AgentHarness, PluginTestResult, make_message, make_turn, run_plugin_tests, running_agent
from bot.testing.manual_clock import ManualClock
from bot.testing.plugin_contract import ContractResult, check_plugin_contract
from bot.testing.recording_adapter import RecordingAdapter
from bot.testing.running_emulator import EmulatedChat, running_emulator
from bot.testing.scripted_model import Restart, ScriptedModel, StreamedText, model_answer

__all__ = [
    "Ability",
    "ActionRefused",
    "AgentHarness",
    "ContractResult",
    "EmulatedChat",
    "EmulatorActions",
    "EmulatorFile",
    "EmulatorMessage",
    "EmulatorPage",
    "EmulatorRoom",
    "EmulatorServer",
    "EmulatorUser",
    "EmulatorView",
    "EventRecorder",
    "FaultResponse",
    "FileContent",
    "ManualClock",
    "PlatformControl",
    "PluginTestResult",
    "RecordingAdapter",
    "Restart",
    "ScriptedModel",
    "SendFault",
    "StreamedText",
    "TypingIndicators",
    "check_adapter_contract",
    "check_plugin_contract",
    "loopback_only",
    "make_message",
    "make_turn",
    "model_answer",
    "run_plugin_tests",
    "running_agent",
    "running_emulator",
]
