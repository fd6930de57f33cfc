"""Why a call has no graph."""


class RefusedError(Exception):
    """The end of a sentence that begins with the function's name.

    With `passing`, it is nothing that the function did: the next call may be recorded.
    """

    def __init__(self, why: str, passing: bool = False) -> None:
        super().__init__(why)
        self.passing = passing
