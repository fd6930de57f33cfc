/** Which op, which shapes? The table of `torchreel report`; a row opens its slowest calls. */
import "./ops.css";
import { useState } from "preact/hooks";
import { type About, ask, type Row } from "../api.ts";
import { family, isEngine, label } from "../families.ts";
import { Slowest, type Where } from "../slowest.tsx";
import { change, go, query, range } from "../state.ts";
import * as units from "../units.ts";
import { Colored, Empty, moveInRows, Path, ShareBar, useAnswer } from "../widgets.tsx";

const WORDS: [string, string][] = [["name", "op"], ["inputs", "shapes"], ["overload", "overload"], ["module", "module"], ["line", "your line"], ["stack", "stack"], ["kind", "kind"], ["step", "step"], ["thread", "thread"], ["process", "process"]];
const TITLES = Object.fromEntries(WORDS);
const NEEDS: Record<string, [string, string, string]> = { inputs: ["shapes", "--shapes", "Shapes were"], module: ["modules", "--modules", "Modules were"], line: ["stacks", "--stacks", "Stacks were"], stack: ["stacks", "--stacks", "Stacks were"] };
const SORTS = ["self", "total", "average", "count", "memory", "flops"];
const KINDS = ["op", "backward", "range", "module", "python", "torchscript", "lite", "custom", "static_runtime", "other"];
const AT_ONCE = 300;

/** Shapes and overloads say nothing without the op that they belong to, as in `report`. */
function groupsOf(words: string): string[] {
  const known = words.split(",").filter((word) => word in TITLES);
  const groups = WORDS.map(([word]) => word).filter((word) => known.includes(word));
  if (!groups.length) return ["name"];
  return !groups.includes("name") && groups.some((word) => word === "inputs" || word === "overload") ? ["name", ...groups] : groups;
}

export function OpsScreen({ about }: { about: About }) {
  const groups = groupsOf(query.value.by ?? "name");
  const by = groups.join(",");
  const sort = SORTS.includes(query.value.sort) ? query.value.sort : "self";
  const kind = KINDS.includes(query.value.kind) ? query.value.kind : "";
  const { answer, problem } = useAnswer(`${by}/${sort}/${kind}/${range.value?.begin}-${range.value?.end}`, () => ask<{ rows: Row[]; all: number; kinds: string[] }>("averages", { by, sort, limit: 5000, ...(kind && { kind }), ...range.value }));
  const [most, setMost] = useState(AT_ONCE);
  const missing = groups.map((word) => NEEDS[word]).find((need) => need && !about.summary.recorded[need[0]]);
  const text = (query.value.q ?? "").toLowerCase();
  const module = groups.includes("module") ? (query.value.module ?? "") : "";
  // Rows of another grouping may still be there for a moment: they have other columns.
  const fitting = answer && (answer.rows.length === 0 || groups.every((group) => group in answer.rows[0])) ? answer.rows : [];
  const rows = fitting.filter((row) => (!text || groups.some((group) => String(row[group] ?? "").toLowerCase().includes(text))) && (!module || row.module === module || String(row.module).startsWith(`${module}.`)));
  const toggle = (word: string) => change({ by: groups.includes(word) ? groups.filter((each) => each !== word).join(",") : [...groups, word].join(","), open: "" }, false);
  const kinds = KINDS.filter((each) => answer?.kinds.includes(each));
  return (
    <section class="panel ops">
      <div class="tools">
        <span class="caption">By</span>
        <span class="by-words" role="group" aria-label="by">{WORDS.map(([word, title]) => <button key={word} aria-pressed={groups.includes(word)} onClick={() => toggle(word)} data-by={word}>{title}</button>)}</span>
        <select aria-label="kinds of calls" value={kind} onChange={(event) => change({ kind: event.currentTarget.value, open: "" }, false)}><option value="">all kinds</option>{kinds.map((each) => <option key={each} value={each}>{each}</option>)}</select>
        {module && <span class="chip"><Path text={module} /><button aria-label="all modules" onClick={() => change({ module: "" }, false)}>×</button></span>}
        <input class="push" placeholder="filter" aria-label="filter" value={query.value.q ?? ""} onInput={(event) => change({ q: event.currentTarget.value })} />
        <span class="soft" data-testid="op-count">{answer ? `${rows.length === answer.all ? "" : `${units.count(rows.length)} of `}${units.count(answer.all)} row${answer.all === 1 ? "" : "s"}` : "Adding up …"}</span>
      </div>
      {problem && <p class="error">{problem}</p>}
      {missing ? <Empty flag={missing[1]}>{missing[2]} not recorded.</Empty>
        : !answer ? null
        : answer.all === 0 ? <Empty flag={kind || range.value ? undefined : ""}>No calls were recorded{kind ? ` of kind ${kind}` : ""}{range.value ? " in this range" : ""}.</Empty>
        : rows.length === 0 ? <Empty>No row holds “{query.value.q || module}”.</Empty>
        : (
          <div class="table-frame">
            <OpsTable rows={rows.slice(0, most)} groups={groups} sort={sort} />
            {rows.length > most && <p class="more">These are {units.count(most)} of {units.count(rows.length)} rows. <button class="plain" onClick={() => setMost(most + 1000)}>more</button></p>}
            {answer.all > answer.rows.length && rows.length <= most && <p class="more">The first {units.count(answer.rows.length)} of {units.count(answer.all)} rows were looked at: sort or group another way, or run <code>torchreel report --limit 0</code>.</p>}
          </div>
        )}
    </section>
  );
}

function OpsTable({ rows, groups, sort }: { rows: Row[]; groups: string[]; sort: string }) {
  const memory = rows.some((row) => row.self_alloc_bytes);
  const flops = rows.some((row) => row.flops);
  const crowded = groups.length > 2;
  const heads: [string, string, string][] = [["self", "Self", "n"], ["total", "Total", "n"], ...(crowded ? [] : [["average", "Average", "n"] as [string, string, string]]), ["count", "Calls", "n"], ...(memory ? [["memory", "Memory", "wide n"] as [string, string, string]] : []), ...(flops ? [["flops", "FLOPs", "n"] as [string, string, string]] : [])];
  const most = Math.max(...rows.map((row) => row.self_percent), 0.001);
  const columns = groups.length + heads.length + 1 + Number(flops);
  const open = query.value.open ?? "";
  const key = (event: KeyboardEvent) => {
    const row = (event.target as HTMLElement).closest<HTMLElement>("tr[data-key]");
    if ((event.key === "Enter" || event.key === " ") && row && event.target === row) { event.preventDefault(); change({ open: row.dataset.key === open ? "" : row.dataset.key! }); }
    else moveInRows(event);
  };
  return (
    <table class={`grid ${crowded ? "crowded" : ""}`} onKeyDown={key}>
      <thead><tr>{groups.map((group) => <th key={group} class="text">{TITLES[group]}</th>)}<th class="n barred">Self %</th>{heads.map(([word, title, style]) => <th class={style} key={word} aria-sort={sort === word ? "descending" : "none"}><button onClick={() => change({ sort: word }, false)}>{title}{sort === word ? " ↓" : ""}</button></th>)}{flops && <th class="wide n" title="FLOPs by self time">GFLOP/s</th>}</tr></thead>
      <tbody>
        {rows.map((row) => {
          const values = JSON.stringify(groups.map((group) => row[group]));
          const color = row.name === undefined ? "accent" : family(String(row.name), "op");
          return [
            <tr key={values} tabIndex={0} class={open === values ? "picked" : ""} data-key={values} aria-expanded={open === values} onClick={() => change({ open: open === values ? "" : values })} data-testid="op-row" data-name={String(row[groups[0]])} data-self-ns={row.self_ns} data-calls={row.calls}>
              {groups.map((group) => <Text key={group} group={group} value={row[group]} />)}
              <td class="n share"><ShareBar part={row.self_percent / most} color={color} /><span class="percent">{row.self_percent.toFixed(2)} %</span></td>
              <td class="n">{units.time(row.self_ns)}</td><td class="n">{units.time(row.total_ns)}</td>{!crowded && <td class="n">{row.average_ns === null ? "" : units.time(row.average_ns)}</td>}<td class="n">{units.count(row.calls)}</td>
              {memory && <td class="n">{row.self_alloc_bytes ? units.bytes(row.self_alloc_bytes) : ""}</td>}
              {flops && <td class="n">{row.flops ? units.flops(row.flops) : ""}</td>}{flops && <td class="n">{row.flops && row.self_ns ? (row.flops / row.self_ns).toFixed(2) : ""}</td>}
            </tr>,
            open === values && <tr key={`${values} calls`} class="opened"><td colSpan={columns}><Opened row={row} groups={groups} /></td></tr>,
          ];
        })}
      </tbody>
    </table>
  );
}

function Opened({ row, groups }: { row: Row; groups: string[] }) {
  const where: Where = Object.fromEntries(groups.map((group) => [group, row[group] === null ? "" : String(row[group])]));
  const name = groups.includes("name") ? String(row.name) : null;
  return (
    <>
      <Slowest where={where} />
      {name && <p class="tools"><button class="plain" onClick={() => go("flame", { name, q: "" })}>callers and callees</button><button class="plain" onClick={() => go("timeline", { q: name })}>all in the timeline</button>{!groups.includes("inputs") && <button class="plain" onClick={() => change({ by: [...groups, "inputs"].join(","), q: name, open: "" }, false)}>by shapes</button>}{!groups.includes("module") && <button class="plain" onClick={() => change({ by: [...groups, "module"].join(","), q: name, open: "" }, false)}>by module</button>}{!groups.includes("line") && <button class="plain" onClick={() => change({ by: [...groups, "line"].join(","), q: name, open: "" }, false)}>by your line</button>}</p>}
    </>
  );
}

function Text({ group, value }: { group: string; value: string | number | null }) {
  const text = value === null ? `(no ${group})` : String(value);
  if (group === "name") return <td class="name" title={text}><Colored class="swatch" color={family(text, "op")} />{label(text, "op")}{isEngine(text) && <span class="faint" title="autograd's engine, around the backward node of this name"> ↩ engine</span>}</td>;
  // The end of a path says more than its beginning.
  if (group === "module" || group === "line") return <td class="name"><Path text={text} /></td>;
  return <td class="name" title={text}>{group === "stack" ? text.split("\n")[0] : text}</td>;
}
