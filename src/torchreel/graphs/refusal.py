"""Why a call has no graph."""


class RefusedError(Exception):
    """The end of a sentence that begins with the function's name."""
