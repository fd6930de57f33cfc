from __future__ import annotations

from torchreel.simulator.conf import Conf, parse
from torchreel.simulator.sweep.candidates import Requests, neutral, pairs, singles, split_sizes

MIB = 1 << 20


def texts(confs: list[Conf]) -> list[str]:
    return [str(conf) for conf in confs]


def requests(*sizes_mb: int, fraction: bool = False, version: tuple[int, int] = (2, 13)) -> Requests:
    return Requests(tuple(size * MIB for size in sizes_mb), fraction, version)


def test_the_current_setting_and_the_default_are_always_tried() -> None:
    current = parse("max_split_size_mb:77")
    assert texts(singles(current, requests(1)))[:3] == ["max_split_size_mb:77", "", "expandable_segments:True"]
    assert texts(singles(Conf(), requests(1)))[:2] == ["", "expandable_segments:True"]


def test_a_candidate_keeps_the_options_that_do_not_decide_sizes() -> None:
    kept = "per_process_memory_fraction:0.5,pinned_num_register_threads:8"
    for conf in singles(parse(f"max_split_size_mb:64,{kept}"), requests(100, 200)):
        assert str(conf).endswith(kept)
    assert str(neutral(parse(f"expandable_segments:True,{kept}"))) == kept


def test_split_sizes_lie_among_the_large_requests() -> None:
    assert split_sizes([]) == []
    assert split_sizes([19 * MIB, 512]) == []
    assert split_sizes([20 * MIB]) == [20 * MIB]
    assert split_sizes([100 * MIB, 300 * MIB]) == [size * MIB for size in (20, 32, 64, 101, 128, 256)]
    many = split_sizes([size * MIB for size in range(20, 20_000, 7)])
    assert len(many) <= 8
    assert many[0] == 20 * MIB
    assert many[-1] <= 20_000 * MIB


def test_every_candidate_is_one_that_pytorch_takes() -> None:
    run = requests(3, 25, 100, 700, 3000, fraction=True)
    first = singles(Conf(), run)
    for conf in [*first, *pairs(Conf(), first, run)]:
        assert parse(str(conf)) == conf


def test_garbage_is_collected_only_under_a_fraction() -> None:
    assert "garbage_collection_threshold:0.8" in texts(singles(Conf(), requests(1, fraction=True)))
    assert not any("garbage" in text for text in texts(singles(Conf(), requests(1))))


def test_an_option_is_tried_only_where_torch_has_it() -> None:
    assert "large_segment_size_mb:12" in texts(singles(Conf(), requests(1)))
    assert not any("large_segment" in text for text in texts(singles(Conf(), requests(1, version=(2, 12)))))


def test_pairs_join_the_best_of_each_option() -> None:
    best = [parse("expandable_segments:True"), parse("max_split_size_mb:64"), parse("roundup_power2_divisions:4")]
    assert texts(pairs(Conf(), best, requests(100))) == [
        "expandable_segments:True,roundup_power2_divisions:4",
        "max_split_size_mb:64,roundup_power2_divisions:4",
        "max_split_size_mb:64,max_non_split_rounding_mb:64",
        "max_split_size_mb:64,max_non_split_rounding_mb:256",
        "max_split_size_mb:64,max_non_split_rounding_mb:1024",
    ]
