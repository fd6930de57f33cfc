import assert from "node:assert/strict";
import test from "node:test";
import { colored } from "../src/python.ts";

const texts = (source: string): string[] => colored(source).map((line) => line.map(([, part]) => part).join(""));
const kinds = (source: string): string[] => colored(source).flat().filter(([kind]) => kind).map(([kind, part]) => `${kind} ${part}`);

test("nothing of the text is lost, and lines end as Python ends them", () => {
  assert.deepEqual(texts("a\r\n b\r\rc\n"), ["a", " b", "", "c"]);
  assert.deepEqual(texts(""), [""]);
  assert.deepEqual(texts('x = """a\n\n  b"""\ny'), ['x = """a', "", '  b"""', "y"]);
  for (const odd of ['"', "'''", '"\\', "#", 'f"{', "\\", "1e", "def", "\u202e<b>\0"]) assert.equal(texts(odd).join("\n"), odd);
});

test("parts have their kinds", () => {
  assert.deepEqual(kinds('async def run(x):  # "no string"\n    return f"{x}" + rb\'\\\'\' + 1.5e3'), [
    "keyword async", "keyword def", "defined run", 'comment # "no string"', "keyword return", 'string f"{x}"', "string rb'\\''", "number 1.5e3",
  ]);
  assert.deepEqual(kinds("x2 = define.class_\nclass Net: pass"), ["keyword class", "defined Net", "keyword pass"]);
  assert.deepEqual(kinds('s = "not closed\nif x'), ['string "not closed', "keyword if"]);
  assert.deepEqual(kinds("'''a\nb # c"), ["string '''a", "string b # c"]);
});

test("a text of any kind is done in one pass", () => {
  const size = 1 << 19;
  for (const part of [" ", '"', "'''", "def ", "\\", 'r"', "a", "#", "\n"]) {
    const source = part.repeat(Math.floor(size / part.length));
    assert.equal(texts(source).join("\n").length, source.endsWith("\n") ? source.length - 1 : source.length);
  }
  assert.deepEqual(colored(`x = 1${" ".repeat(size)}`), [[["", `x = 1${" ".repeat(size)}`]]]);
});
