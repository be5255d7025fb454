"""Purges over the network: for an admin of every namespace, each with its lines in the audit log."""

from __future__ import annotations

import msgspec

from relaymesh.server.security.principal import Principal
from relaymesh.server.security.trail import Trail
from relaymesh.server.served import Served
from relaymesh.wire.letter_report import FindReport, LetterReport
from relaymesh.wire.retention import PreviewPurge, Purge, PurgePart, PurgePreview, purge_text

EVENT = "purge"
BEGAN = "purge.began"


async def preview_purge(served: Served, principal: Principal, request: PreviewPurge) -> PurgePreview:
    """Count what a purge would remove, in every namespace."""
    principal.require_everywhere()
    return await served.session.execute(request)


async def purge_old(
    served: Served, principal: Principal, trail: Trail, route: str, request: Purge
) -> PurgePart:
    """One part of a purge. The audit log has a line before the first part, and one after each."""
    principal.require_everywhere()
    if request.after == 0:
        trail.write(BEGAN, 200, route=route, detail=purge_text(request, None))
    part = await served.session.execute(request)
    trail.write(EVENT, 200, route=route, detail=purge_text(request, part.counts))
    return part


async def find_report(served: Served, principal: Principal, request: FindReport) -> LetterReport | None:
    """The daily report of dead letters, as far as the credential may see it."""
    principal.require("read")
    report = await served.session.execute(request)
    if report is None or principal.everywhere:
        return report
    groups = [group for group in report.groups if principal.sees(group.mailbox)]
    return msgspec.structs.replace(
        report,
        groups=groups,
        total=sum([group.count for group in groups]),
        new=sum([group.new for group in groups]),
    )
