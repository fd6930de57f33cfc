/** Who holds it, when? Bands or blocks over time; a click chooses the moment, a drag what changed in between. */
import "./memory.css";
import { useEffect, useRef, useState } from "preact/hooks";
import { type About, ask } from "../api.ts";
import { CATEGORIES, type Blocks, type Changes, type Holder, type MarkRow, type Memory, type Moment, type Section } from "../memory/answers.ts";
import { marksOf, MemoryChart } from "../memory/chart.ts";
import { CATEGORY_FAMILY, paint, plain, turns } from "../memory/colors.ts";
import { BlockDetails, BlockTable, Devices, isKnown, rowKeys, SourceLink, when } from "../memory/parts.tsx";
import { moving } from "../moving.ts";
import { change, go, href, query, range, theme } from "../state.ts";
import * as units from "../units.ts";
import { Colored, Empty, useAnswer } from "../widgets.tsx";

const BY: Record<string, string> = { stack: "your line", module: "module", op: "op", category: "category", blocks: "single blocks" };
const TITLES: Record<string, string> = { stack: "Line", module: "Module", op: "Op", category: "Category" };
const LATE_MS = 60;

type Asked = Record<string, string | number>;

export function MemoryScreen({ about }: { about: About }) {
  const by = (query.value.by ?? "") in BY ? query.value.by : "stack";
  const device = query.value.device ?? "0";
  const { event = "", at = "", x = "time" } = query.value;
  const instant: Asked = event ? { event } : at ? { at } : {};
  const view: Asked = x === "events" ? (query.value.from && query.value.to ? { from: query.value.from, to: query.value.to } : (range.value ?? {})) : (range.value ?? {});
  const [cells, setCells] = useState(0);
  const [band, setBand] = useState<string | null>(null);
  const asked = { device, by, x, ...view, ...instant, ...(cells ? { points: cells } : {}) };
  const { answer, problem } = useAnswer(`memory ${JSON.stringify(asked)}`, () => ask<Memory>("memory", asked));
  const marks = useAnswer(`marks ${device}`, () => ask<{ sections: Section[] }>("memory/marks", { device }));
  if (problem && !answer) return <p class="error">{problem}</p>;
  if (!answer) return <p class="soft">Adding up …</p>;
  if (!answer.devices.length) return <Empty flag="--memory" />;
  const block = /^\d+$/.test(query.value.block ?? "") ? Number(query.value.block) : null;
  return (
    <div class="memory">
      <section class="panel chart">
        <Tools answer={answer} by={by} device={device} x={answer.axis} />
        {problem && <p class="error">{problem}</p>}
        {answer.has_history ? <Chart about={about} answer={answer} sections={marks.answer?.sections ?? []} block={block} band={band} setBand={setBand} setCells={setCells} /> : <p class="soft">Only the final state was recorded: there is no curve, and below is what was held at the end.</p>}
        {answer.has_history && <Legend answer={answer} />}
      </section>
      <section class="panel rows">
        {query.value.a && query.value.b ? <ChangesTable device={device} by={answer.held_by} x={answer.axis} a={query.value.a} b={query.value.b} />
          : query.value.name ? <BlocksOf device={device} by={answer.held_by} name={query.value.name} event={answer.at.event} block={block} />
          : <Holders answer={answer} device={device} at={event || at} band={band} />}
      </section>
      <section class="panel side">
        {block !== null ? <BlockDetails device={device} block={block} others="segments" close={() => change({ block: "" })} />
          : <Marks sections={marks.answer?.sections ?? null} problem={marks.problem} device={device} />}
      </section>
    </div>
  );
}

function Tools({ answer, by, device, x }: { answer: Memory; by: string; device: string; x: string }) {
  const isWhole = answer.begin <= 0 && answer.finish >= answer.end;
  return (
    <div class="tools">
      <h2>Memory<small>{answer.has_history ? `peak ${units.bytes(answer.peak)} at ${when(answer.peak_at)}` : `${units.bytes(answer.peak)} at the end`}</small></h2>
      <Devices devices={answer.devices} device={device} pick={(number) => change({ device: number, event: "", at: "", block: "", name: "", a: "", b: "", from: "", to: "" }, false)} />
      <label><span class="caption">By</span> <select value={by} data-testid="memory-by" onChange={(event) => change({ by: event.currentTarget.value, name: "", block: "" }, false)}>{Object.entries(BY).map(([key, name]) => <option key={key} value={key}>{name}</option>)}</select></label>
      {!answer.has_history ? null : answer.has_times ? <label><span class="caption">Along</span> <select value={x} data-testid="memory-axis" onChange={(event) => change({ x: event.currentTarget.value, from: "", to: "", a: "", b: "" }, false)}><option value="time">time</option><option value="events">events</option></select></label>
        : <span class="soft">along events: this snapshot has no times</span>}
      {answer.has_history && <label class="check"><input type="checkbox" checked={query.value.fit === "1"} onChange={(event) => change({ fit: event.currentTarget.checked ? "1" : "" })} />fit height</label>}
      <button class="plain" hidden={!answer.has_history} disabled={isWhole} onClick={() => moving.view?.show(0, Number.MAX_SAFE_INTEGER)}>whole run <span class="key">0</span></button>
    </div>
  );
}

function Chart({ about, answer, sections, block, band, setBand, setCells }: { about: About; answer: Memory; sections: Section[]; block: number | null; band: string | null; setBand: (name: string | null) => void; setCells: (cells: number) => void }) {
  const canvas = useRef<HTMLCanvasElement>(null);
  const chart = useRef<MemoryChart | null>(null);
  const axis = answer.axis;
  useEffect(() => {
    let late = 0;
    const settle = () => {
      late = 0;
      mine.isMoving = false;
      const { view } = mine;
      const [begin, end] = view.isWhole ? ["", ""] : [String(Math.floor(view.begin)), String(Math.ceil(view.end))];
      change(axis === "time" ? { begin, end } : { from: begin, to: end });
    };
    const mine = new MemoryChart(canvas.current!, answer, {
      instant: (event, found) => { setBand(found?.name ?? null); change({ event: String(event), at: "", a: "", b: "", block: found?.block !== undefined ? String(found.block) : "", ...(found?.name && query.value.name ? { name: "" } : {}) }, false); },
      area: (begin, end) => change({ a: String(Math.floor(begin)), b: String(Math.ceil(end)), name: "" }, false),
      moved: () => { mine.isMoving = true; if (!late) late = window.setTimeout(settle, LATE_MS); },
      cleared: () => moving.view?.clear(),
    });
    chart.current = mine;
    moving.view = {
      zoom: (factor, place) => mine.zoom(factor, place), pan: (pixels) => mine.pan(pixels), show: (begin, end) => mine.look(begin, Math.min(end, mine.view.whole)),
      get view() { return { begin: mine.view.begin, end: mine.view.end }; },
      get idle() { return mine.idle && !late; },
      keep: () => void keep(mine),
      fit: () => { const span = mine.spanOf(mine.selected); if (span) mine.look(span.begin - 0.1 * (span.end - span.begin), span.end + 0.1 * (span.end - span.begin)); },
      clear: () => { mine.area = null; setBand(null); change({ a: "", b: "", name: "", block: "" }); mine.redraw(); },
    };
    const undo = mine.listen();
    const watched = new ResizeObserver(() => { if (mine.resize()) setCells(mine.cells); });
    watched.observe(canvas.current!);
    return () => { undo(); watched.disconnect(); clearTimeout(late); moving.view = null; chart.current = null; };
  }, [axis]);
  useEffect(() => {
    const mine = chart.current;
    if (!mine) return;
    mine.fits = query.value.fit === "1";
    mine.selected = block;
    const { a, b, name } = query.value;
    mine.area = a && b ? { begin: Number(a), end: Number(b) } : null;
    mine.picked = name ?? band;
    mine.marks = marksOf(sections);
    mine.show(answer);
  }, [answer, sections, block, band, query.value.a, query.value.b, query.value.name, query.value.fit]);
  useEffect(() => chart.current?.recolor(), [theme.value]);
  // A range from outside: a link, Back, or the x of the top bar.
  useEffect(() => {
    const mine = chart.current;
    const [begin, end] = axis === "time" ? [query.value.begin, query.value.end] : [query.value.from, query.value.to];
    if (!mine || mine.isMoving) return;
    mine.view.set(begin ? Number(begin) : answer.begin, end ? Number(end) : answer.finish);
    mine.redraw();
  }, [answer.begin, answer.finish, axis]);
  const keys = (event: KeyboardEvent) => {
    const mine = chart.current;
    if (!mine) return;
    const now = query.value.event ? Number(query.value.event) : answer.at.event;
    const cell = mine.cellOf(now) ?? 0;
    const step = event.key === "ArrowLeft" ? -1 : event.key === "ArrowRight" ? 1 : 0;
    if (step) {
      const events = mine.answer.at_events;
      let next = cell + step;
      while (next > 0 && next < events.length - 1 && events[next] === now) next += step;
      change({ event: String(events[Math.min(Math.max(next, 0), events.length - 1)]), at: "" });
    } else if (event.key === "ArrowUp" || event.key === "ArrowDown") {
      const next = mine.neighbour(block, now, event.key === "ArrowUp");
      if (next !== null) change({ block: String(next) });
    } else return;
    event.preventDefault();
  };
  return <canvas ref={canvas} class="curve" data-testid="memory-canvas" tabIndex={0} aria-label={`memory over ${axis} of ${about.reel}: arrows move the moment and the block`} onKeyDown={keys} />;
}

/** Make the area that was dragged the range of all screens, which is of time. */
async function keep(chart: MemoryChart): Promise<void> {
  const { a, b, device = "0" } = query.value;
  if (!a || !b) return;
  if (chart.answer.axis === "events" && chart.answer.has_times) {
    const { first, last } = await ask<Changes>("memory/changes", { device, by: "category", x: "events", from: a, to: b });
    change({ begin: String(first.time ?? 0), end: String((last.time ?? 0) + 1), from: "", to: "", a: "", b: "" }, false);
  } else {
    chart.look(Number(a), Number(b));
    change({ a: "", b: "" });
  }
}

/** What the colours mean, with the bytes at the moment. */
function Legend({ answer }: { answer: Memory }) {
  const shown = answer.bands ? new Set(answer.bands.map((band) => band.category)) : answer.blocks ? new Set([...new Set(answer.blocks.category)].map((number) => CATEGORIES[number] as string)) : new Set<string>();
  const hasOlder = answer.older.blocks > 0 || answer.bands?.some((band) => band.older) || answer.blocks?.older.some((each) => each === 1);
  return (
    <div class="legend-line">
      {CATEGORIES.filter((name) => shown.has(name)).map((name) => <span key={name}><Colored class="swatch" color={CATEGORY_FAMILY[name]} />{plain(name)}</span>)}
      {(answer.rest?.groups ?? 0) > 0 && <span><Colored class="swatch" color="none" />the rest: {units.count(answer.rest!.groups)} {answer.blocks ? "smaller blocks" : "others"}</span>}
      {hasOlder && <span title="Blocks that were alive before the history begins: when they were made, and often by whom, is not known."><span class="swatch ghosts" />older than the history</span>}
      {answer.reserved && <span><span class="dashes" />reserved</span>}
      <span class="soft hint">click: a moment · drag: what changed · <span class="key">?</span> keys</span>
    </div>
  );
}

function Holders({ answer, device, at, band }: { answer: Memory; device: string; at: string; band: string | null }) {
  const by = answer.held_by;
  const shades = turns(answer.bands ?? []);
  const colors = paint();
  const swatch = (row: Holder) => { const number = answer.bands?.findIndex((band) => band.name === row.name) ?? -1; return number < 0 ? colors.rest : colors.shade(answer.bands![number].category, shades[number]); };
  return (
    <>
      <div class="tools">
        <h2>{at ? "Held" : !answer.has_history ? "Held at the end" : answer.at.event === answer.peak_at.event ? "Held at the peak" : "Held at the peak of this range"}<small>{units.bytes(answer.allocated)} in {units.many(answer.blocks_at, "block")}{answer.has_history && ` at ${when(answer.at)}`}{answer.reserved_at !== null && `, ${units.bytes(answer.reserved_at)} reserved`}</small></h2>
        {at && <button class="plain" onClick={() => change({ event: "", at: "" }, false)}>at the peak</button>}
        <a href={href("segments", { device, event: String(answer.at.event) })}>segments then</a>
      </div>
      {answer.has_history && answer.older.blocks > 0 && <p class="note">{units.many(answer.older.blocks, "block")} of these, {units.bytes(answer.older.bytes)}, {answer.older.blocks === 1 ? "is" : "are"} older than the history.</p>}
      <table class="grid">
        <thead><tr><th>{TITLES[by]}</th><th class="n">Bytes</th><th class="n">Share</th><th class="n">Blocks</th><th class="n">Largest</th><th>Categories</th></tr></thead>
        <tbody onKeyDown={rowKeys}>{answer.holders.map((row) => (
          <tr key={row.name} tabIndex={0} class={row.name === band ? "picked" : ""} data-testid="holder-row" data-bytes={row.bytes} data-name={row.name} title="its blocks" onClick={() => change({ name: row.name, event: String(answer.at.event) }, false)}>
            <td class="line" title={row.name}>{answer.bands && <Shade color={swatch(row)} older={row.older} />}<Onward by={by} row={row} /></td>
            <td class="n">{units.bytes(row.bytes)}</td><td class="n">{row.percent.toFixed(1)} %</td><td class="n">{units.count(row.blocks)}</td><td class="n">{units.bytes(row.largest)}</td><td title={row.categories}>{row.categories.split(", ").map(plain).join(", ")}</td>
          </tr>
        ))}</tbody>
      </table>
      {answer.all_holders > answer.holders.length && <p class="note">The first {answer.holders.length} of {units.count(answer.all_holders)}.</p>}
      {!answer.holders.length && <p class="soft">Nothing was allocated then.</p>}
    </>
  );
}

/** The way from a holder to its screen. */
function Onward({ by, row }: { by: string; row: Holder }) {
  if (by === "stack") return <SourceLink place={row.source}>{row.name}</SourceLink>;
  if (by === "category") return <>{plain(row.name)}</>;
  if (!isKnown(row.name)) return <>{row.name}</>;
  return <a href={href(by === "module" ? "modules" : "ops", { q: row.name })} onClick={(event) => event.stopPropagation()}>{row.name}</a>;
}

function Shade({ color, older }: { color: string; older: boolean }) {
  const part = useRef<HTMLSpanElement>(null);
  useEffect(() => { part.current!.style.background = color; }, [color]);
  return <span ref={part} class={`swatch ${older ? "ghosts" : ""}`} />;
}

function BlocksOf({ device, by, name, event, block }: { device: string; by: string; name: string; event: number; block: number | null }) {
  const { answer, problem } = useAnswer(`blocks ${device} ${by} ${name} ${event}`, () => ask<Blocks>("blocks", { device, by, name, event }));
  return (
    <>
      <div class="tools">
        <button class="plain" onClick={() => change({ name: "" }, false)}>← all</button>
        <h2 class="line" title={name}>{by === "category" ? plain(name) : name}{answer && <small>{units.bytes(answer.bytes)} in {units.many(answer.count, "block")} at {when(answer.at)}</small>}</h2>
      </div>
      {problem && <p class="error">{problem}</p>}
      {answer && <BlockTable rows={answer.rows} picked={block} pick={(number) => change({ block: String(number) })} />}
      {answer && answer.count > answer.rows.length && <p class="note">The {units.count(answer.rows.length)} largest of {units.count(answer.count)}.</p>}
    </>
  );
}

function ChangesTable({ device, by, x, a, b }: { device: string; by: string; x: string; a: string; b: string }) {
  const span: Asked = x === "time" ? { begin: a, end: b } : { from: a, to: b };
  const { answer, problem } = useAnswer(`changes ${device} ${by} ${x} ${a} ${b}`, () => ask<Changes>("memory/changes", { device, by, x, ...span }));
  const signed = (bytes: number) => `${bytes > 0 ? "+" : ""}${units.bytes(bytes)}`;
  return (
    <>
      <div class="tools">
        <button class="plain" onClick={() => moving.view?.clear()}>← all</button>
        <h2>What changed{answer && <small>{when(answer.first)} to {when(answer.last)}: {signed(answer.after - answer.before)}</small>}</h2>
        <button class="plain" onClick={() => moving.view?.keep()}>zoom to it <span class="key">R</span></button>
      </div>
      {problem && <p class="error">{problem}</p>}
      {answer && <p class="note">From {units.bytes(answer.before)} to {units.bytes(answer.after)}; least {units.bytes(answer.least)}, mean {units.bytes(answer.mean)}, most {units.bytes(answer.most)}.</p>}
      {answer && (
        <table class="grid">
          <thead><tr><th>{TITLES[by]}</th><th class="n">Change</th><th class="n">Before</th><th class="n">After</th><th class="n" colSpan={2}>Made</th><th class="n" colSpan={2}>Freed</th></tr></thead>
          <tbody onKeyDown={rowKeys}>{answer.rows.map((row) => (
            <tr key={row.name} tabIndex={0} data-testid="change-row" data-name={row.name} data-bytes={row.change} title="its blocks at the end of it" onClick={() => change({ name: row.name, event: String(answer.last.event), a: "", b: "" }, false)}>
              <td class="line" title={row.name}>{by === "category" ? plain(row.name) : row.name}</td><td class="n">{signed(row.change)}</td><td class="n">{units.bytes(row.before)}</td><td class="n">{units.bytes(row.after)}</td><td class="n">{units.count(row.made)}</td><td class="n">{units.bytes(row.made_bytes)}</td><td class="n">{units.count(row.freed)}</td><td class="n">{units.bytes(row.freed_bytes)}</td>
            </tr>
          ))}</tbody>
        </table>
      )}
      {answer && !answer.rows.length && <p class="soft">Nothing was made or freed in it.</p>}
      {answer && answer.all > answer.rows.length && <p class="note">The first {answer.rows.length} of {units.count(answer.all)}.</p>}
    </>
  );
}

function Marks({ sections, problem, device }: { sections: Section[] | null; problem: string | null; device: string }) {
  if (problem) return <p class="error">{problem}</p>;
  if (!sections) return <p class="soft">Looking for what stands out …</p>;
  const follow = (row: MarkRow) => {
    if (row.segments) return go("segments", { device, event: String(row.event) });
    if (row.event !== undefined) return change({ event: String(row.event), at: "", name: "", a: "", b: "" }, false);
    return change({ by: row.by ?? "stack", name: row.line ?? "", a: "", b: "" }, false);
  };
  const moment = (row: MarkRow): Moment | null => (row.event === undefined ? null : { event: row.event, time: row.time ?? null });
  return (
    <>
      <h2>What stands out</h2>
      {sections.map((section) => (
        <div key={section.kind} class="mark-section" data-testid="memory-section" data-kind={section.kind}>
          <h3>{section.title}</h3>
          {section.sentences.map((sentence) => <p key={sentence}>{sentence}</p>)}
          {section.rows.slice(0, 8).map((row, at) => (
            <button key={at} class="mark" data-testid="memory-mark" data-kind={section.kind} data-event={row.event} onClick={() => follow(row)}>
              <b>{row.text}</b><span>{[row.segments ? null : moment(row) && when(moment(row)), row.step === null || row.step === undefined ? null : `step ${row.step}`, row.phase].filter(Boolean).join(", ")}</span>
              {row.line && <span class="soft line" title={row.line}>{row.line}</span>}
            </button>
          ))}
        </div>
      ))}
    </>
  );
}
