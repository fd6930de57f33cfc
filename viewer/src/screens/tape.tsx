/** What did the step compute? */
import { type About, ask } from "../api.ts";
import { go, href } from "../state.ts";
import * as units from "../units.ts";
import { Empty, useAnswer } from "../widgets.tsx";

type Row = { process: number; tape: string; index: number; name: string; op: number | null; module: string | null; file: string | null; line: number | null; backward: boolean; forward: number | null; inserted: boolean; inputs: string; outputs: string; dur_ns: number | null; self_ns: number | null; alloc_bytes: number | null };

export function TapeScreen({}: { about: About }) {
  const { answer, problem } = useAnswer("tape", () => ask<{ rows: Row[] }>("tape"));
  if (problem) return <p class="error">{problem}</p>;
  if (!answer) return <p class="soft">Reading …</p>;
  if (!answer.rows.length) return <Empty flag="--tape">This reel holds no tape.</Empty>;
  return (
    <section class="panel">
      <h2>{answer.rows[0].tape}<small>{units.count(answer.rows.length)} ops of a step, in their order; a click shows the call in the timeline</small></h2>
      <table class="grid">
        <thead><tr><th class="n">#</th><th>Op</th><th>Gives</th><th class="n">Took</th><th class="n">Memory</th><th>Module</th><th>Line</th><th></th></tr></thead>
        <tbody>{answer.rows.map((row) => (
          <tr key={`${row.process}/${row.tape}/${row.index}`} data-testid="tape-op" onClick={() => row.op !== null && go("timeline", { op: `${row.process}:${row.op}` })}>
            <td class="n">{row.index}</td><td title={row.inputs}>{row.name}</td><td title={row.outputs}>{row.outputs}</td><td class="n">{row.dur_ns === null ? "" : units.time(row.dur_ns)}</td><td class="n">{row.alloc_bytes ? units.bytes(row.alloc_bytes) : ""}</td><td>{row.module ?? ""}</td>
            <td>{row.file && <a href={href("source", { file: row.file, line: String(row.line) })} onClick={(event) => event.stopPropagation()}>{units.tail(row.file, 1)}:{row.line}</a>}</td>
            <td class="soft">{row.inserted ? "inserted" : row.backward ? (row.forward === null ? "backward" : `backward of ${row.forward}`) : ""}</td>
          </tr>
        ))}</tbody>
      </table>
    </section>
  );
}
