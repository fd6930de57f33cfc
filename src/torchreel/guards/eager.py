"""Why a call cannot be replayed."""


class EagerError(Exception):
    """No rule knows what happens here. The message is the end of a sentence that begins with the function's name."""


class WriteError(EagerError):
    """The call leaves something changed that was made before it, which a replay would not."""
