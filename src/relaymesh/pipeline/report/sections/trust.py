"""Why to believe it: the audit of every event, and what the run expected of its tables."""

from __future__ import annotations

from relaymesh.pipeline.report.figure import Figure, Section

__all__ = ["trust_sections"]

AUDIT = Figure(
    name="audit",
    title="Every promise, over every event",
    says="A broken rule fails the run, and nothing is published: what is shown here has passed.",
    sql="""\
SELECT rule, passed, violations, checked, promise
FROM audit_summary
ORDER BY violations DESC, rule""",
    wide=True,
)

QUARANTINE = Figure(
    name="quarantine",
    title="Quarantine",
    says="Frames of the journal that could not be read, by cause.",
    sql="""\
SELECT reason, count(*) AS frames, min(segment) AS first_segment, max(segment) AS last_segment
FROM quarantine
GROUP BY reason
ORDER BY frames DESC, reason""",
    empty="Every frame of the journal could be read.",
    wide=True,
)


def trust_sections(run_id: str) -> tuple[Section, ...]:
    quoted = run_id.replace("'", "''")
    expectations = Figure(
        name="expectations",
        title="Expectations that were not met",
        says="Of the run that published. Warnings do not stop a run; errors do.",
        sql=f"""\
SELECT table_name, metric, column_name, value, most, severity
FROM pipeline_metrics
WHERE run_id = '{quoted}' AND NOT passed
ORDER BY severity, table_name, metric""",
        empty="All were met.",
        wide=True,
    )
    return (
        Section(name="audit", title="Audit", figures=(AUDIT,)),
        Section(name="quality", title="Data quality and lineage", figures=(expectations, QUARANTINE)),
    )
