"""A plan to look at."""

from __future__ import annotations

from relaymesh.plans.document import compile_plan
from relaymesh.plans.graph import mermaid, text_tree
from relaymesh.plans.reading import read_yaml
from tests.plans.documents import whole
from tests.plans.test_good_plans import RELEASE

TREE = """\
release 2
  level 1
    plan (planner)
  level 2
    build (builder); needs plan; for each, 4 at once
  level 3
    review (reviewer); needs build
  level 4
    ship (deployer); needs review; conditional; on failure roll-back
  level 5
    roll-back (deployer); needs ship"""

MERMAID = """\
flowchart TD
    s0["plan<br/>planner"]
    s1["build<br/>builder<br/>for each"]
    s2["review<br/>reviewer"]
    s3["ship<br/>deployer"]
    s4["roll-back<br/>deployer"]
    s0 --> s1
    s1 --> s2
    s2 --> s3
    s3 -. on failure .-> s4"""

WHOLE_TREE = """\
release
  level 1
    plan (planner); may grow
  level 2
    build (workflow build@2); needs plan; for each, 4 at once
  level 3
    pause (waits 90s); needs build
  level 4
    night (waits until 2026-11-20T07:00:00Z); needs pause
    later (waits for a time that an expression gives); needs plan, pause
  level 5
    paid (waits for signal payment); needs night, later; on failure continue
  level 6
    approve (asks release-owner); needs plan, paid
  level 7
    ship (capability deploy); needs plan, approve; conditional; undone by deployer"""

WHOLE_MERMAID = """\
flowchart TD
    s0["plan<br/>planner"]
    s1[["build<br/>workflow build#64;2<br/>for each"]]
    s2(["pause<br/>waits 90s"])
    s3(["night<br/>waits until 2026-11-20T07#58;00#58;00Z"])
    s4(["later<br/>waits for a time that an expression gives"])
    s5>"paid<br/>waits for signal payment"]
    s6{{"approve<br/>asks release-owner"}}
    s7["ship<br/>capability deploy"]
    u7[/"undo ship<br/>deployer"/]
    s0 --> s1
    s1 --> s2
    s2 --> s3
    s0 --> s4
    s2 --> s4
    s3 --> s5
    s4 --> s5
    s0 --> s6
    s5 --> s6
    s0 --> s7
    s6 --> s7
    s7 -. compensate .-> u7"""


def test_every_kind_of_step_looks_different() -> None:
    plan = whole().compile()
    assert text_tree(plan) == WHOLE_TREE
    assert mermaid(plan) == WHOLE_MERMAID


def test_a_plan_as_levels() -> None:
    assert text_tree(compile_plan(read_yaml(RELEASE))) == TREE


def test_a_plan_as_a_flowchart() -> None:
    assert mermaid(compile_plan(read_yaml(RELEASE))) == MERMAID


def test_names_that_are_signs_of_mermaid_are_escaped() -> None:
    plan = compile_plan({"workflow": "w", "steps": {"end": {"agent": "a@b"}}})
    assert 's0["end<br/>a#64;b"]' in mermaid(plan)
