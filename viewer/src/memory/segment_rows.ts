/** Segments as rows of one canvas that is as large as the screen: blocks, what is free, and what rounding takes. */
import { blend } from "../families.ts";
import { DrawnCanvas } from "../drawn_canvas.ts";
import * as units from "../units.ts";
import { CATEGORIES, FREE, PENDING, type Segment } from "./answers.ts";
import { hatch, paint, type Paint, plain } from "./colors.ts";

export const ROW = 17;
const BAR = 17;

export type Hit = { row: number; piece: number };

export class SegmentRows extends DrawnCanvas {
  rows: Segment[] = [];
  /** The number of the first of `rows`, and the first pixel that is in view. */
  first = 0;
  top = 0;
  largest = 1;
  oneScale = false;
  chosen: string | null = null;
  block: number | null = null;
  private paint: Paint = paint();
  private hover: { x: number; y: number } | null = null;

  recolor(): void {
    this.paint = paint();
    this.redraw();
  }
  resize(): void {
    this.takeSize();
    this.redraw();
  }
  point(at: { x: number; y: number } | null): void {
    this.hover = at;
    this.redraw();
  }

  private scale(segment: Segment): number {
    return (this.width - 12) / (this.oneScale ? this.largest : segment.size);
  }
  private y(row: number): number {
    return (this.first + row) * ROW - this.top;
  }
  /** What is drawn at a point; piece -1 is the row alone. */
  at(x: number, y: number): Hit | null {
    const row = Math.floor((y + this.top) / ROW) - this.first;
    const segment = this.rows[row];
    if (!segment) return null;
    const place = x / this.scale(segment);
    const { begin, size } = segment.pieces;
    // The last that begins before: a small piece is at least a pixel wide.
    for (let i = begin.length - 1; i >= 0; i--) if (begin[i] <= place) return { row, piece: place <= begin[i] + Math.max(size[i], 1.5 / this.scale(segment)) ? i : -1 };
    return { row, piece: -1 };
  }

  protected draw(): void {
    const { pen, paint: { palette } } = this;
    pen.fillStyle = palette.panel;
    pen.fillRect(0, 0, this.width, this.height);
    this.rows.forEach((segment, row) => {
      const y = this.y(row);
      if (y > -ROW && y < this.height) this.drawRow(segment, y);
    });
    if (this.hover) this.drawHover(this.hover);
  }

  private drawRow(segment: Segment, y: number): void {
    const { pen, paint: { palette, category: colors } } = this;
    const scale = this.scale(segment);
    const { begin, size, requested, state, category, older, block } = segment.pieces;
    pen.fillStyle = palette.ground;
    pen.fillRect(0, y, segment.size * scale, BAR);
    for (let i = 0; i < begin.length; i++) {
      if (state[i] === FREE) continue;
      const x = begin[i] * scale;
      const wide = Math.max(size[i] * scale - (size[i] * scale > 3 ? 1 : 0), 0.8);
      const color = colors[category[i]];
      pen.fillStyle = older[i] ? blend(color, palette.panel, 0.35) : state[i] === PENDING ? blend(color, palette.panel, 0.45) : color;
      pen.fillRect(x, y, wide, BAR);
      if (older[i]) { pen.fillStyle = hatch(pen, color); pen.fillRect(x, y, wide, BAR); }
      const asked = requested[i] * scale;
      if (wide - asked > 1) { // what rounding takes
        pen.fillStyle = blend(color, palette.panel, 0.3);
        pen.fillRect(x + asked, y, wide - asked, BAR);
      }
      if (block[i] === this.block && this.block !== null && this.block >= 0) {
        pen.strokeStyle = palette.ink;
        pen.lineWidth = 2;
        pen.strokeRect(x, y + 1, Math.max(wide, 3), BAR - 2);
      } else if (wide > 60 && !older[i]) {
        pen.fillStyle = this.paint.ink;
        pen.fillText(units.bytes(requested[i]), x + 5, y + 12);
      }
    }
    pen.strokeStyle = segment.address === this.chosen ? palette.accent : palette.line;
    pen.lineWidth = segment.address === this.chosen ? 2 : 1;
    pen.strokeRect(0.5, y + 0.5, segment.size * scale - 1, BAR - 1);
  }

  /** What a piece is, in words. */
  told(hit: Hit): string[] {
    const segment = this.rows[hit.row];
    const { size, requested, state, category, older, block } = segment.pieces;
    const i = hit.piece;
    if (i < 0) return [`${segment.region ? "region" : "segment"} ${segment.address}`];
    if (state[i] === FREE) return [`${units.bytes(size[i])} ${segment.region ? "between blocks" : "free"}`];
    if (block[i] === -2) return [`several small blocks, most of them ${plain(CATEGORIES[category[i]])}`];
    const more = [plain(CATEGORIES[category[i]]), state[i] === PENDING ? "freed, a stream still uses it" : "", older[i] ? "older than the history" : ""].filter(Boolean).join(", ");
    return [`block of ${units.bytes(requested[i])}${size[i] > requested[i] ? `, takes ${units.bytes(size[i])}` : ""}`, more];
  }
  private drawHover({ x, y }: { x: number; y: number }): void {
    const hit = this.at(x, y);
    if (!hit) return;
    const { pen, paint: { palette } } = this;
    const lines = this.told(hit);
    const wide = Math.max(...lines.map((line) => pen.measureText(line).width)) + 16;
    const tall = lines.length * 15 + 9;
    const left = Math.max(Math.min(x + 12, this.width - wide - 4), 0);
    const top = y + tall + 20 > this.height ? y - tall - 8 : y + 16;
    pen.fillStyle = palette.panel;
    pen.strokeStyle = palette.line;
    pen.lineWidth = 1;
    pen.beginPath();
    pen.roundRect(left + 0.5, top + 0.5, wide, tall, 6);
    pen.fill();
    pen.stroke();
    lines.forEach((line, at) => {
      pen.fillStyle = at ? palette.soft : palette.ink;
      pen.fillText(line, left + 8, top + 16 + at * 15);
    });
  }
}
