/** What changed? Numbers of both reels beside the spread between steps, so that noise is seen as noise. */
import "./diff.css";
import { useEffect, useMemo, useRef, useState } from "preact/hooks";
import { type About, ask, PHASE_NAMES, type Phase } from "../api.ts";
import { blend, colors, family, label } from "../families.ts";
import { Icicle, type Tree } from "../icicle.tsx";
import { change, href, query, theme } from "../state.ts";
import * as units from "../units.ts";
import { Colored, Command, Empty, moveInRows, Path, penFor, Segmented, useAnswer } from "../widgets.tsx";

type Change = { a: number; b: number; spread: number; change: number; percent: number | null };
type Row = { a_self_ns: number; b_self_ns: number; a_calls: number; b_calls: number; change_ns: number; spread_ns: number; state: string } & Record<string, string | number>;
type Steps = { a: number[]; b: number[]; phases: { phase: Phase; a_ns: number; b_ns: number; spread_ns: number }[] };
type Diff = { a: string; b: string; per: string; a_steps: number; b_steps: number; wall_ns: Change; self_ns: Change; ops: Change; peak_bytes: Change | null; rows: Row[]; steps: Steps; tree: Row[] | null };
type By = "name" | "inputs" | "module" | "line" | "tree";

const GROUPS: Record<By, string[]> = { name: ["name"], inputs: ["name", "inputs"], module: ["module"], line: ["line"], tree: ["module", "name"] };
const BY: [By, string][] = [["name", "ops"], ["inputs", "ops and shapes"], ["module", "modules"], ["line", "your lines"], ["tree", "icicle"]];
const NEEDS: Partial<Record<By, [string, string]>> = { inputs: ["shapes", "--shapes"], module: ["modules", "--modules"], line: ["stacks", "--stacks"] };
const SORTS: [string, string][] = [["", "largest change"], ["less", "less to more"], ["more", "more to less"]];
const AT_ONCE = 300;

export function DiffScreen({ about }: { about: About }) {
  const by: By = (query.value.by ?? "") in GROUPS ? (query.value.by as By) : "name";
  const { answer, problem } = useAnswer(`diff ${by}`, async () => (about.compared ? await ask<Diff>("diff", by === "tree" ? { by: "name", tree: 1 } : { by }) : null));
  if (!about.compared) return <Second about={about} />;
  if (problem) return <p class="error">{problem}</p>;
  if (!answer) return <p class="soft">Comparing …</p>;
  return (
    <>
      <Numbers diff={answer} />
      {answer.steps.a.length > 0 && <StepsStrip diff={answer} />}
      <Rows about={about} diff={answer} by={by} />
    </>
  );
}

/** One reel is open: the command that opens two. The page itself may open no file. */
function Second({ about }: { about: About }) {
  const [other, name] = useState("");
  return (
    <div class="empty second" data-testid="empty">
      One reel is open. Open two to see what changed, from before to after:
      <input aria-label="the other reel" placeholder="path of the other reel: after.reel" value={other} onInput={(event) => name(event.currentTarget.value)} />
      <Command text={`torchreel view ${units.shellWord(about.reel)} ${other ? units.shellWord(other) : "after.reel"}`} />
    </div>
  );
}

function Numbers({ diff }: { diff: Diff }) {
  const numbers: [string, Change | null, (value: number) => string][] = [[diff.per === "step" ? "a step" : "the run", diff.wall_ns, units.time], [`self time${diff.per === "step" ? " of a step" : ""}`, diff.self_ns, units.time], [`ops${diff.per === "step" ? " of a step" : ""}`, diff.ops, units.count], ["peak memory", diff.peak_bytes, units.bytes]];
  return (
    <div class="changes">
      {numbers.map(([name, value, text]) => {
        const noise = value !== null && Math.abs(value.change) <= value.spread;
        return (
          <div class="panel" key={name}>
            <div>{name}</div>
            <div class="number">{value ? <>{text(value.b)} <small class={noise || !value.change ? "noise" : value.change > 0 ? "more-than" : "less-than"}>{value.percent === null ? "" : `${value.percent > 0 ? "+" : ""}${value.percent.toFixed(1)} %`}</small></> : "–"}</div>
            <div class="from">{value ? `from ${text(value.a)}${value.spread ? `, ± ${text(value.spread)}` : ""}${noise && value.change ? ": may be noise" : ""}` : "record both with --memory"}</div>
          </div>
        );
      })}
    </div>
  );
}

/** Each step as a dot, and the phases of a step. */
function StepsStrip({ diff }: { diff: Diff }) {
  const canvas = useRef<HTMLCanvasElement>(null);
  const { steps } = diff;
  useEffect(() => {
    if (!canvas.current) return;
    const draw = () => {
      if (!canvas.current) return;
      const { pen, width } = penFor(canvas.current);
      const palette = colors();
      const most = Math.max(...steps.a, ...steps.b) * 1.02;
      const x = (ns: number) => 20 + (ns / most) * (width - 30);
      [steps.a, steps.b].forEach((walls, which) => {
        const y = 18 + which * 26;
        pen.fillStyle = palette.soft;
        pen.fillText("AB"[which], 2, y + 4);
        pen.fillStyle = palette.line;
        pen.fillRect(20, y, width - 30, 1);
        pen.fillStyle = blend(which ? palette.optimizer : palette.module, palette.panel, 0.75);
        for (const ns of walls) { pen.beginPath(); pen.arc(x(ns), y, 4, 0, 7); pen.fill(); }
        const mean = walls.reduce((sum, ns) => sum + ns, 0) / walls.length;
        pen.fillStyle = palette.ink;
        pen.fillRect(x(mean) - 1, y - 9, 2, 18);
      });
      pen.fillStyle = palette.soft;
      pen.fillText("0", 18, 72);
      const end = units.time(most / 1.02);
      pen.fillText(end, width - 10 - pen.measureText(end).width, 72);
    };
    draw();
    const watched = new ResizeObserver(draw);
    watched.observe(canvas.current);
    return () => watched.disconnect();
  }, [diff, theme.value]);
  const widest = Math.max(...steps.phases.map((row) => Math.abs(row.b_ns - row.a_ns) + row.spread_ns), 1);
  return (
    <div class="steps-strip">
      <section class="panel"><h2>Steps<small>{steps.a.length} of {units.tail(diff.a, 1)} and {steps.b.length} of {units.tail(diff.b, 1)}; the lines are the means</small></h2><canvas ref={canvas} data-testid="diff-steps" /></section>
      <section class="panel diff"><table class="grid">
        <thead><tr><th>Phase of a step</th><th class="n">A</th><th class="n">B</th><th class="n">Change</th><th class="n">Spread</th><th class="diverging"><span class="less-than">less</span> · <span class="more-than">more</span></th></tr></thead>
        <tbody>{steps.phases.filter((row) => row.a_ns || row.b_ns).map((row) => {
          const by = row.b_ns - row.a_ns;
          return <tr key={row.phase} class={Math.abs(by) <= row.spread_ns ? "quiet" : ""} data-testid="diff-phase" data-phase={row.phase} data-change-ns={by}><td>{PHASE_NAMES[row.phase]}</td><td class="n">{units.time(row.a_ns)}</td><td class="n">{units.time(row.b_ns)}</td><td class="n">{signed(by)}</td><td class="n soft">± {units.time(row.spread_ns)}</td><td><Diverging change={by} spread={row.spread_ns} most={widest} /></td></tr>;
        })}</tbody>
      </table></section>
    </div>
  );
}

function Rows({ about, diff, by }: { about: About; diff: Diff; by: By }) {
  const [most, setMost] = useState(AT_ONCE);
  const groups = GROUPS[by];
  const text = (query.value.q ?? "").toLowerCase();
  const sort = query.value.sort ?? "";
  const given = by === "tree" ? (diff.tree ?? []) : diff.rows;
  const fitting = given.length === 0 || groups.every((group) => group in given[0]) ? given : [];
  const found = fitting.filter((row) => !text || groups.some((group) => String(row[group]).toLowerCase().includes(text)));
  const sorted = sort ? [...found].sort((a, b) => (sort === "less" ? a.change_ns - b.change_ns : b.change_ns - a.change_ns)) : found;
  const rows = by === "tree" ? sorted.filter((row) => row.name) : sorted;
  const widest = Math.max(...rows.map((row) => Math.abs(row.change_ns)), 1);
  const missing = NEEDS[by] && !about.summary.recorded[NEEDS[by]![0]] ? NEEDS[by] : null;
  return (
    <section class="panel diff">
      <div class="tools">
        <Segmented name="by" choices={BY} value={by} onChoose={(value) => change({ by: value }, false)} />
        <select aria-label="order" value={sort} onChange={(event) => change({ sort: event.currentTarget.value }, false)}>{SORTS.map(([key, title]) => <option key={key} value={key}>{title}</option>)}</select>
        <span class="soft">{by === "tree" ? "ops in their modules" : `self time, A is ${units.tail(diff.a, 1)}, B is ${units.tail(diff.b, 1)}${diff.per === "step" ? ", by the step" : ", as a whole"}`}</span>
        <input class="push" placeholder="filter" aria-label="filter" value={query.value.q ?? ""} onInput={(event) => change({ q: event.currentTarget.value })} />
      </div>
      {missing ? <Empty flag={missing[1]} /> : rows.length === 0 ? <Empty>{text ? `No row holds “${query.value.q}”.` : "No ops were recorded in either reel."}</Empty> : (
        <>
          {by === "tree" && <ChangeIcicle rows={given} />}
          <table class="grid" onKeyDown={(event) => { moveInRows(event); if (event.key === "Enter" && (event.target as HTMLElement).matches("tr[tabindex]")) (event.target as HTMLElement).querySelector<HTMLAnchorElement>("a")?.click(); }}>
            <thead><tr>{groups.map((key) => <th key={key}>{key}</th>)}<th class="n">A self</th><th class="n">B self</th><th class="n">Change</th><th class="n" title="the standard deviation between steps, the larger one of the two">Spread</th><th class="diverging"><span class="less-than">◂ less</span> · <span class="more-than">more ▸</span></th><th class="n">A calls</th><th class="n">B calls</th><th class="state"></th></tr></thead>
            <tbody>{rows.slice(0, most).map((row) => {
              const noise = row.state === "both" && Math.abs(row.change_ns) <= row.spread_ns;
              return (
                <tr key={groups.map((key) => row[key]).join("\n")} tabIndex={0} class={noise ? "quiet" : ""} data-testid="diff-row" data-name={String(row[groups[0]])} data-change-ns={row.change_ns} data-state={row.state}>
                  {groups.map((key) => <Text key={key} group={key} value={String(row[key])} />)}
                  <td class="n">{row.state === "new" ? "" : units.time(row.a_self_ns)}</td><td class="n">{row.state === "gone" ? "" : units.time(row.b_self_ns)}</td><td class="n">{signed(row.change_ns)}</td><td class="n soft">{row.spread_ns ? `± ${units.time(row.spread_ns)}` : ""}</td>
                  <td><Diverging change={row.change_ns} spread={row.spread_ns} most={widest} /></td>
                  <td class="n">{row.a_calls ? amount(row.a_calls) : ""}</td><td class="n">{row.b_calls ? amount(row.b_calls) : ""}</td>
                  <td>{row.state !== "both" ? <span class={`state-mark ${row.state}`}>{row.state}</span> : noise && row.change_ns ? <span class="soft" title="the change is within the spread between steps">noise?</span> : ""}</td>
                </tr>
              );
            })}</tbody>
          </table>
          {rows.length > most && <p class="more-rows">These are {units.count(most)} of {units.count(rows.length)} rows. <button class="plain" onClick={() => setMost(most + 1000)}>more</button></p>}
        </>
      )}
    </section>
  );
}

function Text({ group, value }: { group: string; value: string }) {
  if (group === "name") return <td class="text" title={value}><a href={href("ops", { q: value })}><Colored class="swatch" color={family(value, "op")} />{label(value, "op")}{value.startsWith("autograd::engine::evaluate_function: ") ? " ↩" : ""}</a></td>;
  if (group === "module") return <td class="path-cell"><Path text={value} to={href("modules", { at: value, q: "" })} /></td>;
  if (group === "line") return <td class="path-cell"><Path text={value} to={href("ops", { by: "line,name", q: value })} /></td>;
  return <td class="text" title={value}>{value}</td>;
}

/** A change to the left or the right of the middle, with the spread around its end. */
function Diverging({ change: by, spread, most }: { change: number; spread: number; most: number }) {
  const bar = useRef<HTMLSpanElement>(null);
  const whisker = useRef<HTMLSpanElement>(null);
  useEffect(() => {
    const half = 50 / most;
    const [low, high] = [Math.min(0, by), Math.max(0, by)];
    Object.assign(bar.current!.style, { left: `${50 + low * half}%`, width: `${Math.max((high - low) * half, by ? 0.4 : 0)}%` });
    const [from, to] = [Math.max(0, 50 + (by - spread) * half), Math.min(100, 50 + (by + spread) * half)];
    Object.assign(whisker.current!.style, { left: `${from}%`, width: `${Math.max(0, to - from)}%` });
  }, [by, spread, most]);
  return <span class="diverging-bar"><span ref={bar} class={by > 0 ? "more" : "less"} /><span ref={whisker} class="spread" /></span>;
}

/** Modules and the ops in them; red is more, blue is less, and grey is within the spread. */
function ChangeIcicle({ rows }: { rows: Row[] }) {
  const built = useMemo(() => treeOf(rows), [rows]);
  const [chosen, choose] = useState(-1);
  const [top, setTop] = useState(-1);
  const [hovered, hover] = useState(-1);
  const at = hovered >= 0 ? hovered : chosen;
  const { nodes } = built;
  return (
    <>
      <div class="soft" aria-live="polite">{at >= 0 && nodes[at] ? <><b>{nodes[at].path}</b> {units.time(nodes[at].a)} to {units.time(nodes[at].b)}: {signed(nodes[at].b - nodes[at].a)}{nodes[at].spread ? `, ± ${units.time(nodes[at].spread)}` : ""}</> : <>A box is as wide as its ops, each in the reel in which it takes longer. <span class="more-than">Red takes longer</span>, <span class="less-than">blue less</span>, pale may be noise.</>}{top >= 0 && <> <button class="plain" onClick={() => setTop(-1)}>← whole width</button></>}</div>
      <div class="icicles">
        <Icicle tree={built.tree} look={{ text: (node) => `${nodes[node].name}  ${signed(nodes[node].b - nodes[node].a)}`, color: (node, palette) => (nodes[node].b >= nodes[node].a ? palette.communication : palette.accent), pale: (node) => Math.abs(nodes[node].b - nodes[node].a) <= Math.max(nodes[node].spread, 0.02 * Math.max(nodes[node].a, nodes[node].b)) }} top={top} chosen={chosen} name="changes by module and op" testid="diff-icicle" onChoose={choose} onTop={setTop} onHover={hover} />
      </div>
    </>
  );
}

type Node = { name: string; path: string; parent: Node | null; a: number; b: number; spread: number; wide: number };

/** A box is as wide as the ops in it, each as its longer time, so that what is gone is seen as well. */
function treeOf(rows: Row[]): { tree: Tree; nodes: Node[] } {
  const found = new Map<string, Node>();
  const node = (path: string, name: string, parent: Node | null): Node => {
    if (!found.has(path)) found.set(path, { name, path, parent, a: 0, b: 0, spread: 0, wide: 0 });
    return found.get(path)!;
  };
  const filled = (each: Node, row: Row) => Object.assign(each, { a: row.a_self_ns, b: row.b_self_ns, spread: row.spread_ns });
  for (const row of rows) {
    const module = String(row.module);
    let parent: Node | null = null;
    let path = "";
    for (const part of module.startsWith("(") ? [module] : module.split(".")) {
      path = path ? `${path}.${part}` : part;
      parent = node(path, part, parent);
    }
    if (!row.name) { filled(parent!, row); continue; }
    const leaf = filled(node(`${module} › ${row.name}`, label(String(row.name), "op"), parent), row);
    for (let each: Node | null = leaf; each; each = each.parent) each.wide += Math.max(row.a_self_ns, row.b_self_ns);
  }
  const depth = (each: Node): number => (each.parent ? depth(each.parent) + 1 : 0);
  const nodes = [...found.values()].filter((each) => each.wide > 0).sort((a, b) => b.wide - a.wide || depth(a) - depth(b));
  const places = new Map(nodes.map((each, at) => [each, at]));
  return { nodes, tree: { parent: nodes.map((each) => (each.parent ? places.get(each.parent)! : -1)), total: nodes.map((each) => each.wide) } };
}

const signed = (ns: number): string => `${Math.round(ns) > 0 ? "+" : ""}${units.time(ns)}`;
const amount = (value: number): string => (Number.isInteger(value) ? units.count(value) : value.toFixed(1));
