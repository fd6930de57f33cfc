/** What the server tells of memory; see torchreel/web/questions/memory.py, blocks.py and segments.py. */

/** An instant: after an event of the device's history, or before all of them (-1); and its time, where it is known. */
export type Moment = { event: number; time: number | null };
export type Place = { file: string; line: number };

export type Holder = { name: string; bytes: number; percent: number; blocks: number; largest: number; categories: string; older: boolean; source: Place | null };
export type Band = { name: string; category: string; older: boolean; bytes: number[] };
export type BlockColumns = { block: number[]; size: number[]; first: number[]; last: number[]; category: number[]; older: number[] };
export type Memory = {
  devices: string[]; has_times: boolean; has_history: boolean; end: number; events: number; axis: "time" | "events";
  begin: number; finish: number; at_events: number[]; most: number[]; reserved: number[] | null;
  bands?: Band[]; blocks?: BlockColumns; rest?: { groups: number; bytes: number[] };
  peak: number; peak_at: Moment; at: Moment; allocated: number; reserved_at: number | null; blocks_at: number;
  older: { blocks: number; bytes: number }; held_by: string; holders: Holder[]; all_holders: number;
};
export type Change = { name: string; before: number; after: number; change: number; made: number; made_bytes: number; freed: number; freed_bytes: number };
export type Changes = { first: Moment; last: Moment; before: number; after: number; least: number; mean: number; most: number; rows: Change[]; all: number };
export type MarkRow = { text: string; event?: number; time?: number | null; step?: number | null; phase?: string | null; line?: string | null; by?: string; segments?: boolean };
export type Section = { kind: string; title: string; sentences: string[]; rows: MarkRow[] };

export type Block = { block: number; size: number; address: string | null; made: Moment; freed: Moment | null; older: boolean; category: string; stack: string; module: string; op: string; process: number; op_id: number | null; source: Place | null };
export type WholeBlock = Block & { lives_ns: number | null; frames: { file: string; line: number; function: string; owner: string }[] };
export type Blocks = { at: Moment; count: number; bytes: number; rows: Block[] };

export type Pieces = { begin: number[]; size: number[]; requested: number[]; state: number[]; category: number[]; older: number[]; block: number[] };
export type Segment = { address: string; size: number; kind: string; stream: number | null; pool: string | null; expandable: boolean; region: boolean; blocks: number; allocated: number; requested: number; pending: number; free: number; largest_free: number; older: number; pieces: Pieces };
export type Piece = { address: string; size: number; requested: number; state: "free" | "allocated" | "pending"; exact: boolean; info?: Block };
export type Usage = { name: string; segments: number; reserved: number; allocated: number; pending: number; rounding: number; split: number; cached: number; largest_free: number };
export type Segments = {
  devices: string[]; device: string; has_times: boolean; has_segments: boolean; has_history: boolean; events: number; at: Moment; peak_at: Moment;
  usage: Usage; pools: Usage[]; requested: number; blocks: number; inexact: number; regions: number; without_address: number; older: { blocks: number; bytes: number };
  count: number; first: number; largest: number; segments: Segment[]; place: number | null;
  chosen?: Segment & { skip: number; count: number; rows: Piece[] };
};
export type Numbers = { peak_reserved: number | null; peak_requested: number; fragmentation: number | null; ooms: number; peak_active?: number; retries?: number };
export type Simulation = { device: string; conf: string; recorded_conf: string; recorded: Numbers; as_recorded: Numbers; simulated: Numbers; notes: string[] };

export const CATEGORIES = ["parameter", "gradient", "optimizer_state", "activation", "input", "temporary", "unknown"] as const;
export const FREE = 0;
export const PENDING = 2;
