"""How a reel begins and ends on disk when several processes may record into it.

The reel appears under its name whole, with its meta.json, by one rename: whoever comes first makes it, and ranks of the
same job join it. Each rank leaves a file in `.job/` when it joins and another when it is done; the last one closes the
reel. Nothing is removed that another process may have written.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import socket
import time
import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from torchreel.errors import (
    NewerReelError,
    NotAReelError,
    OptionError,
    RecorderError,
    ReelError,
    ReelExistsError,
    UnwrittenReelError,
)
from torchreel.reel.job import Identity, Job, identity_of
from torchreel.reel.meta import Meta, read_meta, write_meta

JOB = ".job"
CLAIM = "process.json"
_REPLACING_S = 60.0


@dataclass(frozen=True)
class OpenReel:
    """A reel that this process made or joined."""

    path: Path
    job: Job | None
    made: bool
    """Whether it was made here, not joined."""


def begin(path: Path, meta: Meta, job: Job | None, *, replace: bool = False) -> OpenReel:
    """Make the reel, or join the one of this job. Raises ReelExistsError, and changes nothing, if it is another's."""
    replaced: list[Path] = []
    try:
        while True:
            if not os.path.lexists(path):
                if _make(path, meta, job):
                    return OpenReel(path, job, made=True)
                continue
            if job is not None and _is_of_job(path, job):
                restarted = _restart_name(path, job)
                if restarted is not None:
                    path = restarted
                    continue
                _join(path, job)
                return OpenReel(path, job, made=False)
            if not replace:
                raise _exists(path)
            with _one_of_job(path, job):
                if job is None or not _is_of_job(path, job):
                    replaced.append(_move_away(path))
                    if _make(path, meta, job):
                        return OpenReel(path, job, made=True)
    except OSError as error:
        raise RecorderError(f"A reel cannot be made at {path}: {error.strerror or error}.") from None
    finally:
        for old in replaced:
            shutil.rmtree(old, ignore_errors=True)


def _exists(path: Path) -> ReelExistsError:
    return ReelExistsError(f"{path} already exists and is not overwritten: give another name, or remove it first.")


def _make(path: Path, meta: Meta, job: Job | None) -> bool:
    """Whether the name was free."""
    path.parent.mkdir(parents=True, exist_ok=True)
    new = path.with_name(f".{path.name}.{uuid.uuid4().hex}")
    new.mkdir()
    try:
        if job is not None:
            (new / JOB).mkdir()
            _claim(new, job)
            meta = {**meta, "job": {"id": job.id, "restart": job.restart, "world_size": job.world_size}}
        write_meta(new, meta)
        if os.path.lexists(path):  # a rename would take the place of an empty directory
            return False
        with contextlib.suppress(FileExistsError, NotADirectoryError):
            new.rename(path)
            return True
        return False
    except UnwrittenReelError as error:
        raise UnwrittenReelError(str(error).replace(str(new), str(path))) from None
    except OSError as error:
        if os.path.lexists(path):  # ENOTEMPTY: another was quicker
            return False
        raise error
    finally:
        shutil.rmtree(new, ignore_errors=True)


def _meta_of(path: Path) -> Meta | None:
    try:
        return read_meta(path)
    except ReelError:
        return None


def _is_of_job(path: Path, job: Job) -> bool:
    """Whether the reel is one that a rank of this very start made: names of jobs are used again."""
    meta = _meta_of(path)
    made_by = meta.get("job") if meta is not None else None
    if not isinstance(made_by, dict) or made_by.get("id") != job.id:
        return False
    if made_by.get("restart") != job.restart:
        return isinstance(made_by.get("restart"), int) and made_by["restart"] < job.restart
    return (meta or {}).get("state") != "closed" and all(_agrees(claim, job) for claim in _claims(path))


def check_joinable(path: Path, job: Job) -> None:
    """Raises ReelExistsError if a reel stands there that is not this job's."""
    if os.path.lexists(path) and not _is_of_job(path, job):
        raise _exists(path)


def _restart_name(path: Path, job: Job) -> Path | None:
    """Ranks that were started again have a reel of their own, beside that of those before them."""
    made_by = (_meta_of(path) or {}).get("job", {})
    if made_by.get("restart") == job.restart:
        return None
    return path.with_name(f"{path.stem}-restart-{job.restart}{path.suffix}")


def _claims(path: Path) -> Iterator[dict[str, Any]]:
    for file in sorted((path / JOB).glob("rank*[0-9]")):
        with contextlib.suppress(OSError, ValueError):
            claim = json.loads(file.read_text())
            if isinstance(claim, dict):
                yield claim


def _agrees(claim: dict[str, Any], job: Job) -> bool:
    """Whether a rank that joined before may be one of ours: it was not started by another launcher of this node."""
    other = claim.get("launcher")
    if job.launcher is None or not isinstance(other, list) or len(other) != 2:
        return True
    return bool(other[0] != job.launcher[0] or other[1] == job.launcher[1])


def _rank_file(path: Path, job: Job) -> Path:
    return path / JOB / _rank_name(job.rank)


def _claim(path: Path, job: Job) -> None:
    file = os.open(_rank_file(path, job), os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o666)
    with os.fdopen(file, "w") as stream:
        stream.write(json.dumps({"rank": job.rank, "pid": os.getpid(), "launcher": job.launcher}))


def _join(path: Path, job: Job) -> None:
    try:
        _claim(path, job)
    except FileExistsError:
        raise ReelExistsError(
            f"{path} already holds a recording of rank {job.rank} of this job, and each rank records into a reel once: "
            "give another name."
        ) from None
    except FileNotFoundError:  # closed since: all its ranks are done, so this is not one of them
        raise _exists(path) from None


def check_replaceable(path: Path) -> None:
    """Raises OptionError if this is not a reel, or one that is being recorded: those are not removed."""
    try:
        if path.is_symlink():
            raise NotAReelError("a link")
        read_meta(path)
    except NotAReelError:
        raise OptionError(f"{path} is not a reel, so --force does not remove it: name another with -o.") from None
    except NewerReelError:
        pass
    for directory in path.iterdir():
        claim = read_claim(directory)
        if claim is not None and (claim.process is not None and claim.process.may_be_alive()):
            raise ReelExistsError(
                f"{path} is being recorded by process {claim.said.get('pid')} on {claim.said.get('host')}, so it is "
                "not replaced: name another reel, or wait until that ends."
            )


def _move_away(path: Path) -> Path:
    """The reel under another name: from here on nobody finds it."""
    check_replaceable(path)
    return path.rename(path.with_name(f".{path.name}.{uuid.uuid4().hex}"))


@contextlib.contextmanager
def _one_of_job(path: Path, job: Job | None) -> Iterator[None]:
    """One rank replaces a reel; the others wait, and find the new one."""
    if job is None:
        yield
        return
    lock = path.with_name(f".{path.name}.replacing")
    began = time.monotonic()
    while True:
        try:
            os.close(os.open(lock, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o666))
            break
        except FileExistsError:
            if time.monotonic() - began > _REPLACING_S:
                raise RecorderError(
                    f"Another rank has been replacing {path} for {_REPLACING_S:.0f} s, or died in it: remove {lock}, "
                    "and start again."
                ) from None
            time.sleep(0.02)
    try:
        yield
    finally:
        lock.unlink(missing_ok=True)


def end(opened: OpenReel) -> bool:
    """This process is done. The reel is closed when all ranks of its job are; returns whether it was closed here."""
    if opened.job is not None and not _is_last(opened.path, opened.job):
        return False
    if opened.job is not None and not any(holds_process(entry) for entry in opened.path.iterdir()):
        shutil.rmtree(opened.path, ignore_errors=True)  # every rank has discarded its part
        return True
    meta = read_meta(opened.path)
    root = meta.get("root")
    known = root is not None and (opened.path / root).is_dir()
    write_meta(opened.path, {**meta, "state": "closed", "root": root if known else None})
    shutil.rmtree(opened.path / JOB, ignore_errors=True)
    return True


def _is_last(path: Path, job: Job) -> bool:
    """Whether this rank, which is done now, is the one that closes the reel. Of two that end at once, one is."""
    _rank_file(path, job).with_suffix(".done").touch()
    if len(list((path / JOB).glob("rank*.done"))) < job.world_size:
        return False
    try:
        (path / JOB / "closing").touch(exist_ok=False)
    except (FileExistsError, FileNotFoundError):  # it closes it, or has done so
        return False
    return True


@dataclass(frozen=True)
class Claim:
    """What a process wrote into its directory before it recorded anything."""

    said: dict[str, Any]
    process: Identity | None
    time_ns: int


def directory_name(said: dict[str, Any]) -> str:
    """`host-pid`, with a rank `rank00003-host-pid`."""
    name = f"{socket.gethostname()}-{os.getpid()}"
    return name if said.get("rank") is None else f"{_rank_name(said['rank'])}-{name}"


def parts_of_rank(opened: OpenReel) -> list[Path]:
    """The directories of this rank and of its children in the reel of its job."""
    assert opened.job is not None
    return sorted(opened.path.glob(f"{_rank_name(opened.job.rank)}-*"))


def _rank_name(rank: int) -> str:
    return f"rank{rank:05d}"


def claim_directory(reel: Path, said: dict[str, Any]) -> Path:
    """A directory for this process that no other has: process ids come again, and containers share them."""
    name = directory_name(said)
    directory, number = reel / name, 1
    while True:
        try:
            directory.mkdir()
            break
        except FileExistsError:
            number += 1
            directory = reel / f"{name}-{number}"
    me = identity_of(os.getpid())
    claim = {"said": said, "identity": [me.machine, me.process] if me is not None else None, "time_ns": time.time_ns()}
    temporary = directory / f".{CLAIM}"
    try:
        temporary.write_text(json.dumps(claim))
        temporary.replace(directory / CLAIM)
    except OSError as error:
        shutil.rmtree(directory, ignore_errors=True)
        raise UnwrittenReelError(f"{directory} cannot be written: {error.strerror}. Make room on the disk.") from None
    return directory


def read_claim(directory: Path) -> Claim | None:
    """None if there is none, or it makes no sense."""
    try:
        claim = json.loads((directory / CLAIM).read_text())
        identity = claim["identity"]
        process = Identity(str(identity[0]), str(identity[1])) if identity is not None else None
        return Claim(dict(claim["said"]), process, int(claim["time_ns"]))
    except (OSError, ValueError, KeyError, TypeError, IndexError):
        return None


def holds_process(directory: Path) -> bool:
    """Whether a directory of a reel is that of a process."""
    if directory.name.startswith("."):
        return False
    return any((directory / name).exists() for name in ("spool", "processes.parquet", CLAIM))


def release_directory(directory: Path) -> None:
    """The process has ended in order. If it recorded nothing, it leaves nothing."""
    (directory / CLAIM).unlink(missing_ok=True)
    with contextlib.suppress(OSError):
        directory.rmdir()


@contextlib.contextmanager
def closing(directory: Path) -> Iterator[bool]:
    """Whether this process may turn the directory's spool into tables: one at a time does."""
    import fcntl

    try:
        file = os.open(directory / ".closing", os.O_RDWR | os.O_CREAT, 0o666)
    except OSError:
        yield False
        return
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(file)
        yield False
        return
    except OSError:
        pass  # a file system without locks: as before there were any
    try:
        yield True
    finally:
        (directory / ".closing").unlink(missing_ok=True)
        os.close(file)
