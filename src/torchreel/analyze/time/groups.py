"""Groups: sums over the calls of a reel by some of their columns, in SQL, with nothing counted twice.

Sums over all calls are one scan and cheap. What is not right in them is put right afterwards, by joins that match
few calls: own time of calls that are not shown goes to the call around them, and a call made by a call of its own
group leaves the total.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from torchreel.analyze.time.nesting import climb

if TYPE_CHECKING:
    import duckdb

# Kinds that say where a call happened rather than what was called: left out unless they are asked for.
PLACES = ("module", "python")

# What `g`, the result, has for each group; sync_ns is total_ns without calls that ended on another thread.
MEASURES = ("calls", "self_ns", "total_ns", "sync_ns", "alloc_bytes", "self_alloc_bytes", "flops")
# The same of devices, where there are any: ops has these columns then, too.
OF_DEVICES = ("kernels", "self_device_ns", "device_ns")


@dataclass(frozen=True)
class Grouping:
    """Which calls to count, and the columns of ops that tell their groups apart."""

    keys: tuple[str, ...]
    present: frozenset[str]  # the kinds of calls in the reel
    shown: frozenset[str]  # those of them to count
    by_name: bool
    with_submodules: bool  # a group is a module with all that it holds
    calls_of_modules: bool  # count calls of modules rather than of ops
    devices: bool = False  # whether ops has OF_DEVICES

    @property
    def measures(self) -> tuple[str, ...]:
        """What each group has."""
        return (*MEASURES, *OF_DEVICES) if self.devices else MEASURES

    def and_devices(self, *values: str) -> str:
        """The end of a list of columns, if there are devices."""
        return "".join(f", {value}" for value in values) if self.devices else ""

    @property
    def silent(self) -> frozenset[str]:
        """Kinds whose own time counts as that of the call around them."""
        return self.present & set(PLACES) - self.shown

    @property
    def hidden(self) -> frozenset[str]:
        return self.present - self.shown

    @property
    def varying(self) -> list[str]:
        """Keys in which a call may differ from the call around it."""
        shared = {"process", "thread"} | ({"module"} if self.with_submodules else set())
        return [key for key in self.keys if key not in shared]


def grouped(connection: duckdb.DuckDBPyConnection, grouping: Grouping) -> list[str]:
    """The common table expressions that end with `g`: the keys and the measures of each group."""
    # Joins below are written with the smaller side last. Guesses at their sizes go wrong by a minute and a gigabyte.
    connection.execute("SET disabled_optimizers = 'join_order,build_side_probe_side'")
    if grouping.hidden:
        _prepare_hidden(connection, grouping)
    return [
        f"shown AS NOT MATERIALIZED ({_shown(grouping)})",
        f"callers AS NOT MATERIALIZED ({_callers(grouping)})",
        *(_module_groups(grouping) if grouping.with_submodules else _plain_groups(grouping)),
    ]


def _prepare_hidden(connection: duckdb.DuckDBPyConnection, grouping: Grouping) -> None:
    """Make the tables `hidden`, `silent`, and `around` with the shown calls that are nearest around a hidden one."""
    climb(connection, "hidden", grouping.hidden)
    if grouping.silent != grouping.hidden:
        climb(connection, "silent", grouping.silent)
    else:
        connection.execute("CREATE TEMP VIEW silent AS SELECT * FROM hidden")
    ups = " UNION ".join(f"SELECT process, up FROM {table}" for table in ("hidden", "silent"))
    columns = dict.fromkeys(("process", "id", "module", *grouping.keys))
    connection.execute(
        f"CREATE TEMP TABLE around AS SELECT {', '.join(f'o.{column}' for column in columns)} FROM ops AS o"
        f" JOIN ({ups}) AS u ON u.process = o.process AND u.up = o.id WHERE {_condition(grouping)}"
    )


def _condition(grouping: Grouping) -> str:
    """Which calls are shown, in as few comparisons as possible: there is one per call and kind."""
    if not grouping.hidden:
        return "true"
    if len(grouping.hidden) <= len(grouping.shown):
        return f"kind NOT IN ({', '.join(repr(kind) for kind in sorted(grouping.hidden))})"
    return f"kind IN ({', '.join(repr(kind) for kind in sorted(grouping.shown)) or 'NULL'})"


def _shown(grouping: Grouping) -> str:
    return f"SELECT * FROM ops WHERE {_condition(grouping)}"


def _callers(grouping: Grouping) -> str:
    """The calls that made others: the shown ones, and the hidden ones in the name of the shown call around them."""
    keys = [*grouping.varying, "module"] if grouping.with_submodules else grouping.varying
    # One whose time is all its own made no call that took time, and most are such.
    callers = f"SELECT {', '.join(['process', 'id', *keys])} FROM shown WHERE dur_ns > self_ns"
    if grouping.hidden:
        callers += (
            f" UNION ALL SELECT {', '.join(['h.process', 'h.id', *(f'around.{key}' for key in keys)])}"
            " FROM hidden AS h JOIN around ON around.process = h.process AND around.id = h.up"
        )
    return callers


def _sums(grouping: Grouping, counted: str) -> str:
    """The measures of a group, of which the calls that fulfil a condition are counted."""
    return ", ".join(
        (
            f"count(*) FILTER (WHERE {counted}) AS calls",
            "sum(self_ns)::BIGINT AS self_ns",
            "sum(dur_ns)::BIGINT AS total_ns",
            'coalesce(sum(dur_ns) FILTER (WHERE "async" IS NOT TRUE), 0)::BIGINT AS sync_ns',
            "sum(alloc_bytes)::BIGINT AS alloc_bytes",
            "sum(self_alloc_bytes)::BIGINT AS self_alloc_bytes",
            "sum(flops)::BIGINT AS flops",
        )
    ) + grouping.and_devices(*(f"sum({name})::BIGINT AS {name}" for name in OF_DEVICES))


def _own_time_of_silent(grouping: Grouping) -> str:
    """What the calls of silent kinds did themselves, for the groups of the calls around them."""
    keys = ", ".join(f"around.{key}" for key in grouping.keys)
    return f"""
        SELECT {keys}, 0, sum(s.self_ns)::BIGINT, 0, 0, NULL, sum(s.self_alloc_bytes)::BIGINT, NULL
            {grouping.and_devices("0", "0", "0")}
        FROM silent AS s JOIN around ON around.process = s.process AND around.id = s.up
        GROUP BY ALL"""


def _plain_groups(grouping: Grouping) -> list[str]:
    keys = ", ".join(f"shown.{key}" for key in grouping.keys)
    equal = "".join(f" AND p.{key} IS NOT DISTINCT FROM shown.{key}" for key in grouping.varying)
    again = f"SELECT shown.* FROM shown JOIN callers AS p ON p.process = shown.process AND p.id = shown.parent{equal}"
    # An op called by an op of its own name is that call, passed on to another overload.
    passed_on = "kind = 'op'" if grouping.by_name else "false"
    parts = [
        f"SELECT {keys}, {_sums(grouping, 'true')} FROM shown GROUP BY ALL",
        f"""SELECT {keys.replace("shown.", "")}, -count(*) FILTER (WHERE {passed_on}), 0, -sum(dur_ns)::BIGINT,
            -coalesce(sum(dur_ns) FILTER (WHERE "async" IS NOT TRUE), 0)::BIGINT, -sum(alloc_bytes)::BIGINT, NULL, NULL
            {grouping.and_devices("0", "0", "-sum(device_ns)::BIGINT")}
        FROM again GROUP BY ALL""",
    ]
    if grouping.silent:
        parts.append(_own_time_of_silent(grouping))
    return [f"again AS NOT MATERIALIZED ({again})", f"g AS ({' UNION ALL '.join(parts)})"]


def _module_groups(grouping: Grouping) -> list[str]:
    """Each module with the time of its own calls, and the totals of its submodules as well.

    A call counts in the total of every module that holds it, except those that hold the call around it too.
    """
    keys = ", ".join(f"pairs.{key}" for key in grouping.keys)
    held = ", ".join("held.holder" if key == "module" else f"pairs.{key}" for key in grouping.keys)
    calls = "kind = 'module' OR module IS NULL" if grouping.calls_of_modules else "true"
    parts = [
        f"""SELECT {keys}, calls, self_ns, 0::BIGINT AS total_ns, 0::BIGINT AS sync_ns,
            alloc_bytes - alloc_bytes AS alloc_bytes, self_alloc_bytes, flops
            {grouping.and_devices("kernels", "self_device_ns", "0::BIGINT AS device_ns")}
        FROM pairs""",
        f"""SELECT {held}, 0, 0, total_ns, sync_ns, alloc_bytes, alloc_bytes - alloc_bytes, NULL
            {grouping.and_devices("0", "0", "device_ns")}
        FROM pairs
        LEFT JOIN chain AS held ON held.process = pairs.process AND held.module = pairs.module
        LEFT JOIN chain AS around ON pairs.inside AND around.process = pairs.process
            AND around.module = pairs.caller_module AND around.holder = held.holder
        WHERE around.holder IS NULL
            AND NOT (pairs.inside AND held.holder IS NULL AND pairs.caller_module IS NULL)""",
    ]
    if grouping.silent:
        parts.append(_own_time_of_silent(grouping))
    return [
        f"nested AS NOT MATERIALIZED ({_nested(grouping)})",
        f"""pairs AS (
            SELECT {keys.replace("pairs.", "")}, inside, caller_module, {_sums(grouping, calls)}
            FROM nested GROUP BY ALL
        )""",
        """chain AS (
            SELECT process, id AS module, id AS holder, parent FROM modules
            UNION SELECT c.process, c.module, m.id, m.parent
            FROM chain AS c JOIN modules AS m ON m.process = c.process AND m.id = c.parent
        )""",
        f"g AS ({' UNION ALL '.join(parts)})",
    ]


def _nested(grouping: Grouping) -> str:
    """Every call with the module of the shown call around it, and whether that is alike in the other keys."""
    equal = "".join(f" AND p.{key} IS NOT DISTINCT FROM shown.{key}" for key in grouping.varying)
    return (
        f"SELECT shown.*, p.id IS NOT NULL{equal} AS inside, p.module AS caller_module FROM shown"
        " LEFT JOIN callers AS p ON p.process = shown.process AND p.id = shown.parent"
    )
