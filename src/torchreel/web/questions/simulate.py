"""What the CUDA caching allocator would do with a device's requests: the numbers of `torchreel simulate`."""

from __future__ import annotations

from typing import Any

from torchreel.errors import OptionError
from torchreel.simulator import simulate as simulated_run
from torchreel.simulator.recorded.recorded_history import recorded_histories
from torchreel.simulator.request_trace import RequestTraces
from torchreel.simulator.source import named, request_traces
from torchreel.web.device_view import DeviceView, view_of
from torchreel.web.query import Query
from torchreel.web.viewed_reel import ViewedReel

_LONGEST = 500


def simulate(viewed: ViewedReel, query: Query) -> Any:
    """One device: as recorded, simulated with the recorded setting, and simulated with `conf`."""
    view = view_of(viewed, query)
    conf = query.text("conf")
    if len(conf) > _LONGEST:
        raise OptionError(f"A setting is a text of at most {_LONGEST} characters.")
    if view is None or not view.has_history:
        raise OptionError("There is no history of allocs that could be simulated.")
    traces = _traces(viewed)
    name = _name(viewed, view)
    if name not in traces.devices:
        raise OptionError(f"{view.name} has no allocs that could be simulated.")
    one = RequestTraces({name: traces.devices[name]})
    as_recorded = simulated_run(one).devices[name]
    asked = simulated_run(one, conf).devices[name] if conf else as_recorded
    return {
        "device": view.memory.history.device,
        "conf": conf,
        "recorded_conf": str(traces.devices[name].conf),
        "recorded": _recorded(view),
        "as_recorded": as_recorded.numbers(),
        "simulated": asked.numbers(),
        "notes": list(asked.notes),
    }


def _traces(viewed: ViewedReel) -> RequestTraces:
    """Read once."""
    known: RequestTraces | None = viewed.__dict__.get("_request_traces")
    if known is None:
        known = viewed.__dict__["_request_traces"] = request_traces(viewed.reel)
    return known


def _name(viewed: ViewedReel, view: DeviceView) -> str:
    """How the simulator calls this device of this process."""
    history = view.memory.history
    for name, other in named(recorded_histories(viewed.reel)):
        if other.process == history.process and other.device == history.device:
            return name
    return history.device


def _recorded(view: DeviceView) -> dict[str, Any]:
    """What the recording itself says, as far as it tells."""
    history = view.memory.history
    found: dict[str, Any] = {
        "peak_reserved": None,
        "peak_requested": int(history.active.max()),
        "fragmentation": None,
        "ooms": len(history.ooms),
    }
    if history.reserves:
        index = int(history.reserved.argmax())
        found["peak_reserved"] = peak = int(history.reserved[index])
        # The request for which it was reserved comes after it.
        held = int(history.allocated[index : index + 2].max())
        found["fragmentation"] = 1 - held / peak if peak > 0 else 0.0
    return found
