/** What happened when? */
import "./timeline.css";
import { useEffect, useRef, useState } from "preact/hooks";
import { type About, ask, file, type Found, type Kernel, type Like, type Op } from "../api.ts";
import { FAMILIES, family, label, labelOf, lastOf } from "../families.ts";
import { type Call, type Spot, TimelineCanvas } from "../timeline/canvas.ts";
import type { Counters } from "../timeline/head.ts";
import { type Mark, readMarks, writeMarks } from "../timeline/marks.ts";
import { catchUp, change, href, query, screen, setRange, theme } from "../state.ts";
import * as units from "../units.ts";
import { Colored, Empty, Losses } from "../widgets.tsx";

/** The canvas that is on the screen, and what keys do with it; for window.torchreel, too. */
export const shown: {
  timeline: TimelineCanvas | null;
  select: (process: number, id: number, centre?: boolean, kernel?: boolean) => Promise<void>;
  neighbour: (by: -1 | 1) => Promise<void>;
  partner: (backward: boolean) => void;
  family: (outwards: boolean) => void;
  keepMark: () => void;
  makeRange: () => void;
  focus: () => void;
} = { timeline: null, select: async () => {}, neighbour: async () => {}, partner: () => {}, family: () => {}, keepMark: () => {}, makeRange: () => {}, focus: () => {} };

type Area = { begin: number; end: number; rows: { name: string; kind: string; calls: number; self_ns: number; min_ns: number; mean_ns: number; max_ns: number; flops: number | null; alloc_bytes: number | null }[]; note?: string };

/** A canvas is of one set of lanes: another one is made when they come, or when kinds are hidden. */
export function TimelineScreen({ about }: { about: About }) {
  if (about.lanes.length) return <Timeline key={about.hidden} about={about} />;
  if (about.labels.length) return <><div class="families"><Kinds about={about} /></div><Empty>All kinds of calls are hidden.</Empty></>;
  if (about.summary.ops) return <p class="soft reading">Reading the calls …</p>;
  return <Empty flag="">No calls were recorded in this reel.{about.summary.recorded.memory && <> It has <a href={href("memory")}>memory over time</a>.</>}</Empty>;
}

function Timeline({ about }: { about: About }) {
  const canvas = useRef<HTMLCanvasElement>(null);
  const [op, setOp] = useState<Op | null>(null);
  const [kernel, setKernel] = useState<Kernel | null>(null);
  const [area, setArea] = useState<Area | null>(null);
  const now = useRef({ op, area, about });
  now.current = { op, area, about };
  const [problem, complain] = useState<string | null>(null);
  /** The call that was last asked for, as the address has it. */
  const asked = useRef("");
  /** The view that this screen put into the address: another one comes from outside, by a link or by Back. */
  const written = useRef({ begin: query.value.begin ?? "", end: query.value.end ?? "" });

  useEffect(() => {
    const timeline = new TimelineCanvas(canvas.current!, about, about.hidden, foldedTracks());
    shown.timeline = timeline;
    timeline.marks = readMarks(query.value.marks);
    const { begin, end } = query.value;
    if (begin && end) { timeline.view.begin = Number(begin); timeline.view.end = Number(end); }
    let late = 0;
    const count = async () => {
      if (!now.current.about.counters.length) return;
      const { begin, end } = timeline.view;
      timeline.counters = { begin, end, ...(await ask<Omit<Counters, "begin" | "end">>("counters", { begin: Math.round(begin), end: Math.round(end), points: 800 })) };
      timeline.redraw();
    };
    timeline.changed = () => {
      clearTimeout(late);
      late = window.setTimeout(() => {
        catchUp();
        if (screen.value !== "timeline") return;
        const { begin, end } = timeline.view;
        const whole = begin <= 0 && end >= now.current.about.end;
        written.current = { begin: whole ? "" : String(Math.round(begin)), end: whole ? "" : String(Math.round(end)) };
        change(written.current);
        void count();
      }, 200);
    };
    void count();
    let turn = 0; // answers may come out of turn: the last selection counts
    const clear = () => {
      turn++;
      complain(null);
      asked.current = "";
      timeline.selected = null;
      timeline.linked = [];
      timeline.area = null;
      setOp(null);
      setKernel(null);
      setArea(null);
      change({ op: "" });
      timeline.redraw();
    };
    const select = async (process: number, id: number, centre = false, ofDevice = false) => {
      const mine = ++turn;
      // At once: by the time the answer comes, the address may name another call.
      asked.current = `${process}:${ofDevice ? "k" : ""}${id}`;
      if (query.value.op !== asked.current) change({ op: asked.current });
      const answer = await ask<Op | Kernel>(`${ofDevice ? "kernel" : "op"}/${process}/${id}`).catch((error: Error) => error);
      if (mine !== turn) return;
      complain(answer instanceof Error ? answer.message : null);
      if (answer instanceof Error) return;
      const [found, launched] = ofDevice ? [null, answer as Kernel] : [answer as Op, null];
      const call = found ? callOf(timeline, found) : kernelOf(timeline, launched!);
      timeline.selected = call;
      timeline.area = null;
      timeline.linked = [];
      setArea(null);
      setOp(found);
      setKernel(launched);
      if (centre || !timeline.isInView(call)) timeline.centre(call);
      timeline.redraw();
      for await (const other of partners(timeline, found, launched)) {
        if (mine !== turn) return;
        timeline.linked.push(other);
        timeline.redraw();
      }
    };
    const choose = async (begin: number, end: number) => {
      turn++;
      setOp(null);
      setKernel(null);
      timeline.selected = null;
      timeline.area = { begin, end };
      timeline.redraw();
      const found = await ask<{ rows: Area["rows"]; note?: string }>("area", { begin: Math.round(begin), end: Math.round(end) }).catch((error: Error) => error);
      complain(found instanceof Error ? found.message : null);
      if (!(found instanceof Error)) setArea({ begin, end, ...found });
    };
    shown.select = (process, id, centre = true, ofDevice = false) => select(process, id, centre, ofDevice);
    let moved = Promise.resolve();
    // One after the other, however quickly the keys come.
    shown.neighbour = (by) => (moved = moved.then(() => step(by), () => step(by)));
    const step = async (by: -1 | 1) => {
      const from = timeline.selected;
      if (!from) return selectFirst();
      const next = await ask<{ process: number; id: number; kernel: boolean } | null>("neighbour", { lane: from.lane, begin: Math.round(from.begin), by, ...(about.hidden ? { hide: about.hidden } : {}) });
      if (next) await select(next.process, next.id, true, next.kernel);
    };
    shown.partner = (backward) => {
      const { op } = now.current;
      const target = backward ? (op?.backward[0] ?? op?.kernels[0] ?? op?.flows[0]) : op?.fwd != null ? { id: op.fwd } : op?.flows[0];
      if (!op || !target) return;
      const process = "process" in target ? (target as { process: number }).process : op.process;
      void select(process, target.id, true, target === op.kernels[0]);
    };
    const selectFirst = async () => {
      const first = timeline.first();
      if (first) await select(first.process, first.id, false, first.kernel);
    };
    shown.family = (outwards) => {
      const { op } = now.current;
      if (!timeline.selected) void selectFirst();
      const target = outwards ? op?.parent : op?.children[0]?.id;
      if (op && target != null) void select(op.process, target, true);
    };
    shown.keepMark = () => {
      const { area, op } = now.current;
      const [begin, end] = area ? [area.begin, area.end] : op ? [op.begin, op.begin + op.dur_ns] : [timeline.view.begin, timeline.view.end];
      const marks = readMarks(query.value.marks);
      change({ marks: writeMarks([...marks, { begin: Math.max(0, Math.round(begin)), end: Math.round(end), name: op?.name ?? `mark ${marks.length + 1}` }]) }, false);
    };
    shown.focus = () => {
      const { area } = now.current;
      if (timeline.selected) timeline.focus(timeline.selected);
      else if (area) timeline.show(area.begin, area.end);
    };
    shown.makeRange = () => {
      const { area, op } = now.current;
      if (area) setRange(area.begin, area.end);
      else if (op) setRange(op.begin, op.begin + op.dur_ns);
      else setRange(timeline.view.begin, timeline.view.end);
    };
    const undo = listen(timeline, (spot) => {
      if (!spot) clear();
      else if ("call" in spot) void select(spot.call.process, spot.call.id, false, spot.call.kernel);
      else if ("area" in spot) void choose(spot.area.begin, spot.area.end);
      else toggleFold(spot.track.key);
    }, choose, clear);
    const watched = new ResizeObserver(() => timeline.resize());
    watched.observe(canvas.current!);
    return () => { undo(); watched.disconnect(); clearTimeout(late); shown.timeline = null; };
  }, []);
  useEffect(() => shown.timeline?.recolor(), [theme.value]);
  useEffect(() => {
    if (!shown.timeline) return;
    shown.timeline.marks = readMarks(query.value.marks);
    shown.timeline.redraw();
  }, [query.value.marks]);
  useEffect(() => shown.timeline?.fold(foldedTracks()), [query.value.fold]);
  useEffect(() => {
    const [timeline, { begin = "", end = "" }] = [shown.timeline, query.value];
    if (!timeline || (begin === written.current.begin && end === written.current.end)) return;
    written.current = { begin, end };
    timeline.show(begin ? Number(begin) : 0, end ? Number(end) : about.end);
  }, [query.value.begin, query.value.end]);
  useEffect(() => {
    const wanted = /^(\d+):(k?)(\d+)$/.exec(query.value.op ?? "");
    if (wanted && asked.current !== wanted[0]) void shown.select(Number(wanted[1]), Number(wanted[3]), !query.value.begin, wanted[2] === "k");
  }, [query.value.op]);
  useEffect(() => { void mark(query.value.q ?? ""); }, [query.value.q]);
  return (
    <div class="timeline">
      <div class="families">
        {!file && <Kinds about={about} />}
        <div class="names">{families(about).map((name) => <span key={name}><Colored class="swatch" color={name} />{name}</span>)}</div>
        {query.value.begin && <button class="plain" data-testid="whole-run" onClick={() => shown.timeline?.show(0, Number.MAX_SAFE_INTEGER)}>whole run <span class="key">0</span></button>}
      </div>
      <canvas ref={canvas} data-testid="timeline-canvas" tabIndex={0} aria-label="timeline: arrows move among calls, ? shows all keys" />
      <div class="details" data-testid="details" aria-live="polite">
        {problem ? <p class="error">{problem}</p> : op ? <Details op={op} recorded={about.summary.recorded} /> : kernel ? <KernelDetails kernel={kernel} /> : area ? <AreaTable area={area} /> : <Hint about={about} />}
      </div>
    </div>
  );
}

/** The families of the calls that are there. */
function families(about: About) {
  const found = new Set(about.labels.map(([name, kind]) => family(name, kind)));
  return FAMILIES.filter((name) => found.has(name));
}

const foldedTracks = () => new Set((query.value.fold ?? "").split(",").filter(Boolean));
function toggleFold(key: string): void {
  const folded = foldedTracks();
  if (!folded.delete(key)) folded.add(key);
  change({ fold: [...folded].join(",") });
}

/** Kinds of calls, each of which can be hidden: what stood below them moves up. */
function Kinds({ about }: { about: About }) {
  const hidden = new Set((query.value.hide ?? "").split(",").filter(Boolean));
  const kinds = [...new Set([...about.labels.map(([, kind]) => kind), ...hidden])].sort();
  const toggle = (kind: string) => {
    if (!hidden.delete(kind)) hidden.add(kind);
    change({ hide: [...hidden].sort().join(",") }, false);
  };
  return <span class="kinds"><span class="soft">show</span>{kinds.map((kind) => <button key={kind} class="plain" aria-pressed={!hidden.has(kind)} title={hidden.has(kind) ? `show ${kind}` : `hide ${kind}`} onClick={() => toggle(kind)}>{kind}</button>)}</span>;
}

/** Where the selected call's arrows lead: its backward or forward calls, its kernels, the other ends of flows. */
async function* partners(timeline: TimelineCanvas, op: Op | null, kernel: Kernel | null): AsyncGenerator<Call> {
  if (kernel?.op != null) yield callOf(timeline, await ask<Op>(`op/${kernel.process}/${kernel.op}`));
  if (!op) return;
  for (const each of op.kernels.slice(0, 4)) yield kernelOf(timeline, { ...each, process: op.process });
  const others = [...op.backward.map((each) => ({ process: op.process, id: each.id })), ...(op.fwd === null ? [] : [{ process: op.process, id: op.fwd }]), ...op.flows];
  for (const { process, id } of others.slice(0, 4)) {
    const other = await ask<Op>(`op/${process}/${id}`).catch(() => null); // an exported file may not have it
    if (other) yield callOf(timeline, other);
  }
}

/** Names that a search found stay bright, the others pale. */
async function mark(text: string): Promise<void> {
  if (!shown.timeline) return;
  shown.timeline.matches = new Set();
  if (text) {
    const found = await ask<Found>("search", { q: text });
    if (shown.timeline) shown.timeline.matches = new Set(found.rows.map((row) => row.name));
  }
  shown.timeline?.redraw();
}

function callOf(timeline: TimelineCanvas, op: Op): Call {
  return { process: op.process, id: op.id, name: op.name, begin: op.begin, end: op.begin + op.dur_ns, lane: timeline.lane(op.process, op.thread, op.depth), kernel: false };
}

function kernelOf(timeline: TimelineCanvas, kernel: Pick<Kernel, "process" | "id" | "name" | "begin" | "dur_ns" | "device" | "stream">): Call {
  return { process: kernel.process, id: kernel.id, name: kernel.name, begin: kernel.begin, end: kernel.begin + kernel.dur_ns, lane: timeline.streamLane(kernel.process, kernel.device, kernel.stream), kernel: true };
}

/** Pointer and wheel; keys are in keys.ts. */
function listen(timeline: TimelineCanvas, clicked: (spot: Spot | null) => void, dragged: (begin: number, end: number) => void, cleared: () => void): () => void {
  const { canvas } = timeline;
  let press: { x: number; y: number; time: number; pan: boolean; moved: boolean } | null = null;
  const down = (event: PointerEvent) => {
    canvas.setPointerCapture(event.pointerId);
    press = { x: event.offsetX, y: event.offsetY, time: timeline.time(event.offsetX), pan: event.shiftKey, moved: false };
  };
  const move = (event: PointerEvent) => {
    pointer.x = event.offsetX;
    if (!press) return;
    press.moved ||= Math.abs(event.offsetX - press.x) > 4;
    if (press.pan) timeline.pan(-event.movementX);
    else if (press.moved) {
      const time = timeline.time(event.offsetX);
      timeline.area = { begin: Math.max(0, Math.min(time, press.time)), end: Math.max(time, press.time) };
      timeline.redraw();
    }
  };
  const up = (event: PointerEvent) => {
    if (press && !press.pan) {
      if (press.moved && timeline.area) dragged(timeline.area.begin, timeline.area.end);
      else clicked(timeline.spot(event.offsetX, event.offsetY));
    }
    press = null;
  };
  const wheel = (event: WheelEvent) => {
    event.preventDefault();
    if (event.ctrlKey || event.metaKey) timeline.zoom(Math.exp(event.deltaY * 0.002), event.offsetX);
    else if (event.shiftKey) timeline.pan(event.deltaY || event.deltaX);
    else { timeline.scroll(event.deltaY); if (event.deltaX) timeline.pan(event.deltaX); }
  };
  const twice = (event: MouseEvent) => { const call = timeline.at(event.offsetX, event.offsetY); if (call) timeline.focus(call); };
  const parts: [string, EventListener][] = [["pointerdown", down as EventListener], ["pointermove", move as EventListener], ["pointerup", up as EventListener], ["dblclick", twice as EventListener]];
  for (const [name, handler] of parts) canvas.addEventListener(name, handler);
  canvas.addEventListener("wheel", wheel, { passive: false });
  canvas.addEventListener("torchreel-clear", cleared);
  return () => {
    for (const [name, handler] of parts) canvas.removeEventListener(name, handler);
    canvas.removeEventListener("wheel", wheel);
    canvas.removeEventListener("torchreel-clear", cleared);
  };
}
export const pointer = { x: 400 };

function Hint({ about }: { about: About }) {
  return (
    <div class="soft">
      <MarkList />
      <p>Click a call for its details; drag to add up an area. <span class="key">W</span> <span class="key">S</span> zoom, <span class="key">A</span> <span class="key">D</span> pan, <span class="key">0</span> the whole run, <span class="key">?</span> all keys.</p>
      <Losses about={about} />
    </div>
  );
}

/** What a call has not, or what was not recorded of any. */
const without = (part: boolean, flag: string): string => (part ? "–" : `record with ${flag}`);

function Details({ op, recorded }: { op: Op; recorded: Record<string, boolean> }) {
  const [like, count] = useState<Like | null>(null);
  useEffect(() => {
    let current = true;
    count(null);
    ask<Like>(`like/${op.process}/${op.id}`).then((found) => current && count(found), () => {});
    return () => { current = false; };
  }, [op.process, op.id]);
  const own = op.frames.filter((frame) => !/site-packages|lib\/python3|^</.test(frame.file));
  return (
    <>
      <h2><span data-testid="details-name" title={op.name}>{op.kind === "module" ? label(op.name, op.kind) : op.name}</span><small>{op.kind}{op.kind === "module" && op.module_path && ` ${lastOf(op.module_path)}`} · id {op.id}{op.step === null ? "" : ` · step ${op.step}`}{op.open && " · still open when the recording ended"}{op.note && ` · ${op.note}`}</small></h2>
      <dl class="pairs">
        <dt>began</dt><dd>{units.time(op.begin)}</dd><dt>module</dt><dd>{op.module_path ? <a href={href("modules", { q: op.module_path })}>{op.module_path}</a> : "–"}</dd>
        <dt>took</dt><dd><b data-testid="details-dur" data-ns={op.dur_ns}>{units.time(op.dur_ns)}</b>, itself {units.time(op.self_ns)}</dd><dt>class</dt><dd>{op.module_class ?? "–"}</dd>
        <dt>like this</dt><dd>{like ? `${units.count(like.calls)} calls of these shapes${like.part ? " in this file" : ""}: median ${units.time(like.median_ns)}` : "counting …"}</dd><dt>inputs</dt><dd title={op.dims ?? ""}>{op.dims ?? without(recorded.shapes, "--shapes")}</dd>
        <dt>FLOPs</dt><dd>{op.flops ? `${units.flops(op.flops)}, ${units.flops((op.flops / op.self_ns) * 1e9)}FLOP/s` : "–"}</dd>
        <dt>{op.fwd !== null ? "forward" : "backward"}</dt>
        <dd>{op.fwd !== null ? <Jump process={op.process} id={op.fwd} name={labelOf(op.fwd_name ?? "")} /> : op.backward.length ? <Jump process={op.process} id={op.backward[0].id} name={`${label(op.backward[0].name, "op")}, ${units.time(op.backward[0].dur_ns)}`} /> : "–"}</dd>
        {op.kernels.length > 0 && <><dt>kernels</dt><dd>{op.kernels.slice(0, 3).map((each) => <span key={each.id}><Jump process={op.process} id={each.id} name={each.name} kernel /> {units.time(each.dur_ns)} </span>)}</dd></>}
        {op.flows.length > 0 && <><dt>flows</dt><dd>{op.flows.slice(0, 3).map((each) => <span key={each.begin}><Jump process={each.process} id={each.id} name={`${each.end === "in" ? "to" : "from"} process ${each.process}`} /> </span>)}</dd></>}
        {op.counters.length > 0 && <><dt>counters</dt><dd>{op.counters.map((each) => `${each.name} ${units.count(each.value)}`).join(", ")}</dd></>}
        <dt>memory</dt><dd>{op.alloc_bytes === null ? without(recorded.memory, "--memory") : `${units.bytes(op.alloc_bytes)} kept`}</dd><dt>thread</dt><dd>{op.thread_name ?? op.thread}</dd>
        <dt>within</dt><dd>{op.parent === null ? "–" : <Jump process={op.process} id={op.parent} name={labelOf(op.parent_name ?? "")} />}</dd><dt>calls</dt><dd>{op.children.length ? op.children.slice(0, 3).map((each) => <span key={each.id}><Jump process={op.process} id={each.id} name={labelOf(each.name)} /> </span>) : "–"}</dd>
        <div class="frames">
          {own.slice(0, 6).map((frame, at) => <div key={at}><a href={href("source", { file: frame.file, line: String(frame.line) })}>{units.tail(frame.file, 1)}:{frame.line}</a>  {frame.function}</div>)}
          {op.frames.length > own.length && <div class="soft">and {op.frames.length - own.length} frames of torch and libraries</div>}
          {op.frames.length === 0 && <div class="soft">{recorded.stacks ? "no lines were recorded of this call" : "record with --stacks for the source"}</div>}
        </div>
      </dl>
    </>
  );
}

function KernelDetails({ kernel }: { kernel: Kernel }) {
  return (
    <>
      <h2><span data-testid="details-name">{kernel.name}</span><small>kernel · id {kernel.id} · {kernel.device} stream {kernel.stream}</small></h2>
      <dl class="pairs">
        <dt>began</dt><dd>{units.time(kernel.begin)}</dd><dt>took</dt><dd><b data-testid="details-dur" data-ns={kernel.dur_ns}>{units.time(kernel.dur_ns)}</b></dd>
        <dt>launched by</dt><dd>{kernel.op === null ? "not known" : <Jump process={kernel.process} id={kernel.op} name={label(kernel.op_name ?? "", "op")} />}</dd>
        <dt>waited</dt><dd>{kernel.after_launch_ns === null ? "–" : `${units.time(kernel.after_launch_ns)} after that call began`}</dd>
      </dl>
    </>
  );
}

/** The marks that were kept, with names that can be changed. */
function MarkList() {
  const marks = readMarks(query.value.marks);
  const write = (next: Mark[]) => change({ marks: writeMarks(next) });
  if (!marks.length) return null;
  return (
    <div class="tools" data-testid="marks">
      {marks.map((mark, at) => (
        <span key={at} class="range-chip">
          <input aria-label="name of the mark" value={mark.name} onInput={(event) => write(marks.map((each, place) => (place === at ? { ...each, name: event.currentTarget.value } : each)))} />
          <button aria-label="show the mark" onClick={() => shown.timeline?.show(mark.begin, mark.end)}>{units.time(mark.end - mark.begin)}</button>
          <button aria-label="remove the mark" onClick={() => write(marks.filter((_, place) => place !== at))}>×</button>
        </span>
      ))}
    </div>
  );
}

function Jump({ process, id, name, kernel = false }: { process: number; id: number; name: string; kernel?: boolean }) {
  return <a href="#" onClick={(event) => { event.preventDefault(); void shown.select(process, id, true, kernel); }}>{name || `call ${id}`}</a>;
}

function AreaTable({ area }: { area: Area }) {
  const calls = area.rows.reduce((sum, row) => sum + row.calls, 0);
  const self = area.rows.reduce((sum, row) => sum + row.self_ns, 0);
  return (
    <>
      <h2>{units.time(area.end - area.begin)}<small>{units.count(calls)} calls, {units.time(self)} in them{area.note && `. ${area.note}`}</small> <button class="plain" onClick={() => shown.makeRange()}>range of all screens <span class="key">R</span></button> <button class="plain" onClick={() => shown.keepMark()}>keep as a mark <span class="key">M</span></button></h2>
      <table class="grid">
        <thead><tr><th>Name</th><th class="n">Calls</th><th class="n">Self</th><th class="n">Min</th><th class="n">Mean</th><th class="n">Max</th><th class="n">Bytes</th><th class="n">FLOPs</th></tr></thead>
        <tbody>{area.rows.map((row) => (
          <tr key={`${row.name}/${row.kind}`}><td>{label(row.name, row.kind)}</td><td class="n">{units.count(row.calls)}</td><td class="n">{units.time(row.self_ns)}</td><td class="n">{units.time(row.min_ns)}</td><td class="n">{units.time(row.mean_ns)}</td><td class="n">{units.time(row.max_ns)}</td><td class="n">{row.alloc_bytes ? units.bytes(row.alloc_bytes) : ""}</td><td class="n">{row.flops ? units.flops(row.flops) : ""}</td></tr>
        ))}</tbody>
      </table>
    </>
  );
}
