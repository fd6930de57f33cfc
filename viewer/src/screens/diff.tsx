/** What changed? */
import { type About, ask } from "../api.ts";
import { change, query } from "../state.ts";
import * as units from "../units.ts";
import { Empty, useAnswer } from "../widgets.tsx";

type Change = { a: number; b: number; spread: number; change: number; percent: number | null };
type Row = { a_self_ns: number; b_self_ns: number; a_calls: number; b_calls: number; change_ns: number; spread_ns: number; state: string } & Record<string, string | number>;
type Diff = { a: string; b: string; per: string; a_steps: number; b_steps: number; wall_ns: Change; self_ns: Change; ops: Change; peak_bytes: Change | null; rows: Row[] };
const BY = { name: ["name"], inputs: ["name", "inputs"], module: ["module"], line: ["line"] } as const;

export function DiffScreen({ about }: { about: About }) {
  const by = (query.value.by ?? "name") in BY ? ((query.value.by ?? "name") as keyof typeof BY) : "name";
  const { answer, problem } = useAnswer(`diff ${by}`, async () => (about.compared ? await ask<Diff>("diff", { by }) : null));
  if (!about.compared) return <Empty>One reel is open. Start with <code>torchreel view before.reel after.reel</code> to see what changed.</Empty>;
  if (problem) return <p class="error">{problem}</p>;
  if (!answer) return <p class="soft">Comparing …</p>;
  const numbers: [string, Change | null, (value: number) => string][] = [[answer.per === "step" ? "a step" : "the run", answer.wall_ns, units.time], ["self time", answer.self_ns, units.time], ["ops", answer.ops, units.count], ["peak memory", answer.peak_bytes, units.bytes]];
  return (
    <>
      <div class="tiles">
        {numbers.map(([name, value, text]) => <div class="panel" key={name}><div>{name}</div><div class="number">{value ? <>{text(value.b)} <small>{value.percent === null ? "" : `${value.percent > 0 ? "+" : ""}${value.percent.toFixed(1)} %`}</small></> : "–"}</div></div>)}
      </div>
      <section class="panel">
        <div class="tools">
          <label>By <select value={by} onChange={(event) => change({ by: event.currentTarget.value })}>{Object.keys(BY).map((key) => <option key={key}>{key}</option>)}</select></label>
          <span class="soft">A {units.tail(answer.a, 1)}, B {units.tail(answer.b, 1)}{answer.per === "step" ? `, by the step: ${answer.a_steps} and ${answer.b_steps}` : ", as a whole"}</span>
        </div>
        <table class="grid">
          <thead><tr>{BY[by].map((key) => <th key={key}>{key}</th>)}<th class="n">A self</th><th class="n">B self</th><th class="n">Change</th><th class="n">Spread</th><th class="n">A calls</th><th class="n">B calls</th><th></th></tr></thead>
          <tbody>{answer.rows.slice(0, 500).map((row) => (
            <tr key={BY[by].map((key) => row[key]).join("\n")} data-testid="diff-row" data-name={String(row[BY[by][0]])} data-change-ns={row.change_ns}>
              {BY[by].map((key) => <td key={key} title={String(row[key])}>{row[key]}</td>)}
              <td class="n">{row.state === "new" ? "" : units.time(row.a_self_ns)}</td><td class="n">{row.state === "gone" ? "" : units.time(row.b_self_ns)}</td><td class="n">{row.change_ns > 0 ? "+" : ""}{units.time(row.change_ns)}</td><td class="n soft">{units.time(row.spread_ns)}</td><td class="n">{row.a_calls ? units.count(row.a_calls) : ""}</td><td class="n">{row.b_calls ? units.count(row.b_calls) : ""}</td>
              <td class="soft">{row.state !== "both" ? row.state : Math.abs(row.change_ns) <= row.spread_ns && row.change_ns ? "within spread" : ""}</td>
            </tr>
          ))}</tbody>
        </table>
      </section>
    </>
  );
}
