/** Which op, which shapes? The table of `torchreel report`. */
import { useState } from "preact/hooks";
import { type About, ask, type Row } from "../api.ts";
import { label } from "../families.ts";
import { change, query, range } from "../state.ts";
import * as units from "../units.ts";
import { Empty, useAnswer } from "../widgets.tsx";

const BY: Record<string, string> = { name: "op", "name,inputs": "op and shapes", module: "module", line: "your line", "name,line": "op and your line", thread: "thread", step: "step", kind: "kind", process: "process" };
const NEEDS: Record<string, [string, string]> = { inputs: ["shapes", "--shapes"], module: ["modules", "--modules"], line: ["stacks", "--stacks"] };
const SORTS: Record<string, keyof Row> = { self: "self_ns", total: "total_ns", count: "calls", average: "average_ns", memory: "self_alloc_bytes", flops: "flops" };

export function OpsScreen({ about, by: fixed }: { about: About; by?: string }) {
  const by = fixed ?? (query.value.by && query.value.by in BY ? query.value.by : "name");
  const sort = query.value.sort && query.value.sort in SORTS ? query.value.sort : "self";
  const { answer, problem } = useAnswer(`${by}/${sort}/${range.value?.begin}-${range.value?.end}`, () => ask<{ rows: Row[]; all: number }>("averages", { by, sort, limit: 2000, ...range.value }));
  const [picked, pick] = useState<string | null>(null);
  const missing = by.split(",").map((word) => NEEDS[word]).find((need) => need && !about.summary.recorded[need[0]]);
  const text = (query.value.q ?? "").toLowerCase();
  const columns = by.split(",");
  const rows = (answer?.rows ?? []).filter((row) => !text || columns.some((column) => String(row[column] ?? "").toLowerCase().includes(text)));
  const heads: [string, string][] = [["self", "Self"], ["total", "Total"], ["average", "Average"], ["count", "Calls"], ["memory", "Memory"], ["flops", "FLOPs"]];
  const table = (
    <table class="grid">
      <thead><tr>{columns.map((column) => <th key={column}>{column}</th>)}<th class="n">Self %</th>{heads.map(([key, name]) => <th class="n" key={key}><button onClick={() => change({ sort: key })} aria-pressed={sort === key}>{name}{sort === key ? " ↓" : ""}</button></th>)}<th class="n">Rate</th></tr></thead>
      <tbody>
        {rows.slice(0, 500).map((row) => {
          const key = columns.map((column) => row[column]).join("\n");
          return (
            <tr key={key} class={picked === key ? "picked" : ""} onClick={() => pick(key)} data-testid={fixed === "module" ? "module-row" : "op-row"} data-name={String(row[columns[0]])} data-path={String(row[columns[0]])} data-self-ns={row.self_ns} data-calls={row.calls}>
              {columns.map((column) => <td key={column} title={String(row[column] ?? "")}>{column === "name" ? label(String(row.name), "op") : String(row[column] ?? "–")}</td>)}
              <td class="n">{row.self_percent.toFixed(2)} %</td><td class="n">{units.time(row.self_ns)}</td><td class="n">{units.time(row.total_ns)}</td><td class="n">{row.average_ns === null ? "" : units.time(row.average_ns)}</td><td class="n">{units.count(row.calls)}</td>
              <td class="n">{row.self_alloc_bytes === null ? "" : units.bytes(row.self_alloc_bytes)}</td><td class="n">{row.flops ? units.flops(row.flops) : ""}</td><td class="n">{row.flops ? `${units.flops((row.flops / row.self_ns) * 1e9)}FLOP/s` : ""}</td>
            </tr>
          );
        })}
      </tbody>
    </table>
  );
  return (
    <section class="panel">
      <div class="tools">
        {!fixed && <label>By <select value={by} onChange={(event) => change({ by: event.currentTarget.value })}>{Object.entries(BY).map(([key, name]) => <option key={key} value={key}>{name}</option>)}</select></label>}
        <input placeholder="filter" aria-label="filter" value={query.value.q ?? ""} onInput={(event) => change({ q: event.currentTarget.value })} />
        <span class="soft">{answer ? `${units.count(rows.length)} of ${units.count(answer.all)} rows` : "Adding up …"}</span>
      </div>
      {problem && <p class="error">{problem}</p>}
      {missing ? <Empty flag={missing[1]} /> : answer && answer.rows.length === 0 ? <Empty>No calls were recorded.</Empty> : table}
    </section>
  );
}
