"""The option string of PYTORCH_CUDA_ALLOC_CONF, read as PyTorch 2.13 reads it.

Words, `:`, `,`, `[` and `]` are the tokens, and white space is dropped wherever it stands. PyTorch steps over
the colon and the comma without looking at them, and takes the number at the front of a value for the whole of it
(`128abc` is 128): what it accepts is accepted here, with the same meaning.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable
from typing import Any

from torchreel.errors import OptionError

MIB = 1 << 20
LARGE_SEGMENT_SIZE = 20 * MIB
INTERVALS = 16  # sizes of 1 MiB to 32 GiB, doubling: each has its own number of divisions
BACKENDS = ("native", "cudaMallocAsync", "hipMallocAsync")

_LEAST_LARGE_MB = 10  # a request of this size has a segment of its own
_MOST_THREADS = 128
_MOST_BYTES = 1 << 62  # more than any address space: sizes are cut here so that sums of them fit 64 bits

_TOKEN = re.compile(r"[:,\[\]]|[^:,\[\]]+")
_SPACE = re.compile(r"[ \t\n\v\f\r]+")
_WHOLE = re.compile(r"[+-]?[0-9]+")
_DECIMAL = re.compile(r"[+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?")
_HEXADECIMAL = re.compile(r"[+-]?0[xX](?:[0-9a-fA-F]+\.?[0-9a-fA-F]*|\.[0-9a-fA-F]+)(?:[pP][+-]?[0-9]+)?")


def read(text: str, skip_unknown: bool = False) -> dict[str, Any]:
    """The fields of a Conf that the text sets. `skip_unknown` passes over options that torch 2.13 does not have."""
    return _Reader(text).read(skip_unknown)


class _Reader:
    """The tokens of one text, the position in them, and what was read so far."""

    def __init__(self, text: str) -> None:
        self.tokens: list[str] = _TOKEN.findall(_SPACE.sub("", text))
        self.position = 0
        self.option = ""
        self.fields: dict[str, Any] = {}
        self.pinned: dict[str, str] = {}
        self.divisions = [0] * INTERVALS
        self.large_segment_mb = LARGE_SEGMENT_SIZE // MIB

    def read(self, skip_unknown: bool) -> dict[str, Any]:
        # The least value of two options is the large segment's size, wherever in the text that stands.
        while self.position < len(self.tokens):
            if self.tokens[self.position] == "large_segment_size_mb":
                self._step_to_value()
                self._large_segment_size()
            self.position += 1
        self.position = 0
        while self.position < len(self.tokens):
            self._read_one(skip_unknown)
            self.position += 2  # over the value's last token, and the comma
        if any(self.divisions):
            self.fields["roundup_power2_divisions"] = tuple(self.divisions)
        if self.pinned:
            self.fields["pinned"] = tuple(self.pinned.items())
        return self.fields

    def _read_one(self, skip_unknown: bool) -> None:
        option = self.tokens[self.position]
        if option in OPTIONS:
            self._step_to_value()
            OPTIONS[option](self)
        elif skip_unknown and self.position + 2 < len(self.tokens):
            self.position += 2
            if self.tokens[self.position] == "[":
                while self.position + 1 < len(self.tokens) and self.tokens[self.position] != "]":
                    self.position += 1
        elif not skip_unknown:
            raise OptionError(_unknown(option))

    def _step_to_value(self) -> None:
        self.option = self.tokens[self.position]
        self.position += 2
        self._token(self.position)

    def _token(self, position: int) -> str:
        if position >= len(self.tokens):
            raise OptionError(f"The allocator option {self.option} ends too early: write {_EXAMPLES[self.option]}.")
        return self.tokens[position]

    def _refuse(self, value: str, allowed: str) -> OptionError:
        return OptionError(f"The allocator option {self.option} is {value!r}: {allowed}.")

    def _whole(self, position: int, allowed: str) -> int:
        token = self._token(position)
        match = _WHOLE.match(token)
        if match is None or len(match.group()) > 40 or abs(number := int(match.group())) >= 1 << 64:
            raise self._refuse(token, allowed)
        return number % (1 << 64)  # as C++ reads -1: the greatest of all

    def _real(self, allowed: str) -> float:
        token = self._token(self.position)
        if match := _HEXADECIMAL.match(token):
            try:
                return float.fromhex(match.group())
            except OverflowError:
                raise self._refuse(token, allowed) from None
        if match := _DECIMAL.match(token):
            return float(match.group())
        raise self._refuse(token, allowed)

    def _truth(self) -> bool:
        token = self._token(self.position)
        if token not in ("True", "False"):
            raise self._refuse(token, "it must be True or False, with a capital letter")
        return token == "True"

    def _megabytes(self, least: int, allowed: str) -> int:
        number = self._whole(self.position, allowed)
        if number < least:
            raise self._refuse(self.tokens[self.position], allowed)
        return min(number * MIB, _MOST_BYTES)

    def _large_segment_size(self) -> None:
        allowed = f"it must be a whole number of MiB greater than {_LEAST_LARGE_MB}"
        size = self._megabytes(_LEAST_LARGE_MB + 1, allowed)
        self.fields["large_segment_size"] = size
        self.large_segment_mb = size // MIB

    def _skip(self) -> None:
        """Over a value that was read before."""

    def _at_least_a_large_segment(self, field: str) -> None:
        allowed = f"it must be a whole number of MiB, at least {self.large_segment_mb} (the size of a large segment)"
        self.fields[field] = self._megabytes(self.large_segment_mb, allowed)

    def _max_split_size(self) -> None:
        self._at_least_a_large_segment("max_split_size")

    def _max_non_split_rounding(self) -> None:
        self._at_least_a_large_segment("max_non_split_rounding")

    def _garbage_collection_threshold(self) -> None:
        allowed = "it must be a number greater than 0 and less than 1"
        number = self._real(allowed)
        if not 0 < number < 1:
            raise self._refuse(self.tokens[self.position], allowed)
        self.fields["garbage_collection_threshold"] = number

    def _fraction(self) -> None:
        allowed = "it must be a number from 0 to 1"
        number = self._real(allowed)
        if not 0 <= number <= 1:
            raise self._refuse(self.tokens[self.position], allowed)
        self.fields["per_process_memory_fraction"] = number

    def _roundup(self) -> None:
        if self._token(self.position) == "[":
            return self._roundup_list()
        allowed = "it must be a power of two, or a list such as [256:1,512:2,>:4]"
        number = self._whole(self.position, allowed)
        if not _power_of_two(number):
            raise self._refuse(self.tokens[self.position], allowed)
        self.divisions = [number] * INTERVALS
        return None

    def _roundup_list(self) -> None:
        """Pairs of a size in MiB and its divisions; the first also rules all sizes below it, `>` all above the last."""
        first, last = True, 0
        self.position += 1
        while self._token(self.position) != "]":
            bound = self.tokens[self.position]
            self.position += 2
            number = self._divisions()
            if bound == ">":
                self.divisions[last + 1 :] = [number] * (INTERVALS - last - 1)
            else:
                last = self._interval(bound)
                if first:
                    self.divisions[:last] = [number] * last
                self.divisions[last] = number
                first = False
            self.position += 1 if self._token(self.position + 1) == "]" else 2

    def _divisions(self) -> int:
        allowed = "the divisions in the list must be powers of two, or 0 for none"
        number = self._whole(self.position, allowed)
        if number and not _power_of_two(number):
            raise self._refuse(self.tokens[self.position], allowed)
        return number

    def _interval(self, bound: str) -> int:
        allowed = "the sizes in the list must be powers of two, in MiB, or > for the rest"
        number = self._whole(self.position - 2, allowed)
        if not _power_of_two(number):
            raise self._refuse(bound, allowed)
        return min(number.bit_length() - 1, INTERVALS - 1)

    def _backend(self) -> None:
        name = self._token(self.position)
        if name not in BACKENDS:
            raise self._refuse(name, f"it must be one of {', '.join(BACKENDS)}")
        self.fields["backend"] = name

    def _expandable_segments(self) -> None:
        self.fields["expandable_segments"] = self._truth()

    def _throw_on_oom(self) -> None:
        self.fields["throw_on_cudamalloc_oom"] = self._truth()

    def _release_lock(self) -> None:
        self.fields["release_lock_on_cudamalloc"] = self._truth()

    def _stream_reuse(self) -> None:
        self.fields["graph_capture_record_stream_reuse"] = self._truth()

    def _pinned_truth(self) -> None:
        self.pinned[self.option] = str(self._truth())

    def _pinned_size(self) -> None:
        self.pinned[self.option] = str(self._whole(self.position, "it must be a whole number of MiB"))

    def _pinned_segment(self) -> None:
        allowed = "it must be a whole number of MiB greater than 0"
        number = self._whole(self.position, allowed)
        if not number:
            raise self._refuse(self.tokens[self.position], allowed)
        self.pinned[self.option] = str(number)

    def _pinned_threads(self) -> None:
        allowed = f"it must be a power of two, at most {_MOST_THREADS}"
        number = self._whole(self.position, allowed)
        if not _power_of_two(number) or number > _MOST_THREADS:
            raise self._refuse(self.tokens[self.position], allowed)
        self.pinned[self.option] = str(number)


OPTIONS: dict[str, Callable[[_Reader], None]] = {
    "max_split_size_mb": _Reader._max_split_size,
    "max_non_split_rounding_mb": _Reader._max_non_split_rounding,
    "garbage_collection_threshold": _Reader._garbage_collection_threshold,
    "roundup_power2_divisions": _Reader._roundup,
    "expandable_segments": _Reader._expandable_segments,
    "large_segment_size_mb": _Reader._skip,
    "per_process_memory_fraction": _Reader._fraction,
    "throw_on_cudamalloc_oom": _Reader._throw_on_oom,
    "release_lock_on_cudamalloc": _Reader._release_lock,
    "release_lock_on_hipmalloc": _Reader._release_lock,
    "graph_capture_record_stream_reuse": _Reader._stream_reuse,
    "backend": _Reader._backend,
    "pinned_use_cuda_host_register": _Reader._pinned_truth,
    "pinned_use_hip_host_register": _Reader._pinned_truth,
    "pinned_use_background_threads": _Reader._pinned_truth,
    "pinned_free_catch_all": _Reader._pinned_truth,
    "pinned_num_register_threads": _Reader._pinned_threads,
    "pinned_reserve_segment_size_mb": _Reader._pinned_segment,
    "pinned_max_round_threshold_mb": _Reader._pinned_size,
    "pinned_max_cached_size_mb": _Reader._pinned_size,
}

_VALUES = {
    "garbage_collection_threshold": "0.8",
    "roundup_power2_divisions": "4 or [256:1,512:2,>:4]",
    "per_process_memory_fraction": "0.5",
    "backend": "native",
    "pinned_num_register_threads": "8",
}
_EXAMPLES = {
    option: f"{option}:{_VALUES.get(option, '128' if option.endswith('_mb') else 'True')}" for option in OPTIONS
}


def _power_of_two(number: int) -> bool:
    return number.bit_count() == 1


def _unknown(option: str) -> str:
    close = difflib.get_close_matches(option, OPTIONS, 1)
    advice = f"is {close[0]} meant?" if close else f"those of torch 2.13 are {', '.join(OPTIONS)}."
    return f"There is no allocator option {option!r}: {advice}"
