/** What does the allocator look like at this instant? Segments by address, their blocks, and what is free. */
import "./segments.css";
import { useEffect, useLayoutEffect, useRef, useState } from "preact/hooks";
import { type About, ask } from "../api.ts";
import { CATEGORIES, type Memory, type Numbers, type Piece, type Segment, type Segments, type Simulation } from "../memory/answers.ts";
import { CATEGORY_FAMILY, paint, plain } from "../memory/colors.ts";
import { BlockDetails, Category, Devices, rowKeys, SourceLink, when } from "../memory/parts.tsx";
import { ROW, SegmentRows } from "../memory/segment_rows.ts";
import { moving } from "../moving.ts";
import { change, href, query, range, theme } from "../state.ts";
import * as units from "../units.ts";
import { Colored, Command, Empty, penFor, Sized, useAnswer } from "../widgets.tsx";

const SORTS: Record<string, string> = { address: "address", size: "size", free: "free bytes" };
const CHUNK = 30;
const LATE_MS = 40;
const AT_ONCE = 200_000; // events that are simulated without being asked

export function SegmentsScreen({ about }: { about: About }) {
  const { device = "0", event = "", at = "", segment = "" } = query.value;
  const sort = (query.value.sort ?? "") in SORTS ? query.value.sort : "address";
  const [first, setFirst] = useState(0);
  const instant: Record<string, string> = event ? { event } : at ? { at } : {};
  const skip = /^\d+$/.test(query.value.skip ?? "") ? query.value.skip : "0";
  const asked = { device, sort, first: Math.max(first - CHUNK, 0), rows: 4 * CHUNK, ...instant, ...(segment ? { segment, skip } : {}) };
  const { answer, problem } = useAnswer(`segments ${JSON.stringify(asked)}`, () => ask<Segments>("segments", asked));
  if (problem && !answer) return <p class="error">{problem}</p>;
  if (!answer) return <p class="soft">Replaying the allocator …</p>;
  if (!answer.devices.length) return <Empty flag="--memory" />;
  const block = /^\d+$/.test(query.value.block ?? "") ? Number(query.value.block) : null;
  return (
    <div class="segments">
      <section class="panel instant"><Instant answer={answer} device={device} sort={sort} /></section>
      <section class="panel map">
        <Sums answer={answer} />
        {problem && <p class="error">{problem}</p>}
        <Notes answer={answer} />
        {answer.count ? <Rows answer={answer} seen={(row) => setFirst(Math.floor(row / CHUNK) * CHUNK)} chosen={answer.chosen?.address ?? null} block={block} /> : <p class="soft" data-testid="nothing">Nothing is allocated or reserved at this instant.</p>}
        <Legend answer={answer} />
      </section>
      <section class="panel rows">{answer.chosen ? <Chosen answer={answer} block={block} /> : <Pools answer={answer} />}</section>
      <section class="panel side">
        {block !== null ? <BlockDetails device={device} block={block} others="memory" close={() => change({ block: "" })} /> : <Beside answer={answer} device={device} reel={about.reel} />}
      </section>
    </div>
  );
}

/** The curve and the slider that choose the instant; both along events, so that each event can be reached. */
function Instant({ answer, device, sort }: { answer: Segments; device: string; sort: string }) {
  const canvas = useRef<HTMLCanvasElement>(null);
  const [cells, setCells] = useState(0);
  const asked = { device, by: "total", x: "events", ...(range.value ?? {}), ...(cells ? { points: cells } : {}) };
  const { answer: curve } = useAnswer(`curve ${JSON.stringify(asked)}`, () => ask<Memory>("memory", asked));
  const [moved, setMoved] = useState<number | null>(null);
  const late = useRef(0);
  const at = moved ?? answer.at.event;
  const choose = (event: number) => {
    setMoved(event);
    if (late.current) clearTimeout(late.current);
    late.current = window.setTimeout(() => { late.current = 0; change({ event: String(event), at: "", skip: "" }); }, LATE_MS);
  };
  useEffect(() => { if (!late.current) setMoved(null); }, [answer.at.event]);
  useEffect(() => {
    const watched = new ResizeObserver(() => { setCells(Math.min(Math.round(canvas.current!.getBoundingClientRect().width), 1_500)); });
    if (canvas.current) watched.observe(canvas.current);
    return () => { watched.disconnect(); clearTimeout(late.current); };
  }, []);
  useEffect(() => { if (canvas.current && curve?.most) drawCurve(canvas.current, curve, at); }, [curve, at, theme.value, cells]);
  const [low, high] = curve ? [Math.max(curve.begin - 1, -1), curve.finish - 1] : [-1, answer.events - 1];
  const pick = (event: PointerEvent) => {
    if (!curve || event.buttons !== 1) return;
    const part = event.offsetX / canvas.current!.getBoundingClientRect().width;
    choose(Math.round(Math.min(Math.max(curve.begin + part * (curve.finish - curve.begin), low), high)));
  };
  const isPast = answer.has_history && answer.events > 1;
  return (
    <>
      <div class="tools">
        <h2>Segments<small data-testid="instant" data-event={answer.at.event}>{isPast ? `after event ${units.count(at)} of ${units.count(answer.events)}` : "the final state"}{isPast && answer.at.time !== null && at === answer.at.event ? `, ${units.time(answer.at.time)}` : ""}</small></h2>
        <Devices devices={answer.devices} device={device} pick={(number) => change({ device: number, event: "", at: "", block: "", segment: "", skip: "" }, false)} />
        {isPast && <>
          <button class="plain" onClick={() => change({ event: "", at: "", skip: "" }, false)}>peak</button>
          <button class="plain" data-testid="at-the-end" onClick={() => change({ event: String(answer.events - 1), at: "", skip: "" }, false)}>end</button>
          <button class="plain" aria-label="previous event" disabled={at <= low} onClick={() => choose(at - 1)}>‹</button>
          <button class="plain" aria-label="next event" disabled={at >= high} onClick={() => choose(at + 1)}>›</button>
          <a href={href("memory", { device, event: String(answer.at.event) })}>who holds it then</a>
        </>}
        <span class="right">
          <label><span class="caption">By</span> <select value={sort} data-testid="segments-sort" onChange={(event) => change({ sort: event.currentTarget.value })}>{Object.entries(SORTS).map(([key, name]) => <option key={key} value={key}>{name}</option>)}</select></label>
          <label class="check" title="all rows in the scale of the largest segment"><input type="checkbox" checked={query.value.scale === "one"} onChange={(event) => change({ scale: event.currentTarget.checked ? "one" : "" })} />one scale</label>
        </span>
      </div>
      {isPast ? <>
        <canvas ref={canvas} class="small-curve" data-testid="segments-curve" onPointerDown={(event) => { canvas.current!.setPointerCapture(event.pointerId); pick(event); }} onPointerMove={pick} />
        <input type="range" class="slider" data-testid="segments-slider" aria-label="event" min={low} max={high} value={Math.min(Math.max(at, low), high)} onInput={(event) => choose(Number(event.currentTarget.value))} />
      </> : <p class="note">Only the final state was recorded, so there is no earlier instant to go to. For one, call torch.cuda.memory._record_memory_history() before the part of interest.</p>}
    </>
  );
}

function drawCurve(canvas: HTMLCanvasElement, curve: Memory, at: number): void {
  const { pen, width, height } = penFor(canvas);
  const { palette } = paint();
  const most = Math.max(curve.peak, ...curve.most, ...(curve.reserved ?? []), 1);
  const wide = width / curve.most.length;
  const y = (bytes: number) => height - (bytes / most) * (height - 3);
  if (curve.reserved) {
    pen.fillStyle = palette.none;
    curve.reserved.forEach((bytes, cell) => pen.fillRect(cell * wide, y(bytes), wide + 0.5, height));
  }
  pen.fillStyle = palette.memory;
  curve.most.forEach((bytes, cell) => pen.fillRect(cell * wide, y(bytes), wide + 0.5, height));
  const x = ((at + 0.5 - curve.begin) / (curve.finish - curve.begin)) * width;
  pen.fillStyle = palette.accent;
  pen.fillRect(x - 1, 0, 2, height);
}

function Sums({ answer }: { answer: Segments }) {
  const { usage } = answer;
  const parts: [string, number | null, string][] = answer.has_segments
    ? [["reserved", usage.reserved, "bytes of segments that the allocator holds of the device"], ["asked for", answer.requested, "bytes that the program asked for"], ["rounding", usage.rounding, "bytes that blocks are larger than what was asked for"], ["pending", usage.pending || null, "freed, while a stream still uses it"], ["split", usage.split, "free, between blocks that live: only a request that fits can use it"], ["cached", usage.cached, "free, and could be returned to the device"], ["largest free", usage.largest_free, "the largest piece that is free"]]
    : [["asked for", answer.requested, "bytes that the program asked for"]];
  return (
    <div class="tools sums">
      {parts.filter(([, bytes]) => bytes !== null).map(([name, bytes, title]) => <span key={name} title={title} data-testid="sum" data-name={name} data-bytes={bytes}><span class="soft">{name}</span> <b>{units.bytes(bytes!)}</b></span>)}
      <span><span class="soft">{answer.has_segments ? "segments" : "regions"}</span> <b>{units.count(answer.count)}</b></span>
      <span><span class="soft">blocks</span> <b>{units.count(answer.blocks)}</b></span>
    </div>
  );
}

/** What is not known, or is not as one might think. */
function Notes({ answer }: { answer: Segments }) {
  const said: string[] = [];
  if (!answer.has_segments) said.push(answer.device === "cpu"
    ? "The system's allocator has no segments, so these are blocks alone: rows are regions of addresses, and what lies between two blocks is not known to be free. With torchreel.memory.use_caching_allocator() CPU tensors come from segments."
    : "No segments were recorded, so these are blocks alone: rows are regions of addresses, and what lies between two blocks is not known to be free.");
  else if (answer.regions) said.push(`${units.count(answer.regions)} ${answer.regions === 1 ? "row is a region" : "rows are regions"} of blocks that lie in no known segment.`);
  if (answer.without_address) said.push(`${units.many(answer.without_address, "block")} without an address ${answer.without_address === 1 ? "is" : "are"} not drawn.`);
  if (answer.older.blocks) said.push(`${units.many(answer.older.blocks, "block")}, ${units.bytes(answer.older.bytes)}, ${answer.older.blocks === 1 ? "is" : "are"} older than the history: hatched; when they were made is not known.`);
  if (answer.inexact && answer.has_segments) said.push(`Of ${units.many(answer.inexact, "block")} that did not live to the end the size is not recorded: ${answer.inexact === 1 ? "it is" : "they are"} drawn as the allocator rounds.`);
  return said.length ? <p class="note">{said.join(" ")}</p> : null;
}

/** Headers are rows of the page, the segments themselves are drawn. */
function Rows({ answer, seen, chosen, block }: { answer: Segments; seen: (row: number) => void; chosen: string | null; block: number | null }) {
  const box = useRef<HTMLDivElement>(null);
  const canvas = useRef<HTMLCanvasElement>(null);
  const drawn = useRef<SegmentRows | null>(null);
  const [top, setTop] = useState(0);
  const [tall, setTall] = useState(300);
  useEffect(() => {
    const mine = new SegmentRows(canvas.current!);
    drawn.current = mine;
    const watched = new ResizeObserver(() => { setTall(box.current!.clientHeight); mine.resize(); });
    watched.observe(box.current!);
    watched.observe(canvas.current!);
    moving.view = {
      zoom: () => {}, pan: (pixels) => box.current?.scrollBy(0, pixels / 10), show: () => box.current?.scrollTo(0, 0), keep: () => {}, fit: () => {},
      view: { begin: 0, end: 0 }, get idle() { return mine.idle; }, clear: () => change({ block: "", segment: "", skip: "" }),
    };
    return () => { watched.disconnect(); moving.view = null; drawn.current = null; };
  }, []);
  useEffect(() => {
    const mine = drawn.current!;
    mine.rows = answer.segments;
    mine.first = answer.first;
    mine.top = top;
    mine.largest = Math.max(answer.largest, 1);
    mine.oneScale = query.value.scale === "one";
    mine.chosen = chosen;
    mine.block = block;
    mine.redraw();
  }, [answer, top, chosen, block, query.value.scale]);
  useEffect(() => drawn.current?.recolor(), [theme.value]);
  // As tall as its rows, up to what the style sheet allows.
  useLayoutEffect(() => { box.current!.style.height = `${Math.max(answer.count, 4) * ROW + 2}px`; }, [answer.count]);
  useEffect(() => seen(Math.floor(top / ROW)), [Math.floor(top / ROW / CHUNK)]);
  // A segment that an address names comes into view.
  useEffect(() => {
    if (answer.place === null || !box.current) return;
    const y = answer.place * ROW;
    if (y < box.current.scrollTop || y > box.current.scrollTop + box.current.clientHeight - ROW) box.current.scrollTo(0, y - box.current.clientHeight / 2);
  }, [answer.chosen?.address, answer.place]);
  const choose = (segment: Segment, number: number | null) => change({ segment: segment.address, skip: "", block: number === null || number < 0 ? "" : String(number) });
  const click = (event: MouseEvent) => {
    const hit = drawn.current!.at(event.offsetX, event.offsetY);
    const segment = hit && drawn.current!.rows[hit.row];
    if (segment) choose(segment, hit.piece < 0 ? null : segment.pieces.block[hit.piece]);
  };
  const from = Math.max(Math.floor(top / ROW) - answer.first, 0);
  const visible = answer.segments.slice(from, from + Math.ceil(tall / ROW) + 1);
  const keys = (event: KeyboardEvent) => {
    const step = event.key === "ArrowDown" ? 1 : event.key === "ArrowUp" ? -1 : 0;
    const named = answer.segments.findIndex((segment) => segment.address === query.value.segment);
    const at = named >= 0 ? named : answer.segments.findIndex((segment) => segment.address === (chosen ?? visible[0]?.address));
    const next = answer.segments[named < 0 && chosen === null ? at : at + step];
    const sideways = event.key === "ArrowRight" ? 1 : event.key === "ArrowLeft" ? -1 : 0;
    if (step && next) choose(next, null);
    else if (sideways && at >= 0) {
      const { block: numbers } = answer.segments[at].pieces;
      const some = numbers.filter((number) => number >= 0);
      const now = block === null ? -1 : some.indexOf(block);
      if (some.length) choose(answer.segments[at], some[now < 0 ? (sideways > 0 ? 0 : some.length - 1) : Math.min(Math.max(now + sideways, 0), some.length - 1)]);
    } else if (event.key === "Enter") document.querySelector<HTMLElement>('[data-testid="block"]')?.focus();
    else return;
    event.preventDefault();
  };
  return (
    <div class="seg-scroll" ref={box} onScroll={() => setTop(box.current!.scrollTop)} tabIndex={0} role="group" aria-label="segments: up and down choose one, left and right a block of it, Enter goes to the list of its blocks" onKeyDown={keys}>
      <div class="seg-window">
        <Heads rows={visible} shift={(answer.first + from) * ROW - top} chosen={chosen} choose={(segment) => choose(segment, null)} />
        <canvas ref={canvas} data-testid="segments-canvas" onClick={click} onMouseMove={(event) => drawn.current?.point({ x: event.offsetX, y: event.offsetY })} onMouseLeave={() => drawn.current?.point(null)} />
      </div>
      <Sized class="seg-spacer" height={`${Math.max(answer.count * ROW - tall, 0)}px`} />
    </div>
  );
}

function Heads({ rows, shift, chosen, choose }: { rows: Segment[]; shift: number; chosen: string | null; choose: (segment: Segment) => void }) {
  const part = useRef<HTMLDivElement>(null);
  useEffect(() => { part.current!.style.transform = `translateY(${shift}px)`; }, [shift]);
  return (
    <div class="seg-heads"><div ref={part}>
      {rows.map((row) => (
        <div key={row.address} class={`seg-head ${row.address === chosen ? "picked" : ""}`} data-testid="segment" data-address={row.address} data-bytes={row.size} data-free={row.free} title={`${row.address}: ${units.count(row.size)} bytes, ${units.count(row.blocks)} blocks`} onClick={() => choose(row)}>
          <code>{row.address}</code><span class="n">{units.bytes(row.size)}</span><span class="soft">{row.region ? "region" : `${row.kind === "unknown" ? "" : row.kind}${row.expandable ? ", grows" : ""}`}</span><span class="n soft">{row.region ? "" : `${units.percent(row.free, row.size)} free`}</span>
        </div>
      ))}
    </div></div>
  );
}

function Legend({ answer }: { answer: Segments }) {
  return (
    <div class="legend-line">
      {CATEGORIES.map((name) => <span key={name}><Colored class="swatch" color={CATEGORY_FAMILY[name]} />{plain(name)}</span>)}
      {answer.has_segments && <span><span class="swatch free" />free</span>}
      {answer.has_segments && <span><span class="swatch paler" />paler: rounding, pending</span>}
      {answer.older.blocks > 0 && <span><span class="swatch ghosts" />older than the history</span>}
    </div>
  );
}

/** Where nothing is chosen: the small and the large segments. */
function Pools({ answer }: { answer: Segments }) {
  return (
    <>
      <h2>{answer.has_segments ? "Pools" : "Blocks"}<small>click a {answer.has_segments ? "segment" : "region"}, or move to one with the arrows, for its blocks one by one</small></h2>
      {answer.has_segments && (
        <table class="grid">
          <thead><tr><th>Segments</th><th class="n">Number</th><th class="n">Reserved</th><th class="n">Allocated</th><th class="n">Rounding</th><th class="n">Split</th><th class="n">Cached</th><th class="n">Largest free</th></tr></thead>
          <tbody>{answer.pools.map((pool) => <tr key={pool.name} data-testid="pool" data-name={pool.name} data-bytes={pool.reserved}><td>{pool.name}</td><td class="n">{units.count(pool.segments)}</td><td class="n">{units.bytes(pool.reserved)}</td><td class="n">{units.bytes(pool.allocated)}</td><td class="n">{units.bytes(pool.rounding)}</td><td class="n">{units.bytes(pool.split)}</td><td class="n">{units.bytes(pool.cached)}</td><td class="n">{units.bytes(pool.largest_free)}</td></tr>)}</tbody>
        </table>
      )}
    </>
  );
}

function Chosen({ answer, block }: { answer: Segments; block: number | null }) {
  const chosen = answer.chosen!;
  const skip = (to: number) => change({ skip: String(Math.max(to, 0)) });
  return (
    <>
      <div class="tools">
        <h2><code>{chosen.address}</code><small>{units.bytes(chosen.size)}{chosen.region ? " of addresses" : `: ${units.bytes(chosen.allocated)} in ${units.many(chosen.blocks, "block")}, ${units.bytes(chosen.free)} free, the largest piece ${units.bytes(chosen.largest_free)}`}{chosen.stream !== null && !chosen.region ? `; stream ${chosen.stream}` : ""}{chosen.pool && chosen.pool !== "0,0" ? `; pool ${chosen.pool}` : ""}</small></h2>
        {chosen.count > chosen.rows.length && <span class="soft">pieces {units.count(chosen.skip + 1)} to {units.count(chosen.skip + chosen.rows.length)} of {units.count(chosen.count)} <button class="plain" disabled={!chosen.skip} onClick={() => skip(chosen.skip - 400)}>‹</button> <button class="plain" disabled={chosen.skip + chosen.rows.length >= chosen.count} onClick={() => skip(chosen.skip + 400)}>›</button></span>}
        <button class="plain" aria-label="close" onClick={() => change({ segment: "", block: "", skip: "" })}>×</button>
      </div>
      <table class="grid">
        <thead><tr><th>Address</th><th class="n">Asked for</th><th class="n">Takes</th><th class="n">Rounding</th><th>Category</th><th>Line</th><th class="n">Made</th><th class="n">Freed</th></tr></thead>
        <tbody onKeyDown={rowKeys}>{chosen.rows.map((row) => <PieceRow key={row.address} row={row} region={chosen.region} picked={row.info !== undefined && row.info.block === block} />)}</tbody>
      </table>
    </>
  );
}

function PieceRow({ row, region, picked }: { row: Piece; region: boolean; picked: boolean }) {
  if (!row.info) return <tr tabIndex={0} class="free-row" data-testid="free" data-bytes={row.size}><td class="code">{row.address}</td><td class="n" /><td class="n">{units.bytes(row.size)}</td><td class="n" /><td class="soft">free</td><td /><td /><td /></tr>;
  const { info } = row;
  return (
    <tr tabIndex={0} class={picked ? "picked" : ""} data-testid="block" data-block={info.block} data-bytes={row.requested} data-size={row.size} onClick={() => change({ block: String(info.block) })}>
      <td class="code">{row.address}</td><td class="n">{units.bytes(row.requested)}</td><td class="n">{region ? "" : `${row.exact ? "" : "≈ "}${units.bytes(row.size)}`}</td><td class="n">{row.size > row.requested ? units.bytes(row.size - row.requested) : ""}</td>
      <td><Category name={info.category} />{row.state === "pending" && ", pending"}</td><td class="line" title={info.stack}><SourceLink place={info.source}>{info.stack}</SourceLink></td>
      <td class="n">{info.older ? <span class="ghost">older</span> : when(info.made)}</td><td class="n">{info.freed ? when(info.freed) : "–"}</td>
    </tr>
  );
}

/** What the simulator makes of the same requests, beside what was recorded. */
function Beside({ answer, device, reel }: { answer: Segments; device: string; reel: string }) {
  const can = answer.has_segments && answer.has_history && answer.device !== "cpu";
  const [wanted, want] = useState(answer.events <= AT_ONCE);
  if (!can) return (
    <>
      <h2>Simulate</h2>
      <p class="note">{answer.has_history ? "What a CUDA caching allocator would reserve for these requests:" : "A final state alone cannot be simulated: it has no requests. Record a history first."}</p>
      {answer.has_history && <Command text={`torchreel simulate ${units.shellWord(reel)}`} />}
    </>
  );
  return <><h2>Simulate</h2>{wanted ? <Simulated device={device} /> : <p><button class="plain" onClick={() => want(true)}>simulate {units.count(answer.events)} events</button></p>}</>;
}

function Simulated({ device }: { device: string }) {
  const conf = query.value.conf ?? "";
  const [text, setText] = useState(conf);
  const { answer, problem } = useAnswer(`simulate ${device} ${conf}`, () => ask<Simulation>("simulate", conf ? { device, conf } : { device }));
  const rows: [string, (numbers: Numbers) => string][] = [
    ["peak reserved", (n) => (n.peak_reserved === null ? "" : units.bytes(n.peak_reserved))], ["tensors at their peak", (n) => units.bytes(n.peak_requested)], ["their blocks, rounded up", (n) => (n.peak_active === undefined ? "" : units.bytes(n.peak_active))],
    ["unused when most is reserved", (n) => (n.fragmentation === null ? "" : `${(100 * n.fragmentation).toFixed(1)} %`)], ["retries", (n) => (n.retries === undefined ? "" : units.count(n.retries))], ["out of memory", (n) => (n.ooms ? `${units.count(n.ooms)} ×` : "no")],
  ];
  return (
    <>
      <form class="tools" onSubmit={(event) => { event.preventDefault(); change({ conf: text }, false); }}>
        <input aria-label="allocator setting" data-testid="simulate-conf" list="confs" placeholder="expandable_segments:True" value={text} onInput={(event) => setText(event.currentTarget.value)} />
        <datalist id="confs"><option value="expandable_segments:True" /><option value="max_split_size_mb:128" /><option value="roundup_power2_divisions:8" /></datalist>
        <button class="plain">simulate</button>
      </form>
      {problem && <p class="error">{problem}</p>}
      {answer && !problem && (
        <table class="grid simulated">
          <thead><tr><th /><th class="n">Recorded</th><th class="n">Simulated</th>{answer.conf && <th class="n">With it</th>}</tr></thead>
          <tbody>{rows.map(([name, of]) => <tr key={name} data-testid="simulated" data-name={name}><td>{name}</td><td class="n">{of(answer.recorded)}</td><td class="n">{of(answer.as_recorded)}</td>{answer.conf && <td class="n">{of(answer.simulated)}</td>}</tr>)}</tbody>
        </table>
      )}
      {answer?.notes.map((note) => <p key={note} class="note">Note: {note}.</p>)}
      <p class="note">The model of PyTorch's CUDA caching allocator, of the whole run. <code>torchreel simulate --sweep</code> tries all settings.</p>
    </>
  );
}
