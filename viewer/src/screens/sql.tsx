/** Anything else. */
import "./sql.css";
import { useEffect, useState } from "preact/hooks";
import { file, post } from "../api.ts";
import { change, go, query, range } from "../state.ts";
import { TABLES } from "../tables.ts";
import * as units from "../units.ts";
import { moveInRows, useAnswer } from "../widgets.tsx";

type Answer = { columns: string[]; rows: (string | number | boolean | null)[][]; cut: boolean };
const FIRST = "select name, count(*) as calls, sum(self_ns) as self_ns\nfrom ops group by name order by self_ns desc limit 20";

const SHOWN = 1000;

export function SqlScreen() {
  const [text, write] = useState(query.value.sql ?? FIRST);
  const [answer, set] = useState<Answer | null>(null);
  const [problem, complain] = useState<string | null>(null);
  const run = async () => {
    change({ sql: text });
    try {
      set(await post<Answer>("sql", { sql: text, ...range.value }));
      complain(null);
    } catch (error) {
      complain((error as Error).message);
    }
  };
  // An address that was copied brings the rows back, too.
  useEffect(() => { if (query.value.sql && !file) void run(); }, []);
  const { answer: exported } = useAnswer("file", async () => file && (await file));
  if (file) return (
    <section class="panel">
      <textarea class="sql" data-testid="sql-input" aria-label="SQL" value={text} onInput={(event) => write(event.currentTarget.value)} />
      <p class="soft">This file holds answers and calls, and no tables to query. This command asks the reel, with DuckDB's SQL:</p>
      <pre class="command" data-testid="sql-command">{exported?.command(text)}</pre>
    </section>
  );
  const link = answer?.columns.includes("id") && answer.columns.includes("process");
  return (
    <div class="sql-screen">
    <section class="panel">
      <textarea class="sql" data-testid="sql-input" aria-label="SQL" value={text} onInput={(event) => write(event.currentTarget.value)} onKeyDown={(event) => { if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) void run(); }} />
      <div class="tools">
        <button class="plain" data-testid="sql-run" onClick={() => void run()}>Run</button>
        <span class="soft" title="DuckDB's SQL over the reel's tables, read-only"><span class="key">Ctrl</span> <span class="key">Enter</span> &nbsp;DuckDB's SQL, read-only; 10 s and 10,000 rows at most; $begin and $end are the range</span>
        {answer && <button class="plain" onClick={() => download(answer)}>CSV</button>}
      </div>
      {problem && <p class="error" data-testid="sql-error">{problem}</p>}
      {answer && !problem && (
        <>
          <p class="soft">{answer.cut ? "The first 10,000 rows: torchreel sql prints all." : `${units.count(answer.rows.length)} rows.`}{answer.rows.length > SHOWN && ` ${units.count(SHOWN)} are shown; CSV has all of them.`}{link ? " A click on a row shows its call." : ""}</p>
          <table class="grid" onKeyDown={(event) => { if (!moveInRows(event) && event.key === "Enter") (event.target as HTMLElement).click(); }}>
            <thead><tr>{answer.columns.map((name) => <th key={name}>{name}</th>)}</tr></thead>
            <tbody>{answer.rows.slice(0, SHOWN).map((row, at) => (
              <tr key={at} tabIndex={link ? 0 : undefined} data-testid="sql-row" onClick={() => link && go("timeline", { op: `${row[answer.columns.indexOf("process")]}:${row[answer.columns.indexOf("id")]}` })}>
                {row.map((value, column) => <td key={column} class={typeof value === "number" ? "n" : ""}>{value === null ? "" : String(value)}</td>)}
              </tr>
            ))}</tbody>
          </table>
        </>
      )}
    </section>
    <section class="panel tables" aria-label="tables and columns">
      <h2>Tables</h2>
      {Object.entries(TABLES).map(([name, { row, columns }]) => (
        <details key={name}>
          <summary title={row}><code>{name}</code></summary>
          <dl>{Object.entries({ process: "the index of the process in the reel", ...columns }).map(([column, meaning]) => <div key={column} title={meaning}><dt><code>{column}</code></dt><dd class="soft">{meaning}</dd></div>)}</dl>
        </details>
      ))}
    </section>
    </div>
  );
}

function download(answer: Answer): void {
  const quoted = (value: unknown) => (/[",\n\r]/.test(String(value ?? "")) ? `"${String(value).replaceAll('"', '""')}"` : String(value ?? ""));
  const text = [answer.columns, ...answer.rows].map((row) => row.map(quoted).join(",")).join("\n");
  const link = document.createElement("a");
  link.href = URL.createObjectURL(new Blob([text], { type: "text/csv" }));
  link.download = "rows.csv";
  link.click();
  URL.revokeObjectURL(link.href);
}
