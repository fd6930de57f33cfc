/** What stands above the tracks: the axis, marks, steps, memory and counters. */
import type { About } from "../api.ts";
import type { colors } from "../families.ts";
import * as units from "../units.ts";
import type { Mark } from "./marks.ts";
import type { Tile } from "./tiles.ts";

export const LEFT = 152;
export const AXIS = 28;
export const STEPS = 18;
export const MEMORY = 64;
export const MARKS = 16;
export const COUNTER = 34;
const LEAST_STEP = 3;

export type Counters = { begin: number; end: number; counters: { name: string; rates: number[] }[] };

/** What is drawn, and on what. */
export type Sheet = {
  readonly pen: CanvasRenderingContext2D; readonly palette: ReturnType<typeof colors>; readonly textColor: string;
  readonly width: number; readonly height: number; readonly nsPerPixel: number;
  readonly view: { begin: number; end: number };
  readonly about: About; readonly marks: Mark[]; readonly counters: Counters | null;
  readonly stepsTop: number; readonly memoryTop: number; readonly countersTop: number;
  x: (time: number) => number;
  fitted: (text: string, room: number) => string;
  widthOf: (text: string) => number;
};

export function drawAxis(sheet: Sheet): void {
  const { pen, palette } = sheet;
  pen.fillStyle = palette.panel;
  pen.fillRect(0, 0, sheet.width, AXIS);
  const rough = sheet.nsPerPixel * 130;
  const power = 10 ** Math.floor(Math.log10(rough));
  const every = [1, 2, 5, 10].map((many) => many * power).find((many) => many >= rough)!;
  for (let time = Math.ceil(sheet.view.begin / every) * every; time < sheet.view.end; time += every) {
    const x = Math.round(sheet.x(time));
    pen.fillStyle = palette.line;
    pen.fillRect(x, AXIS - 6, 1, sheet.height);
    const text = units.time(time);
    pen.fillStyle = palette.soft;
    if (x + 4 + sheet.widthOf(text) < sheet.width) pen.fillText(text, x + 4, 18);
  }
}

export function drawSteps(sheet: Sheet): void {
  const { pen, palette } = sheet;
  pen.fillStyle = palette.panel;
  pen.fillRect(0, sheet.stepsTop, sheet.width, STEPS);
  const { steps } = sheet.about;
  let narrow = 0;
  for (const each of steps) {
    if (each[2] < sheet.view.begin || each[1] > sheet.view.end) continue;
    const [step, begin, end] = each;
    if ((end - begin) / sheet.nsPerPixel < LEAST_STEP) { narrow++; continue; } // a blur says less than their number
    const [a, b] = [Math.max(LEFT, sheet.x(begin)), Math.min(sheet.width, sheet.x(end))];
    pen.fillStyle = step % 2 ? palette.ground : palette.line;
    pen.fillRect(a, sheet.stepsTop, b - a, STEPS - 1);
    const text = `step ${step}`;
    if (b - a > 44 && sheet.widthOf(text) + 10 <= b - a) {
      pen.fillStyle = palette.ink;
      pen.fillText(text, a + 5, sheet.stepsTop + 12);
    }
  }
  if (narrow > 1) {
    pen.fillStyle = palette.soft;
    pen.fillText(`${units.count(narrow)} ${narrow === steps.length ? "steps" : "short steps"} in view`, LEFT + 5, sheet.stepsTop + 12);
  }
}

/** Moments that the program marked, and areas that were kept here. */
export function drawMarks(sheet: Sheet): void {
  if (sheet.stepsTop === AXIS) return;
  const { pen, palette } = sheet;
  pen.fillStyle = palette.panel;
  pen.fillRect(0, AXIS, sheet.width, MARKS);
  pen.fillStyle = palette.soft;
  pen.fillText("marks", 12, AXIS + 12);
  for (const { begin, end, name } of sheet.marks) {
    const [a, b] = [Math.max(LEFT, sheet.x(begin)), Math.min(sheet.width, sheet.x(end))];
    if (b < LEFT || a > sheet.width) continue;
    pen.fillStyle = palette.range;
    pen.fillRect(a, AXIS + 1, Math.max(b - a, 2), MARKS - 3);
    pen.fillStyle = sheet.textColor;
    if (b - a > 28) pen.fillText(sheet.fitted(name, b - a - 8), a + 4, AXIS + 11);
  }
  let free = LEFT;
  for (const { time, name } of sheet.about.marks) {
    const x = sheet.x(time);
    if (x < LEFT || x > sheet.width) continue;
    pen.fillStyle = palette.range;
    pen.beginPath();
    pen.moveTo(x, AXIS + 2);
    pen.lineTo(x + 7, AXIS + 6);
    pen.lineTo(x, AXIS + 10);
    pen.fill();
    pen.fillRect(x, AXIS + 2, 1, sheet.height);
    if (x >= free) {
      pen.fillStyle = palette.ink;
      pen.fillText(sheet.fitted(name, 120), x + 10, AXIS + 11);
      free = x + 20 + Math.min(120, sheet.widthOf(name));
    }
  }
}

export function drawCounters(sheet: Sheet): void {
  const { pen, palette } = sheet;
  sheet.about.counters.forEach((name, number) => {
    const top = sheet.countersTop + number * COUNTER;
    pen.fillStyle = palette.panel;
    pen.fillRect(0, top, LEFT - 1, COUNTER);
    pen.fillStyle = palette.ink;
    pen.fillText(sheet.fitted(name, LEFT - 20), 12, top + 14);
    const rates = sheet.counters?.counters.find((each) => each.name === name)?.rates;
    if (!rates || !sheet.counters) return;
    const most = Math.max(...rates, 1);
    pen.fillStyle = palette.soft;
    pen.fillText(`to ${units.flops(most)}/s`, 12, top + 28);
    pen.fillStyle = palette.module;
    const wide = (sheet.counters.end - sheet.counters.begin) / rates.length;
    rates.forEach((rate, at) => {
      const x = sheet.x(sheet.counters!.begin + at * wide);
      const high = (rate / most) * (COUNTER - 6);
      if (x > LEFT && x < sheet.width) pen.fillRect(x, top + COUNTER - high, Math.max(1, wide / sheet.nsPerPixel), high);
    });
  });
}

export function drawMemory(sheet: Sheet, visible: [Tile, number, number, number][]): void {
  const { pen, palette } = sheet;
  const peak = sheet.about.summary.peak_memory[0].bytes || 1;
  const floor = sheet.memoryTop + MEMORY;
  pen.fillStyle = palette.memory;
  for (const [tile, from, to] of visible) drawOutline(sheet, tile, from, to, floor, (MEMORY - 12) / peak);
  pen.fillStyle = palette.panel;
  pen.fillRect(0, sheet.memoryTop, LEFT - 1, MEMORY);
  pen.fillStyle = palette.ink;
  pen.fillText("memory", 12, sheet.memoryTop + 16);
  pen.fillStyle = palette.soft;
  pen.fillText(`peak ${units.bytes(peak)}`, 12, sheet.memoryTop + 32);
}

/** The most in each pixel of the screen, pixels of the same height as one box. */
function drawOutline(sheet: Sheet, tile: Tile, from: number, to: number, floor: number, scale: number): void {
  const { pen } = sheet;
  const first = Math.max(0, Math.floor((Math.max(from, sheet.view.begin) - tile.begin) / tile.step));
  const last = Math.min(Math.ceil((Math.min(to, sheet.view.end) - tile.begin) / tile.step), tile.high.length);
  const offset = sheet.x(tile.begin);
  const wide = tile.step / sheet.nsPerPixel;
  let [begin, high] = [Math.max(LEFT, Math.floor(offset + first * wide)), 0];
  const fill = (end: number) => { if (end > begin && high > 0) pen.fillRect(begin, floor - high, end - begin, high); };
  for (let i = first; i < last;) {
    const pixel = Math.max(LEFT, Math.floor(offset + i * wide));
    let most = 0;
    let next = i;
    do most = Math.max(most, tile.high[next++]); while (next < last && Math.floor(offset + next * wide) <= pixel);
    const wanted = Math.round(most * scale * 2) / 2;
    if (wanted !== high) { fill(pixel); [begin, high] = [pixel, wanted]; }
    i = next;
  }
  fill(Math.min(sheet.width, Math.ceil(offset + last * wide)));
}
