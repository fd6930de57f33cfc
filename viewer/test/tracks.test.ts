import assert from "node:assert/strict";
import test from "node:test";
import type { About } from "../src/api.ts";
import { tracks } from "../src/timeline/tracks.ts";

const thread = (id: number, name: string) => ({ process: 0, id, os_id: 100 + id, name, stream: id < 0 });

test("threads of one name are told apart by their numbers", () => {
  const about = { lanes: [[0, 0, 0, false], [0, 1, 0, false], [0, 2, 0, false]], threads: [thread(0, "python"), thread(1, "python"), thread(2, "pt_autograd_0")], processes: [{ process: 0, pid: 7, rank: null }] } as unknown as About;
  assert.deepEqual(tracks(about, new Set()).map((each) => each.title), ["python 100", "python 101", "pt_autograd_0"]);
});
