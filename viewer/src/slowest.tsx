/** The slowest calls of a row, each with the way to it. */
import { ask } from "./api.ts";
import { label } from "./families.ts";
import { go, href, range } from "./state.ts";
import * as units from "./units.ts";
import { useAnswer } from "./widgets.tsx";

type Call = { process: number; id: number; name: string; kind: string; begin: number; dur_ns: number; self_ns: number; step: number | null; thread: number; thread_name: string | null; inputs: string | null; tape_index: number | null };
export type Where = Record<string, string>;

export function Slowest({ where, limit = 10 }: { where: Where; limit?: number }) {
  const { answer, problem } = useAnswer(`slowest ${JSON.stringify(where)} ${range.value?.begin}-${range.value?.end}`, () => ask<{ rows: Call[] }>("slowest", { ...where, limit, ...range.value }));
  if (problem) return <p class="error">{problem}</p>;
  if (!answer) return <p class="soft">Looking …</p>;
  if (!answer.rows.length) return <p class="soft">No call of its own{range.value ? " began in this range" : ""}.</p>;
  const named = answer.rows.some((row) => row.name !== answer.rows[0].name);
  const [shapes, steps, tapes] = [answer.rows.some((row) => row.inputs), answer.rows.some((row) => row.step !== null), answer.rows.some((row) => row.tape_index !== null)];
  return (
    <div class="slowest">
      <table class="grid">
        <thead><tr><th>{units.count(answer.rows.length)} slowest</th>{named && <th>call</th>}<th class="n">took</th><th class="n">self</th><th class="n">at</th>{steps && <th class="n">step</th>}<th>thread</th>{shapes && <th>shapes</th>}{tapes && <th></th>}</tr></thead>
        <tbody>
          {answer.rows.map((row) => (
            <tr key={`${row.process}:${row.id}`} data-testid="slowest-row" data-op={`${row.process}:${row.id}`} data-ns={row.dur_ns}>
              <td><a href={toCall(row.process, row.id)}>timeline →</a></td>
              {named && <td title={row.name}>{label(row.name, row.kind)}</td>}
              <td class="n">{units.time(row.dur_ns)}</td><td class="n soft">{units.time(row.self_ns)}</td><td class="n">{units.time(row.begin)}</td>{steps && <td class="n">{row.step ?? ""}</td>}
              <td class="soft">{row.thread_name || `thread ${row.thread}`}</td>{shapes && <td class="soft" title={row.inputs ?? ""}>{row.inputs}</td>}
              {tapes && <td>{row.tape_index !== null && <a href={href("tape", { op: `${row.process}:${row.id}`, q: "" })}>tape {row.tape_index}</a>}</td>}
            </tr>
          ))}
        </tbody>
      </table>
    </div>
  );
}

/** The address of a call in the timeline, whatever range or search is on. */
export const toCall = (process: number, id: number): string => href("timeline", { op: `${process}:${id}`, begin: "", end: "", q: "" });

export async function goToSlowest(where: Where): Promise<void> {
  const { rows } = await ask<{ rows: Call[] }>("slowest", { ...where, limit: 1, ...range.value });
  if (rows.length) go("timeline", { op: `${rows[0].process}:${rows[0].id}`, begin: "", end: "", q: "" });
}
