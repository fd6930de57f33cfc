/** Tiles of the server, kept while they are useful: see torchreel/web/tiles.py for their bytes. */
import { askBytes } from "../api.ts";

export type Span = { lane: number; from: number; to: number };
export type Tile = {
  begin: number; step: number; spans: Map<number, Span>;
  id: Float64Array; x: Float32Array; w: Float32Array; calls: Uint32Array; low: Float32Array; high: Float32Array; label: Uint16Array; cover: Uint8Array;
};

/** A tile holds the lanes of a group: of a thousand ranks only those are asked for that are in view. */
export const GROUP = 64;
const KEPT = 96;

export class Tiles {
  private readonly tiles = new Map<string, { tile: Tile | null; fresh: boolean }>();

  constructor(private readonly width: number, private end: number, private readonly hide: string, private readonly arrived: () => void) {}

  /** Tiles that cover a view, each with the part of it to draw: of the view's level, or the nearest coarser one that is here. */
  *covering(begin: number, end: number, nsPerPixel: number, groups: Iterable<number>): Generator<[Tile, number, number, number]> {
    const level = Math.max(0, Math.floor(Math.log2(nsPerPixel)));
    const span = this.width * 2 ** level;
    const last = Math.floor(Math.min(end, this.end) / span);
    for (const group of groups) for (let index = Math.max(0, Math.floor(begin / span)); index <= last; index++) {
      const key = `${group}/${level}/${index}`;
      if (!this.tiles.get(key)?.fresh) void this.load(key, group, level, index);
      for (let up = 0; up < 16; up++) {
        const tile = this.tiles.get(`${group}/${level + up}/${Math.floor(index / 2 ** up)}`)?.tile;
        if (tile) {
          yield [tile, index * span, (index + 1) * span, group];
          break;
        }
      }
    }
  }

  /** The reel has grown: what ends after a moment is asked for again, and drawn as it was until it comes. */
  grow(end: number, changedFrom: number): void {
    this.end = end;
    for (const [key, kept] of this.tiles) {
      const [, level, index] = key.split("/").map(Number);
      if ((index + 1) * this.width * 2 ** level > changedFrom) kept.fresh = false;
    }
  }

  private async load(key: string, group: number, level: number, index: number): Promise<void> {
    const kept = { tile: this.tiles.get(key)?.tile ?? null, fresh: true };
    this.tiles.delete(key);
    this.tiles.set(key, kept);
    try {
      const words = new URLSearchParams({ from: String(group * GROUP), to: String((group + 1) * GROUP), ...(this.hide && { hide: this.hide }) });
      kept.tile = read(await askBytes(`tile/${level}/${index}?${words}`), this.width, level, index);
    } catch {
      this.tiles.delete(key);
      return;
    }
    for (const old of this.tiles.keys()) {
      if (this.tiles.size <= KEPT * 4) break;
      if (this.tiles.get(old)?.tile) this.tiles.delete(old);
    }
    this.arrived();
  }
}

export function read(data: ArrayBuffer, width: number, level: number, index: number): Tile {
  const [, spans, calls, points] = new Uint32Array(data, 0, 4);
  let at = 16;
  const take = <T>(kind: { new (data: ArrayBuffer, at: number, length: number): T; BYTES_PER_ELEMENT: number }, length: number): T => {
    const array = new kind(data, at, length);
    at += length * kind.BYTES_PER_ELEMENT;
    return array;
  };
  const id = take(Float64Array, calls);
  const lanes = take(Uint32Array, spans);
  const counts = take(Uint32Array, spans);
  const found = new Map<number, Span>();
  let from = 0;
  lanes.forEach((lane, number) => found.set(lane, { lane, from, to: (from += counts[number]) }));
  return {
    begin: index * width * 2 ** level, step: 2 ** level, spans: found, id,
    x: take(Float32Array, calls), w: take(Float32Array, calls), calls: take(Uint32Array, calls),
    low: take(Float32Array, points), high: take(Float32Array, points), label: take(Uint16Array, calls), cover: take(Uint8Array, calls),
  };
}
