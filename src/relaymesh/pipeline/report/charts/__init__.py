"""Small hand-written charts: bars, lines and columns over time, heat and spans.

Each function turns rows into one element of class `chart`: HTML for words, so that they keep their size and
wrap at any width, and SVG without a viewBox for marks, whose places are percents of the width there is. Every
mark has its words in a `<title>`, colours come from the page's style by class, and no two things are told
apart by colour alone. Strings are escaped as they enter.
"""
