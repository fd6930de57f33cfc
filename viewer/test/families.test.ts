import assert from "node:assert/strict";
import test from "node:test";
import { blend, boxLabel, family, label, labelOf, lastOf, withoutSpace } from "../src/families.ts";

test("a call's colour is that of its family", () => {
  const expected: [string, string, string][] = [
    ["aten::addmm", "op", "matmul"],
    ["aten::convolution", "op", "convolution"],
    ["aten::scaled_dot_product_attention", "op", "attention"],
    ["aten::native_layer_norm", "op", "normalisation"],
    ["aten::embedding", "op", "index"],
    ["aten::copy_", "op", "copy"],
    ["aten::gelu", "op", "elementwise"],
    ["c10d::allreduce_", "op", "communication"],
    ["Optimizer.step#AdamW.step", "range", "optimizer"],
    ["enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__", "range", "data"],
    ["nn.Module: Linear_0", "module", "module"],
    ["my range", "range", "range"],
    ["ampere_sgemm_128x64_tn", "kernel", "matmul"],
    ["ncclDevKernel_AllReduce_Sum_f32", "kernel", "communication"],
    ["Memcpy HtoD (Pinned -> Device)", "kernel", "copy"],
    ["autograd::engine::evaluate_function: AddmmBackward0", "op", "matmul"],
  ];
  for (const [name, kind, wanted] of expected) assert.equal(family(name, kind), wanted, name);
});

test("a label leaves out what torch writes around a name", () => {
  assert.equal(label("autograd::engine::evaluate_function: MulBackward0", "op"), "MulBackward0");
  assert.equal(label("nn.Module: Linear", "module"), "Linear");
  assert.equal(label("nn.Module: Linear", "range"), "nn.Module: Linear");
  assert.equal(labelOf("nn.Module: Linear"), "Linear");
  assert.equal(labelOf("aten::mm"), "aten::mm");
  assert.equal(label("nn.Module: Sequential", "module", "mlp"), "mlp: Sequential");
  assert.equal(label("nn.Module: Model", "module", "Model"), "Model");
});

test("a label in a box has the mark of backward", () => {
  assert.equal(boxLabel("autograd::engine::evaluate_function: MulBackward0", "op"), "MulBackward0 ↩");
  assert.equal(boxLabel("MulBackward0", "backward"), "MulBackward0");
});

test("a module is told by the end of its path", () => {
  assert.deepEqual(["Model", "Model.mlp", "Model.layers.0", ""].map(lastOf), ["Model", "mlp", "layers.0", ""]);
});

test("a name that is too long loses its namespace first", () => {
  assert.deepEqual(["aten::mm", "c10d::allreduce_", "Model", "void at::native::k<float>()"].map(withoutSpace), ["mm", "allreduce_", "Model", "void at::native::k<float>()"]);
});

test("a blend of no part is the ground", () => {
  assert.equal(blend("#ffffff", "#000000", 0), "#000000");
  assert.equal(blend("#ffffff", "#000000", 1), "#ffffff");
  assert.equal(blend("#ff0000", "#000000", 0.5), "#800000");
});
