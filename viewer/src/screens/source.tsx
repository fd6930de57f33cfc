/** What does my line cost? */
import "./source.css";
import { useEffect } from "preact/hooks";
import { type About, ask, type Line } from "../api.ts";
import { change, query, range } from "../state.ts";
import * as units from "../units.ts";
import { Empty, Sized, useAnswer } from "../widgets.tsx";

const ORDER = ["user", "library", "torch", "native"];

export function SourceScreen({ about }: { about: About }) {
  const { answer, problem } = useAnswer(`lines ${range.value?.begin}-${range.value?.end}`, () => ask<{ rows: Line[] }>("lines", range.value ?? {}));
  const file = query.value.file ?? "";
  const text = useAnswer(`source ${file}`, async () => (file ? await ask<{ text: string | null; why: string | null }>("source", { file }) : { text: null, why: null }));
  const wanted = Number(query.value.line ?? 0);
  useEffect(() => { document.querySelector(`[data-line="${wanted}"]`)?.scrollIntoView({ block: "center" }); }, [wanted, file, answer, text.answer]);
  if (!about.summary.recorded.stacks) return <Empty flag="--stacks" />;
  if (problem) return <p class="error">{problem}</p>;
  if (!answer) return <p class="soft">Adding up …</p>;
  const files = new Map<string, { owner: string; self: number }>();
  for (const row of answer.rows) {
    const found = files.get(row.file) ?? { owner: row.owner ?? "user", self: 0 };
    files.set(row.file, { ...found, self: found.self + row.total_ns * Number(row.owner === "user") + row.self_ns });
  }
  const sorted = [...files].sort(([, a], [, b]) => ORDER.indexOf(a.owner) - ORDER.indexOf(b.owner) || b.self - a.self);
  const shown = file || sorted[0]?.[0] || "";
  if (!file && shown) change({ file: shown });
  return (
    <div class="source">
      <div class="panel files">
        {ORDER.map((owner) => {
          const some = sorted.filter(([, each]) => each.owner === owner);
          return some.length === 0 ? null : (
            <details key={owner} open={owner === "user"}>
              <summary class="soft">{{ user: "your files", library: "libraries", torch: "torch and Python", native: "C++" }[owner]}</summary>
              {some.map(([name]) => <button key={name} aria-pressed={name === shown} title={name} onClick={() => change({ file: name, line: "" }, false)}><span>{units.tail(name)}</span><span class="soft">{units.time(answer.rows.reduce((sum, row) => sum + (row.file === name ? row.self_ns : 0), 0))}</span></button>)}
            </details>
          );
        })}
      </div>
      <Code lines={answer.rows.filter((row) => row.file === shown)} text={text.answer?.text ?? null} why={text.answer?.why ?? null} wanted={wanted} name={shown} />
    </div>
  );
}

function Code({ lines, text, why, wanted, name }: { lines: Line[]; text: string | null; why: string | null; wanted: number; name: string }) {
  const costs = new Map(lines.map((line) => [line.line, line]));
  const most = Math.max(...lines.map((line) => line.total_ns), 1);
  const source = text?.split("\n") ?? null;
  const numbers = source ? source.map((_, at) => at + 1) : [...costs.keys()].sort((a, b) => a - b);
  return (
    <section class="panel code">
      <h2>{units.tail(name, 3)}{why && <small>{why}</small>}</h2>
      <table>
        <thead><tr><td class="n">self</td><td class="n">forward</td><td class="n">backward</td><td class="n">total</td><td class="n">calls</td><td></td><td class="n">line</td><td></td></tr></thead>
        <tbody>
          {numbers.map((number) => {
            const cost = costs.get(number);
            return (
              <tr key={number} class={number === wanted ? "hot" : ""} data-testid={cost ? "source-line" : undefined} data-line={number} data-self-ns={cost?.self_ns}>
                <td class="n">{cost?.self_ns ? units.time(cost.self_ns) : ""}</td><td class="n">{cost?.forward_ns ? units.time(cost.forward_ns) : ""}</td><td class="n">{cost?.backward_ns ? units.time(cost.backward_ns) : ""}</td><td class="n">{cost ? units.time(cost.total_ns) : ""}</td><td class="n">{cost?.calls ? units.count(cost.calls) : ""}</td>
                <td>{cost && <Sized class="heat" width={`${Math.max(1, (60 * cost.total_ns) / most)}px`} />}</td><td class="n">{number}</td><td>{source ? source[number - 1] : cost?.function}</td>
              </tr>
            );
          })}
        </tbody>
      </table>
    </section>
  );
}
