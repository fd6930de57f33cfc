"""The errors that torchreel raises, and nothing else is raised on purpose.

    TorchreelError
    ├── ReelError                 a recording on disk cannot be used
    │   ├── NotAReelError         the path holds something else, or nothing
    │   ├── CorruptReelError      a file of the reel holds bytes that make no sense
    │   │   └── TruncatedReelError    ... because its end is missing
    │   ├── NewerReelError        written by a later torchreel than this one
    │   ├── ReelExistsError       a recording would overwrite another
    │   └── UnwrittenReelError    the disk is full, or refuses for another reason
    ├── SnapshotError             a file of a memory snapshot cannot be used
    │   ├── NotASnapshotError     the path holds something else, or nothing
    │   └── CorruptSnapshotError  the file holds bytes or values that make no sense
    │       └── TruncatedSnapshotError    ... because its end is missing
    ├── ProfilerTraceError        a trace of torch.profiler, or an execution trace, cannot be used
    │   ├── NotATraceError        the path holds something else, or nothing
    │   └── CorruptTraceError     nothing of the file can be read
    ├── RecorderError             recording cannot start, go on or stop
    │   ├── AlreadyRecordingError one recorder at a time
    │   └── UnavailableError      an option needs what this machine does not have
    ├── TapeError                 a tape cannot be made, read or replayed
    │   ├── NotATapeError         the path holds something else, or nothing
    │   ├── CorruptTapeError      the file holds bytes or values that make no sense
    │   │   └── TruncatedTapeError    ... because its end is missing
    │   ├── NewerTapeError        written by a later torchreel than this one
    │   ├── TraceError            tracing cannot start or go on
    │   └── ReplayError           a tape cannot be replayed here, or on these inputs
    │       └── GuardError        something that Python used is another than when it was recorded
    ├── GraphError                a graphed function cannot be called now
    │   ├── HeldOutputError       an output that is still held would be overwritten
    │   └── VerifyError           a replay and the function itself gave different results
    ├── EdgeError                 a deployed model cannot be loaded, run or profiled
    │   └── MissingPackageError   its format needs a package that is not installed
    ├── ViewerError               the viewer cannot start
    ├── AtlasError                a site about source trees cannot be made or used
    ├── OptionError               a value that the user gave is not one of those allowed
    └── QueryError                an SQL statement that cannot be run

Each message is a sentence that says what happened, with which value, and what to do next.
"""


class TorchreelError(Exception):
    """The root of all of them: catch this to catch everything of ours."""


class ReelError(TorchreelError):
    """A recording on disk cannot be used."""


class NotAReelError(ReelError):
    """The path holds something else, or nothing."""


class CorruptReelError(ReelError):
    """A file of the reel holds bytes that make no sense."""


class TruncatedReelError(CorruptReelError):
    """The end of a file of the reel is missing."""


class NewerReelError(ReelError):
    """The reel was written by a later torchreel than this one."""


class ReelExistsError(ReelError):
    """A recording would overwrite another one."""


class UnwrittenReelError(ReelError):
    """A reel, or a part of it, cannot be written: the disk is full, or refuses for another reason."""


class SnapshotError(TorchreelError):
    """A file of a memory snapshot cannot be used."""


class NotASnapshotError(SnapshotError):
    """The path holds something else, or nothing."""


class CorruptSnapshotError(SnapshotError):
    """The file holds bytes or values that make no sense."""


class TruncatedSnapshotError(CorruptSnapshotError):
    """The end of the file is missing."""


class ProfilerTraceError(TorchreelError):
    """A trace of torch.profiler, or an execution trace, cannot be used."""


class NotATraceError(ProfilerTraceError):
    """The path holds something else, or nothing."""


class CorruptTraceError(ProfilerTraceError):
    """Nothing of the file can be read."""


class RecorderError(TorchreelError):
    """Recording cannot start, go on or stop."""


class AlreadyRecordingError(RecorderError):
    """There is one recorder at a time, and one is running."""


class UnavailableError(RecorderError):
    """An option needs something that this machine does not have."""


class TapeError(TorchreelError):
    """A tape cannot be made, read or replayed."""


class NotATapeError(TapeError):
    """The path holds something else, or nothing."""


class CorruptTapeError(TapeError):
    """The file holds bytes or values that make no sense."""


class TruncatedTapeError(CorruptTapeError):
    """The end of the file is missing."""


class NewerTapeError(TapeError):
    """The tape was written by a later torchreel than this one."""


class TraceError(TapeError):
    """Tracing cannot start or go on."""


class ReplayError(TapeError):
    """A tape cannot be replayed here, or on these inputs."""


class GuardError(ReplayError):
    """Something that Python used is another than when the tape was made: a number, an argument, a tensor."""


class GraphError(TorchreelError):
    """A graphed function cannot be called now."""


class HeldOutputError(GraphError):
    """An output of an earlier call is still held, and this call would overwrite it."""


class VerifyError(GraphError):
    """A replay and the function itself gave different results."""


class EdgeError(TorchreelError):
    """A deployed model cannot be loaded, run or profiled."""


class MissingPackageError(EdgeError):
    """The format of a model needs a package that is not installed."""


class ViewerError(TorchreelError):
    """The viewer cannot start."""


class AtlasError(TorchreelError):
    """A site about source trees cannot be made or used."""


class OptionError(TorchreelError, ValueError):
    """A value that the user gave is not one of those allowed."""


class QueryError(TorchreelError):
    """An SQL statement cannot be run."""


def first_line(error: BaseException, most: int | None = None) -> str:
    """The first line of what an error says, to be followed by a full stop; its class where it says nothing.

    `most` characters, where the text may hold whatever a damaged file does.
    """
    return str(error).strip().partition("\n")[0][:most].strip().rstrip(".") or type(error).__name__
