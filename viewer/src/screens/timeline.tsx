/** What happened when? */
import "./timeline.css";
import { useEffect, useRef, useState } from "preact/hooks";
import { type About, ask, type Found, type Op } from "../api.ts";
import { FAMILIES, label } from "../families.ts";
import { type Call, TimelineCanvas } from "../timeline/canvas.ts";
import { change, href, query, theme } from "../state.ts";
import * as units from "../units.ts";
import { Colored } from "../widgets.tsx";

/** The canvas that is on the screen, for keys and for window.torchreel. */
export const shown: { timeline: TimelineCanvas | null; select: (process: number, id: number, centre?: boolean) => Promise<void> } = { timeline: null, select: async () => {} };

type Area = { begin: number; end: number; rows: { name: string; kind: string; calls: number; self_ns: number; min_ns: number; mean_ns: number; max_ns: number; flops: number | null; alloc_bytes: number | null }[] };

export function TimelineScreen({ about }: { about: About }) {
  const canvas = useRef<HTMLCanvasElement>(null);
  const [op, setOp] = useState<Op | null>(null);
  const [area, setArea] = useState<Area | null>(null);
  /** The call that was last asked for, as the address has it. */
  const asked = useRef("");
  /** The range that this screen put into the address: another one comes from outside, by a link or by Back. */
  const written = useRef({ begin: query.value.begin ?? "", end: query.value.end ?? "" });

  useEffect(() => {
    const timeline = new TimelineCanvas(canvas.current!, about);
    shown.timeline = timeline;
    const { begin, end } = query.value;
    if (begin && end) { timeline.view.begin = Number(begin); timeline.view.end = Number(end); }
    let late = 0;
    timeline.changed = () => {
      clearTimeout(late);
      late = window.setTimeout(() => {
        const { begin, end } = timeline.view;
        const whole = begin <= 0 && end >= about.end;
        written.current = { begin: whole ? "" : String(Math.round(begin)), end: whole ? "" : String(Math.round(end)) };
        change(written.current);
      }, 200);
    };
    let turn = 0; // answers may come out of turn: the last selection counts
    const select = async (process: number, id: number, centre = false) => {
      const mine = ++turn;
      // At once: by the time the answer comes, the address may name another call.
      asked.current = `${process}:${id}`;
      if (query.value.op !== asked.current) change({ op: asked.current });
      const found = await ask<Op>(`op/${process}/${id}`);
      if (mine !== turn) return;
      const call = callOf(timeline, found);
      timeline.selected = call;
      timeline.area = null;
      timeline.linked = [];
      setArea(null);
      setOp(found);
      if (centre) timeline.centre(call);
      for (const other of [...found.backward.map((each) => each.id), ...(found.fwd === null ? [] : [found.fwd])].slice(0, 3)) {
        const linked = callOf(timeline, await ask<Op>(`op/${process}/${other}`));
        if (mine !== turn) return;
        timeline.linked.push(linked);
      }
      timeline.redraw();
    };
    shown.select = (process, id, centre = true) => select(process, id, centre);
    const undo = listen(timeline, (call) => void select(call.process, call.id), async (begin, end) => {
      turn++;
      setOp(null);
      timeline.selected = null;
      setArea({ begin, end, ...(await ask<{ rows: Area["rows"] }>("area", { begin: Math.round(begin), end: Math.round(end) })) });
    }, () => { turn++; asked.current = ""; timeline.selected = null; timeline.linked = []; timeline.area = null; setOp(null); setArea(null); change({ op: "" }); timeline.redraw(); });
    const watched = new ResizeObserver(() => timeline.resize());
    watched.observe(canvas.current!);
    return () => { undo(); watched.disconnect(); clearTimeout(late); shown.timeline = null; };
  }, []);
  useEffect(() => shown.timeline?.recolor(), [theme.value]);
  useEffect(() => {
    const [timeline, { begin = "", end = "" }] = [shown.timeline, query.value];
    if (!timeline || (begin === written.current.begin && end === written.current.end)) return;
    written.current = { begin, end };
    timeline.show(begin ? Number(begin) : 0, end ? Number(end) : about.end);
  }, [query.value.begin, query.value.end]);
  useEffect(() => {
    const wanted = /^(\d+):(\d+)$/.exec(query.value.op ?? "");
    if (wanted && asked.current !== wanted[0]) void shown.select(Number(wanted[1]), Number(wanted[2]), !query.value.begin);
  }, [query.value.op]);
  useEffect(() => { void mark(query.value.q ?? ""); }, [query.value.q]);
  return (
    <div class="timeline">
      <div class="families">{FAMILIES.map((name) => <span key={name}><Colored class="swatch" color={name} />{name}</span>)}</div>
      <canvas ref={canvas} data-testid="timeline-canvas" tabIndex={0} aria-label="timeline" />
      <div class="details" data-testid="details" aria-live="polite">
        {op ? <Details op={op} /> : area ? <AreaTable area={area} /> : <Hint about={about} />}
      </div>
    </div>
  );
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
  return { process: op.process, id: op.id, name: op.name, begin: op.begin, end: op.begin + op.dur_ns, lane: timeline.lane(op.process, op.thread, op.depth) };
}

/** Pointer and wheel; keys are in keys.ts. */
function listen(timeline: TimelineCanvas, clicked: (call: Call) => void, dragged: (begin: number, end: number) => void, cleared: () => void): () => void {
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
      else {
        const call = timeline.at(event.offsetX, event.offsetY);
        call ? clicked(call) : cleared();
      }
    }
    press = null;
  };
  const wheel = (event: WheelEvent) => {
    event.preventDefault();
    if (event.ctrlKey || event.metaKey) timeline.zoom(Math.exp(event.deltaY * 0.002), event.offsetX);
    else if (event.shiftKey) timeline.pan(event.deltaY || event.deltaX);
    else { timeline.scroll(event.deltaY); if (event.deltaX) timeline.pan(event.deltaX); }
  };
  const twice = (event: MouseEvent) => { const call = timeline.at(event.offsetX, event.offsetY); if (call) timeline.centre(call, true); };
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
  const { lost_events, incomplete_processes } = about.summary;
  return (
    <div class="soft">
      <p>Click a call for its details; drag to add up an area. <span class="key">W</span> <span class="key">S</span> zoom, <span class="key">A</span> <span class="key">D</span> pan, <span class="key">0</span> the whole run, <span class="key">?</span> all keys.</p>
      {incomplete_processes.length > 0 && <p>{incomplete_processes.join(", ")} did not close the recording: the last moments may be missing.</p>}
      {lost_events > 0 && <p>{units.count(lost_events)} events could not be kept: counts and times are too low.</p>}
    </div>
  );
}

function Details({ op }: { op: Op }) {
  const own = op.frames.filter((frame) => !/site-packages|lib\/python3|^</.test(frame.file));
  return (
    <>
      <h2><span data-testid="details-name">{op.name}</span><small>{op.kind} · id {op.id}{op.step === null ? "" : ` · step ${op.step}`}</small></h2>
      <dl class="pairs">
        <dt>began</dt><dd>{units.time(op.begin)}</dd><dt>module</dt><dd>{op.module_path ? <a href={href("modules", { q: op.module_path })}>{op.module_path}</a> : "–"}</dd>
        <dt>took</dt><dd><b data-testid="details-dur" data-ns={op.dur_ns}>{units.time(op.dur_ns)}</b>, itself {units.time(op.self_ns)}</dd><dt>class</dt><dd>{op.module_class ?? "–"}</dd>
        <dt>like this</dt><dd>{units.count(op.like.calls)} calls of these shapes: median {units.time(op.like.median_ns)}</dd><dt>inputs</dt><dd title={op.dims ?? ""}>{op.dims ?? "record with --shapes"}</dd>
        <dt>FLOPs</dt><dd>{op.flops ? `${units.flops(op.flops)}, ${units.flops((op.flops / op.self_ns) * 1e9)}FLOP/s` : "–"}</dd>
        <dt>{op.fwd !== null ? "forward" : "backward"}</dt>
        <dd>{op.fwd !== null ? <Jump process={op.process} id={op.fwd} name={op.fwd_name ?? ""} /> : op.backward.length ? <Jump process={op.process} id={op.backward[0].id} name={`${label(op.backward[0].name, "op")}, ${units.time(op.backward[0].dur_ns)}`} /> : "–"}</dd>
        <dt>memory</dt><dd>{op.alloc_bytes === null ? "record with --memory" : `${units.bytes(op.alloc_bytes)} kept`}</dd><dt>thread</dt><dd>{op.thread_name ?? op.thread}</dd>
        <dt>within</dt><dd>{op.parent === null ? "–" : <Jump process={op.process} id={op.parent} name={label(op.parent_name ?? "", "op")} />}</dd><dt>calls</dt><dd>{op.children.length ? op.children.slice(0, 3).map((each) => <span key={each.id}><Jump process={op.process} id={each.id} name={label(each.name, "op")} /> </span>) : "–"}</dd>
        <div class="frames">
          {own.slice(0, 6).map((frame, at) => <div key={at}><a href={href("source", { file: frame.file, line: String(frame.line) })}>{units.tail(frame.file, 1)}:{frame.line}</a>  {frame.function}</div>)}
          {op.frames.length > own.length && <div class="soft">and {op.frames.length - own.length} frames of torch and libraries</div>}
          {op.frames.length === 0 && <div class="soft">record with --stacks for the source</div>}
        </div>
      </dl>
    </>
  );
}

function Jump({ process, id, name }: { process: number; id: number; name: string }) {
  return <a href="#" onClick={(event) => { event.preventDefault(); void shown.select(process, id); }}>{name || `call ${id}`}</a>;
}

function AreaTable({ area }: { area: Area }) {
  const calls = area.rows.reduce((sum, row) => sum + row.calls, 0);
  const self = area.rows.reduce((sum, row) => sum + row.self_ns, 0);
  return (
    <>
      <h2>{units.time(area.end - area.begin)}<small>{units.count(calls)} calls, {units.time(self)} in ops</small></h2>
      <table class="grid">
        <thead><tr><th>Name</th><th class="n">Calls</th><th class="n">Self</th><th class="n">Min</th><th class="n">Mean</th><th class="n">Max</th><th class="n">Bytes</th><th class="n">FLOPs</th></tr></thead>
        <tbody>{area.rows.map((row) => (
          <tr key={`${row.name}/${row.kind}`}><td>{label(row.name, row.kind)}</td><td class="n">{units.count(row.calls)}</td><td class="n">{units.time(row.self_ns)}</td><td class="n">{units.time(row.min_ns)}</td><td class="n">{units.time(row.mean_ns)}</td><td class="n">{units.time(row.max_ns)}</td><td class="n">{row.alloc_bytes ? units.bytes(row.alloc_bytes) : ""}</td><td class="n">{row.flops ? units.flops(row.flops) : ""}</td></tr>
        ))}</tbody>
      </table>
    </>
  );
}
