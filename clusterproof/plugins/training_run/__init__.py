"""What a training run recorded of itself, read from files.

`formats` reads the files of each tool, whose bytes, lines and values `files` bounds and decodes. What they hold is in
`records`, `collectives`, `losses`, `samples` and `placement`, and of a whole run in `run_data`. `rules` compute with
it, and `run` is what checks ask.
"""
