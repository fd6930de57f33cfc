/** An icicle: boxes as wide as their part of the whole, below (or above) what holds them. By pointer and by arrows. */
import { useEffect, useRef } from "preact/hooks";
import { blend, colors, withoutSpace } from "./families.ts";
import { theme } from "./state.ts";
import { penFor } from "./widgets.tsx";

/** Nodes by their positions, parents before their children, the widest first; -1 is the parent of roots. */
export type Tree = { parent: number[]; total: number[] };
export type Box = { at: number; depth: number; from: number; to: number };
export type Look = { text: (at: number) => string; color: (at: number, palette: ReturnType<typeof colors>) => string; pale?: (at: number) => boolean };
type Props = { tree: Tree; look: Look; top: number; chosen: number; name: string; testid: string; inverted?: boolean; withoutRoot?: boolean; onChoose: (at: number) => void; onTop?: (at: number) => void; onHover?: (at: number) => void };

const ROW = 17;
const NARROW = 0.5;

export function Icicle({ tree, look, top, chosen, name, testid, inverted = false, withoutRoot = false, onChoose, onTop, onHover }: Props) {
  const canvas = useRef<HTMLCanvasElement>(null);
  const laid = useRef<{ boxes: Box[]; rest: Box[]; rows: number }>({ boxes: [], rest: [], rows: 1 });
  const draw = () => {
    if (!canvas.current) return;
    const width = canvas.current.getBoundingClientRect().width;
    laid.current = layout(tree, top, width, withoutRoot);
    const { rows } = laid.current;
    canvas.current.style.height = `${rows * ROW + 1}px`;
    paint(canvas.current, laid.current, look, chosen, top, inverted);
  };
  useEffect(() => {
    draw();
    let before = canvas.current!.getBoundingClientRect().width;
    const watched = new ResizeObserver(() => {
      const now = canvas.current?.getBoundingClientRect().width ?? before;
      if (now !== before) { before = now; draw(); }
    });
    watched.observe(canvas.current!);
    return () => watched.disconnect();
  });
  const row = (depth: number) => (inverted ? laid.current.rows - 1 - depth : depth);
  const find = (event: MouseEvent): number => {
    const wide = canvas.current!.getBoundingClientRect().width;
    const [x, depth] = [event.offsetX / wide, row(Math.floor(event.offsetY / ROW))];
    return laid.current.boxes.find((box) => box.depth === depth && x >= box.from && x < box.to)?.at ?? -1;
  };
  const key = (event: KeyboardEvent) => {
    const { boxes } = laid.current;
    const here = boxes.find((box) => box.at === chosen) ?? null;
    const level = here ? boxes.filter((box) => box.depth === here.depth).sort((a, b) => a.from - b.from) : [];
    const at = here ? level.indexOf(here) : -1;
    const [inward, outward] = inverted ? ["ArrowUp", "ArrowDown"] : ["ArrowDown", "ArrowUp"];
    let next: Box | undefined;
    if (event.key === inward) next = here ? boxes.find((box) => box.depth === here.depth + 1 && box.from >= here.from - 1e-9 && box.to <= here.to + 1e-9) : boxes[0];
    else if (event.key === outward) next = here ? boxes.find((box) => box.at === tree.parent[here.at]) : boxes[0];
    else if (event.key === "ArrowRight") next = here ? level[at + 1] : boxes[0];
    else if (event.key === "ArrowLeft") next = here ? level[at - 1] : boxes[0];
    else if (event.key === "Enter" && chosen >= 0) { onTop?.(chosen); event.preventDefault(); return; }
    else if (event.key === "Escape" || event.key === "Backspace") {
      if (top >= 0) onTop?.(tree.parent[top]);
      else if (chosen >= 0) onChoose(-1);
      return;
    } else return;
    event.preventDefault();
    if (!next) return;
    onChoose(next.at);
    const frame = canvas.current!.parentElement!;
    const y = row(next.depth) * ROW;
    if (y < frame.scrollTop) frame.scrollTop = y;
    else if (y + 2 * ROW > frame.scrollTop + frame.clientHeight) frame.scrollTop = y + 2 * ROW - frame.clientHeight;
  };
  return <canvas ref={canvas} class="icicle" data-testid={testid} tabIndex={0} role="img" aria-label={name} onKeyDown={key} onMouseMove={(event) => onHover?.(find(event))} onMouseLeave={() => onHover?.(-1)} onClick={(event) => { const at = find(event); onChoose(at); }} onDblClick={(event) => { const at = find(event); if (at >= 0) onTop?.(at); }} />;
}

/** Where each node is, as parts of the width: the way to the one on top, and what is below it; too narrow ones as one. */
function layout(tree: Tree, top: number, width: number, withoutRoot: boolean): { boxes: Box[]; rest: Box[]; rows: number } {
  const children = new Map<number, number[]>();
  tree.parent.forEach((parent, at) => { const list = children.get(parent); if (list) list.push(at); else children.set(parent, [at]); });
  const [boxes, rest]: [Box[], Box[]] = [[], []];
  const way: number[] = [];
  for (let at = top; at >= 0; at = tree.parent[at]) way.unshift(at);
  way.slice(0, -1).forEach((at, depth) => boxes.push({ at, depth, from: 0, to: 1 }));
  const roots = top < 0 ? (children.get(-1) ?? []) : [top];
  const whole = roots.reduce((sum, at) => sum + tree.total[at], 0) || 1;
  const left: [number[], number, number][] = [[roots, Math.max(0, way.length - 1), 0]];
  while (left.length) {
    const [list, depth, begin] = left.pop()!;
    let from = begin;
    let narrow: number | null = null;
    for (const at of list) {
      const to = from + tree.total[at] / whole;
      if ((to - from) * width < NARROW) narrow ??= from;
      else {
        boxes.push({ at, depth, from, to });
        const below = children.get(at);
        if (below) left.push([below, depth + 1, from]);
      }
      from = to;
    }
    if (narrow !== null) rest.push({ at: -1, depth, from: narrow, to: from });
  }
  if (withoutRoot) for (const box of [...boxes, ...rest]) box.depth--;
  const shown = boxes.filter((box) => box.depth >= 0);
  return { boxes: shown, rest, rows: Math.max(1, ...shown.map((box) => box.depth + 1)) };
}

function paint(canvas: HTMLCanvasElement, { boxes, rest, rows }: { boxes: Box[]; rest: Box[]; rows: number }, look: Look, chosen: number, top: number, inverted: boolean): void {
  const { pen, width } = penFor(canvas);
  const palette = colors();
  const dark = theme.value === "dark";
  const y = (depth: number) => (inverted ? rows - 1 - depth : depth) * ROW;
  pen.fillStyle = palette.none;
  for (const { depth, from, to } of rest) if (depth >= 0 && depth < rows) pen.fillRect(from * width, y(depth), Math.max((to - from) * width - 1, 0.5), ROW - 1);
  for (const { at, depth, from, to } of boxes) {
    const [x, wide] = [from * width, (to - from) * width];
    const pale = look.pale?.(at) ?? false;
    const color = look.color(at, palette);
    pen.fillStyle = pale ? blend(color, palette.panel, 0.22) : color;
    pen.fillRect(x, y(depth), Math.max(wide - 1, 0.5), ROW - 1);
    if (wide > 26) {
      pen.fillStyle = pale ? palette.ink : dark ? "#0d1016" : "#ffffff";
      fit(pen, look.text(at), x + 4, y(depth) + 12, wide - 8);
    }
    if (at === chosen || at === top) {
      pen.strokeStyle = at === chosen ? palette.ink : palette.accent;
      pen.lineWidth = at === chosen ? 2 : 1;
      pen.strokeRect(x + 1, y(depth) + 1, Math.max(wide - 3, 1), ROW - 3);
    }
  }
}

/** As much of a text as fits. */
function fit(pen: CanvasRenderingContext2D, text: string, x: number, y: number, room: number): void {
  const long = text.length > 200 ? text.slice(0, 200) : text;
  if (pen.measureText(long).width <= room) { pen.fillText(long, x, y); return; }
  const short = withoutSpace(long);
  const wide = pen.measureText(short).width;
  if (wide <= room) { pen.fillText(short, x, y); return; }
  let fits = Math.floor((room / wide) * short.length) - 1;
  // Letters are not equally wide: what was counted by the mean may be too much.
  while (fits > 1 && pen.measureText(`${short.slice(0, fits)}…`).width > room) fits--;
  if (fits > 1) pen.fillText(`${short.slice(0, fits)}…`, x, y);
}
