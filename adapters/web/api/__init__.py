"""The operations of the HTTP API: a class of handlers for each topic, with its request and response models."""

from adapters.web.api.care import CareApi
from adapters.web.api.character import CharacterApi
from adapters.web.api.conversations import ConversationsApi
from adapters.web.api.costs import CostsApi
from adapters.web.api.deliveries import DeliveriesApi
from adapters.web.api.drafts import DraftsApi
from adapters.web.api.duties import DutiesApi
from adapters.web.api.files import DocumentsApi, FilesApi
from adapters.web.api.knowledge import KnowledgeApi
from adapters.web.api.overview import OverviewApi
from adapters.web.api.people import PeopleApi
from adapters.web.api.receipts import ReceiptsApi
from adapters.web.api.rooms import MessagesApi, RoomsApi
from adapters.web.api.session import AgentsApi, SessionApi
from adapters.web.api.system import SystemApi
from adapters.web.api.tasks import TasksApi, WorldSettingsApi

__all__ = [
    "AgentsApi",
    "CareApi",
    "CharacterApi",
    "ConversationsApi",
    "CostsApi",
    "DeliveriesApi",
    "DocumentsApi",
    "DraftsApi",
    "DutiesApi",
    "FilesApi",
    "KnowledgeApi",
    "MessagesApi",
    "OverviewApi",
    "PeopleApi",
    "ReceiptsApi",
    "RoomsApi",
    "SessionApi",
    "SystemApi",
    "TasksApi",
    "WorldSettingsApi",
]
