import assert from "node:assert/strict";
import test from "node:test";
import * as units from "../src/units.ts";

test("times have three digits and the unit that suits them", () => {
  assert.deepEqual([0, 999, 1_000, 12_345, 999_600, 1_230_000_000].map(units.time), ["0 ns", "999 ns", "1.00 µs", "12.3 µs", "1.00 ms", "1.23 s"]);
  assert.equal(units.time(-2_000_000), "-2.00 ms");
  assert.equal(units.time(7_496_862_629_145), "7,497 s");
});

test("bytes count in powers of two", () => {
  assert.deepEqual([0, 1023, 1024, 1536, 2 ** 30].map(units.bytes), ["0 B", "1023 B", "1.00 KiB", "1.50 KiB", "1.00 GiB"]);
});

test("shares of nothing are nothing", () => {
  assert.equal(units.percent(3, 0), "0 %");
  assert.equal(units.percent(1, 8), "13 %");
  assert.equal(units.percent(1, 80), "1.3 %");
});

test("the tail of a path, of either system", () => {
  assert.equal(units.tail("/a/b/c.py"), "b/c.py");
  assert.equal(units.tail("C:\\a\\c.py", 1), "c.py");
});
