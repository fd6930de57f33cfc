from __future__ import annotations

from typing import Any

from torchreel.simulator.conf import Conf, parse
from torchreel.simulator.sweep.advice import advise, mib
from torchreel.simulator.sweep.trials import Trial, Trials, ranked

MIB = 1 << 20


def trial(text: str, reserved: int, current: bool = False, allocated: int = 800, **others: Any) -> Trial:
    values = {"retries": 0, "ooms": 0, "device_calls": 50, **others}
    return Trial(parse(text), current, reserved * MIB, allocated * MIB, allocated * MIB, **values)


def trials(*all_trials: Trial, capacity: int | None = None, needed: int = 800, smallest: Any = None) -> Trials:
    return Trials(ranked(all_trials), capacity and capacity * MIB, needed * MIB, smallest)


def test_a_setting_that_saves_is_given_as_a_line() -> None:
    advice = advise(trials(trial("", 1000, current=True), trial("expandable_segments:True", 900)))
    assert advice.line == "PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True"
    assert advice.gain == 100 * MIB
    assert advice.sentences[0] == (
        "With expandable_segments:True the run would reserve 900 MiB at its peak instead of 1,000 MiB: "
        "100 MiB less (10.0%)."
    )
    assert "shared between processes (CUDA IPC) only from torch 2.5 on" in advice.sentences[1]


def test_the_simplest_of_the_good_settings_is_advised() -> None:
    both = trial("expandable_segments:True,roundup_power2_divisions:8", 895)
    advice = advise(trials(trial("", 1000, current=True), trial("expandable_segments:True", 900), both))
    assert advice.conf == "expandable_segments:True"


def test_a_small_gain_is_no_help() -> None:
    for reserved, best in ((1000, 981), (10_000, 9_901)):  # less than 20 MiB; less than 1 %
        advice = advise(trials(trial("", reserved, current=True), trial("max_split_size_mb:64", best)))
        assert advice.conf is None
        assert advice.line is None
        assert advice.sentences[0].startswith("No other setting helps: PyTorch's default is as good as any")


def test_where_tensors_fill_the_device_no_setting_can_help() -> None:
    advice = advise(trials(trial("", 1000, current=True, allocated=990), trial("max_split_size_mb:64", 1000)))
    assert advice.sentences == (
        "No other setting helps: 990 MiB of the 1,000 MiB that are reserved at the peak are tensors, and no setting "
        "of the allocator makes those smaller.",
    )


def test_pytorch_173049_what_is_on_already_is_not_advised() -> None:
    advice = advise(trials(trial("expandable_segments:True", 900, current=True), trial("", 1000)))
    assert advice.conf is None
    assert advice.sentences[0].startswith("No other setting helps: expandable_segments:True is as good as any")


def test_the_default_can_be_the_best() -> None:
    advice = advise(trials(trial("max_split_size_mb:20", 1000, current=True), trial("", 900)))
    assert advice.conf == ""
    assert advice.line == "unset PYTORCH_CUDA_ALLOC_CONF"
    assert advice.sentences[0].startswith("With PyTorch's default the run would reserve 900 MiB")


def test_a_setting_that_fits_is_advised_where_the_current_one_does_not() -> None:
    smallest = (parse("expandable_segments:True"), 850 * MIB)
    current = trial("", 940, current=True, ooms=3)
    advice = advise(trials(current, trial("expandable_segments:True", 930, retries=2), capacity=950, smallest=smallest))
    assert advice.line == "PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True"
    assert advice.sentences[0] == (
        "The run does not fit in 950 MiB with PyTorch's default. With expandable_segments:True it does, after giving "
        "back its cache 2 times: it reserves 930 MiB at most."
    )
    assert advice.sentences[-1] == (
        "The smallest device on which it fits has 850 MiB for the allocator, with expandable_segments:True."
    )


def test_where_tensors_alone_are_too_large_that_is_said() -> None:
    failing = [trial("", 740, current=True, ooms=9), trial("expandable_segments:True", 744, ooms=8)]
    advice = advise(trials(*failing, capacity=750, needed=800))
    assert advice.conf is None
    assert advice.sentences[0].startswith("No setting makes the run fit in 750 MiB: its tensors alone need 800 MiB")
    assert "to save 50 MiB" in advice.sentences[0]


def test_where_tensors_would_fit_but_no_setting_packs_them_that_is_said() -> None:
    advice = advise(trials(trial("", 940, current=True, ooms=1), capacity=950, needed=800))
    assert "though its tensors need only 800 MiB at their peak" in advice.sentences[0]


def test_a_run_that_fits_is_said_to() -> None:
    advice = advise(trials(trial("", 840, current=True), capacity=950))
    assert advice.sentences[0] == "The run fits in 950 MiB with PyTorch's default."


def test_costs_are_said() -> None:
    best = trial("max_split_size_mb:64,roundup_power2_divisions:4", 900, allocated=830, retries=1, device_calls=200)
    advice = advise(trials(trial("", 1000, current=True), best))
    assert advice.sentences[1:] == (
        "max_split_size_mb keeps large blocks whole: more calls of cudaMalloc where sizes vary.",
        "roundup_power2_divisions makes blocks larger: 30 MiB more at their peak.",
        "The cache is given back once: each time the device is waited for.",
        "It calls the driver 200 times instead of 50, which takes time.",
    )


def test_trials_are_ranked_by_what_fits_then_by_what_is_reserved_then_by_retries() -> None:
    order = [
        trial("", 900),
        trial("max_split_size_mb:20", 900, retries=1),
        trial("max_split_size_mb:30", 950),
        trial("max_split_size_mb:40", 800, ooms=1),
    ]
    assert ranked(order[::-1]) == tuple(order)


def test_the_table_has_a_row_per_setting() -> None:
    table = trials(trial("", 1000, current=True), trial("expandable_segments:True", 900)).table()
    assert table.to_pylist() == [
        {
            "conf": "expandable_segments:True",
            "current": False,
            "fits": True,
            "peak_reserved": 900 * MIB,
            "gain": 100 * MIB,
            "peak_allocated": 800 * MIB,
            "fragmentation": 1 - 800 / 900,
            "retries": 0,
            "ooms": 0,
            "device_calls": 50,
        },
        {
            "conf": "",
            "current": True,
            "fits": True,
            "peak_reserved": 1000 * MIB,
            "gain": 0,
            "peak_allocated": 800 * MIB,
            "fragmentation": 0.19999999999999996,
            "retries": 0,
            "ooms": 0,
            "device_calls": 50,
        },
    ]


def test_a_run_without_memory_has_no_fragmentation() -> None:
    assert Trial(Conf(), True, 0, 0, 0, 0, 0, 0).fragmentation == 0.0


def test_mebibytes() -> None:
    assert [mib(size) for size in (0, 512, MIB, 3 * MIB // 2, 1150 * MIB + 5)] == [
        "0 MiB",
        "0.0 MiB",
        "1 MiB",
        "1.5 MiB",
        "1,150 MiB",
    ]
