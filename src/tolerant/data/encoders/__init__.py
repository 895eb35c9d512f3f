"""From what rows hold to numbers: `columns` for tables, `text` for texts, `inputs` for whichever it is.

`cells` reads the cells of a column as numbers, dates or words, `times` as times of day; `sparse` keeps rows
that are mostly zeros.
"""
