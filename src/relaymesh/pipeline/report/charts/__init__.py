"""Small hand-written SVG: lines over time, bars, heat and spans.

Each function turns rows into one `<svg>` that stands alone: every mark has its words in a `<title>`, colours
come from the page's style by class, and no two things are told apart by colour alone. Strings are escaped as
they enter.
"""
