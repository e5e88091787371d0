"""Matrix adapter: rooms, spaces, threads and direct chats on any homeserver."""

from adapters.matrix.config import REQUIRED_VARIABLES, MatrixSettings
from bot.platform import AdapterSpec, LazyImport

spec = AdapterSpec(
    "matrix",
    LazyImport("adapters.matrix.adapter:open_matrix"),
    MatrixSettings,
    needs=REQUIRED_VARIABLES,
    extra="matrix",
    libraries=("markdown_it",),
    check=LazyImport("adapters.matrix.adapter:check_account"),
    emulator=LazyImport("adapters.matrix.emulator:start_emulator"),
    setup_steps=(
        "Register an account for the bot on your homeserver; its full id, such as @ada:example.org, is MATRIX_USER.",
        "MATRIX_HOMESERVER is the address of the server's API, such as https://matrix.example.org.",
        "Log the account in with a device of its own: docs/matrix.md has the command. It prints MATRIX_TOKEN.",
    ),
)
