from __future__ import annotations

import builtins
import keyword

from tests.program.small import small_program
from torchreel.program.model import Op, Ref, Slot
from torchreel.program.text.naming import Names, identifier, slot_names


def test_names_are_identifiers_that_mean_nothing_else() -> None:
    names = Names(["torch"])
    wishes = ["model.layers.0.weight", "0", "", "class", "print", "torch", "match", "größe", "x\ny", "a" * 500, "_"]
    given = [names.unique(wish) for wish in wishes * 2]
    assert given[:3] == ["model_layers_0_weight", "_0", "value"]
    assert len(set(given)) == len(given)
    for name in given:
        assert name.isidentifier() and name.isascii() and len(name) < 70
        assert not keyword.iskeyword(name) and not hasattr(builtins, name) and name != "torch"


def test_many_tensors_of_one_op_are_numbered() -> None:
    names = Names()
    assert [names.unique("addmm") for _ in range(3)] == ["addmm", "addmm_1", "addmm_2"]
    assert identifier("model.encoder.layers.3.linear1.weight") == "model_encoder_layers_3_linear1_weight"


def test_slots_are_named_by_what_they_are_or_what_made_them() -> None:
    assert slot_names(small_program(), Names()) == {
        0: "x",
        1: "w",
        2: "select",
        3: "mm",
        4: "relu",
        5: "sum_1",
        6: "shape",
    }


def test_a_slot_that_two_ops_give_keeps_its_first_name() -> None:
    program = small_program()
    program.slots.append(Slot(9, "float32", (), ()))
    program.ops += [Op("aten::t", [], [Ref(7)]), Op("aten::detach", [], [[Ref(7)]])]
    assert slot_names(program, Names())[7] == "t"
