from __future__ import annotations

from torchreel.export.timeline.tracks import Numbers, ProcessTrack, Track, extra_track, process_track, thread_track


def test_a_number_that_is_taken_is_replaced_by_a_free_one() -> None:
    numbers = Numbers()
    assert [numbers.give(wanted) for wanted in (7, 7, None, 0, -3, 8)] == [7, 8, 9, 10, 11, 12]


def test_ranks_of_different_hosts_with_one_pid_are_kept_apart() -> None:
    numbers = Numbers()
    rows = [{"process": index, "pid": 1, "command": "/usr/bin/python x.py", "rank": index} for index in range(2)]
    first, second = (process_track(row, numbers) for row in rows)
    assert (first.pid, first.name) == (1, "rank 0: python")
    assert (second.pid, second.name) == (2, "rank 1: python")
    thread = {"os_id": 1, "name": "MainThread"}
    assert thread_track(second, thread, True, numbers) == Track(second, 2, "thread 1 (MainThread)")


def test_an_extra_track_stands_beside_its_owner() -> None:
    numbers = Numbers()
    process = ProcessTrack(0, numbers.give(5), "python", "CPU")
    owner = thread_track(process, {"os_id": 12, "name": "worker"}, False, numbers)
    extra = extra_track(owner, "overlapping ranges", 2, numbers)
    assert extra.name == "thread 12 (overlapping ranges 2)"
    assert (extra.order, extra.tid) == (12, 13)
