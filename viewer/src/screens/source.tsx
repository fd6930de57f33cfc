/** What does my line cost? The text is the recorded one, so that it is there on any machine. */
import "./source.css";
import { useEffect, useMemo, useRef, useState } from "preact/hooks";
import { type About, ask, type Line } from "../api.ts";
import { colored } from "../python.ts";
import { change, href, query, range } from "../state.ts";
import * as units from "../units.ts";
import { Command, Empty, Sized, useAnswer } from "../widgets.tsx";

/** See torchreel/web/sources.py. */
type Source = { file: string; text: string | null; origin: "recording" | "disk" | null; state: "same" | "changed" | "missing" | null; why: string | null; bytes: number | null; sha256: string | null };
/** Where the site of an atlas shows a file: see torchreel/web/atlas_site.py. */
type Atlas = { file: string; site: string | null; page: string | null; lines: number; why: string | null };
type Cost = { self: number; forward: number; backward: number; most: number };
type File = Cost & { name: string; owner: string };

const OWNERS: Record<string, string> = { user: "your files", library: "libraries", torch: "torch and Python", native: "C++" };
const ORDER = Object.keys(OWNERS);

export function SourceScreen({ about }: { about: About }) {
  const { answer, problem } = useAnswer(`lines ${range.value?.begin}-${range.value?.end}`, () => ask<{ rows: Line[] }>("lines", range.value ?? {}));
  const files = useMemo(() => filesOf(answer?.rows ?? []), [answer]);
  const shown = query.value.file || files[0]?.name || "";
  const source = useAnswer(`source ${shown}`, async () => (shown ? await ask<Source>("source", { file: shown }) : null));
  const paged = useAnswer(`atlas ${shown}`, () => ask<Atlas>("atlas", { file: shown })).answer;
  if (!about.summary.recorded.stacks) return <Empty flag="--stacks" />;
  if (problem) return <p class="error">{problem}</p>;
  if (!answer) return <p class="soft">Adding up …</p>;
  if (!files.length) return <Empty>No call with a stack began in this range.</Empty>;
  // The answer before, of another file, stays until the next one is there.
  const current = source.answer?.file === shown ? source.answer : null;
  const atlas = paged?.file === shown ? paged : null;
  const wanted = Number(query.value.line ?? 0);
  return (
    <div class="source">
      <nav class="panel files" aria-label="files">
        {ORDER.map((owner) => <Files key={owner} owner={owner} files={files.filter((each) => each.owner === owner)} shown={shown} />)}
        <p class="atlas soft" data-testid="source-atlas"><AtlasNote atlas={atlas} reel={units.tail(about.reel, 1)} /></p>
      </nav>
      <section class="panel code">
        <Head name={shown} file={files.find((each) => each.name === shown)} source={current} atlas={atlas} line={wanted} />
        <div class="lines">
          {source.problem && <p class="error">{source.problem}</p>}
          {(current || source.problem) && <Code key={shown} file={shown} lines={answer.rows.filter((row) => row.file === shown)} text={current?.text ?? null} wanted={wanted} />}
        </div>
      </section>
    </div>
  );
}

/** Own files first, each group by its costliest line. */
function filesOf(rows: Line[]): File[] {
  const files = new Map<string, File>();
  for (const row of rows) {
    const file = files.get(row.file) ?? { name: row.file, owner: row.owner ?? "user", self: 0, forward: 0, backward: 0, most: 0 };
    file.self += row.self_ns;
    file.forward += row.forward_ns;
    file.backward += row.backward_ns;
    file.most = Math.max(file.most, row.total_ns);
    files.set(row.file, file);
  }
  return [...files.values()].sort((a, b) => ORDER.indexOf(a.owner) - ORDER.indexOf(b.owner) || b.most - a.most || (a.name < b.name ? -1 : 1));
}

function Files({ owner, files, shown }: { owner: string; files: File[]; shown: string }) {
  if (!files.length) return null;
  return (
    <details open={owner === "user" || files.some((each) => each.name === shown)}>
      <summary>{OWNERS[owner]}<span class="soft">{units.time(files.reduce((sum, each) => sum + each.self, 0))}</span></summary>
      {files.map(({ name, self }) => (
        <button key={name} aria-pressed={name === shown} title={name} data-testid="source-file" data-file={name} onClick={() => change({ file: name, line: "" }, false)}>
          <span>{units.tail(name, 1)}<small>{directory(name)}</small></span><span class="soft">{self ? units.time(self) : ""}</span>
        </button>
      ))}
    </details>
  );
}

const directory = (name: string): string => units.tail(name).split("/").slice(0, -1).join("/");

/** The way to the atlas, or how to get there. */
function AtlasNote({ atlas, reel }: { atlas: Atlas | null; reel: string }) {
  if (atlas?.site) return <>As pages, with links on every name, a search and ops by line: <a href={atlas.site}>the atlas</a></>;
  return <>{atlas?.why ?? "As pages, with links on every name, a search and ops by line:"} <Command text={`torchreel atlas ${reel} -o site`} /> <Command text={`torchreel view ${reel} --atlas site`} /></>;
}

function Head({ name, file, source, atlas, line }: { name: string; file?: File; source: Source | null; atlas: Atlas | null; line: number }) {
  const there = atlas?.page && line >= 1 && line <= atlas.lines;
  const doubtful = source?.state === "changed" || (source?.text != null && source.state === null);
  return (
    <header>
      <h2 title={source?.sha256 ? `${name}\n${units.count(source.bytes ?? 0)} bytes, sha256 ${source.sha256}` : name}><bdi>{name}</bdi></h2>
      {file && <span class="soft">{units.time(file.self)} self: {units.time(file.forward)} forward, {units.time(file.backward)} backward{atlas?.page && <> · <a data-testid="source-page" href={there ? `${atlas.page}#L${line}` : atlas.page}>{there ? `line ${line} in the atlas` : "in the atlas"}</a></>}</span>}
      {source?.why && <p class={doubtful ? "note doubtful" : "note"} data-testid="source-note" data-state={source.state ?? "unknown"}>{source.why}</p>}
      {atlas?.site && atlas.why && <p class="note" data-testid="source-page-note">{atlas.why}</p>}
    </header>
  );
}

/** Longer files are folded where nothing costs anything. */
const WHOLE = 2000;
const AROUND = 20;
const OPENED_AT_ONCE = 500;
const MOST_ROWS = 10_000;

type Fold = { from: number; to: number };

/** The numbers of lines to show, in order, and what is folded between them. */
function folded(count: number, kept: number[], opened: Fold[]): (number | Fold)[] {
  if (count <= WHOLE) return Array.from({ length: count }, (_, at) => at + 1);
  const shows = new Uint8Array(count + 2);
  for (const line of kept) shows.fill(1, Math.max(line - AROUND, 1), Math.min(line + AROUND, count) + 1);
  for (const part of opened) shows.fill(1, part.from, part.to + 1);
  const items: (number | Fold)[] = [];
  for (let line = 1; line <= count; line++) {
    const last = items[items.length - 1];
    if (shows[line]) items.push(line);
    else if (typeof last === "object") last.to = line;
    else items.push({ from: line, to: line });
  }
  return items;
}

function Code({ file, lines, text, wanted }: { file: string; lines: Line[]; text: string | null; wanted: number }) {
  const [opened, open] = useState<Fold[]>([]);
  const row = useRef<HTMLTableRowElement>(null);
  const costs = useMemo(() => new Map(lines.map((line) => [line.line, line])), [lines]);
  const parts = useMemo(() => (text === null ? null : colored(text)), [text]);
  const most = lines.reduce((so, line) => Math.max(so, line.total_ns), 1);
  // A file opens where it costs most.
  const first = wanted || (lines.find((line) => line.total_ns === most)?.line ?? 0);
  useEffect(() => { row.current?.scrollIntoView({ block: "center" }); }, [wanted, text]);
  const numbers = [...costs.keys()].sort((a, b) => a - b);
  // A line beyond the end of the text is shown all the same, with its cost.
  const beyond = numbers.filter((line) => parts && (line > parts.length || line < 1));
  const items = parts ? [...folded(parts.length, wanted ? [...numbers, wanted] : numbers, opened), ...beyond] : numbers;
  return (
    <table>
      <thead><tr><th class="n">self</th><th class="n part">forward</th><th class="n part">backward</th><th class="n">total</th><th class="n">calls</th><th class="n">bytes</th><th /><th class="n" aria-label="line">#</th><th class="text">{parts ? "" : "function"}</th></tr></thead>
      <tbody>
        {items.slice(0, MOST_ROWS).map((item) => {
          if (typeof item === "object") return <tr key={`fold ${item.to}`} class="fold"><NoCosts /><td class="n">⋮</td><td class="text"><button onClick={() => open([...opened, { from: item.from, to: Math.min(item.to, item.from + OPENED_AT_ONCE - 1) }])}>{units.count(item.to - item.from + 1)} lines without a call</button></td></tr>;
          const cost = costs.get(item);
          return (
            <tr key={item} ref={item === first ? row : undefined} class={item === wanted ? "hot" : ""} data-testid={cost ? "source-line" : undefined} data-line={item} data-self-ns={cost?.self_ns} data-total-ns={cost?.total_ns}>
              {cost ? <Costs cost={cost} most={most} /> : <NoCosts />}
              <td class="n"><a href={href("source", { file, line: String(item) })}>{item}</a></td>
              <td class="text">{parts ? (parts[item - 1] ?? []).map(([kind, part]) => (kind ? <span class={`py-${kind}`}>{part}</span> : part)) : cost?.function}</td>
            </tr>
          );
        })}
        {items.length > MOST_ROWS && <tr class="fold"><NoCosts /><td class="n" /><td class="text">{units.count(items.length - MOST_ROWS)} more lines are not shown</td></tr>}
      </tbody>
    </table>
  );
}

/** As many cells as there are costs, the same of them hidden where there is little room: numbers and text stay below each other. */
function NoCosts() {
  return <><td /><td class="part" /><td class="part" /><td colSpan={4} /></>;
}

function Costs({ cost, most }: { cost: Line; most: number }) {
  const time = (ns: number) => (ns ? units.time(ns) : "");
  return (
    <>
      <td class="n strong" title={cost.self_ns ? `${units.time(cost.forward_ns)} forward, ${units.time(cost.backward_ns)} backward` : ""}>{time(cost.self_ns)}</td><td class="n part">{time(cost.forward_ns)}</td><td class="n part">{time(cost.backward_ns)}</td>
      <td class="n strong">{time(cost.total_ns)}</td><td class="n">{cost.calls ? units.count(cost.calls) : ""}</td><td class="n">{cost.alloc_bytes ? units.bytes(cost.alloc_bytes) : ""}</td>
      <td class="share" title={`${units.percent(cost.total_ns, most)} of the costliest line`}><Sized class="heat" width={`${(40 * cost.total_ns) / most}px`} /></td>
    </>
  );
}
