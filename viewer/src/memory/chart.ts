/** Memory over time on one canvas: bands or single blocks, drawn once for each answer, then only moved and scaled. */
import { blend } from "../families.ts";
import * as units from "../units.ts";
import { DrawnCanvas } from "../drawn_canvas.ts";
import { moving } from "../moving.ts";
import { pointer } from "../screens/timeline.tsx";
import type { Memory, Section } from "./answers.ts";
import { CATEGORIES } from "./answers.ts";
import { AxisView, byteTicks, ticks } from "./axis.ts";
import { paint, type Paint, plain, turns } from "./colors.ts";

const LEFT = 66;
const RIGHT = 10;
const TOP = 28;
const BOTTOM = 20;
const LEAST = { time: 1_000, events: 8 };

/** What is under the pointer. */
export type Found = { cell: number; bytes: number; block?: number; size?: number; category?: string; older?: boolean; name?: string };
/** What is stacked: cells first <= cell < last, and bytes, in all cells or in each. */
type Shape = { first: number; last: number; size: number | number[]; color: string; older: boolean };
/** A part of a shape: cells from, to, and bytes from low to high. */
type Run = { from: number; to: number; low: number; high: number };
export type Mark = { kind: string; event: number; time: number | null; text: string };
export type Taken = { instant: (event: number, found: Found | null) => void; area: (begin: number, end: number) => void; moved: () => void; cleared: () => void };

export class MemoryChart extends DrawnCanvas {
  readonly view: AxisView;
  area: { begin: number; end: number } | null = null;
  marks: Mark[] = [];
  selected: number | null = null;
  picked: string | null = null;
  fits = false;
  /** Whether the view has moved and is not yet in the address. */
  isMoving = false;
  private readonly bitmap = document.createElement("canvas");
  private stale = true;
  /** The greatest level that is drawn. */
  private most = 1;
  private paint: Paint = paint();
  private hover: { x: number; y: number } | null = null;
  private press: { x: number; place: number; pan: boolean; moved: boolean } | null = null;

  constructor(canvas: HTMLCanvasElement, public answer: Memory, private readonly taken: Taken) {
    super(canvas);
    this.view = new AxisView(answer.end, LEAST[answer.axis]);
    this.view.begin = answer.begin;
    this.view.end = answer.finish;
  }

  /** How many cells fit. */
  get cells(): number {
    return Math.min(Math.max(Math.round(this.plot), 50), 1_500);
  }
  private get plot(): number {
    return Math.max(this.width - LEFT - RIGHT, 1);
  }
  private get high(): number {
    return Math.max(this.height - TOP - BOTTOM, 1);
  }
  x = (place: number): number => LEFT + ((place - this.view.begin) / this.view.span) * this.plot;
  place = (x: number): number => this.view.begin + ((x - LEFT) / this.plot) * this.view.span;
  private y = (bytes: number): number => TOP + this.high * (1 - bytes / (this.most * 1.04));

  show(answer: Memory): void {
    this.answer = answer;
    this.view.whole = answer.end;
    this.compose();
  }
  recolor(): void {
    this.paint = paint();
    this.compose();
  }
  resize(): boolean {
    const before = this.cells;
    this.takeSize();
    this.compose();
    return this.cells !== before;
  }

  private compose(): void {
    this.stale = true;
    const { most, reserved, peak } = this.answer;
    const inView = Math.max(...most, ...(reserved ?? []), 1);
    this.most = this.fits ? inView : Math.max(peak, inView);
    this.redraw();
  }
  /** The shapes from the bottom up: blocks, or bands, then the rest. */
  private get shapes(): Shape[] {
    const { answer, paint } = this;
    const cells = answer.most.length;
    const found: Shape[] = [];
    if (answer.blocks) {
      const { first, last, size, category, older } = answer.blocks;
      for (let i = 0; i < size.length; i++) found.push({ first: first[i], last: last[i], size: size[i], color: i % 2 ? paint.category[category[i]] : paint.paler[category[i]], older: older[i] === 1 });
    } else if (answer.bands) {
      const shades = turns(answer.bands);
      answer.bands.forEach((band, at) => found.push({ first: 0, last: cells, size: band.bytes, color: paint.shade(band.category, shades[at]), older: band.older }));
    } else found.push({ first: 0, last: cells, size: answer.most, color: paint.palette.memory, older: false });
    if (answer.rest?.bytes.length) found.push({ first: 0, last: cells, size: answer.rest.bytes, color: paint.rest, older: false });
    return found;
  }
  /** Draw the shapes once, a column of pixels per cell. Edges are rounded, so that nothing is between them. */
  private fill(): void {
    this.stale = false;
    const { answer, bitmap } = this;
    const cells = Math.max(answer.most.length, 1);
    const rows = Math.max(Math.round(this.high * devicePixelRatio), 1);
    bitmap.width = cells;
    bitmap.height = rows;
    const pen = bitmap.getContext("2d")!;
    const image = pen.createImageData(cells, rows);
    const pixels = new Uint32Array(image.data.buffer);
    const scale = rows / (this.most * 1.04);
    const base = new Float64Array(cells);
    const { panel } = this.paint.palette;
    for (const { first, last, size, color, older } of this.shapes) {
      const [full, edge, pale] = [pixel(color), pixel(blend(color, panel, 0.55)), pixel(blend(color, panel, 0.35))];
      for (let cell = first; cell < last; cell++) {
        const low = base[cell];
        const high = low + (typeof size === "number" ? size : size[cell]);
        base[cell] = high;
        const top = rows - Math.round(high * scale);
        const floor = rows - Math.round(low * scale);
        for (let y = Math.max(top, 0); y < floor; y++) pixels[y * cells + cell] = y === top && floor - top > 3 ? edge : older && (cell + y) % 6 > 1 ? pale : full;
      }
    }
    pen.putImageData(image, 0, 0);
  }
  /** Where one shape lies. */
  private runsOf(number: number): Run[] {
    const base = new Float64Array(this.answer.most.length);
    const { shapes } = this;
    const height = (shape: Shape, cell: number) => (typeof shape.size === "number" ? shape.size : shape.size[cell]);
    for (const shape of shapes.slice(0, number)) for (let cell = shape.first; cell < shape.last; cell++) base[cell] += height(shape, cell);
    const [shape, runs] = [shapes[number], [] as Run[]];
    for (let cell = shape.first; cell < shape.last; cell++) {
      const before = runs.at(-1);
      const high = base[cell] + height(shape, cell);
      if (before && before.low === base[cell] && before.high === high) before.to = cell + 1;
      else runs.push({ from: cell, to: cell + 1, low: base[cell], high });
    }
    return runs;
  }
  /** The shape at a cell and a level; -1 for none. */
  private shapeAt(cell: number, bytes: number): number {
    let [high, at] = [0, -1];
    for (const { first, last, size } of this.shapes) {
      at++;
      if (cell < first || cell >= last) continue;
      high += typeof size === "number" ? size : size[cell];
      if (bytes < high) return at;
    }
    return -1;
  }

  /** The cell of the answer at a place of the axis; null outside of what was answered. */
  private cell(place: number): number | null {
    const { begin, finish, most } = this.answer;
    const cell = Math.floor(((place - begin) / (finish - begin)) * most.length);
    return cell >= 0 && cell < most.length ? cell : null;
  }
  /** What is drawn at a point. */
  at(x: number, y: number): Found | null {
    const cell = this.cell(this.place(x));
    if (cell === null || x < LEFT || x > LEFT + this.plot) return null;
    const bytes = (1 - (y - TOP) / this.high) * this.most * 1.04;
    const found: Found = { cell, bytes: this.answer.most[cell] };
    const number = bytes < 0 ? -1 : this.shapeAt(cell, bytes);
    return number < 0 ? found : this.described(number, cell, found);
  }
  private described(number: number, cell: number, found: Found): Found {
    const { blocks, bands, rest } = this.answer;
    if (blocks && number < blocks.block.length) return { ...found, block: blocks.block[number], size: blocks.size[number], category: CATEGORIES[blocks.category[number]], older: blocks.older[number] === 1 };
    if (bands && number < bands.length) return { ...found, name: bands[number].name, size: bands[number].bytes[cell], category: bands[number].category, older: bands[number].older };
    if (!blocks && !bands) return found;
    return { ...found, name: `the rest: ${units.count(rest?.groups ?? 0)} ${blocks ? "smaller blocks" : "others"}`, size: rest?.bytes[cell] };
  }
  /** The shape above or below a block at a cell, for the keyboard. */
  neighbour(block: number | null, event: number, up: boolean): number | null {
    const columns = this.answer.blocks;
    const cell = this.cellOf(event);
    if (!columns || cell === null) return null;
    const here = columns.block.filter((_, i) => columns.first[i] <= cell && cell < columns.last[i]);
    if (!here.length) return null;
    const at = block === null ? -1 : here.indexOf(block);
    return here[at < 0 ? (up ? 0 : here.length - 1) : Math.min(Math.max(at + (up ? 1 : -1), 0), here.length - 1)];
  }
  /** The cell that shows an event, or one near it. */
  cellOf(event: number): number | null {
    const { at_events } = this.answer;
    if (!at_events.length) return null;
    let [low, high] = [0, at_events.length - 1];
    while (low < high) {
      const middle = (low + high) >> 1;
      if (at_events[middle] < event) low = middle + 1;
      else high = middle;
    }
    return low;
  }
  /** What part of the axis a block is drawn in. */
  spanOf(block: number | null): { begin: number; end: number } | null {
    const { blocks, begin, finish, most } = this.answer;
    const at = block === null ? -1 : (blocks?.block.indexOf(block) ?? -1);
    if (at < 0) return null;
    const wide = (finish - begin) / most.length;
    return { begin: begin + blocks!.first[at] * wide, end: begin + blocks!.last[at] * wide };
  }
  /** Where an instant is on the axis. */
  placeOf(moment: { event: number; time?: number | null }): number {
    return this.answer.axis === "time" ? (moment.time ?? 0) : moment.event;
  }

  protected draw(): void {
    const { pen, paint: { palette }, answer, view } = this;
    if (this.stale) this.fill();
    pen.fillStyle = palette.panel;
    pen.fillRect(0, 0, this.width, this.height);
    this.drawGrid();
    pen.save();
    pen.beginPath();
    pen.rect(LEFT, 0, this.plot, this.height);
    pen.clip();
    pen.imageSmoothingEnabled = false;
    const [from, to] = [this.x(answer.begin), this.x(answer.finish)];
    if (answer.most.length) pen.drawImage(this.bitmap, from, TOP, to - from, this.high);
    this.drawReserved();
    this.drawSelection();
    if (this.area) {
      pen.fillStyle = `${palette.accent}2e`;
      pen.fillRect(this.x(this.area.begin), TOP, ((this.area.end - this.area.begin) / view.span) * this.plot, this.high);
    }
    this.drawMarks();
    this.drawInstant();
    pen.restore();
    if (this.hover && !this.press) this.drawHover(this.hover);
  }

  private drawGrid(): void {
    const { pen, paint: { palette } } = this;
    pen.textAlign = "right";
    for (const bytes of [0, ...byteTicks(this.most, Math.max(2, Math.floor(this.high / 48)))]) {
      const y = Math.round(this.y(bytes));
      pen.fillStyle = palette.line;
      pen.fillRect(LEFT, y, this.plot, 1);
      pen.fillStyle = palette.soft;
      pen.fillText(units.bytes(bytes), LEFT - 6, y + 4);
    }
    pen.textAlign = "left";
    for (const at of ticks(this.view.begin, this.view.end, Math.floor(this.plot / 120), this.answer.axis === "events" ? 1 : 0)) {
      const x = Math.round(this.x(at));
      const text = this.answer.axis === "time" ? units.time(at) : units.count(at);
      pen.fillStyle = palette.line;
      pen.fillRect(x, TOP + this.high, 1, 5);
      pen.fillStyle = palette.soft;
      if (x + pen.measureText(text).width + 4 < this.width) pen.fillText(text, x + 4, this.height - 6);
    }
  }
  private drawReserved(): void {
    const { pen, paint: { palette }, answer } = this;
    if (!answer.reserved) return;
    pen.strokeStyle = palette.soft;
    pen.lineWidth = 1;
    pen.setLineDash([4, 3]);
    pen.beginPath();
    const wide = (this.x(answer.finish) - this.x(answer.begin)) / answer.reserved.length;
    const start = this.x(answer.begin);
    answer.reserved.forEach((bytes, cell) => {
      const y = Math.round(this.y(bytes)) + 0.5;
      pen.lineTo(start + cell * wide, y);
      pen.lineTo(start + (cell + 1) * wide, y);
    });
    pen.stroke();
    pen.setLineDash([]);
  }
  private drawSelection(): void {
    const { pen, paint: { palette }, answer } = this;
    const number = this.selected !== null ? (answer.blocks?.block.indexOf(this.selected) ?? -1) : this.picked !== null ? (answer.bands?.findIndex((band) => band.name === this.picked) ?? -1) : -1;
    if (number < 0) return;
    const wide = (this.x(answer.finish) - this.x(answer.begin)) / answer.most.length;
    const start = this.x(answer.begin);
    pen.fillStyle = `${palette.ink}${answer.blocks ? "55" : "22"}`;
    pen.strokeStyle = palette.ink;
    pen.lineWidth = 1.5;
    pen.beginPath();
    for (const run of this.runsOf(number)) {
      const [x, y] = [start + run.from * wide, this.y(run.high)];
      pen.fillRect(x, y, (run.to - run.from) * wide, Math.max(this.y(run.low) - y, 1));
      pen.moveTo(x, y);
      pen.lineTo(x + (run.to - run.from) * wide, y);
    }
    pen.stroke();
  }
  private drawMarks(): void {
    const { pen, paint: { palette } } = this;
    const color = (kind: string) => (kind === "oom" || kind === "peak" ? palette.communication : palette.range);
    const labels: [number, number][] = [];
    for (const mark of this.marks) { // the first that has room is named
      const x = this.x(this.placeOf(mark));
      if (x < LEFT - 1 || x > LEFT + this.plot + 1) continue;
      pen.fillStyle = color(mark.kind);
      pen.fillRect(x - 0.5, TOP - 4, 1, mark.kind === "spikes" ? 8 : this.high + 4);
      pen.beginPath();
      pen.moveTo(x - 4, TOP - 9);
      pen.lineTo(x + 4, TOP - 9);
      pen.lineTo(x, TOP - 3);
      pen.fill();
      const wide = pen.measureText(mark.text).width;
      const left = Math.min(x + 7, LEFT + this.plot - wide - 2);
      if (mark.kind !== "spikes" && labels.every(([a, b]) => left > b || left + wide < a)) { pen.fillText(mark.text, left, 12); labels.push([left - 10, left + wide + 10]); }
    }
  }
  private drawInstant(): void {
    const { pen, paint: { palette }, answer } = this;
    if (answer.at.event === answer.peak_at.event) return;
    const x = this.x(this.placeOf(answer.at));
    pen.fillStyle = palette.accent;
    pen.fillRect(x - 0.75, TOP - 4, 1.5, this.high + 4);
    const text = units.bytes(answer.allocated);
    const wide = pen.measureText(text).width;
    const left = Math.min(x + 4, LEFT + this.plot - wide - 4);
    pen.fillStyle = palette.panel;
    pen.fillRect(left - 2, TOP + 1, wide + 4, 14);
    pen.fillStyle = palette.accent;
    pen.fillText(text, left, TOP + 12);
  }
  private drawHover({ x, y }: { x: number; y: number }): void {
    const found = this.at(x, y);
    if (!found) return;
    const { pen, paint: { palette } } = this;
    const what = found.name ?? (found.block === undefined ? "allocated" : `block of ${units.bytes(found.size!)}`);
    const event = this.answer.at_events[found.cell];
    const lines = [
      what,
      [found.size !== undefined && found.block === undefined ? units.bytes(found.size) : "", found.category ? plain(found.category) : "", found.older ? "older than the history" : ""].filter(Boolean).join(", "),
      `of ${units.bytes(found.bytes)} at ${this.answer.axis === "time" ? units.time(this.place(x)) : `event ${units.count(event)}`}`,
    ].filter(Boolean);
    const wide = Math.min(Math.max(...lines.map((line) => pen.measureText(line).width)) + 16, 420);
    const tall = lines.length * 15 + 9;
    const left = Math.min(x + 12, this.width - wide - 4);
    const top = Math.min(Math.max(y - tall - 8, 2), this.height - tall - 2);
    pen.fillStyle = palette.panel;
    pen.strokeStyle = palette.line;
    pen.lineWidth = 1;
    pen.beginPath();
    pen.roundRect(left + 0.5, top + 0.5, wide, tall, 6);
    pen.fill();
    pen.stroke();
    lines.forEach((line, at) => {
      pen.fillStyle = at === 0 ? palette.ink : palette.soft;
      pen.fillText(this.fitted(line, wide - 14), left + 8, top + 16 + at * 15);
    });
  }
  private fitted(text: string, room: number): string {
    if (this.pen.measureText(text).width <= room) return text;
    let cut = text;
    while (cut && this.pen.measureText(`…${cut}`).width > room) cut = cut.slice(1);
    return `…${cut}`;
  }

  zoom(factor: number, x: number): void {
    this.view.zoom(factor, Math.min(Math.max((x - LEFT) / this.plot, 0), 1));
    this.taken.moved();
    this.redraw();
  }
  pan(pixels: number): void {
    this.view.pan(pixels / this.plot);
    this.taken.moved();
    this.redraw();
  }
  look(begin: number, end: number): void {
    this.view.set(begin, end);
    this.taken.moved();
    this.redraw();
  }

  /** Pointer and wheel; keys are in keys.ts. */
  listen(): () => void {
    const { canvas } = this;
    const down = (event: PointerEvent) => {
      canvas.setPointerCapture(event.pointerId);
      this.press = { x: event.offsetX, place: this.place(event.offsetX), pan: event.shiftKey, moved: false };
    };
    const move = (event: PointerEvent) => {
      pointer.x = event.offsetX;
      this.hover = { x: event.offsetX, y: event.offsetY };
      const { press } = this;
      if (press) {
        press.moved ||= Math.abs(event.offsetX - press.x) > 4;
        if (press.pan) this.pan(-event.movementX);
        else if (press.moved) {
          const place = Math.min(Math.max(this.place(event.offsetX), this.view.begin), this.view.end);
          this.area = { begin: Math.min(place, press.place), end: Math.max(place, press.place) };
        }
      }
      this.redraw();
    };
    const up = (event: PointerEvent) => {
      const { press } = this;
      this.press = null;
      if (!press || press.pan) return;
      if (press.moved && this.area) return this.taken.area(this.area.begin, this.area.end);
      // Beside the curve is its first or last moment.
      const found = this.at(Math.min(Math.max(event.offsetX, LEFT), LEFT + this.plot - 1), event.offsetY);
      if (found) this.taken.instant(this.answer.at_events[found.cell], found);
      else this.taken.cleared();
    };
    const leave = () => { this.hover = null; this.redraw(); };
    const wheel = (event: WheelEvent) => {
      if (event.ctrlKey || event.metaKey) this.zoom(Math.exp(event.deltaY * 0.002), event.offsetX);
      else if (event.shiftKey || Math.abs(event.deltaX) > Math.abs(event.deltaY)) this.pan(event.deltaX || event.deltaY);
      else return;
      event.preventDefault();
    };
    const parts: [string, EventListener][] = [["pointerdown", down as EventListener], ["pointermove", move as EventListener], ["pointerup", up as EventListener], ["pointerleave", leave], ["dblclick", () => moving.view?.fit()]];
    for (const [name, handler] of parts) canvas.addEventListener(name, handler);
    canvas.addEventListener("wheel", wheel, { passive: false });
    return () => {
      for (const [name, handler] of parts) canvas.removeEventListener(name, handler);
      canvas.removeEventListener("wheel", wheel);
    };
  }
}

/** Moments of what stands out, to be marked in the curve. */
export function marksOf(sections: Section[]): Mark[] {
  return sections.filter(({ kind }) => kind !== "fragmentation").flatMap(({ kind, rows }) =>
    rows.filter((row) => row.event !== undefined).map((row) => ({ kind, event: row.event!, time: row.time ?? null, text: kind === "peak" ? `peak ${row.text}` : kind === "oom" ? `out of memory: ${row.text}` : row.text })));
}

/** A colour as the four bytes of a pixel. */
function pixel(hex: string): number {
  const [r, g, b] = [1, 3, 5].map((at) => parseInt(hex.slice(at, at + 2), 16));
  return ((255 << 24) | (b << 16) | (g << 8) | r) >>> 0;
}
