"""How runs fail."""

from __future__ import annotations

from pathlib import Path

from relaymesh.errors import MeshError

__all__ = ["AuditFailed", "IngestFailed"]


class IngestFailed(MeshError):
    """The journal could not be read into bronze. What was committed before stays, and nothing is skipped."""

    code = "INGEST_FAILED"
    default_hint = "the next run goes on where this one ended; see also relaymesh journal verify"


class AuditFailed(MeshError):
    """A check of the tables failed: nothing was published, and the violations are kept."""

    code = "AUDIT_FAILED"

    def __init__(self, message: str, *, kept: Path) -> None:
        super().__init__(message, hint=f"look at {kept}; the tables published before are still there")
        self.kept = kept
