/** The timeline on one canvas. Nothing is drawn per call: at most one mark per lane and pixel, one redraw per frame. */
import type { About } from "../api.ts";
import { DrawnCanvas } from "../drawn_canvas.ts";
import { blend, boxLabel, colors, FAMILIES, family, withoutSpace } from "../families.ts";
import { AXIS, COUNTER, type Counters, drawAxis, drawCounters, drawMarks, drawMemory, drawSteps, LEFT, MARKS, MEMORY, type Sheet, STEPS } from "./head.ts";
import type { Mark } from "./marks.ts";
import { GROUP, type Tile, Tiles } from "./tiles.ts";
import { HEAD, ROW, type Track, tracks } from "./tracks.ts";

const SHADES = 8;
const LEAST_NS = 1_000;

export type Call = { process: number; id: number; name: string; begin: number; end: number; lane: number; kernel: boolean };
/** What is at a point: a call, a step, a mark, a track's title. */
export type Spot = { call: Call } | { area: { begin: number; end: number } } | { track: Track };

export class TimelineCanvas extends DrawnCanvas implements Sheet {
  readonly view = { begin: 0, end: 1, scroll: 0 };
  selected: Call | null = null;
  linked: Call[] = [];
  matches = new Set<string>();
  area: { begin: number; end: number } | null = null;
  marks: Mark[] = [];
  counters: Counters | null = null;
  changed: () => void = () => {};
  private readonly tiles: Tiles;
  private tracks: Track[] = [];
  private laneTop: number[] = [];
  private names: string[] = [];
  /** What a name is shortened to before it is cut. */
  private short: string[] = [];
  private readonly shortened = new Map<string, string>();
  palette = colors();
  private shades: string[][] = [];
  /** Of text in a call. */
  textColor = "";
  /** Names that this frame writes, all after the boxes: another colour for each box and each name would cost more than they. */
  private readonly written: { text: string; x: number; y: number }[] = [];

  constructor(canvas: HTMLCanvasElement, public about: About, hide: string, private folded: ReadonlySet<string>) {
    super(canvas);
    this.tiles = new Tiles(about.tile, about.end, hide, () => this.redraw());
    this.layOut();
    this.view.end = about.end;
    this.takeSize();
    this.recolor();
  }

  private layOut(): void {
    this.tracks = tracks(this.about, this.folded);
    this.laneTop = [];
    for (const track of this.tracks) for (const { lane, top } of track.lanes) this.laneTop[lane] = top;
    this.names = this.about.labels.map((label) => boxLabel(...label));
    this.short = this.names.map(withoutSpace);
  }
  fold(folded: ReadonlySet<string>): void {
    this.folded = folded;
    this.layOut();
    this.scroll(0);
  }
  /** The reel has grown: the view stays, what is new since a moment is asked for. */
  grow(about: About, changedFrom: number): void {
    this.about = about;
    this.layOut();
    this.tiles.grow(about.end, changedFrom);
    this.recolor();
  }

  private get hasMemory(): boolean {
    return this.about.summary.peak_memory.length > 0;
  }
  get stepsTop(): number {
    return AXIS + (this.marks.length || this.about.marks.length ? MARKS : 0);
  }
  get memoryTop(): number {
    return this.stepsTop + STEPS;
  }
  get countersTop(): number {
    return this.memoryTop + (this.hasMemory ? MEMORY : 0);
  }
  private get top(): number {
    return this.countersTop + this.about.counters.length * COUNTER;
  }
  /** The groups of lanes that are in view; memory comes with the first. */
  private get groups(): Set<number> {
    const found = new Set([0]);
    const [scroll, room] = [this.view.scroll, this.height - this.top];
    this.laneTop.forEach((top, lane) => {
      if (top - scroll > -ROW && top - scroll < room) found.add(Math.floor(lane / GROUP));
    });
    return found;
  }
  get nsPerPixel(): number {
    return (this.view.end - this.view.begin) / Math.max(1, this.width - LEFT);
  }
  private get contentHeight(): number {
    const last = this.tracks.at(-1);
    return last ? last.top + last.height : 0;
  }
  x = (time: number): number => LEFT + (time - this.view.begin) / this.nsPerPixel;
  time = (x: number): number => this.view.begin + (x - LEFT) * this.nsPerPixel;

  recolor(): void {
    this.palette = colors();
    this.textColor = document.documentElement.dataset.theme === "dark" ? "#0d1016" : "#ffffff";
    const { ground } = this.palette;
    const shades = new Map(FAMILIES.map((each) => [each, Array.from({ length: SHADES }, (_, at) => blend(this.palette[each], ground, 0.25 + (0.75 * (at + 1)) / SHADES))]));
    this.shades = this.about.labels.map(([name, kind]) => shades.get(family(name, kind))!);
    this.redraw();
  }

  resize(): void {
    if (this.hasItsSize) return;
    this.takeSize();
    this.redraw();
  }
  show(begin: number, end: number): void {
    const span = Math.min(Math.max(end - begin, LEAST_NS), this.about.end);
    const middle = (begin + end) / 2;
    this.view.begin = Math.min(Math.max(middle - span / 2, 0), this.about.end - span);
    this.view.end = this.view.begin + span;
    this.changed();
    this.redraw();
  }
  zoom(factor: number, x: number): void {
    const at = this.time(Math.max(x, LEFT));
    const span = Math.min(Math.max((this.view.end - this.view.begin) * factor, LEAST_NS), this.about.end);
    const part = (Math.max(x, LEFT) - LEFT) / Math.max(1, this.width - LEFT);
    this.show(at - part * span, at + (1 - part) * span);
  }
  pan(pixels: number): void {
    const by = pixels * this.nsPerPixel;
    this.show(this.view.begin + by, this.view.end + by);
  }
  scroll(pixels: number): void {
    const most = Math.max(0, this.contentHeight - (this.height - this.top));
    this.view.scroll = Math.min(Math.max(this.view.scroll + pixels, 0), most);
    this.redraw();
  }
  /** Bring a call into view, with some of what is around it. */
  centre(call: Call, fit = false): void {
    const span = fit ? Math.max((call.end - call.begin) * 1.2, LEAST_NS) : this.view.end - this.view.begin;
    const middle = (call.begin + call.end) / 2;
    this.show(middle - span / 2, middle + span / 2);
    const y = (this.laneTop[call.lane] ?? 0) - this.view.scroll;
    if (y < 0 || y > this.height - this.top - ROW) this.scroll(y - (this.height - this.top) / 2);
  }

  private centred = "";
  /** Centre a call; if it is the one that was centred last, fit it. */
  focus(call: Call): void {
    const key = `${call.process}:${call.kernel}:${call.id}`;
    const again = this.centred === key;
    this.centre(call, again);
    this.centred = again ? "" : key;
  }
  isInView(call: Call): boolean {
    return call.end >= this.view.begin && call.begin <= this.view.end;
  }
  /** The call that arrows begin with: the first in view, of the first lane that has one there. */
  first(): Call | null {
    const lanes = this.tracks.flatMap((track) => track.lanes);
    for (const { lane } of lanes) for (const [tile] of this.covering([Math.floor(lane / GROUP)])) {
      const span = tile.spans.get(lane);
      for (let i = span?.from ?? 0; i < (span?.to ?? 0); i++) {
        const call = this.call(tile, i, lane);
        if (this.isInView(call)) return call;
      }
    }
    return null;
  }

  /** A call that has a mark of its own in the tiles that are drawn; null if it has none, or is out of view. */
  drawn(process: number, id: number): Call | null {
    for (const [tile] of this.covering(this.groups)) for (const span of tile.spans.values()) {
      const [of, thread] = this.about.lanes[span.lane];
      if (of !== process || thread < 0) continue;
      for (let i = span.from; i < span.to; i++) if (tile.id[i] === id) return this.call(tile, i, span.lane);
    }
    return null;
  }

  /** What is at a point of the canvas. */
  spot(x: number, y: number): Spot | null {
    if (y >= this.top && x < LEFT) {
      const track = this.tracks.find(({ top, height }) => y - this.top + this.view.scroll >= top && y - this.top + this.view.scroll < top + height);
      return track ? { track } : null;
    }
    if (x < LEFT) return null;
    const time = this.time(x);
    if (y >= AXIS && y < this.stepsTop) {
      const mark = this.marks.find(({ begin, end }) => time >= begin && time <= end);
      return mark ? { area: mark } : null;
    }
    if (y >= this.stepsTop && y < this.memoryTop) {
      const step = this.about.steps.find(([, begin, end]) => time >= begin && time < end);
      return step ? { area: { begin: step[1], end: step[2] } } : null;
    }
    const call = this.at(x, y);
    return call ? { call } : null;
  }

  /** The call at a point of the canvas. */
  at(x: number, y: number): Call | null {
    if (x < LEFT || y < this.top) return null;
    const lane = this.laneTop.findIndex((top) => {
      const line = this.top + top - this.view.scroll;
      return y >= line && y < line + ROW;
    });
    if (lane < 0) return null;
    const time = this.time(x);
    let best: Call | null = null;
    for (const [tile, from, to] of this.covering([Math.floor(lane / GROUP)])) {
      const span = tile.spans.get(lane);
      if (!span || time < from || time >= to) continue;
      for (let i = span.from; i < span.to; i++) {
        const begin = tile.begin + tile.x[i] * tile.step;
        const end = begin + tile.w[i] * tile.step;
        if (begin > time + this.nsPerPixel || end < time - this.nsPerPixel) continue;
        if (!best || Math.abs((begin + end) / 2 - time) < Math.abs((best.begin + best.end) / 2 - time)) best = this.call(tile, i, lane);
      }
    }
    return best;
  }
  private covering(groups: Iterable<number>) {
    return this.tiles.covering(this.view.begin, this.view.end, this.nsPerPixel, groups);
  }
  private call(tile: Tile, i: number, lane: number): Call {
    const begin = tile.begin + tile.x[i] * tile.step;
    const [process, thread] = this.about.lanes[lane];
    return { process, id: tile.id[i], name: this.about.labels[tile.label[i]]?.[0] ?? "", begin, end: begin + tile.w[i] * tile.step, lane, kernel: thread < 0 };
  }
  /** Which lane a call of a thread at a depth is on. */
  lane(process: number, thread: number, depth: number): number {
    return this.about.lanes.findIndex(([p, t, d]) => p === process && t === thread && d === depth);
  }
  /** Which lane a stream's kernels are on: its first, if they overlap. */
  streamLane(process: number, device: string, stream: number): number {
    const thread = this.about.threads.find((each) => each.stream && each.process === process && each.name === `${device} stream ${stream}`)?.id;
    return this.about.lanes.findIndex(([p, t]) => p === process && t === thread);
  }
  /** Where a call is drawn; null if it is out of view. */
  placeOf(call: Call): { x: number; y: number; width: number } | null {
    if (this.laneTop[call.lane] === undefined) return null;
    const y = this.top + this.laneTop[call.lane] - this.view.scroll;
    const [a, b] = [this.x(call.begin), this.x(call.end)];
    if (b < LEFT || a > this.width || y < this.top || y > this.height) return null;
    return { x: Math.max(a, LEFT), y: y + ROW / 2, width: Math.min(b, this.width) - Math.max(a, LEFT) };
  }

  protected draw(): void {
    const { pen, palette } = this;
    pen.fillStyle = palette.ground;
    pen.fillRect(0, 0, this.width, this.height);
    drawAxis(this);
    drawMarks(this);
    drawSteps(this);
    const visible = [...this.covering(this.groups)];
    if (this.hasMemory) drawMemory(this, visible.filter(([, , , group]) => group === 0));
    drawCounters(this);
    pen.save();
    pen.beginPath();
    pen.rect(0, this.top, this.width, this.height - this.top);
    pen.clip();
    pen.fillStyle = palette.panel;
    const seen = this.tracks.filter((track) => track.top + track.height > this.view.scroll && track.top < this.view.scroll + this.height - this.top);
    for (const track of seen) pen.fillRect(0, this.top + track.top - this.view.scroll, this.width, HEAD - 4);
    this.written.length = 0;
    for (const [tile, from, to] of visible) for (const span of tile.spans.values()) {
      const y = this.top + this.laneTop[span.lane] - this.view.scroll; // not a number for a lane of a folded track
      if (y > this.top - ROW && y < this.height) this.drawLane(tile, span.from, span.to, y, from, to);
    }
    pen.fillStyle = this.textColor;
    for (const { text, x, y } of this.written) pen.fillText(text, x, y);
    this.drawSelection();
    pen.fillStyle = palette.panel;
    pen.fillRect(0, this.top, LEFT - 1, this.height);
    pen.fillStyle = palette.line;
    pen.fillRect(LEFT - 1, this.top, 1, this.height);
    pen.fillStyle = palette.panel;
    for (const track of seen) pen.fillRect(LEFT - 1, this.top + track.top - this.view.scroll, 1, HEAD - 4);
    pen.fillStyle = palette.ink;
    for (const track of seen) pen.fillText(`${track.folded ? "▸" : "▾"} ${track.title}`, 8, this.top + track.top - this.view.scroll + 13);
    pen.restore();
    pen.fillStyle = palette.line;
    pen.fillRect(LEFT - 1, 0, 1, this.top);
    if (this.area) {
      pen.fillStyle = `${palette.accent}33`;
      pen.fillRect(this.x(this.area.begin), AXIS, (this.area.end - this.area.begin) / this.nsPerPixel, this.height);
    }
  }

  private drawLane(tile: Tile, first: number, last: number, y: number, from: number, to: number): void {
    const { pen } = this;
    const scale = tile.step / this.nsPerPixel;
    const offset = this.x(tile.begin);
    const left = Math.max(LEFT, this.x(from));
    const right = Math.min(this.width, this.x(to));
    const faded = this.matches.size > 0;
    let done = -1;
    let fill = "";
    // Calls of a lane follow each other: the first that is seen may have begun before the left edge, none before it is.
    for (let i = Math.max(first, after(tile.x, first, last, (left - offset) / scale) - 1); i < last; i++) {
      let a = offset + tile.x[i] * scale;
      if (a > right) break;
      let b = a + tile.w[i] * scale;
      if (b < left) continue;
      // A call that goes on in the tile beside this one is one box, with one name.
      const goesOn = b > right && right < this.width;
      const named = a < left && left > LEFT && left - Math.max(a, LEFT) > 28;
      a = Math.max(a, left);
      b = Math.min(b, right);
      const wide = b - a >= 2;
      const begin = Math.max(wide ? Math.round(a) : Math.floor(a), done);
      const end = wide ? Math.round(b) : Math.floor(a) + 1;
      if (end <= begin) continue;
      const name = tile.label[i];
      const shade = faded && !this.matches.has(this.about.labels[name]?.[0] ?? "") ? 0 : tile.w[i] >= 1 || tile.calls[i] === 1 ? SHADES - 1 : tile.cover[i] >> 5;
      const color = this.shades[name]?.[shade] ?? this.palette.elementwise;
      if (color !== fill) pen.fillStyle = fill = color;
      pen.fillRect(begin, y, end - begin - (end - begin > 3 && !goesOn ? 1 : 0), ROW - 1);
      done = end;
      if (b - a > 28 && !named) this.write(name, a + 4, b - a - 6, y);
    }
  }

  private write(name: number, x: number, room: number, y: number): void {
    const whole = this.names[name] ?? "";
    const fitsWhole = this.widthOf(whole) <= room;
    const text = fitsWhole ? whole : (this.short[name] ?? "");
    if (fitsWhole || this.widthOf(text) <= room) { this.written.push({ text, x, y: y + 12 }); return; }
    // Letters are not equally wide: what is counted by the mean may be too much.
    let fits = Math.floor((room / this.widthOf(text)) * text.length) - 1;
    while (fits > 1 && this.widthOf(`${text.slice(0, fits)}…`) > room) fits--;
    if (fits > 1) this.written.push({ text: `${text.slice(0, fits)}…`, x, y: y + 12 });
  }

  private drawSelection(): void {
    const { pen, palette } = this;
    const box = (call: Call, color: string) => {
      const spot = this.placeOf(call);
      if (!spot) return null;
      pen.strokeStyle = color;
      pen.lineWidth = 2;
      pen.strokeRect(spot.x, spot.y - ROW / 2, Math.max(spot.width, 3), ROW - 1);
      return spot;
    };
    const own = this.selected ? box(this.selected, palette.ink) : null;
    for (const other of this.linked) {
      const spot = box(other, palette.range);
      if (!own || !spot) continue;
      const [ax, ay, bx, by] = [own.x + own.width / 2, own.y, spot.x + spot.width / 2, spot.y];
      pen.beginPath();
      pen.moveTo(ax, ay);
      pen.bezierCurveTo(ax + (bx - ax) / 3, ay + 60, bx - (bx - ax) / 3, by + 60, bx, by);
      pen.strokeStyle = palette.range;
      pen.lineWidth = 1.5;
      pen.stroke();
    }
  }

  private readonly measured = new Map<string, number>();
  /** How wide a text is: the same few stand in the head from frame to frame. */
  widthOf(text: string): number {
    let found = this.measured.get(text);
    if (found === undefined) {
      if (this.measured.size > 5000) this.measured.clear();
      this.measured.set(text, (found = this.pen.measureText(text).width));
    }
    return found;
  }

  fitted(text: string, room: number): string {
    const key = `${Math.round(room)} ${text}`;
    let found = this.shortened.get(key);
    if (found === undefined) {
      found = text;
      for (let cut = text; cut && this.pen.measureText(found).width > room; found = `${cut}…`) cut = cut.slice(0, -1);
      if (this.shortened.size > 5000) this.shortened.clear();
      this.shortened.set(key, found);
    }
    return found;
  }
}

/** The first of sorted values, from one place to another, that is greater than a value. */
export function after(values: ArrayLike<number>, from: number, to: number, value: number): number {
  while (from < to) {
    const middle = (from + to) >> 1;
    if (values[middle] > value) to = middle;
    else from = middle + 1;
  }
  return from;
}
