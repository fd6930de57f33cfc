/** The page: its bar, its rail and the screen that the URL names. */
import "./page.css";
import { effect, signal, untracked } from "@preact/signals";
import { render } from "preact";
import { useEffect, useRef, useState } from "preact/hooks";
import { type About, ask, askBytes, awaited, file, type Found, type Lanes, lost, received, waiting } from "./api.ts";
import type { FileAnswers } from "./file/answers.ts";
import { measured } from "./drawn_canvas.ts";
import { recording, watch } from "./growth.ts";
import { help, KEYS, listenToKeys } from "./keys.ts";
import { DiffScreen } from "./screens/diff.tsx";
import { EdgeScreen } from "./screens/edge.tsx";
import { FlameScreen } from "./screens/flame.tsx";
import { MemoryScreen } from "./screens/memory.tsx";
import { ModulesScreen } from "./screens/modules.tsx";
import { SegmentsScreen } from "./screens/segments.tsx";
import { OpsScreen } from "./screens/ops.tsx";
import { OverviewScreen } from "./screens/overview.tsx";
import { SourceScreen } from "./screens/source.tsx";
import { SqlScreen } from "./screens/sql.tsx";
import { TapeScreen } from "./screens/tape.tsx";
import { shown, TimelineScreen } from "./screens/timeline.tsx";
import { moving } from "./moving.ts";
import type { TimelineCanvas } from "./timeline/canvas.ts";
import { change, clearRange, go, href, place, query, range, type Screen, screen, theme } from "./state.ts";
import * as units from "./units.ts";

const SHOWN: [Screen, string, (about: About) => preact.ComponentChildren][] = [
  ["overview", "Overview", (about) => <OverviewScreen about={about} />],
  ["timeline", "Timeline", (about) => <TimelineScreen about={about} />],
  ["flame", "Flame", (about) => <FlameScreen about={about} />],
  ["ops", "Ops", (about) => <OpsScreen about={about} />],
  ["modules", "Modules", (about) => <ModulesScreen about={about} />],
  ["memory", "Memory", (about) => <MemoryScreen about={about} />],
  ["segments", "Segments", (about) => <SegmentsScreen about={about} />],
  ["source", "Source", (about) => <SourceScreen about={about} />],
  ["tape", "Tape", () => <TapeScreen />],
  ["diff", "Diff", (about) => <DiffScreen about={about} />],
  ["edge", "Edge", (about) => <EdgeScreen about={about} />],
  ["sql", "SQL", () => <SqlScreen />],
];
const DIGITS: Partial<Record<Screen, string>> = { overview: "1", timeline: "2", flame: "3", ops: "4", modules: "5", memory: "6", segments: "7", source: "8", tape: "9" };

/** What is known of the reel. Its lanes come later: the overview does not wait for them. */
const about = signal<About>(null!);
const hiding = (kinds: string | undefined): Record<string, string> => (kinds ? { hide: kinds } : {});

let reading: { hide: string; done: Promise<void> } | null = null;
function readLanes(hide: string): Promise<void> {
  if (reading?.hide === hide) return reading.done;
  const done = ask<Lanes>("lanes", hiding(hide), true).then(
    (lanes) => { if (reading?.done === done) about.value = { ...about.value, ...lanes, hidden: hide }; },
    () => { if (reading?.done === done) reading = null; }, // the page says that the server does not answer
  );
  reading = { hide, done };
  return done;
}

/** The timeline waits for its lanes; while another screen is looked at they are read ahead, once that has rested. */
const REST_MS = 1000;
function readLanesInTime(): void {
  effect(() => {
    const [shown, hide] = [screen.value, query.value.hide ?? ""];
    // Not tracked: questions count themselves, which would ask again.
    if (shown === "timeline") untracked(() => void awaited(() => readLanes(hide)));
  });
  let late = 0;
  const stop = effect(() => {
    clearTimeout(late);
    if (about.value.lanes.length) setTimeout(() => stop());
    else if (waiting.value === 0) late = window.setTimeout(() => void readLanes(query.peek().hide ?? ""), REST_MS);
  });
}

function Page({ exported }: { exported: FileAnswers | null }) {
  return <Frame about={about.value} exported={exported} />;
}

function Frame({ about, exported }: { about: About; exported: FileAnswers | null }) {
  const current = SHOWN.find(([name]) => name === screen.value) ?? SHOWN[0];
  return (
    <div class="frame">
      <div class="brand">torchreel</div>
      <Bar about={about} />
      <nav class="rail" aria-label="screens">
        {SHOWN.map(([name, title]) => (
          <a key={name} href={href(name, name === "ops" || name === "modules" ? {} : { q: query.value.q ?? "" })} data-testid={`nav-${name}`} aria-current={current[0] === name ? "page" : undefined}>{title}{DIGITS[name] && <span class="key">{DIGITS[name]}</span>}</a>
        ))}
        {exported && !exported.isCut && <div class="recorded" data-testid="file-note">{exported.said}</div>}
        <div class="recorded"><div>recorded</div>{Object.entries(about.summary.recorded).map(([part, yes]) => <div key={part} class={yes ? "yes" : "no"}>{part}</div>)}</div>
      </nav>
      <main class={`screen ${current[0] === "timeline" ? "whole" : ""}`} data-testid={`screen-${current[0]}`}>
        {lost.value && <p class="error">{lost.value}</p>}
        {exported?.isCut && current[0] === "timeline" && <p class="note" data-testid="file-note">{exported.said}</p>}
        {current[2](about)}
      </main>
      {help.value && <Help />}
    </div>
  );
}

function Bar({ about }: { about: About }) {
  const [found, set] = useState<Found | null>(null);
  /** Which match was last gone to; none at first. */
  const at = useRef(-1);
  /** Enter was pressed before the answer came: -1, 1; or not: 0. */
  const wanted = useRef(0);
  const text = query.value.q ?? "";
  const step = (rows: Found["rows"], by: number) => {
    if (!rows.length) return;
    at.current = at.current < 0 ? (by > 0 ? 0 : rows.length - 1) : (at.current + by + rows.length) % rows.length;
    const row = rows[at.current];
    if (screen.value !== "timeline") go("timeline", { op: `${row.process}:${row.id}`, begin: "", end: "" });
    else void shown.select(row.process, row.id);
  };
  useEffect(() => {
    let current = true;
    set(null);
    at.current = -1;
    wanted.current = 0;
    if (text) ask<Found>("search", { q: text }).then((answer) => {
      if (!current) return;
      set(answer);
      if (wanted.current) step(answer.rows, wanted.current);
    }, () => {});
    return () => { current = false; };
  }, [text]);
  const enter = (back: boolean) => {
    const by = back ? -1 : 1;
    if (found) step(found.rows, by);
    else wanted.current = by;
  };
  const first = about.processes[0];
  return (
    <header class="bar">
      <span class="what"><b>{units.tail(about.reel, 1)}</b>{[units.tail(first?.command?.split(" ")[0] ?? "", 1), first?.torch_version && `torch ${first.torch_version}`, `${units.count(about.summary.processes)} process${about.summary.processes === 1 ? "" : "es"}`, about.end > 1 && units.time(about.end)].filter(Boolean).join(" · ")}</span>
      {recording.value && <span class="recording" data-testid="recording">● recording</span>}
      {range.value && <span class="range-chip" data-testid="range">{units.time(range.value.begin)} to {units.time(range.value.end)}<button data-testid="range-clear" aria-label="clear the range" onClick={clearRange}>×</button></span>}
      {found && <span class="count" data-testid="search-count">{units.count(found.calls)} calls, {units.time(found.self_ns)}</span>}
      <label class="searching"><input class="search" data-testid="search" placeholder="Search ops, modules, lines" value={text} onInput={(event) => change({ q: event.currentTarget.value })} onKeyDown={(event) => event.key === "Enter" && enter(event.shiftKey)} />{!text && <span class="key">/</span>}</label>
      <button class="plain" data-testid="theme" aria-label="light or dark" onClick={() => change({ theme: theme.value === "dark" ? "light" : "dark" })}>◐</button>
      <button class="plain" aria-label="keys" onClick={() => (help.value = true)}>?</button>
    </header>
  );
}

function Help() {
  return (
    <div class="help" data-testid="help" onClick={() => (help.value = false)}>
      <div class="panel"><h2>Keys</h2><dl>{KEYS.map(([keys, what]) => <><dt><b>{keys}</b></dt><dd>{what}</dd></>)}</dl></div>
    </div>
  );
}

/** Whether something has changed that is not on the screen yet: parts are drawn, and ask, up to two frames later. */
let changing = 0;
function watchChanges(): void {
  effect(() => {
    void [place.value, waiting.value, theme.value];
    const mine = ++changing;
    requestAnimationFrame(() => requestAnimationFrame(() => setTimeout(() => { if (mine === changing) changing = 0; })));
  });
}

async function start(): Promise<void> {
  const page = document.getElementById("page")!;
  // The token has become a cookie: it does not stay in the address bar.
  if (new URLSearchParams(location.search).has("token")) history.replaceState(null, "", `/${location.hash}`);
  effect(() => { document.documentElement.dataset.theme = theme.value; });
  try {
    const known = await ask<About>("about");
    about.value = { ...known, lanes: [], labels: [], threads: [], hidden: "" };
    // A snapshot's reel has no ops: it begins with its memory.
    if (!location.hash && !known.summary.ops && (await ask<{ devices: string[] }>("memory", { by: "total" })).devices.length) go("memory", {}, true);
    const exported = file && (await file);
    if (exported) about.value = { ...about.value, counters: [] }; // they are in the reel only
    listenToKeys();
    page.replaceChildren();
    watchChanges();
    render(<Page exported={exported} />, page);
    readLanesInTime();
    if (!exported) watch(async (changedFrom) => {
      const [next, lanes] = await Promise.all([ask<About>("about", {}, true), ask<Lanes>("lanes", hiding(query.value.hide), true)]);
      about.value = { ...next, ...lanes, hidden: query.value.hide ?? "" };
      shown.timeline?.grow(about.value, changedFrom);
    });
    Object.assign(window, {
      torchreel: {
        ready: true,
        ask, askBytes,
        get idle() { return changing === 0 && waiting.value === 0 && (shown.timeline?.idle ?? true) && (moving.view?.idle ?? true); },
        get frames() { return measured.frames; },
        get painted() { return measured.painted; },
        get bytes() { return received.bytes; },
        get view() { const view = shown.timeline?.view ?? moving.view?.view; return view ? { begin: view.begin, end: view.end } : range.value; },
        at: (x: number, y: number) => { const call = shown.timeline?.at(x, y); return call ? { process: call.process, id: call.id, name: call.name } : null; },
        // At once, if it is a mark of its own; what is drawn together with others must be asked for.
        place: (process: number, id: number) => {
          const timeline = shown.timeline;
          const drawn = timeline?.drawn(process, id);
          return !timeline ? null : drawn ? timeline.placeOf(drawn) : asked(timeline, process, id);
        },
      },
    });
  } catch (error) {
    page.textContent = (error as Error).message;
  }
}

async function asked(timeline: TimelineCanvas, process: number, id: number) {
  const op = await ask<{ process: number; thread: number; depth: number; begin: number; dur_ns: number; name: string }>(`op/${process}/${id}`).catch(() => null);
  return op && timeline.placeOf({ process, id, name: op.name, begin: op.begin, end: op.begin + op.dur_ns, lane: timeline.lane(process, op.thread, op.depth), kernel: false });
}

void start();
