/** Which path costs? An icicle, the widest path first; a click makes a call the whole width. */
import "./flame.css";
import { useEffect, useRef, useState } from "preact/hooks";
import { type About, ask } from "../api.ts";
import { colors, family, label } from "../families.ts";
import { go, range, theme } from "../state.ts";
import * as units from "../units.ts";
import { Empty, penFor, useAnswer } from "../widgets.tsx";

type Node = { id: number; parent: number; label: number; total_ns: number; calls: number };
type Box = { node: Node; depth: number; from: number; to: number };
const ROW = 19;

export function FlameScreen({ about }: { about: About }) {
  const key = range.value ? `${range.value.begin}-${range.value.end}` : "all";
  const { answer, problem } = useAnswer(`flame ${key}`, () => ask<{ nodes: Node[]; left_out: number }>("flame", range.value ?? {}));
  const canvas = useRef<HTMLCanvasElement>(null);
  const [top, setTop] = useState(-1);
  const [hovered, hover] = useState<Node | null>(null);
  const boxes = useRef<Box[]>([]);
  const nodes = answer?.nodes ?? [];
  const deepest = useRef(1);
  useEffect(() => {
    if (!canvas.current || !nodes.length) return;
    boxes.current = layout(nodes, top);
    deepest.current = Math.max(...boxes.current.map((box) => box.depth)) + 1;
    canvas.current.style.height = `${deepest.current * ROW + 4}px`;
    draw(canvas.current, boxes.current, about);
    const watched = new ResizeObserver(() => canvas.current && draw(canvas.current, boxes.current, about));
    watched.observe(canvas.current);
    return () => watched.disconnect();
  }, [answer, top, theme.value]);
  if (problem) return <p class="error">{problem}</p>;
  if (!answer) return <p class="soft">Adding up …</p>;
  if (!nodes.length) return <Empty>No calls were recorded{range.value ? " in this range" : ""}.</Empty>;
  const at = (event: MouseEvent) => {
    const wide = canvas.current!.getBoundingClientRect().width;
    const [x, depth] = [event.offsetX / wide, Math.floor(event.offsetY / ROW)];
    return boxes.current.find((box) => box.depth === depth && x >= box.from && x < box.to)?.node ?? null;
  };
  const shown = hovered ?? nodes.find((node) => node.id === top) ?? null;
  const name = (node: Node) => label(...about.labels[node.label]);
  return (
    <section class="panel">
      <h2>Flame graph<small>by call, total time, widest first; a click makes a call the whole width{answer.left_out ? `; the ${units.count(answer.left_out)} narrowest paths are left out` : ""}</small></h2>
      <div class="tools">
        <button class="plain" disabled={top < 0} onClick={() => setTop(nodes.find((node) => node.id === top)?.parent ?? -1)}>up</button>
        <button class="plain" disabled={top < 0} onClick={() => setTop(-1)}>all</button>
        <span aria-live="polite">{shown ? <><b>{name(shown)}</b> {units.time(shown.total_ns)}, {units.count(shown.calls)} calls <button class="plain" onClick={() => go("timeline", { q: about.labels[shown.label][0] })}>timeline</button></> : <span class="soft">point at a call</span>}</span>
      </div>
      <canvas ref={canvas} class="wide" data-testid="flame-canvas" onMouseMove={(event) => hover(at(event))} onMouseLeave={() => hover(null)} onClick={(event) => { const node = at(event); if (node) setTop(node.id); }} />
    </section>
  );
}

/** Where each node is drawn, as parts of the width, below the node that is on top. */
function layout(nodes: Node[], top: number): Box[] {
  const children = new Map<number, Node[]>();
  for (const node of nodes) children.set(node.parent, [...(children.get(node.parent) ?? []), node]);
  const all: Box[] = [];
  const place = (list: Node[], depth: number, from: number, scale: number) => {
    for (const node of list) {
      const to = from + node.total_ns * scale;
      if (to - from > 0.0004) {
        all.push({ node, depth, from, to });
        place(children.get(node.id) ?? [], depth + 1, from, scale);
      }
      from = to;
    }
  };
  const roots = top < 0 ? (children.get(-1) ?? []) : nodes.filter((node) => node.id === top);
  place(roots, 0, 0, 1 / Math.max(1, roots.reduce((sum, node) => sum + node.total_ns, 0)));
  return all;
}

function draw(canvas: HTMLCanvasElement, boxes: Box[], about: About): void {
  const { pen, width } = penFor(canvas);
  const palette = colors();
  for (const { node, depth, from, to } of boxes) {
    const [x, wide] = [from * width, (to - from) * width];
    const [name, kind] = about.labels[node.label];
    pen.fillStyle = palette[family(name, kind)];
    pen.fillRect(x, depth * ROW, Math.max(wide - 1, 0.5), ROW - 1);
    if (wide < 30) continue;
    const text = label(name, kind);
    const fits = Math.floor(((wide - 8) / pen.measureText(text).width) * text.length);
    pen.fillStyle = document.documentElement.dataset.theme === "dark" ? "#0d1016" : "#ffffff";
    if (fits >= text.length) pen.fillText(text, x + 4, depth * ROW + 13);
    else if (fits > 3) pen.fillText(`${text.slice(0, fits - 1)}…`, x + 4, depth * ROW + 13);
  }
}
