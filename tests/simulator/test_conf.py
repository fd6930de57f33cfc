from __future__ import annotations

import dataclasses
import itertools
import json
import subprocess
import sys
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from torchreel.errors import OptionError
from torchreel.simulator.conf import Conf, parse
from torchreel.simulator.option_string import OPTIONS

MIB = 1 << 20

SIZES = [
    *(
        "20",
        "19",
        "128",
        "0",
        "-1",
        "+128",
        "12.5",
        "128abc",
        "0x80",
        "abc",
        "1 28",
        "[128]",
        "",
        "99999999999999999999",
    ),
    *("18446744073709551615", "17592186044415", "17592186044416", "-18446744073709551615", "-18446744073709551616"),
]
REALS = [
    "0.8",
    "0",
    "1",
    "1.0",
    "nan",
    "inf",
    "1e-3",
    ".5",
    "5.",
    "-0.5",
    "x",
    "0x1p-1",
    "0x.8",
    "0.5abc",
    "",
    "1e999",
    ".",
]
TRUTHS = ["True", "False", "true", "TRUE", "1", "on", "Tr ue", "True extra", ""]
ROUNDINGS = [
    *(
        "4",
        "3",
        "0",
        "1",
        "64",
        "1048576",
        "-1",
        "",
        "x",
        "[",
        "]",
        "[]",
        "[256",
        "[256:",
        "[256:2",
        "[256:2,",
        "[256:2]]",
    ),
    *("[256:1,512:2,1024:4,>:8]", "[256:1,>:8,]", "[ 256 : 1 , > : 8 ]", "[256:3]", "[300:4]", "[0:4]", "[65536:4]"),
    *("[32768:4,>:2]", "[>:4]", "[>:4,256:2]", "[>:0]", "[512:2,256:4]", "[16:2,4:8,>:1]", "[16:2,64:8]", "[256:0]"),
    *(
        "[256:2 512:4]",
        "[-1:2]",
        "[256:-1]",
        "[1:2;>:4]",
        "[>:9223372036854775808]",
        "[256,2:512,4]",
        "[x:2]",
        "[256:]",
    ),
]
STRINGS = [
    *(f"{option}_mb:{value}" for option in ("max_split_size", "max_non_split_rounding") for value in SIZES),
    *(f"large_segment_size_mb:{value}" for value in ["10", "11", "9", *SIZES]),
    *(f"garbage_collection_threshold:{value}" for value in REALS),
    *(f"expandable_segments:{value}" for value in TRUTHS),
    *(f"roundup_power2_divisions:{value}" for value in ROUNDINGS),
    *("", " ", "\n", ",", ":", "::", "[]", "max_split_size_mb", "max_split_size_mb:", "max_split_size_mb::128"),
    *("max_split_size_mb:128,", "max_split_size_mb:128,,", " max_split_size_mb : 128 ", "max_split_size_mb,128"),
    *("max_split_size_mb:128:expandable_segments:True", "max_split_size_mb:128]expandable_segments:True"),
    *("max_split_size_mb:128,max_split_size_mb:256", "max_split_size_mb:\t12\n8", "max_spl it_size_mb:128"),
    *("expandable_segments:True,expandable_segments:False", "expandable_segments:True;max_split_size_mb:128"),
    *("large_segment_size_mb:40,max_split_size_mb:30", "max_split_size_mb:30,large_segment_size_mb:40"),
    *("large_segment_size_mb:12,max_split_size_mb:15", "max_split_size_mb:15,large_segment_size_mb:12"),
    *("large_segment_size_mb:40,large_segment_size_mb:30", "max_non_split_rounding_mb:64,large_segment_size_mb:32"),
    *("large_segment_size_mb:64,max_non_split_rounding_mb:32", "max_split_size_mb:30,large_segment_size_mb"),
    *(
        "roundup_power2_divisions:4,roundup_power2_divisions:[256:8]",
        "roundup_power2_divisions:[256:2],max_split_size_mb:64",
    ),
    *("pinned_use_background_threads:True", "pinned_use_background_threads:true", "pinned_max_cached_size_mb:x"),
    *("pinned_max_round_threshold_mb:64,pinned_max_cached_size_mb:-1", "expandable_segments:é"),
]


@cache
def torch_outcomes(strings: tuple[str, ...]) -> list[dict[str, Any] | str]:
    program = [sys.executable, str(Path(__file__).with_name("torch_conf.py"))]
    done = subprocess.run(program, input=json.dumps(strings), capture_output=True, text=True, check=True)
    outcomes: list[dict[str, Any] | str] = json.loads(done.stdout)
    return outcomes


def as_torch_would(conf: Conf) -> dict[str, Any]:
    """The settings that all accelerators share; sizes that no memory has are one to us."""
    return {
        "large_segment_size": conf.large_segment_size,
        "max_split_size": 1 << 62 if conf.max_split_size is None else conf.max_split_size,
        "max_non_split_rounding": conf.max_non_split_rounding,
        "roundup_power2_divisions": list(conf.roundup_power2_divisions),
        "garbage_collection_threshold": conf.garbage_collection_threshold,
        "expandable_segments": conf.expandable_segments,
    }


def cut(settings: dict[str, Any]) -> dict[str, Any]:
    sizes = ("large_segment_size", "max_split_size", "max_non_split_rounding")
    return {name: min(value, 1 << 62) if name in sizes else value for name, value in settings.items()}


def check(text: str, theirs: dict[str, Any] | str) -> None:
    try:
        ours: dict[str, Any] | str = as_torch_would(parse(text))
    except OptionError as error:
        ours = str(error)
    # Without CUDA, torch passes over what it does not know, and leaves it to the device's own parser to refuse it.
    unknown = isinstance(ours, str) and "There is no allocator option" in ours
    if isinstance(theirs, str) or unknown:
        assert isinstance(ours, str), f"torch refuses {text!r}: {theirs}"
    else:
        assert ours == cut(theirs), text


@pytest.mark.parametrize("number", range(len(STRINGS)), ids=lambda number: repr(STRINGS[number]))
def test_a_string_means_what_torch_says(number: int) -> None:
    check(STRINGS[number], torch_outcomes(tuple(STRINGS))[number])


def test_any_two_options_mean_what_torch_says() -> None:
    values = ["large_segment_size_mb:32", "max_split_size_mb:24", "max_split_size_mb:64", "expandable_segments:True"]
    values += ["max_non_split_rounding_mb:48", "garbage_collection_threshold:0.9", "roundup_power2_divisions:[4:2,>:8]"]
    strings = tuple(",".join(pair) for pair in itertools.permutations(values, 2))
    for text, theirs in zip(strings, torch_outcomes(strings), strict=True):
        check(text, theirs)


def test_any_text_is_read_or_refused_in_a_sentence() -> None:
    pieces = st.sampled_from([*OPTIONS, *":,[]>", " ", "-1", "0", "2", "20", "64", "0.5", "True", "native", "x"])

    @given(st.lists(pieces, max_size=14).map("".join) | st.text(max_size=30))
    def holds(text: str) -> None:
        try:
            conf = parse(text)
        except OptionError as error:
            assert str(error).endswith((".", "?"))
        else:
            assert parse(str(conf)) == conf

    holds()


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        (
            "max_split_size_mb:19",
            "The allocator option max_split_size_mb is '19': it must be a whole number of MiB, at least 20 "
            "(the size of a large segment).",
        ),
        (
            "large_segment_size_mb:40,max_non_split_rounding_mb:32",
            "The allocator option max_non_split_rounding_mb is '32': it must be a whole number of MiB, at least 40 "
            "(the size of a large segment).",
        ),
        (
            "large_segment_size_mb:10",
            "The allocator option large_segment_size_mb is '10': it must be a whole number of MiB greater than 10.",
        ),
        (
            "garbage_collection_threshold:1",
            "The allocator option garbage_collection_threshold is '1': "
            "it must be a number greater than 0 and less than 1.",
        ),
        (
            "expandable_segments:true",
            "The allocator option expandable_segments is 'true': it must be True or False, with a capital letter.",
        ),
        (
            "roundup_power2_divisions:3",
            "The allocator option roundup_power2_divisions is '3': "
            "it must be a power of two, or a list such as [256:1,512:2,>:4].",
        ),
        (
            "roundup_power2_divisions:[300:2]",
            "The allocator option roundup_power2_divisions is '300': "
            "the sizes in the list must be powers of two, in MiB, or > for the rest.",
        ),
        (
            "roundup_power2_divisions:[256:2",
            "The allocator option roundup_power2_divisions ends too early: "
            "write roundup_power2_divisions:4 or [256:1,512:2,>:4].",
        ),
        (
            "per_process_memory_fraction:1.5",
            "The allocator option per_process_memory_fraction is '1.5': it must be a number from 0 to 1.",
        ),
        (
            "pinned_num_register_threads:256",
            "The allocator option pinned_num_register_threads is '256': it must be a power of two, at most 128.",
        ),
        (
            "backend:foo",
            "The allocator option backend is 'foo': it must be one of native, cudaMallocAsync, hipMallocAsync.",
        ),
        ("max_split_size:128", "There is no allocator option 'max_split_size': is max_split_size_mb meant?"),
        ("max_split_size_mb", "The allocator option max_split_size_mb ends too early: write max_split_size_mb:128."),
        ("max_split_size_mb=128", "There is no allocator option 'max_split_size_mb=128': is max_split_size_mb meant?"),
    ],
)
def test_a_wrong_string_is_told_what_is_allowed(text: str, sentence: str) -> None:
    with pytest.raises(OptionError) as caught:
        parse(text)
    assert str(caught.value) == sentence


def test_an_unknown_option_is_told_which_there_are() -> None:
    with pytest.raises(
        OptionError, match=r"those of torch 2\.13 are max_split_size_mb, max_non_split_rounding_mb, garb"
    ):
        parse("colour:red")


@pytest.mark.parametrize(
    "text",
    [
        "",
        "expandable_segments:True",
        "max_split_size_mb:128,garbage_collection_threshold:0.8",
        "large_segment_size_mb:40,max_non_split_rounding_mb:64",
        "roundup_power2_divisions:8",
        "roundup_power2_divisions:[256:1,512:2,1024:4,>:8]",
        "roundup_power2_divisions:[1:0,4:2,32768:8]",
        "roundup_power2_divisions:[>:8]",
        "roundup_power2_divisions:[64:0,>:8]",
        "roundup_power2_divisions:[1:0,64:2,128:0,>:8]",
        "per_process_memory_fraction:0.5,throw_on_cudamalloc_oom:True,backend:cudaMallocAsync",
        "release_lock_on_cudamalloc:True,graph_capture_record_stream_reuse:True,pinned_num_register_threads:8",
    ],
)
def test_a_conf_prints_as_its_shortest_string(text: str) -> None:
    assert str(parse(text)) == text


@given(st.lists(st.sampled_from([0, 1, 2, 4, 8]), min_size=16, max_size=16))
def test_every_table_of_divisions_prints_as_a_list_that_reads_as_it(table: list[int]) -> None:
    conf = Conf(roundup_power2_divisions=tuple(table))
    assert parse(str(conf)) == conf


def test_defaults_are_not_printed() -> None:
    text = "expandable_segments:False,max_non_split_rounding_mb:20,large_segment_size_mb:20,backend:native"
    assert str(parse(text)) == ""
    assert parse(text) == Conf()


def test_unsplit_rounding_follows_the_large_segment() -> None:
    assert Conf().max_non_split_rounding == 20 * MIB
    assert parse("large_segment_size_mb:40").max_non_split_rounding == 40 * MIB
    assert Conf(large_segment_size=32 * MIB).max_non_split_rounding == 32 * MIB


def settings(**changes: Any) -> dict[str, Any]:
    """What a snapshot of torch 2.13 holds of a run with the defaults."""
    return {
        "PYTORCH_CUDA_ALLOC_CONF": "",
        "max_split_size": -1,
        "garbage_collection_threshold": 0.0,
        "expandable_segments": False,
        "pinned_num_register_threads": 1,
        "release_lock_on_cudamalloc": False,
        "pinned_use_cuda_host_register": False,
        "graph_capture_record_stream_reuse": False,
        "roundup_power2_divisions": {str(1 << i): 0 for i in range(16)},
        **changes,
    }


def test_settings_of_a_run_with_the_defaults() -> None:
    assert Conf.from_settings(settings()) == Conf()
    assert Conf.from_settings({}) == Conf()


def test_the_string_of_a_snapshot_adds_what_its_values_lack() -> None:
    text = "max_split_size_mb:128,max_non_split_rounding_mb:64,large_segment_size_mb:40,per_process_memory_fraction:0.5"
    divisions = {str(1 << i): 4 for i in range(16)}
    conf = Conf.from_settings(
        settings(PYTORCH_CUDA_ALLOC_CONF=text, max_split_size=128 * MIB, roundup_power2_divisions=divisions)
    )
    assert conf == dataclasses.replace(parse(text), roundup_power2_divisions=(4,) * 16)


def test_the_values_of_a_snapshot_win_over_its_string() -> None:
    # On a platform without expandable segments torch warns, and goes on without them.
    conf = Conf.from_settings(settings(PYTORCH_CUDA_ALLOC_CONF="expandable_segments:True,max_split_size_mb:64"))
    assert conf == Conf()


@pytest.mark.parametrize(
    ("text", "conf"),
    [
        ("expandable_segments_reserve:0.5,max_non_split_rounding_mb:64", Conf(max_non_split_rounding=64 * MIB)),
        ("by_class:[a:1,b:2],max_non_split_rounding_mb:64", Conf(max_non_split_rounding=64 * MIB)),
        ("max_non_split_rounding_mb:64,new", Conf(max_non_split_rounding=64 * MIB)),
        ("max_non_split_rounding_mb:64,new:[a", Conf(max_non_split_rounding=64 * MIB)),
        ("max_split_size_mb:1", Conf()),
    ],
)
def test_a_snapshot_of_another_version_has_options_of_its_own(text: str, conf: Conf) -> None:
    assert Conf.from_settings(settings(PYTORCH_CUDA_ALLOC_CONF=text)) == conf


def test_settings_that_no_torch_wrote_count_as_none() -> None:
    wrong: dict[str, Any] = {
        "PYTORCH_CUDA_ALLOC_CONF": 7,
        "max_split_size": "many",
        "garbage_collection_threshold": float("nan"),
        "expandable_segments": 1,
        "roundup_power2_divisions": {"1": -3, "2": "x", "4": 3, "8": 1 << 70},
    }
    assert Conf.from_settings(wrong) == Conf()
    assert Conf.from_settings({"roundup_power2_divisions": [4]}) == Conf()


def test_only_the_native_backend_is_simulated() -> None:
    parse("backend:native").require_native()
    with pytest.raises(OptionError, match="backend:cudaMallocAsync cannot be simulated: the driver's own allocator"):
        parse("backend:cudaMallocAsync").require_native()
