"""Plans as people write them: YAML, JSON or Python, compiled to the plan of the kernel.

`reading` makes a document of text, and `builder` makes the same document in Python. `document` checks the
whole document and compiles it. `expressions` evaluates `${{ … }}` when a step is ready. Each error is one
line that names workflow, step and field. The caller keeps the document: the kernel's plan does not hold the
declared input.
"""
