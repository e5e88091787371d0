"""Who may call a server of this machine that is up for a trial: nobody whom another site's page sends."""

from collections.abc import Awaitable, Callable, Iterable

from aiohttp import web
from aiohttp.typedefs import Middleware

from bot.http import allowed_hosts, host_name, is_foreign

HERE = "127.0.0.1"
Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


def only_from_here(hosts: Iterable[str] = ()) -> Middleware:
    """Refuse whoever calls the server by another name than this machine's or one of `hosts`.

    A name of another site that leads here makes its page one of ours for a browser, which is then let in
    to everything. What a browser says is sent by another site is refused as well.
    """
    names = allowed_hosts(HERE, hosts)

    @web.middleware
    async def admit(request: web.Request, handler: Handler) -> web.StreamResponse:
        if host_name(request.headers.get("Host", "")) not in names:
            return web.Response(status=421, text="this server is not called so")
        if is_foreign(request.headers):
            return web.Response(status=403, text="another site's page has no business here")
        return await handler(request)

    return admit
