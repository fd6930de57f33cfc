"""The devices of a trace: their names as torch says them, and what the file knows of them."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any

import pyarrow as pa

from torchreel.ingest.kineto.categories import api_of
from torchreel.ingest.kineto.collecting import Collected
from torchreel.ingest.kineto.columns import NOTHING, Ints, plain

# c10::DeviceType, as memory events have it.
_TYPES = {0: "cpu", 1: "cuda", 6: "cuda", 12: "xpu", 15: "hpu", 19: "mtia", 20: "privateuseone"}
_AGENTS = (
    "ROCm numbers the device of activities as an agent, which counts processors too; memory events have the index "
    "that torch uses. Both are kept as the trace has them."
)
_HIP_KEYS = ("hip_runtime_version", "hip_driver_version", "roctracer_version", "rocprofiler_version")


class Devices:
    """Gives names to devices, and remembers which there were."""

    def __init__(self, collected: Collected, top: dict[str, Any]) -> None:
        self._properties = _properties(top)
        self.api = self._find_api(collected, top)
        self._word = "cuda" if self.api == "hip" else self.api
        self._active: set[str] = set()
        self._allocating: set[str] = set()

    def _find_api(self, collected: Collected, top: dict[str, Any]) -> str:
        for _, category in collected.categories:
            api = api_of(category or "")
            if api is not None:
                return api
        models = " ".join(str(each.get("name", "")) for each in self._properties.values())
        launches = any(name.startswith("hip") and name[3:4].isupper() for name in collected.names)
        if launches or any(key in top for key in _HIP_KEYS) or "AMD" in models:
            return "hip"
        return "cuda"

    def names(self, numbers: Ints) -> list[str | None]:
        """The names of devices with activities."""
        known = {number: self._name(number) for number in set(numbers.tolist())}
        self._active |= {name for name in known.values() if name is not None}
        return [known[number] for number in numbers.tolist()]

    def _name(self, number: int) -> str | None:
        return None if number == NOTHING else f"{self._word}:{number}"

    def of_memory(self, types: Ints, indices: Ints) -> list[str]:
        """The names of devices with memory events."""
        pairs = list(zip(types.tolist(), indices.tolist(), strict=True))
        known = {}
        for kind, index in set(pairs):
            word = _TYPES.get(kind, f"type{kind}") if kind != NOTHING else "cpu"
            known[kind, index] = word if word == "cpu" or index < 0 else f"{word}:{index}"
        self._allocating |= set(known.values())
        return [known[pair] for pair in pairs]

    def of_pid(self, pid: Any, collected: Collected) -> str | None:
        """The device that a row of a viewer stands for, if it does."""
        label = collected.named(pid, 0, "process_labels") or ""
        is_device = pid in collected.device_pids and pid not in collected.host_pids
        if is_device or label.startswith(("GPU", "MTIA", "XPU")):
            return self._name(pid) if type(pid) is int else None
        return None

    def table(self) -> pa.Table:
        rows = [self._row(name) for name in sorted(self._active | self._allocating, key=_natural)]
        schema = pa.schema(
            [
                *(("device", pa.string()), ("index", pa.int32()), ("total", pa.int64()), ("note", pa.string())),
                *(("api", pa.string()), ("model", pa.string()), ("capability", pa.string())),
                *(("multiprocessors", pa.int32()), ("warp_size", pa.int32()), ("properties", pa.string())),
            ]
        )
        return pa.Table.from_pylist(rows, schema)

    def _row(self, name: str) -> dict[str, Any]:
        word, _, index = name.partition(":")
        if word == "cpu":
            return {"device": name}
        row: dict[str, Any] = {"device": name, "api": self.api if word in (self._word, "cuda") else word}
        row["index"] = _fits(int(index)) if index.isdecimal() else None
        agents = self.api == "hip" and word == "cuda"
        if agents:
            row["note"] = _AGENTS
        return row | self._known(int(index) if index.isdecimal() else -1, agents and name not in self._allocating)

    def _known(self, index: int, agent: bool) -> dict[str, Any]:
        """What the file says of a device. Agents have other numbers: of those only what all devices share."""
        said = self._properties.get(index)
        if agent:
            said = _shared(self._properties.values())
        if not said:
            return {}
        major, minor = said.get("computeMajor"), said.get("computeMinor")
        name = said.get("name")
        return {
            "total": _whole(said.get("totalGlobalMem"), 2**63),
            "model": plain(name) if type(name) is str and name else None,
            "capability": f"{major}.{minor}" if type(major) is int and type(minor) is int else None,
            "multiprocessors": _whole(said.get("numSms"), 2**31),
            "warp_size": _whole(said.get("warpSize"), 2**31),
            "properties": plain(json.dumps(said)),
        }


def _properties(top: dict[str, Any]) -> dict[int, dict[str, Any]]:
    given = top.get("deviceProperties") or top.get("computeProperties")
    rows = [row for row in given if type(row) is dict] if type(given) is list else []
    return {row["id"]: row for row in rows if type(row.get("id")) is int}


def _shared(rows: Iterable[dict[str, Any]]) -> dict[str, Any]:
    first, *others = list(rows) or [{}]
    return {name: value for name, value in first.items() if name != "id" and all(o.get(name) == value for o in others)}


def _whole(value: Any, limit: int) -> int | None:
    return value if type(value) is int and 0 <= value < limit else None


def _fits(value: int) -> int | None:
    return value if value < 2**31 else None


def _natural(name: str) -> tuple[str, int]:
    word, _, index = name.partition(":")
    return word, int(index) if index.isdecimal() else -1
