"""The routing table, and the ASGI app that is served: guard, routes, WebSocket, documents."""

from __future__ import annotations

from relaymesh.server.documents import PATHS as DOCUMENT_PATHS
from relaymesh.server.documents import document_routes
from relaymesh.server.exchange import Receive, Scope, Send
from relaymesh.server.routes import (
    agents,
    dead_letters,
    health,
    journal,
    mailboxes,
    messages,
    metrics,
    receiving,
    retention,
    schedules,
    settings,
    settling,
    story,
    tasks,
    topics,
    workflows,
)
from relaymesh.server.routing import App, Operation, Router, not_found
from relaymesh.server.security.guard import Guard
from relaymesh.server.served import Served
from relaymesh.server.ws.connection import websocket_app

WS_PATH = "/v1/ws"

ROUTES: tuple[Operation, ...] = (
    Operation("POST", "/v1/messages", messages.send),
    Operation("GET", "/v1/messages/{id:path}", story.story),
    Operation("POST", "/v1/settle", settling.settle),
    Operation("POST", "/v1/mailboxes/{mailbox:path}/receive", receiving.receive),
    Operation("POST", "/v1/mailboxes/{mailbox:path}/complete", mailboxes.complete),
    Operation("POST", "/v1/mailboxes/{mailbox:path}/ended", mailboxes.ended),
    Operation("POST", "/v1/mailboxes/{mailbox:path}/expect", mailboxes.expect),
    Operation("POST", "/v1/mailboxes/{mailbox:path}/unexpect", mailboxes.unexpect),
    Operation("POST", "/v1/mailboxes/{mailbox:path}/reprioritise", mailboxes.reprioritise),
    Operation("PUT", "/v1/mailboxes/{mailbox:path}/breaker", mailboxes.set_breaker),
    Operation("PUT", "/v1/mailboxes/{mailbox:path}", mailboxes.open_mailbox),
    Operation("GET", "/v1/mailboxes/{mailbox:path}", mailboxes.peek),
    Operation("POST", "/v1/topics/{topic:path}/messages", messages.publish),
    Operation("PUT", "/v1/topics/{topic:path}/subscriptions/{name}", topics.subscribe),
    Operation("DELETE", "/v1/topics/{topic:path}/subscriptions/{name}", topics.unsubscribe),
    Operation("POST", "/v1/tasks", tasks.submit),
    Operation("GET", "/v1/tasks", tasks.list_tasks),
    Operation("POST", "/v1/tasks/{id:path}/cancel", tasks.cancel),
    Operation("POST", "/v1/tasks/{id:path}/steps/{step:path}/answer", tasks.answer),
    Operation("POST", "/v1/tasks/{id:path}/signals", tasks.signal),
    Operation("POST", "/v1/tasks/{id:path}/budget", tasks.set_budget),
    Operation("POST", "/v1/tasks/{id:path}/rerun", tasks.rerun),
    Operation("GET", "/v1/tasks/{id:path}/story", tasks.story),
    Operation("GET", "/v1/tasks/{id:path}", tasks.show),
    Operation("POST", "/v1/workflows", workflows.put),
    Operation("GET", "/v1/workflows", workflows.list_workflows),
    Operation("POST", "/v1/workflows/{name:path}/run", workflows.run),
    Operation("GET", "/v1/workflows/{name:path}", workflows.show),
    Operation("DELETE", "/v1/workflows/{name:path}", workflows.remove),
    Operation("POST", "/v1/schedules", schedules.put),
    Operation("GET", "/v1/schedules", schedules.list_schedules),
    Operation("POST", "/v1/schedules/{name:path}/pause", schedules.pause),
    Operation("POST", "/v1/schedules/{name:path}/resume", schedules.resume),
    Operation("GET", "/v1/schedules/{name:path}", schedules.show),
    Operation("DELETE", "/v1/schedules/{name:path}", schedules.remove),
    Operation("POST", "/v1/agents", agents.register),
    Operation("GET", "/v1/agents", agents.list_agents),
    Operation("POST", "/v1/agents/{name:path}/heartbeat", agents.heartbeat),
    Operation("POST", "/v1/agents/{name:path}/drain", agents.drain),
    Operation("GET", "/v1/agents/{name:path}", agents.show),
    Operation("GET", "/v1/dead-letters", dead_letters.list_letters),
    Operation("POST", "/v1/dead-letters/redrive", dead_letters.redrive),
    Operation("POST", "/v1/dead-letters/purge", dead_letters.purge),
    Operation("GET", "/v1/dead-letters/report", retention.report),
    Operation("GET", "/v1/dead-letters/{dead_sequence}", dead_letters.show),
    Operation("GET", "/v1/purge", retention.preview),
    Operation("POST", "/v1/purge", retention.purge),
    Operation("POST", "/v1/delayed/deliver", mailboxes.force_delayed),
    Operation("POST", "/v1/due/deliver", mailboxes.deliver_due),
    Operation("GET", "/v1/stats", health.stats),
    Operation("GET", "/v1/node", health.describe),
    Operation("GET", "/v1/journal", journal.frames),
    Operation("POST", "/v1/checkpoint", health.checkpoint),
    Operation("GET", "/v1/settings", settings.show),
    Operation("POST", "/v1/settings/reload", settings.reload),
    Operation("GET", "/v1/settings/history", settings.history),
    Operation("GET", "/metrics", metrics.metrics),
    Operation("GET", "/healthz", health.healthz),
    Operation("GET", "/readyz", health.readyz),
)
"""Every path of the API. The first row that fits path and method wins."""


def build_app(served: Served) -> App:
    """The whole server. The guard is outermost: every request behind it has a principal."""
    router = Router(served, (*ROUTES, *document_routes(ROUTES)), _otherwise(served))
    return Guard(router, served, open_paths=DOCUMENT_PATHS, login_paths=(WS_PATH,))


def _otherwise(served: Served) -> App:
    """The WebSocket; every other path is not found."""
    websocket = websocket_app(served)

    async def otherwise(scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "websocket" and scope["path"] == WS_PATH:
            scope["relaymesh.route"] = WS_PATH
            await websocket(scope, receive, send)
        else:
            await not_found(scope, receive, send)

    return otherwise
