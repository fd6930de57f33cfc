/** Do two formats cost the same? `torchreel edge --compare` as a table, op by op and by module. */
import "./edge.css";
import { type About, ask } from "../api.ts";
import { family } from "../families.ts";
import { change, href, query } from "../state.ts";
import * as units from "../units.ts";
import { Colored, Command, Empty, moveInRows, Path, Segmented, ShareBar, useAnswer } from "../widgets.tsx";

type OpCost = { name: string; backend: string | null; calls: number; ns: number; share: number; flops: number | null; input_bytes: number | null; alloc_bytes: number | null; flops_per_s: number | null };
type ModuleCost = { path: string; class_name: string; self_ns: number; total_ns: number; share: number; flops: number | null; alloc_bytes: number | null; flops_per_s: number | null };
type Side = { reel: string; model: string | null; format: string | null; remark: string | null; runs: number; ns: number; low_ns: number; high_ns: number; ops_ns: number; between_ns: number; ops: number; flops: number | null; flops_per_s: number | null; peak_bytes: number | null; op_costs: OpCost[]; module_costs: ModuleCost[] };
type Part = { names: string[]; calls: number; ns: number };
type Match = { path: string; op: string; left: Part | null; right: Part | null; ratio: number | null };
type ModuleMatch = { path: string; left_ns: number; right_ns: number; ratio: number | null };
type Answer = { left: Side | null; right: Side | null; comparison: { by_module: boolean; rows: Match[]; modules: ModuleMatch[] } | null };

const BY: [string, string][] = [["ops", "ops"], ["modules", "modules"]];

export function EdgeScreen({ about }: { about: About }) {
  const { answer, problem } = useAnswer("edge", () => ask<Answer>("edge"));
  if (problem) return <p class="error">{problem}</p>;
  if (!answer) return <p class="soft">Adding up …</p>;
  if (!answer.left && !answer.right) return (
    <div class="empty" data-testid="empty">
      <p>This is no recording of a deployed model. Run two formats of it beside each other, and open both:</p>
      <p><Command text="torchreel edge model.onnx --compare model.pte -o edge.reel" /></p>
      <p><Command text="torchreel view edge.reel edge-2.reel" /></p>
    </div>
  );
  const by = query.value.by === "modules" ? "modules" : "ops";
  const sides = [answer.left, answer.right].filter((side): side is Side => side !== null);
  return (
    <>
      <div class="edge-heads">{sides.map((side, number) => <Head key={side.reel} side={side} letter={sides.length > 1 ? "AB"[number] : ""} other={number ? sides[0] : null} />)}</div>
      <section class="panel edge">
        <div class="tools">
          <Segmented name="by" choices={BY} value={by} onChoose={(value) => change({ by: value === "ops" ? "" : value }, false)} />
          <input placeholder="filter" aria-label="filter" value={query.value.q ?? ""} onInput={(event) => change({ q: event.currentTarget.value })} />
          <span class="soft">{answer.comparison ? `medians over the runs; ${answer.comparison.by_module ? "ops of the same module that compute the same are one row" : "the modules are not known of both: ops are matched by what they compute"}` : about.compared ? "only one of the two reels is of a deployed model" : <>medians over the runs; to compare, open two: <code>torchreel view {units.tail(about.reel, 1)} other.reel</code></>}</span>
        </div>
        {answer.comparison ? (by === "ops" ? <Matches rows={answer.comparison.rows} sides={sides} /> : <ModuleMatches rows={answer.comparison.modules} />) : by === "ops" ? <Ops side={sides[0]} /> : <Modules side={sides[0]} />}
      </section>
    </>
  );
}

function Head({ side, letter, other }: { side: Side; letter: string; other: Side | null }) {
  return (
    <div class="panel">
      <div><b>{letter && `${letter}  `}{side.model ?? units.tail(side.reel, 1)}</b> <span class="soft">{[side.format, units.tail(side.reel, 1)].filter(Boolean).join(" · ")}</span></div>
      <div class="number">{units.time(side.ns)} {other && <Ratio ratio={other.ns ? side.ns / other.ns : null} />}</div>
      <div class="soft">the median of {units.count(side.runs)} runs, quartiles {units.time(side.low_ns)} and {units.time(side.high_ns)}; {units.time(side.ops_ns)} in {units.count(side.ops)} ops, {units.time(side.between_ns)} between them{side.flops ? `; ${units.flops(side.flops)}FLOP, ${units.flops(side.flops_per_s ?? 0)}FLOP/s` : ""}{side.peak_bytes !== null ? `; ${units.bytes(side.peak_bytes)} of memory` : ""}</div>
      {side.remark && <div class="soft">{side.remark}</div>}
    </div>
  );
}

function Ratio({ ratio }: { ratio: number | null }) {
  if (ratio === null) return null;
  return <small class={ratio > 1.1 ? "slower" : ratio < 0.9 ? "faster" : "soft"} title="B's time by A's">×{ratio >= 100 ? ratio.toFixed(0) : ratio.toFixed(2)}</small>;
}

const matches = (...texts: string[]): boolean => { const text = (query.value.q ?? "").toLowerCase(); return !text || texts.some((each) => each.toLowerCase().includes(text)); };

function Pair({ a, b, most, color }: { a: number; b: number; most: number; color: string }) {
  return <span class="pair"><Colored class={a ? "share-bar" : "share-bar none"} color="module" width={`${(100 * a) / most}%`} /><Colored class={b ? "share-bar" : "share-bar none"} color={color} width={`${(100 * b) / most}%`} /></span>;
}

function Matches({ rows, sides }: { rows: Match[]; sides: Side[] }) {
  const shown = rows.filter((row) => matches(row.path, row.op, ...(row.left?.names ?? []), ...(row.right?.names ?? [])));
  const most = Math.max(...shown.flatMap((row) => [row.left?.ns ?? 0, row.right?.ns ?? 0]), 1);
  if (!shown.length) return <Empty>No row holds “{query.value.q}”.</Empty>;
  return (
    <table class="grid" onKeyDown={moveInRows}>
      <thead><tr><th>Module</th><th>Op</th><th class="names">{sides[0].format ?? "A"}</th><th class="names">{sides[1].format ?? "B"}</th><th class="n">A</th><th class="n">B</th><th class="n">B / A</th><th class="barred"><Colored class="swatch" color="module" />A <Colored class="swatch" color="optimizer" />B</th></tr></thead>
      <tbody>{shown.slice(0, 1000).map((row) => (
        <tr key={`${row.path}\n${row.op}`} tabIndex={0} class={row.left && row.right ? "" : "alone"} data-testid="edge-row" data-name={row.op} data-path={row.path} data-ns={row.left?.ns ?? ""} data-other-ns={row.right?.ns ?? ""}>
          <td class="path-cell">{row.path ? <Path text={row.path} /> : <span class="soft">(the model)</span>}</td><td class="text"><Colored class="swatch" color={family(row.op, "op")} />{row.op}</td>
          <Named part={row.left} /><Named part={row.right} />
          <td class="n">{row.left ? units.time(row.left.ns) : ""}</td><td class="n">{row.right ? units.time(row.right.ns) : ""}</td><td class="n">{row.left && row.right ? <Ratio ratio={row.ratio} /> : <span class="soft">{row.left ? "only A" : "only B"}</span>}</td>
          <td><Pair a={row.left?.ns ?? 0} b={row.right?.ns ?? 0} most={most} color="optimizer" /></td>
        </tr>
      ))}</tbody>
    </table>
  );
}

function Named({ part }: { part: Part | null }) {
  const text = part ? `${part.names.join(", ")}${part.calls === 1 ? "" : ` ×${Number.isInteger(part.calls) ? part.calls : part.calls.toFixed(1)}`}` : "";
  return <td class="text" title={text}>{part && <a href={href("ops", { q: part.names[0] })}>{text}</a>}</td>;
}

function ModuleMatches({ rows }: { rows: ModuleMatch[] }) {
  const shown = rows.filter((row) => matches(row.path));
  const most = Math.max(...shown.flatMap((row) => [row.left_ns, row.right_ns]), 1);
  if (!shown.length) return <Empty>No module is known of both.</Empty>;
  return (
    <table class="grid" onKeyDown={moveInRows}>
      <thead><tr><th>Module, with all that is in it</th><th class="n">A</th><th class="n">B</th><th class="n">B / A</th><th class="barred"><Colored class="swatch" color="module" />A <Colored class="swatch" color="optimizer" />B</th></tr></thead>
      <tbody>{shown.slice(0, 1000).map((row) => (
        <tr key={row.path} tabIndex={0} data-testid="edge-row" data-path={row.path} data-ns={row.left_ns} data-other-ns={row.right_ns}>
          <td class="path-cell"><Path text={row.path} /></td><td class="n">{units.time(row.left_ns)}</td><td class="n">{units.time(row.right_ns)}</td><td class="n"><Ratio ratio={row.ratio} /></td><td><Pair a={row.left_ns} b={row.right_ns} most={most} color="optimizer" /></td>
        </tr>
      ))}</tbody>
    </table>
  );
}

/** One format by itself: what each op costs in a run. */
function Ops({ side }: { side: Side }) {
  const rows = side.op_costs.filter((row) => matches(row.name, row.backend ?? ""));
  const most = Math.max(...rows.map((row) => row.ns), 1);
  return (
    <table class="grid" onKeyDown={moveInRows}>
      <thead><tr><th>Op</th><th>Runtime</th><th class="barred">of a run</th><th class="n">%</th><th class="n">Time</th><th class="n">Calls</th><th class="n">GFLOP/s</th><th class="n">Inputs</th><th class="n">Allocated</th></tr></thead>
      <tbody>{rows.slice(0, 1000).map((row) => (
        <tr key={`${row.name}\n${row.backend}`} tabIndex={0} data-testid="edge-row" data-name={row.name} data-ns={row.ns}>
          <td class="text" title={row.name}><a href={href("ops", { q: row.name })}><Colored class="swatch" color={family(row.name, "op")} />{row.name}</a></td><td class="soft">{row.backend ?? "PyTorch"}</td>
          <td><ShareBar part={row.ns / most} color={family(row.name, "op")} /></td><td class="n">{(100 * row.share).toFixed(1)} %</td><td class="n">{units.time(row.ns)}</td><td class="n">{Number.isInteger(row.calls) ? units.count(row.calls) : row.calls.toFixed(1)}</td>
          <td class="n">{row.flops_per_s ? (row.flops_per_s / 1e9).toFixed(2) : ""}</td><td class="n">{row.input_bytes === null ? "" : units.bytes(row.input_bytes)}</td><td class="n">{row.alloc_bytes === null ? "" : units.bytes(row.alloc_bytes)}</td>
        </tr>
      ))}</tbody>
    </table>
  );
}

function Modules({ side }: { side: Side }) {
  const rows = side.module_costs.filter((row) => matches(row.path, row.class_name));
  if (!rows.length) return <Empty>The modules of this model are not known.</Empty>;
  return (
    <table class="grid" onKeyDown={moveInRows}>
      <thead><tr><th>Module</th><th>Class</th><th class="barred">of a run</th><th class="n">%</th><th class="n">Total</th><th class="n">Self</th><th class="n">GFLOP/s</th><th class="n">Allocated</th></tr></thead>
      <tbody>{rows.slice(0, 1000).map((row) => (
        <tr key={row.path} tabIndex={0} data-testid="edge-row" data-path={row.path} data-ns={row.total_ns}>
          <td class="path-cell"><Path text={row.path || "(not known)"} to={href("modules", { at: row.path, q: "" })} /></td><td class="soft">{row.class_name}</td>
          <td><ShareBar part={row.share} color="module" /></td><td class="n">{(100 * row.share).toFixed(1)} %</td><td class="n">{units.time(row.total_ns)}</td><td class="n">{row.self_ns ? units.time(row.self_ns) : ""}</td><td class="n">{row.flops_per_s ? (row.flops_per_s / 1e9).toFixed(2) : ""}</td><td class="n">{row.alloc_bytes === null ? "" : units.bytes(row.alloc_bytes)}</td>
        </tr>
      ))}</tbody>
    </table>
  );
}
