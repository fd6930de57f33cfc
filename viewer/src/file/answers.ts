/** The answers of an exported page: stored ones by their question, and those that are found in its calls. */
import type { About } from "../api.ts";
import * as units from "../units.ts";
import { json } from "./blobs.ts";
import { Calls, Lanes, type Layout, search } from "./calls.ts";
import { tile } from "./lanes.ts";

export type Query = Record<string, string | number>;
type Stored = { answer?: unknown; error?: string };
type Head = Layout & { version: number; kernels: boolean; answers: [path: string, query: Record<string, string>, blob: number][] };
type Averages = { rows: Record<string, string | number | null>[]; all: number };
const SORTS: Record<string, string> = { self: "self_ns", total: "total_ns", count: "calls", memory: "self_alloc_bytes", flops: "flops", average: "average_ns" };

/** A question in one way of writing it: an empty value is none, and how finely a curve is drawn makes no other question. */
function key(path: string, query: Query): string {
  return JSON.stringify([path, Object.entries(query).map(([name, value]) => [name, String(value)]).filter(([name, value]) => value !== "" && name !== "points").sort()]);
}

class FileAnswers {
  private readonly blobs: Map<string, number>;
  private readonly stored = new Map<string, Promise<Stored>>();
  private readonly lanes: () => Promise<Lanes>;
  private readonly calls: () => Promise<Calls>;

  constructor(private readonly head: Head) {
    this.blobs = new Map(head.answers.map(([path, query, number]) => [key(path, query), number]));
    this.lanes = once(() => Lanes.read(head));
    this.calls = once(async () => Calls.read(await this.about(), head, await this.lanes()));
  }

  /** What of the reel is in the file, in a sentence. */
  get said(): string {
    const { cut, kernels } = this.head;
    const left = kernels ? ` Kernels of devices are not: ${this.head.view}` : "";
    if (!cut) return `All ${units.count(this.head.calls.lengths.reduce((sum, each) => sum + each, 0))} calls are in this file.${left}`;
    const steps = cut.steps.map(([number]) => units.count(number));
    const whole = steps.length ? `all of step${steps.length > 1 ? "s" : ""} ${steps.join(", ").replace(/, ([^,]*)$/, " and $1")}, and elsewhere ` : "";
    return `${units.count(cut.calls)} of ${units.count(cut.all)} calls are in this file's timeline: ${whole}those of ${units.time(cut.threshold_ns)} and more. Tables count all. All calls: ${this.head.view}.${left}`;
  }
  get isCut(): boolean {
    return this.head.cut !== null;
  }

  async ask(path: string, query: Query): Promise<unknown> {
    const stored = await this.answer(path, query);
    if (stored) return stored;
    const op = /^op\/(\d+)\/(\d+)$/.exec(path);
    if (op) return (await this.calls()).op(Number(op[1]), Number(op[2]));
    const like = /^like\/(\d+)\/(\d+)$/.exec(path);
    if (like) return (await this.calls()).like(Number(like[1]), Number(like[2]));
    if (path === "neighbour") return (await this.calls()).neighbour(Number(query.lane), Number(query.begin), Number(query.by));
    if (path === "area") return (await this.calls()).area(Number(query.begin), Number(query.end));
    if (path === "search") return search(await this.about(), this.head, await this.lanes(), String(query.q));
    if (path === "source") return { file: query.file, text: null, why: "its text is not in this file: line numbers only" };
    if (path === "atlas") return { file: query.file, site: null, page: null, lines: 0, why: null };
    if (path === "averages") return this.sorted(query);
    if (path === "lines" && query.file) return this.linesOf(query);
    throw this.unanswered(path, query);
  }

  async bytes(path: string): Promise<ArrayBuffer> {
    const wanted = /^tile\/(\d+)\/(\d+)(?:\?(.*))?$/.exec(path);
    if (!wanted) throw this.unanswered(path, {});
    const { lanes, curve } = await this.lanes();
    const words = new URLSearchParams(wanted[3] ?? "");
    const [from, to] = [Number(words.get("from") ?? 0), Number(words.get("to") ?? lanes.length)];
    return tile(lanes, from, to, from === 0 ? curve : null, Number(wanted[1]), Number(wanted[2]), (await this.about()).tile);
  }

  /** The command that runs a statement over the reel. */
  command(statement: string): string {
    return `${this.head.sql} '${statement.replaceAll("'", "'\\''")}'`;
  }

  /** A stored answer; null if there is none to exactly this question. */
  private async answer(path: string, query: Query): Promise<unknown> {
    const name = key(path, query);
    const number = this.blobs.get(name);
    if (number === undefined) return null;
    if (!this.stored.has(name)) this.stored.set(name, json<Stored>(number));
    const found = await this.stored.get(name)!;
    if (found.error !== undefined) throw new Error(found.error);
    return found.answer;
  }
  private async about(): Promise<About> {
    return { ...((await this.answer("about", {})) as About), ...((await this.answer("lanes", {})) as object) };
  }

  /** A table in another order: the same question, if all of its rows are here. */
  private async sorted(query: Query): Promise<Averages> {
    const column = SORTS[String(query.sort)];
    const found = column ? ((await this.answer("averages", { ...query, sort: "self" })) as Averages | null) : null;
    if (!found) throw this.unanswered("averages", query);
    if (found.rows.length < found.all) throw new Error(`This file holds the first ${units.count(found.rows.length)} of ${units.count(found.all)} rows by self time, and cannot sort them by another column. In the reel: ${this.head.view}`);
    const names = String(query.by).split(",");
    const rows = [...found.rows].sort((a, b) => {
      const [left, right] = [a[column], b[column]];
      if (left !== right) return left === null ? 1 : right === null ? -1 : Number(right) - Number(left);
      for (const name of names) if (a[name] !== b[name]) return a[name] === null ? 1 : b[name] === null ? -1 : a[name]! < b[name]! ? -1 : 1;
      return 0;
    });
    return { ...found, rows };
  }

  private async linesOf({ file, ...query }: Query): Promise<unknown> {
    const found = (await this.answer("lines", query)) as { rows: { file: string }[] } | null;
    if (!found) throw this.unanswered("lines", query);
    return { ...found, rows: found.rows.filter((row) => row.file === file) };
  }

  private unanswered(path: string, query: Query): Error {
    const { begin, end, ...rest } = query;
    const ranged = begin !== undefined || end !== undefined;
    if (ranged && this.blobs.has(key(path, path === "averages" ? { ...rest, sort: "self" } : rest))) return new Error(`This file holds the answer for the whole run, not for a range: clear the range in the bar above. For ranges: ${this.head.view}`);
    return new Error(`This file does not hold the answer to that: go back to what it holds, or open the reel with ${this.head.view}`);
  }
}

export async function openFile(): Promise<FileAnswers> {
  if (typeof DecompressionStream === "undefined") throw new Error("This browser cannot read compressed data: use a version from 2023 or later.");
  return new FileAnswers(await json<Head>(0));
}
export type { FileAnswers };

function once<T>(make: () => Promise<T>): () => Promise<T> {
  let made: Promise<T> | null = null;
  return () => (made ??= make());
}
