"""What the page asks for under /api: one file per question, each a function of the reel and the query.

Every number is that of the command line. Times that come in and go out are nanoseconds since the reel's beginning,
unless a row of a table is given as it is. What a screen asks for when it opens, or by its menus, needs a row in
torchreel.web.stored_questions, too: an exported page has no server to ask.
"""
