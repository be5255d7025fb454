"""What a report shows, section by section: for each figure its query, its picture and its words.

Queries read the tables that `relaymesh report tables` lists, and run as they are in `relaymesh report sql`.
"""

from __future__ import annotations

from relaymesh.pipeline.report.figure import Bucket, Section
from relaymesh.pipeline.report.sections.advice import advice_sections
from relaymesh.pipeline.report.sections.failures import failure_sections
from relaymesh.pipeline.report.sections.traffic import traffic_sections
from relaymesh.pipeline.report.sections.trust import trust_sections
from relaymesh.pipeline.report.sections.work import work_sections
from relaymesh.pipeline.report.sections.workflows import workflow_sections

__all__ = ["all_sections"]


def all_sections(bucket: Bucket, run_id: str) -> tuple[Section, ...]:
    """In the order of the page. Time axes have steps of `bucket`; `run_id` is the run that published."""
    return (
        *traffic_sections(bucket),
        *failure_sections(bucket),
        *advice_sections(),
        *work_sections(),
        *workflow_sections(),
        *trust_sections(run_id),
    )
