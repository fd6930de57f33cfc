/** What did the step compute? The program as it ran, by modules and lines; each op leads to its call and its partner. */
import "./tape.css";
import { useEffect, useMemo, useRef, useState } from "preact/hooks";
import { ask } from "../api.ts";
import { family } from "../families.ts";
import { toCall } from "../slowest.tsx";
import { change, href, query } from "../state.ts";
import * as units from "../units.ts";
import { Colored, Empty, moveInRows, Path, Segmented, ShareBar, useAnswer } from "../widgets.tsx";

type Op = { process: number; tape: string; index: number; name: string; op: number | null; module: string | null; file: string | null; line: number | null; backward: boolean; forward: number | null; inserted: boolean; inputs: string; outputs: string; dur_ns: number | null; self_ns: number | null; alloc_bytes: number | null; flops: number | null };
type Answer = { tapes: { process: number; tape: string; ops: number; backward: number }[]; chosen: number | null; rows: Op[] };
/** Ops that follow each other in one module, forward or backward. */
type Part = { key: string; module: string | null; backward: boolean; ops: Op[]; ns: number; bytes: number };

const SHOW: [string, string][] = [["", "all"], ["forward", "forward"], ["backward", "backward"]];
const FOLD: [string, string][] = [["", "by line"], ["module", "by module"]];
const AT_ONCE = 1500;
const FILES = 12;

export function TapeScreen() {
  const [, process, op] = /^(\d+):(\d+)$/.exec(query.value.op ?? "") ?? [];
  const tape = query.value.tape ?? "";
  const { answer, problem } = useAnswer(`tape ${tape} ${process}:${op}`, () => ask<Answer>("tape", { ...(tape && { tape }), ...(op !== undefined && { process, op }) }));
  const files = useMemo(() => [...new Set((answer?.rows ?? []).map((row) => row.file).filter((file): file is string => file !== null))].slice(0, FILES), [answer]);
  const texts = useAnswer(`tape text ${files.join("\n")}`, async () => new Map(await Promise.all(files.map(async (file) => [file, await textOf(file)] as const))));
  if (problem) return <p class="error">{problem}</p>;
  if (!answer) return <p class="soft">Reading …</p>;
  if (!answer.rows.length) return <Empty flag="--tape">This reel holds no tape.</Empty>;
  return <Tape answer={answer} texts={texts.answer ?? new Map()} />;
}

async function textOf(file: string): Promise<string[] | null> {
  try {
    return (await ask<{ text: string | null }>("source", { file })).text?.split("\n") ?? null;
  } catch {
    return null; // no frame of the reel names it: the line's number has to do
  }
}

function Tape({ answer, texts }: { answer: Answer; texts: Map<string, string[] | null> }) {
  const { rows } = answer;
  const [most, setMost] = useState(AT_ONCE);
  const table = useRef<HTMLTableElement>(null);
  const show = SHOW.some(([key]) => key === query.value.show) ? query.value.show : "";
  const fold = query.value.fold === "module" ? "module" : "";
  const text = (query.value.q ?? "").toLowerCase();
  const linked = /^\d+:(\d+)$/.exec(query.value.op ?? "");
  const chosen = linked ? (rows.find((row) => row.op === Number(linked[1]))?.index ?? -1) : Number(query.value.at ?? -1);
  const shown = rows.filter((row) => (!show || row.backward === (show === "backward")) && (!text || [row.name, row.module, row.outputs, row.file && `${row.file}:${row.line}`].some((each) => (each ?? "").toLowerCase().includes(text))));
  const partners = useMemo(() => {
    const found = new Map<number, number[]>();
    for (const row of rows) if (row.forward !== null) found.set(row.forward, [...(found.get(row.forward) ?? []), row.index]);
    return found;
  }, [rows]);
  useEffect(() => {
    const row = chosen >= 0 ? table.current?.querySelector(`[data-index="${chosen}"]`) : null;
    for (const each of [row?.nextElementSibling, row]) each?.scrollIntoView({ block: "nearest" });
  }, [chosen, fold, answer]);
  const measured = rows.filter((row) => row.dur_ns !== null);
  const slowest = Math.max(...measured.map((row) => row.dur_ns!), 1);
  const pick = (index: number) => change({ at: index === chosen ? "" : String(index), op: "" });
  const key = (event: KeyboardEvent) => {
    const row = event.target as HTMLElement;
    const opened = row.dataset.index === String(chosen);
    if (event.key === "Enter" && row.matches("tr[tabindex]")) { event.preventDefault(); row.click(); }
    else if (row.matches("tr[data-index]") && ((event.key === "ArrowRight" && !opened) || (event.key === "ArrowLeft" && opened))) { event.preventDefault(); pick(Number(row.dataset.index)); }
    else moveInRows(event);
  };
  const limited = chosen >= 0 ? Math.max(most, shown.findIndex((row) => row.index === chosen) + 50) : most;
  const body = fold ? <Parts rows={shown} chosen={chosen} slowest={slowest} partners={partners} pick={pick} /> : <Lines rows={shown.slice(0, limited)} chosen={chosen} slowest={slowest} partners={partners} pick={pick} texts={texts} />;
  const tape = answer.tapes[answer.chosen!];
  return (
    <section class="panel tape">
      <div class="tools">
        {answer.tapes.length > 1 ? <select aria-label="tape" value={String(answer.chosen)} onChange={(event) => change({ tape: event.currentTarget.value, at: "", op: "" }, false)}>{answer.tapes.map((each, number) => <option key={number} value={String(number)}>{each.tape}, process {each.process}</option>)}</select> : <b>{tape.tape}</b>}
        <Segmented name="show" choices={SHOW} value={show} onChoose={(value) => change({ show: value }, false)} />
        <Segmented name="fold" choices={FOLD} value={fold} onChoose={(value) => change({ fold: value }, false)} />
        <span class="soft">{shown.length === tape.ops ? "" : `${units.count(shown.length)} of `}{units.count(tape.ops)} ops, {units.count(tape.backward)} of backward; {units.time(shown.reduce((sum, row) => sum + (row.self_ns ?? 0), 0))} of their own</span>
        <input class="push" placeholder="filter" aria-label="filter" value={query.value.q ?? ""} onInput={(event) => change({ q: event.currentTarget.value })} />
      </div>
      <div class="table-frame">
        {shown.length === 0 ? <Empty>No op holds “{query.value.q}”.</Empty> : (
          <table class="grid" ref={table} onKeyDown={key}>
            <thead><tr><th class="n index">#</th><th class="op">Op</th><th class="gives">Gives</th><th class="barred"></th><th class="n">Took</th><th class="n">Memory</th><th>Module</th><th class="partner">Partner</th><th class="n">Call</th></tr></thead>
            {body}
          </table>
        )}
        {!fold && shown.length > limited && <p class="more">These are {units.count(limited)} of {units.count(shown.length)} ops. <button class="plain" onClick={() => setMost(limited + AT_ONCE)}>more</button></p>}
        {rows.length < tape.ops && <p class="more">The first {units.count(rows.length)} of {units.count(tape.ops)} ops: <code>torchreel sql</code> has all, in tape_ops.</p>}
      </div>
    </section>
  );
}

type Drawn = { chosen: number; slowest: number; partners: Map<number, number[]>; pick: (index: number) => void };

/** The ops in their order, below the lines that called them. */
function Lines({ rows, texts, ...drawn }: { rows: Op[]; texts: Map<string, string[] | null> } & Drawn) {
  let before = "";
  return (
    <tbody>{rows.flatMap((row) => {
      const where = row.file === null ? "" : `${row.file}:${row.line}`;
      const head = where !== before && row.file !== null ? <tr key={`line ${row.index}`} class="line"><td colSpan={9}><a href={href("source", { file: row.file, line: String(row.line), q: "" })} title={where}>{units.tail(row.file, 1)}:{row.line}</a><code>{texts.get(row.file)?.[(row.line ?? 0) - 1]?.trim() ?? ""}</code></td></tr> : null;
      before = where;
      return [head, ...opRows(row, drawn)];
    })}</tbody>
  );
}

/** The same by modules: what follows each other in one is a row that opens. */
function Parts({ rows, ...drawn }: { rows: Op[] } & Drawn) {
  const parts = partsOf(rows);
  const open = new Set((query.value.open ?? "").split(",").filter(Boolean));
  const toggle = (key: string) => { const next = new Set(open); if (!next.delete(key)) next.add(key); change({ open: [...next].join(",") }); };
  const widest = Math.max(...parts.map((part) => part.ns), 1);
  return (
    <tbody>{parts.flatMap((part) => {
      const opened = open.has(part.key) || part.ops.some((op) => op.index === drawn.chosen);
      return [
        <tr key={`part ${part.key}`} tabIndex={0} class={`part ${part.backward ? "backward" : ""}`} aria-expanded={opened} data-testid="tape-part" onClick={() => toggle(part.key)}>
          <td class="n">{part.ops[0].index}</td><td colSpan={2} title={part.module ?? ""}><button class="toggle" tabIndex={-1} aria-label={opened ? "close" : "open"}>{opened ? "▾" : "▸"}</button>{part.module ?? "(no module)"}{part.backward ? ", backward" : ""} <span class="soft">{part.ops.length === 1 ? part.ops[0].name : `${units.count(part.ops.length)} ops`}</span></td>
          <td><ShareBar part={part.ns / widest} color={part.backward ? "backward" : "module"} /></td><td class="n">{units.time(part.ns)}</td><td class="n">{part.bytes ? units.bytes(part.bytes) : ""}</td><td colSpan={3}></td>
        </tr>,
        ...(opened ? part.ops.flatMap((op) => opRows(op, drawn)) : []),
      ];
    })}</tbody>
  );
}

function partsOf(rows: Op[]): Part[] {
  const parts: Part[] = [];
  rows.forEach((row, at) => {
    let last = parts.at(-1);
    // An op in no module, such as a detach in backward, does not tear apart what is around it.
    const around = row.module === null && last && rows[at + 1]?.module === last.module && rows[at + 1].backward === last.backward;
    if (!last || ((last.module !== row.module || last.backward !== row.backward) && !around)) parts.push(last = { key: String(row.index), module: row.module, backward: row.backward, ops: [], ns: 0, bytes: 0 });
    last.ops.push(row);
    last.ns += row.self_ns ?? 0;
    last.bytes += row.alloc_bytes ?? 0;
  });
  return parts;
}

function opRows(row: Op, { chosen, slowest, partners, pick }: Drawn): preact.ComponentChildren[] {
  const back = partners.get(row.index) ?? [];
  const stop = (event: Event) => event.stopPropagation();
  return [
    <tr key={row.index} tabIndex={0} class={`${row.index === chosen ? "picked" : ""} ${row.backward ? "back" : ""}`} data-testid="tape-op" data-index={row.index} data-name={row.name} data-ns={row.dur_ns ?? ""} onClick={() => (row.op === null ? pick(row.index) : (location.hash = toCall(row.process, row.op)))}>
      <td class="n soft"><button class="toggle" tabIndex={-1} aria-label={row.index === chosen ? "close" : "its arguments"} onClick={(event) => { stop(event); pick(row.index); }}>{row.index === chosen ? "▾" : "▸"}</button>{row.index}</td><td class="text" title={row.inputs}><Colored class="swatch" color={family(row.name, "op")} />{row.name}</td><td class="text soft" title={row.outputs}>{row.outputs}</td>
      <td>{row.dur_ns !== null && <ShareBar part={row.dur_ns / slowest} color={family(row.name, "op")} />}</td><td class="n">{row.dur_ns === null ? "" : units.time(row.dur_ns)}</td><td class="n">{row.alloc_bytes ? units.bytes(row.alloc_bytes) : ""}</td>
      <td class="path-cell"><Path text={row.module ?? ""} /></td>
      <td>{row.inserted ? <span class="soft">inserted</span> : row.forward !== null ? <a href={href("tape", { at: String(row.forward), q: "", ...kept() })} onClick={stop}>backward of {row.forward}</a> : back.length ? <a href={href("tape", { at: String(back[0]), q: "", ...kept() })} onClick={stop} title={`its backward: ${back.join(", ")}`}>backward {back[0]}{back.length > 1 ? ` +${back.length - 1}` : ""}</a> : row.backward ? <span class="soft">backward</span> : ""}</td>
      <td class="n">{row.op !== null && <a href={toCall(row.process, row.op)} onClick={stop} data-testid="tape-call">timeline</a>}</td>
    </tr>,
    row.index === chosen && (
      <tr key={`${row.index} told`} class="opened"><td colSpan={9}>
        <pre>{row.outputs} = {row.name}({row.inputs})</pre>
        <p class="tools">
          {row.op !== null && <a href={toCall(row.process, row.op)}>its call in the timeline →</a>}
          <a href={href("ops", { q: row.name.replace(/\..*$/, "") })}>all calls of the op →</a>
          {row.file && <a href={href("source", { file: row.file, line: String(row.line), q: "" })}>{units.tail(row.file, 1)}:{row.line} →</a>}
          {back.map((index) => <a key={index} href={href("tape", { at: String(index), q: "", ...kept() })}>backward op {index} →</a>)}
          {row.forward !== null && <a href={href("tape", { at: String(row.forward), q: "", ...kept() })}>forward op {row.forward} →</a>}
          {row.flops && row.dur_ns ? <span class="soft">{units.flops(row.flops)}FLOP, {(row.flops / row.dur_ns).toFixed(2)} GFLOP/s</span> : null}
        </p>
      </td></tr>
    ),
  ];
}

/** What a link within the tape keeps of the address. */
const kept = (): Record<string, string> => Object.fromEntries(["tape", "fold"].filter((key) => query.value[key]).map((key) => [key, query.value[key]]));
