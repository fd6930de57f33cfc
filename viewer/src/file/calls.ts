/** Calls of an exported page: what the server would tell of one, of an area, and of a search; see web/questions/calls.py. */
import type { About, Found, Like, Op } from "../api.ts";
import * as units from "../units.ts";
import { blob, json } from "./blobs.ts";
import { Curve, Lane } from "./lanes.ts";
import { type Columns, columns, nullable, type Numbers, signed } from "./planes.ts";

export type Cut = { calls: number; all: number; steps: [number: number, begin: number, end: number][]; threshold_ns: number };
export type Layout = {
  calls: { lengths: number[]; timeline: { blob: number; columns: Columns }; details: { blob: number; columns: Columns }; texts: number };
  curve: { blob: number; columns: Columns; events: number; step_ns: number } | null;
  totals: [calls: number, self_ns: number][]; cut: Cut | null; view: string; sql: string;
};
export type Area = { name: string; kind: string; calls: number; self_ns: number; min_ns: number; mean_ns: number; max_ns: number; flops: number | null; alloc_bytes: number | null };
type Texts = { module: [string, string][]; inputs: [string, string][]; stack: number[][]; frames: [string, number, string][] };
type Place = { lane: number; at: number; row: number };
const MOST_LABELS = 65_536;

/** The lanes, drawn at once. */
export class Lanes {
  private constructor(readonly lanes: Lane[], readonly curve: Curve | null, readonly firsts: number[]) {}

  static async read(layout: Layout): Promise<Lanes> {
    const { lengths, timeline } = layout.calls;
    const length = lengths.reduce((sum, each) => sum + each, 0);
    const found = columns(await blob(timeline.blob), timeline.columns, length);
    const [starts, durations, ids] = ["gap", "dur", "id"].map((name) => new Float64Array(found.get(name)!));
    const labels = new Uint16Array(found.get("label")!);
    const firsts: number[] = [];
    let from = 0;
    const lanes = lengths.map((many) => {
      firsts.push(from);
      for (let i = from, end = 0, id = 0; i < from + many; i++) {
        starts[i] = end += signed(starts[i]);
        end += durations[i];
        ids[i] = id += signed(ids[i]);
      }
      const part = [from, (from += many)] as const;
      return new Lane(starts.subarray(...part), durations.subarray(...part), ids.subarray(...part), labels.subarray(...part));
    });
    return new Lanes(lanes, layout.curve && (await readCurve(layout.curve)), firsts);
  }
}

async function readCurve(layout: NonNullable<Layout["curve"]>): Promise<Curve> {
  const found = columns(await blob(layout.blob), layout.columns, layout.events);
  const summed = (name: string) => {
    const values = new Float64Array(found.get(name)!);
    let sum = 0;
    values.forEach((value, at) => (values[at] = sum += signed(value)));
    return values;
  };
  return new Curve(summed("time"), summed("total"));
}

/** Rounded, halves to the even number, as DuckDB does. */
const even = (value: number): number => (value % 1 === 0.5 ? 2 * Math.round(value / 2) : Math.round(value));

/** Rows by id: an array where ids have few holes, as they have. */
class Rows {
  private readonly dense: Int32Array | null;
  private readonly sparse = new Map<number, number>();

  constructor(most: number, calls: number) {
    this.dense = most < 8 * calls + 1024 ? new Int32Array(most + 1).fill(-1) : null;
  }
  set(id: number, row: number): void {
    if (this.dense && id >= 0) this.dense[id] = row;
    else this.sparse.set(id, row);
  }
  get(id: number): number | undefined {
    if (!this.dense || id < 0) return this.sparse.get(id);
    const row = this.dense[id];
    return row === undefined || row < 0 ? undefined : row;
  }
}

/** What is known of single calls; read when one is first asked for. */
export class Calls {
  /** For each process, the rows of its calls by id. */
  private readonly rows = new Map<number, Rows>();

  private constructor(private readonly about: About, private readonly layout: Layout, private readonly drawn: Lanes,
    private readonly columns: Map<string, Numbers>, private readonly texts: Texts, private readonly self: Float64Array) {}

  static async read(about: About, layout: Layout, drawn: Lanes): Promise<Calls> {
    const { details, texts } = layout.calls;
    const length = layout.calls.lengths.reduce((sum, each) => sum + each, 0);
    const found = columns(await blob(details.blob), details.columns, length);
    const calls = new Calls(about, layout, drawn, found, await json<Texts>(texts), new Float64Array(found.get("self")!));
    found.delete("self");
    calls.index();
    return calls;
  }

  private index(): void {
    const { lanes, firsts } = this.drawn;
    const most = new Map<number, number>();
    lanes.forEach((lane, number) => {
      const [process] = this.about.lanes[number];
      most.set(process, lane.ids.reduce((a, b) => Math.max(a, b), most.get(process) ?? 0));
    });
    for (const [process, id] of most) this.rows.set(process, new Rows(id, this.self.length));
    lanes.forEach((lane, number) => {
      const rows = this.rows.get(this.about.lanes[number][0])!;
      for (let at = 0; at < lane.length; at++) rows.set(lane.ids[at], firsts[number] + at);
    });
    this.findSelf();
  }

  /** Self time is the duration less those of the calls within; what is written is what that does not tell. */
  private findSelf(): void {
    const { lanes, firsts } = this.drawn;
    const inner = new Float64Array(this.self.length);
    const parents = this.columns.get("parent")!;
    lanes.forEach((lane, number) => {
      const [process, , , isAsync] = this.about.lanes[number];
      const rows = this.rows.get(process)!;
      if (!isAsync) for (let at = 0, row = firsts[number]; at < lane.length; at++, row++) {
        if (!parents[row]) continue;
        const around = rows.get(lane.ids[at] - signed(parents[row] - 1));
        if (around !== undefined) inner[around] += lane.durations[at];
      }
    });
    lanes.forEach((lane, number) => {
      const isAsync = this.about.lanes[number][3];
      for (let at = 0, row = firsts[number]; at < lane.length; at++, row++) this.self[row] = (isAsync ? 0 : lane.durations[at] - inner[row]) + signed(this.self[row]);
    });
  }

  private place(process: number, id: number): Place | null {
    const row = this.rows.get(process)?.get(id);
    if (row === undefined) return null;
    let lane = 0;
    while (row >= this.drawn.firsts[lane] + this.drawn.lanes[lane].length) lane++;
    return { lane, at: row - this.drawn.firsts[lane], row };
  }

  private number(name: string, place: Place): number | null {
    return nullable(this.columns.get(name)![place.row]);
  }

  /** The id of another call, which is written as a distance. */
  private link(name: string, place: Place, id: number): number | null {
    const distance = this.number(name, place);
    return distance === null ? null : id - distance;
  }

  private text<T>(name: "module" | "inputs" | "stack", place: Place): T | null {
    const number = this.columns.get(name)![place.row];
    return number ? (this.texts[name][number - 1] as T) : null;
  }

  private named(label: number): [name: string, kind: string] {
    const { labels } = this.about;
    const [name, kind] = labels[label];
    return label === MOST_LABELS - 1 && labels.length > MOST_LABELS ? [`(one of ${units.count(labels.length - MOST_LABELS + 1)} names)`, kind] : [name, kind];
  }

  private brief(place: Place): { id: number; name: string; kind: string; dur_ns: number; self_ns: number } {
    const lane = this.drawn.lanes[place.lane];
    const [name, kind] = this.named(lane.labels[place.at]);
    return { id: lane.ids[place.at], name, kind, dur_ns: lane.durations[place.at], self_ns: this.self[place.row] };
  }

  /** What is said of a time of which not all calls are here; nothing, if all are. */
  private missing(begin: number, end: number): string | undefined {
    const { cut } = this.layout;
    if (!cut || cut.steps.some(([, from, to]) => begin >= from && end <= to)) return undefined;
    return `Not all calls of this time are in this file. All of them: ${this.layout.view}`;
  }

  op(process: number, id: number): Op {
    const place = this.place(process, id);
    if (!place) throw new Error(this.layout.cut ? `Call ${id} of process ${process} is not in this file. In the reel: ${this.layout.view}` : `There is no call ${id} in process ${process}.`);
    const lane = this.drawn.lanes[place.lane];
    const [, thread, depth] = this.about.lanes[place.lane];
    const [module, inputs] = [this.text<[string, string]>("module", place), this.text<[string, string]>("inputs", place)];
    const [parent, fwd] = [this.link("parent", place, id), this.link("fwd", place, id)];
    const nameOf = (other: number | null) => { const found = other === null ? null : this.place(process, other); return found ? this.brief(found).name : null; };
    const begin = lane.starts[place.at];
    const own = this.brief(place);
    return {
      process, ...own, begin, depth, thread, step: this.number("step", place),
      thread_name: this.about.threads.find((each) => each.process === process && each.id === thread)?.name ?? null,
      module_path: module?.[0] ?? null, module_class: module?.[1] ?? null, dims: inputs?.[0] ?? null, dtypes: inputs?.[1] ?? null,
      flops: this.number("flops", place), alloc_bytes: this.number("alloc_bytes", place),
      parent, parent_name: nameOf(parent), fwd, fwd_name: nameOf(fwd),
      backward: this.linked("fwd", process, id).sort((a, b) => a.id - b.id).slice(0, 10),
      children: this.linked("parent", process, id).sort((a, b) => b.dur_ns - a.dur_ns || a.id - b.id).slice(0, 20),
      kernels: [], flows: [], counters: [], note: this.missing(begin, begin + own.dur_ns),
      frames: (this.text<number[]>("stack", place) ?? []).map((number) => { const [file, line, name] = this.texts.frames[number]; return { file, line, function: name }; }),
    };
  }

  /** The next call of a lane after one that begins at a time, or the one before it. */
  neighbour(number: number, begin: number, by: number): { process: number; id: number; kernel: boolean } | null {
    const lane = this.drawn.lanes[number];
    const at = lane ? lane.before(begin + 1) - 1 + by : -1;
    return lane && at >= 0 && at < lane.length ? { process: this.about.lanes[number][0], id: lane.ids[at], kernel: false } : null;
  }

  private linked(name: "parent" | "fwd", process: number, id: number): ReturnType<Calls["brief"]>[] {
    const found: ReturnType<Calls["brief"]>[] = [];
    const column = this.columns.get(name)!;
    this.drawn.lanes.forEach((lane, number) => {
      if (this.about.lanes[number][0] === process) for (let at = 0, row = this.drawn.firsts[number]; at < lane.length; at++, row++) {
        if (column[row] && lane.ids[at] - signed(column[row] - 1) === id) found.push(this.brief({ lane: number, at, row }));
      }
    });
    return found;
  }

  /** Calls of the same name and inputs in the process; `part` if there may be more in the reel. */
  like(process: number, id: number): Like {
    const wanted = this.place(process, id);
    if (!wanted) throw new Error(`There is no call ${id} in process ${process}.`);
    const { name } = this.brief(wanted);
    const durations: number[] = [];
    const inputs = this.columns.get("inputs")!;
    const same = this.about.labels.map((_, label) => this.named(label)[0] === name);
    this.drawn.lanes.forEach((lane, number) => {
      if (this.about.lanes[number][0] === process) for (let at = 0, row = this.drawn.firsts[number]; at < lane.length; at++, row++) {
        if (same[lane.labels[at]] && inputs[row] === inputs[wanted.row]) durations.push(lane.durations[at]);
      }
    });
    const sorted = Float64Array.from(durations).sort();
    const middle = (sorted.length - 1) / 2;
    return { calls: sorted.length, median_ns: even((sorted[Math.floor(middle)] + sorted[Math.ceil(middle)]) / 2), part: this.layout.cut !== null };
  }

  area(begin: number, end: number): { rows: Area[]; note?: string } {
    const groups = new Map<string, Area>();
    // Calls of one class of modules have a label for each module.
    const named = this.about.labels.map((_, label) => JSON.stringify(this.named(label)));
    const [flops, bytes] = [this.columns.get("flops")!, this.columns.get("self_alloc_bytes")!];
    this.drawn.lanes.forEach((lane, number) => {
      for (let at = lane.before(begin), last = lane.before(end); at < last; at++) {
        const row = this.drawn.firsts[number] + at;
        const label = lane.labels[at];
        const took = lane.durations[at];
        let group = groups.get(named[label]);
        if (!group) {
          const [name, kind] = this.named(label);
          groups.set(named[label], (group = { name, kind, calls: 0, self_ns: 0, min_ns: took, mean_ns: 0, max_ns: took, flops: null, alloc_bytes: null }));
        }
        group.calls++;
        group.self_ns += this.self[row];
        group.mean_ns += took;
        group.min_ns = Math.min(group.min_ns, took);
        group.max_ns = Math.max(group.max_ns, took);
        if (flops[row]) group.flops = (group.flops ?? 0) + nullable(flops[row])!;
        if (bytes[row]) group.alloc_bytes = (group.alloc_bytes ?? 0) + Math.max(nullable(bytes[row])!, 0);
      }
    });
    const rows = [...groups.values()].map((group) => ({ ...group, mean_ns: Math.round(group.mean_ns / group.calls) }));
    rows.sort((a, b) => b.self_ns - a.self_ns || (a.name < b.name ? -1 : 1));
    return { rows: rows.slice(0, 100), note: this.missing(begin, end) };
  }
}

/** How many calls have a text in their name, of all of the run; and the first of those that are here. */
export function search(about: About, layout: Layout, drawn: Lanes, text: string): Found {
  const wanted = text.toLowerCase();
  const hit = about.labels.map(([name]) => name.toLowerCase().includes(wanted));
  const rows: Found["rows"] = [];
  drawn.lanes.forEach((lane, number) => {
    for (let at = 0, many = 0; at < lane.length && many < 2000; at++) {
      if (!hit[lane.labels[at]]) continue;
      many++;
      rows.push({ process: about.lanes[number][0], id: lane.ids[at], name: about.labels[lane.labels[at]][0], begin: lane.starts[at], dur_ns: lane.durations[at] });
    }
  });
  rows.sort((a, b) => a.begin - b.begin || a.id - b.id);
  const sum = (column: 0 | 1) => layout.totals.reduce((all, each, label) => all + (hit[label] ? each[column] : 0), 0);
  return { calls: sum(0), self_ns: sum(1), rows: rows.slice(0, 2000) };
}
