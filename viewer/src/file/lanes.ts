/** Lanes as torchreel/web/lanes.py has them, and tiles of them byte for byte as torchreel/web/tiles.py makes them. */

const BLOCK = 16;

export type Marks = { at: number[]; counts: number[]; cover: number[] };

/** The calls of a thread at a depth, in the order of their start; they do not overlap. */
export class Lane {
  /** One more than there are calls: the busy time before each call. */
  readonly sums: Float64Array;
  /** For each block of calls, which of all calls is its longest. */
  private readonly longest: Int32Array;

  constructor(readonly starts: Float64Array, readonly durations: Float64Array, readonly ids: Float64Array, readonly labels: Uint16Array) {
    this.sums = new Float64Array(starts.length + 1);
    for (let i = 0; i < starts.length; i++) this.sums[i + 1] = this.sums[i] + durations[i];
    this.longest = new Int32Array(Math.ceil(starts.length / BLOCK));
    for (let block = 0; block < this.longest.length; block++) {
      let best = block * BLOCK;
      for (let i = best + 1; i < Math.min(best + BLOCK, starts.length, (block + 1) * BLOCK); i++) if (durations[i] > durations[best]) best = i;
      this.longest[block] = best;
    }
  }

  get length(): number {
    return this.starts.length;
  }

  /** How many calls start before a time. */
  before(time: number): number {
    let [low, high] = [0, this.starts.length];
    while (low < high) {
      const middle = (low + high) >> 1;
      if (this.starts[middle] < time) low = middle + 1;
      else high = middle;
    }
    return low;
  }

  /** At most one mark per pixel, for `width` pixels of `step` ns from `begin` on; null if nothing is there. */
  marks(begin: number, step: number, width: number): Marks | null {
    const low = this.before(begin);
    const high = this.before(begin + step * width);
    const isOpen = low > 0 && this.starts[low - 1] + this.durations[low - 1] > begin;
    const first = isOpen ? low - 1 : low;
    if (high === first) return null;
    const marks: Marks = { at: [], counts: [], cover: [] };
    if (high - first <= width) {
      for (let i = first; i < high; i++) push(marks, i, 1, 255);
      return marks;
    }
    if (isOpen) push(marks, first, 1, 255);
    let from = low;
    let busyBefore = this.busy(low, begin);
    for (let pixel = 0; pixel < width; pixel++) {
      const edge = begin + step * (pixel + 1);
      let to = from;
      while (to < high && this.starts[to] < edge) to = to - from < 32 ? to + 1 : Math.max(this.before(edge), to);
      const busy = this.busy(to, edge);
      if (to > from) push(marks, this.longestOf(from, to), to - from, Math.min(255, Math.max(1, Math.floor(((busy - busyBefore) * 255) / step))));
      busyBefore = busy;
      from = to;
    }
    return marks;
  }

  /** The busy time before an edge that `count` calls start before. */
  private busy(count: number, edge: number): number {
    const over = count > 0 ? Math.max(this.starts[count - 1] + this.durations[count - 1] - edge, 0) : 0;
    return this.sums[count] - over;
  }

  /** The longest call of a range: near its ends call by call, between them by blocks. Ties are as in lanes.py. */
  private longestOf(low: number, high: number): number {
    const near = Math.min(BLOCK, high - low);
    let best = low;
    for (let i = low + 1; i < low + near; i++) if (this.durations[i] > this.durations[best]) best = i;
    for (let i = high - 1; i >= high - near; i--) if (this.durations[i] > this.durations[best]) best = i;
    const [first, last] = [Math.ceil(low / BLOCK), Math.floor(high / BLOCK)];
    if (last > first) {
      let inner = this.longest[first];
      for (let block = first + 1; block < last; block++) if (this.durations[this.longest[block]] >= this.durations[inner]) inner = this.longest[block];
      if (this.durations[inner] > this.durations[best]) best = inner;
    }
    return best;
  }
}

function push(marks: Marks, at: number, count: number, cover: number): void {
  marks.at.push(at);
  marks.counts.push(count);
  marks.cover.push(cover);
}

/** Memory over time: the total after each event, in the order of time. */
export class Curve {
  constructor(readonly times: Float64Array, readonly totals: Float64Array) {}

  /** The least and the most in each pixel of a tile: what was there when it began counts, too. */
  extremes(begin: number, step: number, width: number): [Float32Array, Float32Array] {
    const [low, high] = [new Float32Array(width), new Float32Array(width)];
    const { times, totals } = this;
    let from = lowerBound(times, begin);
    for (let pixel = 0; pixel < width; pixel++) {
      const to = lowerBound(times, begin + step * (pixel + 1), from);
      if (to > 0) {
        let [least, most] = [Infinity, -Infinity];
        const first = Math.max(from - 1, 0);
        for (let i = first; i < Math.max(to, first + 1); i++) {
          if (totals[i] < least) least = totals[i];
          if (totals[i] > most) most = totals[i];
        }
        low[pixel] = least;
        high[pixel] = most;
      }
      from = to;
    }
    return [low, high];
  }
}

function lowerBound(values: Float64Array, value: number, low = 0): number {
  let high = values.length;
  while (low < high) {
    const middle = (low + high) >> 1;
    if (values[middle] < value) low = middle + 1;
    else high = middle;
  }
  return low;
}

/** The bytes of a tile: of the lanes with these numbers. */
export function tile(lanes: Lane[], from: number, to: number, curve: Curve | null, level: number, index: number, width: number): ArrayBuffer {
  const step = 2 ** level;
  const begin = index * width * step;
  const spans = lanes.slice(from, to).map((lane, at) => ({ lane, number: from + at, marks: lane.marks(begin, step, width) })).filter((span) => span.marks !== null);
  const calls = spans.reduce((sum, span) => sum + span.marks!.at.length, 0);
  const points = curve ? width : 0;
  const data = new ArrayBuffer(16 + calls * 23 + spans.length * 8 + points * 8);
  let at = 0;
  const take = <T>(kind: { new (data: ArrayBuffer, at: number, length: number): T; BYTES_PER_ELEMENT: number }, length: number): T => {
    const array = new kind(data, at, length);
    at += length * kind.BYTES_PER_ELEMENT;
    return array;
  };
  take(Uint32Array, 4).set([1, spans.length, calls, points]);
  const id = take(Float64Array, calls);
  const [lane, count] = [take(Uint32Array, spans.length), take(Uint32Array, spans.length)];
  const [x, w, many] = [take(Float32Array, calls), take(Float32Array, calls), take(Uint32Array, calls)];
  const [low, high] = [take(Float32Array, points), take(Float32Array, points)];
  const [label, cover] = [take(Uint16Array, calls), take(Uint8Array, calls)];
  if (curve) {
    const [least, most] = curve.extremes(begin, step, width);
    low.set(least);
    high.set(most);
  }
  let next = 0;
  spans.forEach((span, number) => {
    const marks = span.marks!;
    lane[number] = span.number;
    count[number] = marks.at.length;
    marks.at.forEach((call, place) => {
      id[next] = span.lane.ids[call];
      x[next] = (span.lane.starts[call] - begin) / step;
      w[next] = span.lane.durations[call] / step;
      many[next] = marks.counts[place];
      label[next] = span.lane.labels[call];
      cover[next++] = marks.cover[place];
    });
  });
  return data;
}
