"""Getting published data sets and reading their files; `tolerant.data.published_sets` says which there are.

`local_files` knows where the files of a set lie and what is in them, `fetch` gets them; `layouts` are what
they are read from.
"""
