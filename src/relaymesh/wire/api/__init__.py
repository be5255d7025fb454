"""The bodies of the HTTP API: what a request may hold, and what an answer holds. camelCase on the wire.

A request refuses fields it does not know, because a misspelt option that is silently ignored is worse
than an error; messages are the exception, their unknown fields survive the relay (`wire.protocol`). A
field of an answer that is absent has nothing to say. Integers are written without a decimal point:
`5.0` is refused, with a hint (content is never touched, so `5.0` inside a message stays `5.0`).
Times are ISO 8601 in UTC with milliseconds, in mesh time; durations end in `Ms`. Lease tokens are
text, `partition.epoch.counter`, and never part of a URL.
"""

from relaymesh.wire.api.agents import (
    AgentBody,
    AgentsAnswer,
    AgentState,
    HeartbeatAnswer,
    HeartbeatRequest,
    RegisterRequest,
    agent_body,
)
from relaymesh.wire.api.base import Address, Answer, Request, Time, Token
from relaymesh.wire.api.letters import (
    DeadLetterBody,
    DeadLettersAnswer,
    LetterChoice,
    LetterFilter,
    PurgedAnswer,
    PurgeRequest,
    RedrivenAnswer,
    RedrivenBody,
    RedriveRequest,
)
from relaymesh.wire.api.mailboxes import (
    BreakerRequest,
    ChangedAnswer,
    CompleteAnswer,
    CompleteRequest,
    DroppedAnswer,
    EndedAnswer,
    EndedRequest,
    EntryBody,
    ExpectRequest,
    ForceDelayedRequest,
    MailboxAnswer,
    MailboxSettingsBody,
    OpenMailboxRequest,
    PeekAnswer,
    ReprioritiseRequest,
    RuleBody,
    SubscribeRequest,
    SubscriptionAnswer,
    settings_body,
    settings_from,
)
from relaymesh.wire.api.node import (
    CheckpointAnswer,
    HealthAnswer,
    MailboxStatsBody,
    NodeAnswer,
    ProblemBody,
    ReadyAnswer,
    StatsAnswer,
)
from relaymesh.wire.api.receiving import DeliveriesAnswer, DeliveryBody, ReceiveRequest
from relaymesh.wire.api.sending import ReceiptBody, ReceiptsAnswer
from relaymesh.wire.api.settling import (
    ExtendBody,
    NackBody,
    ReplyBody,
    SettledAnswer,
    SettledBody,
    SettleRequest,
)
from relaymesh.wire.api.story import FailureBody, StoryAnswer, StoryEntry

__all__ = [
    "Address",
    "AgentBody",
    "AgentState",
    "AgentsAnswer",
    "Answer",
    "BreakerRequest",
    "ChangedAnswer",
    "CheckpointAnswer",
    "CompleteAnswer",
    "CompleteRequest",
    "DeadLetterBody",
    "DeadLettersAnswer",
    "DeliveriesAnswer",
    "DeliveryBody",
    "DroppedAnswer",
    "EndedAnswer",
    "EndedRequest",
    "EntryBody",
    "ExpectRequest",
    "ExtendBody",
    "FailureBody",
    "ForceDelayedRequest",
    "HealthAnswer",
    "HeartbeatAnswer",
    "HeartbeatRequest",
    "LetterChoice",
    "LetterFilter",
    "MailboxAnswer",
    "MailboxSettingsBody",
    "MailboxStatsBody",
    "NackBody",
    "NodeAnswer",
    "OpenMailboxRequest",
    "PeekAnswer",
    "ProblemBody",
    "PurgeRequest",
    "PurgedAnswer",
    "ReadyAnswer",
    "ReceiptBody",
    "ReceiptsAnswer",
    "ReceiveRequest",
    "RedriveRequest",
    "RedrivenAnswer",
    "RedrivenBody",
    "RegisterRequest",
    "ReplyBody",
    "ReprioritiseRequest",
    "Request",
    "RuleBody",
    "SettleRequest",
    "SettledAnswer",
    "SettledBody",
    "StatsAnswer",
    "StoryAnswer",
    "StoryEntry",
    "SubscribeRequest",
    "SubscriptionAnswer",
    "Time",
    "Token",
    "agent_body",
    "settings_body",
    "settings_from",
]
