import assert from "node:assert/strict";
import test from "node:test";
import { readMarks, writeMarks } from "../src/timeline/marks.ts";
import { read } from "../src/timeline/tiles.ts";

/** A tile as torchreel/web/tiles.py writes it: two lanes, of two calls and of one; two points of memory. */
function bytes(): ArrayBuffer {
  const arrays: ArrayBufferView[] = [
    new Uint32Array([1, 2, 3, 2]), new Float64Array([7, 8, 2 ** 40]), new Uint32Array([0, 5]), new Uint32Array([2, 1]),
    new Float32Array([0, 4, 1]), new Float32Array([3, 2, 0.5]), new Uint32Array([1, 1, 90]),
    new Float32Array([10, 20]), new Float32Array([30, 40]), new Uint16Array([1, 2, 3]), new Uint8Array([255, 255, 16]),
  ];
  const whole = new Uint8Array(arrays.reduce((sum, array) => sum + array.byteLength, 0));
  let at = 0;
  for (const array of arrays) {
    whole.set(new Uint8Array(array.buffer), at);
    at += array.byteLength;
  }
  return whole.buffer;
}

test("a tile is read as it was written", () => {
  const tile = read(bytes(), 1024, 3, 2);
  assert.deepEqual([tile.begin, tile.step], [2 * 1024 * 8, 8]);
  assert.deepEqual([...tile.spans.values()], [{ lane: 0, from: 0, to: 2 }, { lane: 5, from: 2, to: 3 }]);
  assert.deepEqual([...tile.id], [7, 8, 2 ** 40]);
  assert.deepEqual([...tile.calls], [1, 1, 90]);
  assert.deepEqual([...tile.high], [30, 40]);
  assert.deepEqual([...tile.label], [1, 2, 3]);
  assert.deepEqual([...tile.cover], [255, 255, 16]);
});

test("marks survive the address, whatever their names", () => {
  const marks = [{ begin: 0, end: 5, name: "a, b: 100 % <i>" }, { begin: 7, end: 9, name: "ü" }];
  const words = new URLSearchParams({ marks: writeMarks(marks) });
  assert.deepEqual(readMarks(new URLSearchParams(words.toString()).get("marks")!), marks);
});

test("nonsense is no mark", () => {
  assert.deepEqual(readMarks("x,1-2,-3-4:a,1-2:%E0%A4%A"), [{ begin: 1, end: 2, name: "%E0%A4%A" }]);
  assert.deepEqual(readMarks(undefined), []);
});
