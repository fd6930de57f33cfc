"""The tape as plain data: what a function did, op by op, without torch. See program/model.py."""

from torchreel.program.model import Op, Program, Slot

__all__ = ["Op", "Program", "Slot"]
