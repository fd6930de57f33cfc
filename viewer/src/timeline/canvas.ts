/** The timeline on one canvas. Nothing is drawn per call: at most one mark per lane and pixel, one redraw per frame. */
import type { About } from "../api.ts";
import { blend, colors, family, label as plain } from "../families.ts";
import * as units from "../units.ts";
import { type Tile, Tiles } from "./tiles.ts";
import { HEAD, ROW, type Track, tracks } from "./tracks.ts";

const LEFT = 132;
const AXIS = 28;
const STEPS = 18;
const MEMORY = 64;
const SHADES = 8;
const LEAST_NS = 1_000;

export type Call = { process: number; id: number; name: string; begin: number; end: number; lane: number };

export const measured = { frames: [] as number[], painted: 0 };

export class TimelineCanvas {
  readonly view = { begin: 0, end: 1, scroll: 0 };
  selected: Call | null = null;
  linked: Call[] = [];
  matches = new Set<string>();
  area: { begin: number; end: number } | null = null;
  changed: () => void = () => {};
  private readonly pen: CanvasRenderingContext2D;
  private readonly tiles: Tiles;
  private readonly tracks: Track[];
  private readonly laneTop: number[] = [];
  private readonly names: string[];
  private palette = colors();
  private shades: string[][] = [];
  private widths: number[] = [];
  private width = 0;
  private height = 0;
  private asked = false;

  constructor(readonly canvas: HTMLCanvasElement, private readonly about: About) {
    this.pen = canvas.getContext("2d", { alpha: false })!;
    this.tiles = new Tiles(about.tile, about.end, () => this.redraw());
    this.tracks = tracks(about);
    for (const track of this.tracks) for (const { lane, top } of track.lanes) this.laneTop[lane] = top;
    this.names = about.labels.map(([name, kind]) => plain(name, kind));
    this.view.end = about.end;
    this.recolor();
  }

  private get top(): number {
    return AXIS + STEPS + (this.about.summary.peak_memory.length ? MEMORY : 0);
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
    const box = this.canvas.getBoundingClientRect();
    this.width = Math.round(box.width);
    this.height = Math.round(box.height);
    this.canvas.width = this.width * devicePixelRatio;
    this.canvas.height = this.height * devicePixelRatio;
    this.pen.setTransform(devicePixelRatio, 0, 0, devicePixelRatio, 0, 0);
    this.pen.font = "11px system-ui, sans-serif";
    this.widths = this.names.map((name) => this.pen.measureText(name).width);
    this.redraw();
  }

  redraw(): void {
    if (this.asked) return;
    this.asked = true;
    requestAnimationFrame(() => {
      this.asked = false;
      const began = performance.now();
      this.draw();
      measured.frames.push(performance.now() - began);
      if (measured.frames.length > 600) measured.frames.shift();
      measured.painted++;
    });
  }
  get idle(): boolean {
    return !this.asked;
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
    const y = this.laneTop[call.lane] - this.view.scroll;
    if (y < 0 || y > this.height - this.top - ROW) this.scroll(y - (this.height - this.top) / 2);
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
    for (const [tile, from, to] of this.tiles.covering(this.view.begin, this.view.end, this.nsPerPixel)) {
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
  private call(tile: Tile, i: number, lane: number): Call {
    const begin = tile.begin + tile.x[i] * tile.step;
    const [process] = this.about.lanes[lane];
    return { process, id: tile.id[i], name: this.about.labels[tile.label[i]][0], begin, end: begin + tile.w[i] * tile.step, lane };
  }
  /** Which lane a call of a thread at a depth is on. */
  lane(process: number, thread: number, depth: number): number {
    return this.about.lanes.findIndex(([p, t, d]) => p === process && t === thread && d === depth);
  }
  /** Where a call is drawn; null if it is out of view. */
  placeOf(call: Call): { x: number; y: number; width: number } | null {
    const y = this.top + this.laneTop[call.lane] - this.view.scroll;
    const [a, b] = [this.x(call.begin), this.x(call.end)];
    if (b < LEFT || a > this.width || y < this.top || y > this.height) return null;
    return { x: Math.max(a, LEFT), y: y + ROW / 2, width: Math.min(b, this.width) - Math.max(a, LEFT) };
  }

  private draw(): void {
    const { pen, palette } = this;
    pen.fillStyle = palette.ground;
    pen.fillRect(0, 0, this.width, this.height);
    this.drawAxis();
    this.drawSteps();
    const visible = [...this.tiles.covering(this.view.begin, this.view.end, this.nsPerPixel)];
    if (this.about.summary.peak_memory.length) this.drawMemory(visible);
    pen.save();
    pen.beginPath();
    pen.rect(0, this.top, this.width, this.height - this.top);
    pen.clip();
    pen.fillStyle = palette.panel;
    for (const track of this.tracks) pen.fillRect(0, this.top + track.top - this.view.scroll, this.width, HEAD - 4);
    for (const [tile, from, to] of visible) for (const span of tile.spans.values()) {
      const y = this.top + this.laneTop[span.lane] - this.view.scroll;
      if (y > this.top - ROW && y < this.height) this.drawLane(tile, span.from, span.to, y, from, to);
    }
    this.drawSelection();
    pen.fillStyle = palette.panel;
    pen.fillRect(0, this.top, LEFT - 1, this.height);
    pen.fillStyle = palette.ink;
    for (const track of this.tracks) pen.fillText(this.fitted(track.title, LEFT - 20), 12, this.top + track.top - this.view.scroll + 13);
    pen.restore();
    pen.fillStyle = palette.line;
    pen.fillRect(LEFT - 1, 0, 1, this.height);
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
    pen.fillRect(0, AXIS, this.width, STEPS);
    for (const step of this.about.steps) {
      const [a, b] = [Math.max(LEFT, this.x(step.begin)), Math.min(this.width, this.x(step.end))];
      if (b <= a || step.process !== this.about.steps[0].process) continue;
      pen.fillStyle = step.step % 2 ? palette.ground : palette.line;
      pen.fillRect(a, AXIS, b - a, STEPS - 1);
      if (b - a > 44) {
        pen.fillStyle = palette.ink;
        pen.fillText(`step ${step.step}`, a + 5, AXIS + 12);
      }
    }
  }

  private drawMemory(visible: [Tile, number, number][]): void {
    const { pen, palette } = this;
    const peak = this.about.summary.peak_memory[0].bytes || 1;
    const floor = AXIS + STEPS + MEMORY;
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
    pen.fillRect(0, AXIS + STEPS, LEFT - 1, MEMORY);
    pen.fillStyle = palette.ink;
    pen.fillText("memory", 12, AXIS + STEPS + 16);
    pen.fillStyle = palette.soft;
    pen.fillText(`peak ${units.bytes(peak)}`, 12, AXIS + STEPS + 32);
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
      const shade = faded && !this.matches.has(this.about.labels[name][0]) ? 0 : tile.w[i] >= 1 || tile.calls[i] === 1 ? SHADES - 1 : tile.cover[i] >> 5;
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
    this.pen.fillStyle = document.documentElement.dataset.theme === "dark" ? "#0d1016" : "#ffffff";
    if (fits >= text.length) this.pen.fillText(text, x, y + 12);
    else if (fits > 3) this.pen.fillText(`${text.slice(0, fits - 1)}…`, x, y + 12);
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
    if (this.pen.measureText(text).width <= room) return text;
    let cut = text;
    while (cut && this.pen.measureText(`${cut}…`).width > room) cut = cut.slice(0, -1);
    return `${cut}…`;
  }
}
