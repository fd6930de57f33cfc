/** Which layer? The tree of modules; equal layers are one row that opens. */
import "./modules.css";
import { useEffect, useMemo, useRef } from "preact/hooks";
import { type About, ask } from "../api.ts";
import { Slowest } from "../slowest.tsx";
import { change, href, query, range } from "../state.ts";
import * as units from "../units.ts";
import { Colored, Empty, moveInRows, Segmented, ShareBar, Sized, useAnswer } from "../widgets.tsx";

type Module = { path: string; class: string | null; parent: string | null; calls: number; self_ns: number; total_ns: number; self_backward_ns: number; backward_ns: number; flops: number | null; alloc_bytes: number };
/** A row: a module, or several equal ones that stand in a list. */
type Item = Module & { key: string; name: string; depth: number; members: Module[]; children: Item[] };

const SORTS: [string, string][] = [["", "order of the model"], ["total", "total"], ["self", "self"]];

export function ModulesScreen({ about }: { about: About }) {
  const { answer, problem } = useAnswer(`modules ${range.value?.begin}-${range.value?.end}`, () => ask<{ rows: Module[] }>("modules", range.value ?? {}));
  const sort = SORTS.some(([key]) => key === query.value.sort) ? query.value.sort : "";
  const text = (query.value.q ?? "").toLowerCase();
  const roots = useMemo(() => (answer ? rootsOf(answer.rows, sort) : []), [answer, sort]);
  if (!about.summary.recorded.modules) return <Empty flag="--modules">Modules were not recorded.</Empty>;
  const toggled = new Set((query.value.open ?? "").split(",").filter(Boolean).map(decodeURIComponent));
  const wanted = query.value.at ?? "";
  const all = flat(roots, (item) => isOpen(item, toggled, wanted, text));
  const shown = text ? all.filter((item) => holds(item, text)) : all;
  const whole = roots.reduce((sum, item) => sum + item.total_ns, 0);
  return (
    <section class="panel modules">
      <div class="tools">
        <span class="caption">Sorted by</span>
        <Segmented name="sort" choices={SORTS} value={sort} onChoose={(value) => change({ sort: value }, false)} />
        <input class="push" placeholder="filter" aria-label="filter" value={query.value.q ?? ""} onInput={(event) => change({ q: event.currentTarget.value })} />
        <span class="soft">{answer ? `${units.count(answer.rows.filter((row) => row.class !== null).length)} modules, ${units.time(whole)} of self time in all` : "Adding up …"}</span>
      </div>
      {problem && <p class="error">{problem}</p>}
      {answer && (shown.length ? <div class="table-frame"><ModuleTable items={shown} whole={whole} toggled={toggled} wanted={wanted} text={text} /></div> : <Empty>{text ? `No module holds “${query.value.q}”.` : "No calls in modules were recorded."}</Empty>)}
    </section>
  );
}

function ModuleTable({ items, whole, toggled, wanted, text }: { items: Item[]; whole: number; toggled: Set<string>; wanted: string; text: string }) {
  const flops = items.some((item) => item.flops);
  const bytes = items.some((item) => item.alloc_bytes);
  const table = useRef<HTMLTableElement>(null);
  useEffect(() => { if (wanted) table.current?.querySelector(`tr.picked`)?.scrollIntoView({ block: "nearest" }); }, [wanted]);
  const toggle = (item: Item) => {
    const next = new Set(toggled);
    if (!next.delete(item.key)) next.add(item.key);
    change({ open: [...next].map(encodeURIComponent).join(",") });
  };
  const choose = (item: Item) => change({ at: wanted === item.key ? "" : item.key });
  const key = (event: KeyboardEvent) => {
    const row = event.target as HTMLElement;
    const item = items[Number(row.dataset.number ?? -1)];
    if (!item || !row.matches("tr[data-number]")) return;
    const opened = isOpen(item, toggled, wanted, text);
    if (event.key === "Enter" || event.key === " ") choose(item);
    else if (event.key === "ArrowRight" && item.children.length && !opened) toggle(item);
    else if (event.key === "ArrowLeft" && item.children.length && opened && !forced(item, wanted, text)) toggle(item);
    else if (event.key === "ArrowLeft" || event.key === "ArrowRight") {
      const at = items.indexOf(item);
      const near = event.key === "ArrowRight" ? items[at + 1] : items.slice(0, at).reverse().find((each) => each.depth < item.depth);
      if (near && (event.key === "ArrowLeft" || near.depth > item.depth)) table.current!.querySelector<HTMLElement>(`tr[data-number="${items.indexOf(near)}"]`)?.focus();
    } else { moveInRows(event); return; }
    event.preventDefault();
  };
  const columns = 6 + Number(flops) + Number(bytes);
  return (
    <table class="grid" role="treegrid" ref={table} onKeyDown={key}>
      <thead><tr><th>Module</th><th class="n barred">Total %</th><th class="n" title="own time of all calls in it and in its submodules, forward and backward">Total</th><th class="n" title="without submodules">Self</th><th class="n back" title="the part of the total in backward: violet"><Colored class="swatch" color="backward" />Backward</th>{flops && <th class="n wide" title="FLOPs by total time">GFLOP/s</th>}{bytes && <th class="n" title="allocated and not freed by the same call, submodules included">Allocated</th>}<th class="n">Calls</th></tr></thead>
      <tbody>
        {items.map((item, number) => {
          const opened = isOpen(item, toggled, wanted, text);
          const picked = wanted === item.key;
          return [
            <tr key={item.key} tabIndex={0} data-number={number} class={`${picked ? "picked" : ""} ${item.total_ns ? "" : "still"}`} aria-level={item.depth + 1} aria-expanded={item.children.length ? opened : undefined} data-testid="module-row" data-path={item.key} data-self-ns={item.self_ns} data-total-ns={item.total_ns} data-calls={item.calls} onClick={() => choose(item)}>
              <td class="tree" title={`${item.key}${item.class ? `: ${item.class}` : ""}`}>
                <Sized class="indent" width={`${item.depth * 16}px`} />
                <button class="toggle" tabIndex={-1} aria-label={opened ? "close" : "open"} disabled={!item.children.length} onClick={(event) => { event.stopPropagation(); toggle(item); }}>{item.children.length ? (opened ? "▾" : "▸") : ""}</button>
                {item.members.length > 1 && item.parent !== null ? `${tail(item.parent)}.` : ""}{item.name}{item.members.length > 1 && <span class="times">×{item.members.length}</span>}<span class="class">{item.members.length > 1 && `${units.time(Math.min(...item.members.map((each) => each.total_ns)))} to ${units.time(Math.max(...item.members.map((each) => each.total_ns)))} each · `}{item.class === item.name ? "" : item.class}</span>
              </td>
              <td class="n share"><ShareBar part={item.total_ns / (whole || 1)} color="module" /><span class="percent">{units.percent(item.total_ns, whole)}</span></td>
              <td class="n">{units.time(item.total_ns)}</td><td class="n">{item.self_ns ? units.time(item.self_ns) : ""}</td>
              <td class="n" title={item.total_ns ? `${units.percent(item.backward_ns, item.total_ns)} of the total` : ""}><span class="split"><Colored class="share-bar" color="module" width={`${(56 * (item.total_ns - item.backward_ns)) / (item.total_ns || 1)}px`} /><Colored class="share-bar" color="backward" width={`${(56 * item.backward_ns) / (item.total_ns || 1)}px`} /></span><span class="back-time">{item.backward_ns ? units.time(item.backward_ns) : ""}</span></td>
              {flops && <td class="n" title={item.flops ? `${units.flops(item.flops)}FLOP` : ""}>{item.flops && item.total_ns ? (item.flops / item.total_ns).toFixed(2) : ""}</td>}
              {bytes && <td class="n">{item.alloc_bytes ? units.bytes(item.alloc_bytes) : ""}</td>}<td class="n">{item.calls ? units.count(item.calls) : ""}</td>
            </tr>,
            picked && <tr key={`${item.key} calls`} class="opened"><td colSpan={columns}><Opened item={item} /></td></tr>,
          ];
        })}
      </tbody>
    </table>
  );
}

/** The calls of a module, and its ops; of equal ones, each by itself. */
function Opened({ item }: { item: Item }) {
  const path = item.members.length > 1 ? item.members[0].path : item.path;
  const inside = item.members.length > 1 ? (item.parent ?? "") : item.path;
  return (
    <>
      {item.members.length > 1 ? <p class="soft">These are {item.members.length} equal layers: open them with → to see each. The slowest calls are those of {path.split(".").pop()}.</p> : null}
      <Slowest where={{ module: path }} limit={8} />
      {item.class !== null && <p class="tools"><a href={href("ops", { by: "name,module", module: inside, q: "" })}>its ops →</a><a href={href("ops", { by: "module,step", module: inside, q: "" })}>by step →</a><a href={href("flame", { by: "module", name: `${path}: ${item.class ?? ""}`, q: "" })}>in the flame graph →</a></p>}
    </>
  );
}

/** What is open at first is what fits; a toggle turns it over. A search and a chosen row open the way to them. */
function isOpen(item: Item, toggled: Set<string>, wanted: string, text: string): boolean {
  if (forced(item, wanted, text)) return true;
  return (item.depth < 3 && item.members.length === 1) !== toggled.has(item.key);
}

const forced = (item: Item, wanted: string, text: string): boolean => (text !== "" && item.children.some((child) => holds(child, text))) || (wanted !== "" && item.children.some((child) => leads(child, wanted)));
const leads = (item: Item, wanted: string): boolean => item.key === wanted || item.children.some((child) => leads(child, wanted));
const holds = (item: Item, text: string): boolean => `${item.key}: ${item.class}`.toLowerCase().includes(text) || item.children.some((child) => holds(child, text));

function flat(items: Item[], open: (item: Item) => boolean): Item[] {
  return items.flatMap((item) => [item, ...(open(item) ? flat(item.children, open) : [])]);
}

function rootsOf(rows: Module[], sort: string): Item[] {
  const children = new Map<string | null, Module[]>();
  for (const row of rows) { const list = children.get(row.parent); if (list) list.push(row); else children.set(row.parent, [row]); }
  const shapes = new Map<string, string>();
  // What a module is made of: its class, and the names and makings of what it holds. Rows come holders first.
  for (const row of [...rows].reverse()) shapes.set(row.path, JSON.stringify([row.class, (children.get(row.path) ?? []).map((child) => [tail(child.path), shapes.get(child.path)])]));
  const item = (row: Module, depth: number): Item => ({ ...row, key: row.path, name: row.parent === null ? row.path : row.path.slice(row.parent.length + 1) || row.path, depth, members: [row], children: below(row.path, depth + 1) });
  const below = (path: string | null, depth: number): Item[] => {
    const groups = new Map<string, Module[]>();
    for (const row of children.get(path) ?? []) {
      const key = /^\d+$/.test(tail(row.path)) ? shapes.get(row.path)! : row.path;
      groups.set(key, [...(groups.get(key) ?? []), row]);
    }
    const items: Item[] = [];
    for (const group of groups.values()) {
      const folds = group.length > 1 && (children.has(group[0].path) || group.length > 3);
      if (folds) items.push(folded(group, depth, item, groups.size > 1));
      else items.push(...group.map((row) => item(row, depth)));
    }
    if (groups.size > 1 && !sort) items.sort((a, b) => rows.indexOf(a.members[0]) - rows.indexOf(b.members[0]));
    if (sort) items.sort((a, b) => (sort === "self" ? b.self_ns - a.self_ns : b.total_ns - a.total_ns));
    return items;
  };
  return below(null, 0);
}

/** Equal layers as one row: their sums, and below it each of them. */
function folded(group: Module[], depth: number, item: (row: Module, depth: number) => Item, mixed: boolean): Item {
  const sum = (value: (row: Module) => number) => group.reduce((total, row) => total + value(row), 0);
  const names = group.map((row) => tail(row.path));
  const name = mixed ? `{${names.length > 4 ? `${names.slice(0, 3).join(",")},…,${names.at(-1)}` : names.join(",")}}` : "*";
  return {
    ...group[0], key: `${group[0].parent ?? ""}.${name}`, name, depth, members: group,
    calls: sum((row) => row.calls), self_ns: sum((row) => row.self_ns), total_ns: sum((row) => row.total_ns), self_backward_ns: sum((row) => row.self_backward_ns), backward_ns: sum((row) => row.backward_ns),
    flops: group.some((row) => row.flops !== null) ? sum((row) => row.flops ?? 0) : null, alloc_bytes: sum((row) => row.alloc_bytes),
    children: group.map((row) => item(row, depth + 1)),
  };
}

const tail = (path: string): string => path.slice(path.lastIndexOf(".") + 1);
