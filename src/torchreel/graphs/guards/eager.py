"""Why a call cannot be replayed."""


class EagerError(Exception):
    """No rule knows what happens here. The message is the end of a sentence that begins with the function's name."""
