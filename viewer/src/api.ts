/** What the server tells; see torchreel/web/answers.py. Times are nanoseconds since the reel's beginning. */
import { signal } from "@preact/signals";
import { openFile } from "./file/answers.ts";
import { isFile } from "./file/blobs.ts";

/** Number, beginning and end. */
export type Step = [number, number, number];
export type Process = { process: number; name: string; pid: number; rank: number | null; command: string | null; torch_version: string | null; complete: boolean; lost_events: number };
export type About = {
  version: string; reel: string; origin_ns: number; end: number; tile: number; compared: string | null;
  summary: { ops: number; steps: number; threads: number; processes: number; wall_ns: number; lost_events: number;
    incomplete_processes: string[]; peak_memory: { process: string; device: string; bytes: number }[]; recorded: Record<string, boolean> };
  processes: Process[];
  /** Of the first process that has some. */
  steps: Step[]; marks: { time: number; name: string }[]; counters: string[];
} & Lanes;
/** Without the calls of hidden kinds. A label is a name, a kind and, of a module, which one it is. Lanes by their numbers: process, thread, depth, whether they are of asynchronous calls. A stream of a device is a thread below 0. */
export type Lanes = { lanes: [number, number, number, boolean][]; labels: [string, string, string?][]; threads: { process: number; id: number; os_id: number | null; name: string; stream: boolean }[]; hidden: string };
export type Revision = { revision: number; recording: boolean; end: number; changed_from: number | null };
export const PHASES = ["data", "forward", "backward", "optimizer", "other", "no_op"] as const;
export type Phase = (typeof PHASES)[number];
export const PHASE_NAMES: Record<Phase, string> = { data: "data", forward: "forward", backward: "backward", optimizer: "optimizer", other: "other ops", no_op: "no op running" };
export type Finding = { rule: string; title: string; sentence: string; cure: string; saves_ns: number; percent: number;
  evidence: { name: string; text: string; screen: string; query: string }[] };
export type Row = { name: string; calls: number; self_ns: number; self_percent: number; total_ns: number; total_percent: number;
  average_ns: number | null; alloc_bytes: number | null; self_alloc_bytes: number | null; flops: number | null; [key: string]: string | number | null };
export type Line = { file: string; line: number; function: string; calls: number; self_ns: number; forward_ns: number; backward_ns: number; total_ns: number; alloc_bytes: number; flops: number | null; owner?: string };
/** A step, or of a long run the mean of those from the first to the last. */
export type StepColumn = { first: number; last: number; begin: number; end: number; wall_ns: number; phase_ns: Record<Phase, number> };
export type Overview = {
  step: { process: number; steps: number; wall_ns: number; median_ns: number; fastest_ns: number; slowest_ns: number; spread_ns: number; phase_ns: Record<Phase, number> } | null;
  /** The steps, first and last, that findings, ops, modules and lines are of; null: the whole run. */
  part: [number, number] | null;
  columns: StepColumn[]; findings: Finding[]; ops: Row[]; modules: Row[]; lines: Line[];
  memory: { most: number[]; peak: number; peak_at: number } | null;
  devices: { process: number; device: string; busy_ns: number; wall_ns: number; kernels: number }[];
};
export type Op = { process: number; id: number; name: string; kind: string; begin: number; dur_ns: number; self_ns: number; depth: number; step: number | null; thread: number; thread_name: string | null;
  module_path: string | null; module_class: string | null; dims: string | null; dtypes: string | null; flops: number | null; alloc_bytes: number | null;
  open?: boolean | null; parent: number | null; parent_name: string | null; fwd: number | null; fwd_name: string | null; backward: { id: number; name: string; dur_ns: number }[];
  kernels: { id: number; name: string; device: string; stream: number; begin: number; dur_ns: number }[];
  flows: { process: number; id: number; name: string; begin: number; end: string }[]; counters: { name: string; value: number }[];
  frames: { file: string; line: number; function: string }[]; children: { id: number; name: string; dur_ns: number }[];
  /** What an exported file does not tell of it. */
  note?: string };
/** Calls of the same name and inputs; `part` if there may be more in the reel than in the file. */
export type Like = { calls: number; median_ns: number; part?: boolean };
export type Kernel = { process: number; id: number; name: string; device: string; stream: number; begin: number; dur_ns: number; op: number | null; op_name: string | null; after_launch_ns: number | null };
export type Found = { calls: number; self_ns: number; rows: { process: number; id: number; name: string; begin: number; dur_ns: number }[] };

/** Questions that wait for their answers, and bytes that came: for window.torchreel. */
export const waiting = signal(0);
export const received = { bytes: 0 };
/** What the server last failed with, if it has gone away. */
export const lost = signal<string | null>(null);

/** The answers of an exported file, which has no server. */
export const file = isFile ? openFile() : null;

/** Count a question while it waits. */
export async function awaited<T>(answer: () => Promise<T>): Promise<T> {
  waiting.value++;
  try {
    return await answer();
  } finally {
    waiting.value--;
  }
}

/** An answer, read to its end: until then it is awaited. */
async function fetched<T>(path: string, read: (response: Response) => Promise<T>, init?: RequestInit, quiet = false): Promise<T> {
  if (!quiet) waiting.value++;
  try {
    const response = await fetch(`/api/${path}`, init);
    lost.value = null;
    if (!response.ok) throw new Error(await response.json().then((answer: { error: string }) => answer.error, () => `The viewer's server failed: ${response.status} ${response.statusText}.`));
    return await read(response);
  } catch (error) {
    if (error instanceof TypeError) {
      lost.value = "The viewer's server does not answer: it was ended, or the connection is lost.";
      throw new Error(lost.value);
    }
    throw error;
  } finally {
    if (!quiet) waiting.value--;
  }
}

/** A quiet question is one that nobody waits for. */
export async function ask<T>(path: string, query: Record<string, string | number> = {}, quiet = false): Promise<T> {
  if (file) return awaited(async () => (await (await file).ask(path, query)) as T);
  const words = new URLSearchParams(Object.entries(query).map(([key, value]) => [key, String(value)]));
  const text = await fetched(words.size ? `${path}?${words}` : path, (response) => response.text(), undefined, quiet);
  received.bytes += text.length;
  return JSON.parse(text) as T;
}

export async function askBytes(path: string): Promise<ArrayBuffer> {
  if (file) return awaited(async () => (await file).bytes(path));
  const data = await fetched(path, (response) => response.arrayBuffer());
  received.bytes += data.byteLength;
  return data;
}

/** Times since the epoch are larger than a number of JavaScript's can tell apart: such a value stays text. */
function exact(_key: string, value: unknown, context?: { source: string }): unknown {
  return typeof value === "number" && Number.isInteger(value) && !Number.isSafeInteger(value) ? (context?.source ?? value) : value;
}

export async function post<T>(path: string, body: unknown): Promise<T> {
  if (file) throw new Error("This file has no server to send anything to.");
  return JSON.parse(await fetched(path, (response) => response.text(), { method: "POST", body: JSON.stringify(body) }), exact) as T;
}
