"""Getting the published data sets and reading their files; `tolerant.data.cards` says which there are.

`download` knows where the files of a set lie and what is in them, `fetch` gets them; `layouts` are what
they are read from.
"""
