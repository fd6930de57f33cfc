"""A model's file is first loaded, and run, in a process of its own: a damaged one may crash what loads it.

`trials` is what formats ask; `child` is the process as seen from here, `__main__` what it does; `archive` finds damage
by the checksums that a file carries, before anything is loaded.
"""
