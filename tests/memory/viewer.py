"""What PyTorch's viewer of snapshots takes for granted, as checks: its script is on the net, and not run here."""

from __future__ import annotations

from tests.memory.state import Snapshot

# What the viewer's reader of pickles knows, and nothing that could name a class.
PLAIN_OPCODES = {
    "PROTO", "FRAME", "STOP", "MARK", "MEMOIZE", "BINGET", "LONG_BINGET", "BINPUT", "LONG_BINPUT",
    "EMPTY_DICT", "SETITEM", "SETITEMS", "EMPTY_LIST", "APPEND", "APPENDS", "EMPTY_TUPLE", "TUPLE1", "TUPLE2", "TUPLE3",
    "NONE", "NEWTRUE", "NEWFALSE", "BININT", "BININT1", "BININT2", "LONG1", "BINFLOAT",
    "SHORT_BINUNICODE", "BINUNICODE",
}  # fmt: skip


def _addresses(snapshot: Snapshot, device: int) -> set[int]:
    """Where the viewer draws the blocks: it adds up their sizes, and does not read their addresses."""
    drawn = set()
    for segment in snapshot["segments"]:
        address = segment["address"]
        for block in segment["blocks"]:
            if segment["device"] == device and block["state"] == "active_allocated":
                drawn.add(address)
            address += block["size"]
        assert address == segment["address"] + segment["total_size"], "blocks fill their segment"
    return drawn


def assert_viewable(snapshot: Snapshot, *, with_segments: bool) -> None:
    """The timelines can be drawn: frees find their allocs, what is left is in the state, segments hold their blocks."""
    assert all(0 <= segment["device"] < len(snapshot["device_traces"]) for segment in snapshot["segments"])
    for device, events in enumerate(snapshot["device_traces"]):
        living: set[int] = set()
        for event in events:
            assert isinstance(event["size"], int) and event["stream"] == 0
            if event["action"] == "alloc":
                assert event["addr"] not in living
                living.add(event["addr"])
            elif event["action"] == "free_completed":
                living.discard(event["addr"])  # else it is older than the history
        assert living <= _addresses(snapshot, device), "what was not freed stands where its event says"
        if with_segments:
            _assert_in_segments(snapshot, device)


def _assert_in_segments(snapshot: Snapshot, device: int) -> None:
    """Events, walked back from the state, stay within the segments of their time."""
    now = {segment["address"]: segment["total_size"] for segment in snapshot["segments"] if segment["device"] == device}
    for event in reversed(snapshot["device_traces"][device]):
        address, size = event.get("addr"), event["size"]
        if event["action"] == "segment_alloc":
            assert now.pop(address) == size
        elif event["action"] == "segment_free":
            assert address not in now
            now[address] = size
        elif event["action"] in ("alloc", "free_requested", "free_completed"):
            assert any(begin <= address and address + size <= begin + total for begin, total in now.items())
