"""Bad plans with grows, compensate and budget."""

from __future__ import annotations

from tests.plans.documents import BUDGET_HINT, RETRY_MAX, UNDO_HINT, A, Bad, budget, flow, one, undo

BAD_UNDOS: list[Bad] = [
    ("grows by a word", one(grows="yes"), A + "grows: must be true or false, not 'yes'", None),
    ("grows by a number", one(grows=1), A + "grows: must be true or false, not 1", None),
    (
        "compensate as text",
        one(compensate="deployer"),
        A + "compensate: must be an object, not a string",
        "write compensate: {input: …}",
    ),
    ("compensate with needs", undo(needs=["b"]), A + "compensate: unknown field 'needs'", UNDO_HINT),
    (
        "compensate with for_each",
        undo(for_each="${{ input.x }}"),
        A + "compensate: unknown field 'for_each'",
        UNDO_HINT,
    ),
    (
        "compensate with on_failure",
        undo(on_failure="continue"),
        A + "compensate: unknown field 'on_failure'",
        UNDO_HINT,
    ),
    ("compensate compensated", undo(compensate={}), A + "compensate: unknown field 'compensate'", UNDO_HINT),
    ("compensate, misspelt", undo(inptu=1), A + "compensate: unknown field 'inptu'", "did you mean 'input'?"),
    (
        "compensate elsewhere",
        undo(agent="other/x"),
        A + "compensate.agent: 'other/x' is in another namespace than the task, which is in 'default'",
        None,
    ),
    (
        "compensate by a number",
        undo(agent=5),
        A + "compensate.agent: must be the name of an agent or {capability: WORD}, not 5",
        None,
    ),
    (
        "compensate by an empty capability",
        undo(agent={"capability": ""}),
        A + "compensate.agent.capability: must have 1 to 512 characters, not 0",
        None,
    ),
    (
        "compensate with a short lease",
        undo(lease="1ms"),
        A + "compensate.lease: '1ms' is too short: the least is 1s",
        None,
    ),
    (
        "compensate without attempts",
        undo(retry={"max_attempts": 0}),
        A + f"compensate.retry.max_attempts: must lie between 1 and {RETRY_MAX}, not 0",
        None,
    ),
    (
        "compensate that reads steps.a",
        undo(input="${{ steps.a.output }}"),
        A + "compensate.input: steps.a.output: a step cannot read its own output",
        "write output",
    ),
    (
        "compensate that reads a later step",
        flow(a={"compensate": {"input": "${{ steps.b.output }}"}}, b={"needs": ["a"]}),
        A + "compensate.input: steps.b.output: steps wait for each other: a -> b -> a",
        None,
    ),
    (
        "compensate that reads an item",
        undo(input="${{ item }}"),
        A + "compensate.input: 'item' is known only in a step with for_each",
        "add for_each, or use input or steps",
    ),
    (
        "compensate that hides the output",
        undo(input="${{ [1].map(output, output) }}"),
        A + "compensate.input: ${{ [1].map(output, output) }}: "
        "a loop names its variable 'output', which hides the other 'output': rename it",
        None,
    ),
    (
        "compensate that reads an unknown name",
        undo(input="${{ result }}"),
        A + "compensate.input: ${{ result }}: unknown name 'result': "
        "an expression reads steps, input, item, index, output, uncertain",
        None,
    ),
    (
        "output outside of compensate",
        one(input="${{ output }}"),
        A + "input: ${{ output }}: 'output' is known only in compensate",
        None,
    ),
    (
        "uncertain outside of compensate",
        one(when="${{ uncertain }}"),
        A + "when: ${{ uncertain }}: 'uncertain' is known only in compensate",
        None,
    ),
    ("budget as a number", budget(5), "workflow 'w', budget: must be an object, not a number", BUDGET_HINT),
    ("empty budget", budget({}), "workflow 'w', budget: names no limit", BUDGET_HINT),
    (
        "budget, misspelt",
        budget({"token": 5}),
        "workflow 'w', budget: unknown field 'token'",
        "did you mean 'tokens'?",
    ),
    (
        "cost as text",
        budget({"cost_usd": "5"}),
        "workflow 'w', budget.cost_usd: must be a number of dollars, not '5'",
        None,
    ),
    (
        "cost true",
        budget({"cost_usd": True}),
        "workflow 'w', budget.cost_usd: must be a number of dollars, not True",
        None,
    ),
    (
        "cost 0",
        budget({"cost_usd": 0}),
        "workflow 'w', budget.cost_usd: must be more than 0, not 0",
        "leave it out for no limit",
    ),
    (
        "cost minus 0",
        budget({"cost_usd": -0.0}),
        "workflow 'w', budget.cost_usd: must be more than 0, not -0.0",
        "leave it out for no limit",
    ),
    (
        "negative cost",
        budget({"cost_usd": -1.5}),
        "workflow 'w', budget.cost_usd: must be more than 0, not -1.5",
        "leave it out for no limit",
    ),
    (
        "cost with 7 decimals",
        budget({"cost_usd": 0.0000001}),
        "workflow 'w', budget.cost_usd: 1e-07 has more than 6 decimals",
        None,
    ),
    (
        "long cost",
        budget({"cost_usd": 1.2345678}),
        "workflow 'w', budget.cost_usd: 1.2345678 has more than 6 decimals",
        None,
    ),
    (
        "huge cost",
        budget({"cost_usd": 1e300}),
        "workflow 'w', budget.cost_usd: 1e+300 is too much: the most is 1000000000",
        None,
    ),
    ("cost NaN", budget({"cost_usd": float("nan")}), "workflow 'w': budget.cost_usd: nan is not JSON", None),
    (
        "tokens as a fraction",
        budget({"tokens": 1.5}),
        "workflow 'w', budget.tokens: must be a whole number, not 1.5",
        None,
    ),
    (
        "tokens 0",
        budget({"tokens": 0}),
        "workflow 'w', budget.tokens: must lie between 1 and 1000000000000000, not 0",
        None,
    ),
    (
        "tokens true",
        budget({"tokens": True}),
        "workflow 'w', budget.tokens: must be a whole number, not True",
        None,
    ),
    (
        "steps that see too much",
        flow(
            a={},
            **{
                f"s{number}": {"grows": True, "needs": [f"s{number - 1}" if number else "a"]}
                for number in range(730)
            },
        ),
        "workflow 'w', grows: the steps that grow have 266815 steps before them, in all; 262144 are allowed",
        None,
    ),
]
