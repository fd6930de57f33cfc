/** The timeline on one canvas. Nothing is drawn per call: at most one mark per lane and pixel, one redraw per frame. */
import type { About } from "../api.ts";
import { DrawnCanvas } from "../drawn_canvas.ts";
import { blend, colors, family, label as plain } from "../families.ts";
import * as units from "../units.ts";
import type { Mark } from "./marks.ts";
import { GROUP, type Tile, Tiles } from "./tiles.ts";
import { HEAD, ROW, type Track, tracks } from "./tracks.ts";

const LEFT = 152;
const AXIS = 28;
const STEPS = 18;
const MEMORY = 64;
const MARKS = 16;
const COUNTER = 34;
const SHADES = 8;
const LEAST_NS = 1_000;

export type Call = { process: number; id: number; name: string; begin: number; end: number; lane: number; kernel: boolean };
/** What is at a point: a call, a step, a mark, a track's title. */
export type Spot = { call: Call } | { area: { begin: number; end: number } } | { track: Track };
export type Counters = { begin: number; end: number; counters: { name: string; rates: number[] }[] };

export class TimelineCanvas extends DrawnCanvas {
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
  private readonly shortened = new Map<string, string>();
  private palette = colors();
  private shades: string[][] = [];
  private widths: number[] = [];

  constructor(canvas: HTMLCanvasElement, private about: About, hide: string, private folded: ReadonlySet<string>) {
    super(canvas);
    this.tiles = new Tiles(about.tile, about.end, hide, () => this.redraw());
    this.layOut();
    this.view.end = about.end;
    this.recolor();
  }

  private layOut(): void {
    this.tracks = tracks(this.about, this.folded);
    this.laneTop = [];
    for (const track of this.tracks) for (const { lane, top } of track.lanes) this.laneTop[lane] = top;
    this.names = this.about.labels.map(([name, kind]) => plain(name, kind));
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
    this.measure();
  }

  private get hasMemory(): boolean {
    return this.about.summary.peak_memory.length > 0;
  }
  private get stepsTop(): number {
    return AXIS + (this.marks.length || this.about.marks.length ? MARKS : 0);
  }
  private get memoryTop(): number {
    return this.stepsTop + STEPS;
  }
  private get countersTop(): number {
    return this.memoryTop + (this.hasMemory ? MEMORY : 0);
  }
  private get top(): number {
    return this.countersTop + this.about.counters.length * COUNTER;
  }
  /** The groups of lanes that are in view; memory comes with the first. */
  private get groups(): Set<number> {
    const found = new Set([0]);
    this.laneTop.forEach((top, lane) => {
      const y = this.top + top - this.view.scroll;
      if (y > this.top - ROW && y < this.height) found.add(Math.floor(lane / GROUP));
    });
    return found;
  }
  private get nsPerPixel(): number {
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
    const { ground } = this.palette;
    this.shades = this.about.labels.map(([name, kind]) => {
      const color = this.palette[family(name, kind)];
      return Array.from({ length: SHADES }, (_, at) => blend(color, ground, 0.25 + (0.75 * (at + 1)) / SHADES));
    });
    this.redraw();
  }

  resize(): void {
    this.takeSize();
    this.measure();
    this.redraw();
  }
  private measure(): void {
    this.widths = this.names.map((name) => this.pen.measureText(name).width);
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
      const step = this.ownSteps.find(({ begin, end }) => time >= begin && time < end);
      return step ? { area: step } : null;
    }
    const call = this.at(x, y);
    return call ? { call } : null;
  }
  private get ownSteps() {
    return this.about.steps.filter((step) => step.process === this.about.steps[0].process);
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
    this.drawAxis();
    this.drawMarks();
    this.drawSteps();
    const visible = [...this.covering(this.groups)];
    if (this.hasMemory) this.drawMemory(visible.filter(([, , , group]) => group === 0));
    this.drawCounters();
    pen.save();
    pen.beginPath();
    pen.rect(0, this.top, this.width, this.height - this.top);
    pen.clip();
    pen.fillStyle = palette.panel;
    const seen = this.tracks.filter((track) => track.top + track.height > this.view.scroll && track.top < this.view.scroll + this.height - this.top);
    for (const track of seen) pen.fillRect(0, this.top + track.top - this.view.scroll, this.width, HEAD - 4);
    for (const [tile, from, to] of visible) for (const span of tile.spans.values()) {
      const y = this.top + this.laneTop[span.lane] - this.view.scroll; // not a number for a lane of a folded track
      if (y > this.top - ROW && y < this.height) this.drawLane(tile, span.from, span.to, y, from, to);
    }
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

  private drawAxis(): void {
    const { pen, palette } = this;
    pen.fillStyle = palette.panel;
    pen.fillRect(0, 0, this.width, AXIS);
    const rough = this.nsPerPixel * 130;
    const power = 10 ** Math.floor(Math.log10(rough));
    const every = [1, 2, 5, 10].map((many) => many * power).find((many) => many >= rough)!;
    for (let time = Math.ceil(this.view.begin / every) * every; time < this.view.end; time += every) {
      const x = Math.round(this.x(time));
      pen.fillStyle = palette.line;
      pen.fillRect(x, AXIS - 6, 1, this.height);
      pen.fillStyle = palette.soft;
      pen.fillText(units.time(time), x + 4, 18);
    }
  }

  private drawSteps(): void {
    const { pen, palette } = this;
    pen.fillStyle = palette.panel;
    pen.fillRect(0, this.stepsTop, this.width, STEPS);
    for (const step of this.about.steps) {
      if (step.end < this.view.begin || step.begin > this.view.end || step.process !== this.about.steps[0].process) continue;
      const [a, b] = [Math.max(LEFT, this.x(step.begin)), Math.min(this.width, this.x(step.end))];
      if (b <= a) continue;
      pen.fillStyle = step.step % 2 ? palette.ground : palette.line;
      pen.fillRect(a, this.stepsTop, b - a, STEPS - 1);
      if (b - a > 44) {
        pen.fillStyle = palette.ink;
        pen.fillText(`step ${step.step}`, a + 5, this.stepsTop + 12);
      }
    }
  }

  /** Moments that the program marked, and areas that were kept here. */
  private drawMarks(): void {
    if (this.stepsTop === AXIS) return;
    const { pen, palette } = this;
    pen.fillStyle = palette.panel;
    pen.fillRect(0, AXIS, this.width, MARKS);
    pen.fillStyle = palette.soft;
    pen.fillText("marks", 12, AXIS + 12);
    for (const { begin, end, name } of this.marks) {
      const [a, b] = [Math.max(LEFT, this.x(begin)), Math.min(this.width, this.x(end))];
      if (b < LEFT || a > this.width) continue;
      pen.fillStyle = palette.range;
      pen.fillRect(a, AXIS + 1, Math.max(b - a, 2), MARKS - 3);
      pen.fillStyle = this.textColor;
      if (b - a > 28) pen.fillText(this.fitted(name, b - a - 8), a + 4, AXIS + 11);
    }
    let free = LEFT;
    for (const { time, name } of this.about.marks) {
      const x = this.x(time);
      if (x < LEFT || x > this.width) continue;
      pen.fillStyle = palette.range;
      pen.beginPath();
      pen.moveTo(x, AXIS + 2);
      pen.lineTo(x + 7, AXIS + 6);
      pen.lineTo(x, AXIS + 10);
      pen.fill();
      pen.fillRect(x, AXIS + 2, 1, this.height);
      if (x >= free) {
        pen.fillStyle = palette.ink;
        pen.fillText(this.fitted(name, 120), x + 10, AXIS + 11);
        free = x + 20 + Math.min(120, pen.measureText(name).width);
      }
    }
  }

  private drawCounters(): void {
    const { pen, palette } = this;
    this.about.counters.forEach((name, number) => {
      const top = this.countersTop + number * COUNTER;
      pen.fillStyle = palette.panel;
      pen.fillRect(0, top, LEFT - 1, COUNTER);
      pen.fillStyle = palette.ink;
      pen.fillText(this.fitted(name, LEFT - 20), 12, top + 14);
      const rates = this.counters?.counters.find((each) => each.name === name)?.rates;
      if (!rates || !this.counters) return;
      const most = Math.max(...rates, 1);
      pen.fillStyle = palette.soft;
      pen.fillText(`to ${units.flops(most)}/s`, 12, top + 28);
      pen.fillStyle = palette.module;
      const wide = (this.counters.end - this.counters.begin) / rates.length;
      rates.forEach((rate, at) => {
        const x = this.x(this.counters!.begin + at * wide);
        const high = (rate / most) * (COUNTER - 6);
        if (x > LEFT && x < this.width) pen.fillRect(x, top + COUNTER - high, Math.max(1, wide / this.nsPerPixel), high);
      });
    });
  }

  private drawMemory(visible: [Tile, number, number, number][]): void {
    const { pen, palette } = this;
    const peak = this.about.summary.peak_memory[0].bytes || 1;
    const floor = this.memoryTop + MEMORY;
    pen.fillStyle = palette.memory;
    for (const [tile, from, to] of visible) {
      const first = Math.floor((from - tile.begin) / tile.step);
      const last = Math.min(Math.ceil((to - tile.begin) / tile.step), tile.high.length);
      for (let i = Math.max(first, 0); i < last; i++) {
        const x = this.x(tile.begin + i * tile.step);
        const wide = Math.max(1, tile.step / this.nsPerPixel);
        if (x + wide < LEFT || x > this.width) continue;
        const high = (tile.high[i] / peak) * (MEMORY - 12);
        pen.fillRect(Math.max(x, LEFT), floor - high, wide, high);
      }
    }
    pen.fillStyle = palette.panel;
    pen.fillRect(0, this.memoryTop, LEFT - 1, MEMORY);
    pen.fillStyle = palette.ink;
    pen.fillText("memory", 12, this.memoryTop + 16);
    pen.fillStyle = palette.soft;
    pen.fillText(`peak ${units.bytes(peak)}`, 12, this.memoryTop + 32);
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
    for (let i = first; i < last; i++) {
      let a = offset + tile.x[i] * scale;
      let b = a + tile.w[i] * scale;
      if (b < left || a > right) continue;
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
      pen.fillRect(begin, y, end - begin - (end - begin > 3 ? 1 : 0), ROW - 1);
      done = end;
      if (b - a > 28) {
        this.write(name, a + 4, b - a - 6, y);
        fill = "";
      }
    }
  }

  private write(name: number, x: number, room: number, y: number): void {
    const text = this.names[name] ?? "";
    const fits = Math.floor((room / (this.widths[name] || 1)) * text.length);
    this.pen.fillStyle = this.textColor;
    if (fits >= text.length) this.pen.fillText(text, x, y + 12);
    else if (fits > 3) this.pen.fillText(`${text.slice(0, fits - 1)}…`, x, y + 12);
  }

  /** Of text in a call. */
  private get textColor(): string {
    return document.documentElement.dataset.theme === "dark" ? "#0d1016" : "#ffffff";
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

  private fitted(text: string, room: number): string {
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
