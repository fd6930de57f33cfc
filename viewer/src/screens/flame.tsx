/** Which path costs? An icicle, the widest path first; of one name also its callers above and its callees below. */
import "./flame.css";
import { useEffect, useMemo, useRef, useState } from "preact/hooks";
import { type About, ask } from "../api.ts";
import { boxLabel, family } from "../families.ts";
import { Icicle, type Look } from "../icicle.tsx";
import { goToSlowest } from "../slowest.tsx";
import { change, href, query, range } from "../state.ts";
import * as units from "../units.ts";
import { Colored, Empty, Segmented, useAnswer } from "../widgets.tsx";

type Nodes = { parent: number[]; label: number[]; total: number[]; self: number[]; ns: number[]; calls: number[] };
type Part = { nodes: Nodes; left_out: number };
/** Text, kind, file, line, and whether it holds the text that is searched for. */
type Name = [string, string, string | null, number | null, boolean];
type Answer = Part & { whole: number; matched: number; names: Name[]; callers?: Part; callees?: Part };

const BY: [string, string][] = [["call", "calls"], ["stack", "Python stack"], ["module", "modules"]];
const OF: [string, string][] = [["time", "time"], ["flops", "FLOPs"], ["bytes", "bytes"], ["calls", "calls"]];
const NEEDS: Record<string, [string, string]> = { stack: ["stacks", "--stacks"], module: ["modules", "--modules"], bytes: ["memory", "--memory"] };
const MEASURED: Record<string, (value: number) => string> = { time: units.time, flops: (value) => `${units.flops(value)}${value < 1000 ? " " : ""}FLOP`, bytes: units.bytes, calls: (value) => `${units.count(value)} calls` };

export function FlameScreen({ about }: { about: About }) {
  const by = BY.some(([key]) => key === query.value.by) ? query.value.by : "call";
  const of = OF.some(([key]) => key === query.value.of) ? query.value.of : "time";
  const text = query.value.q ?? "";
  const focus = query.value.name ?? "";
  const missing = [by, of].map((word) => NEEDS[word]).find((need) => need && !about.summary.recorded[need[0]]);
  const key = `flame ${by} ${of} ${text} ${focus} ${range.value?.begin}-${range.value?.end}`;
  const { answer, problem } = useAnswer(key, async () => (missing ? null : await ask<Answer>("flame", { by, of, ...(text && { q: text }), ...(focus && { name: focus }), ...range.value })));
  const tools = (
    <div class="tools">
      <Segmented name="by" choices={BY} value={by} onChoose={(value) => change({ by: value, top: "", at: "", name: "" }, false)} />
      <span class="caption">as wide as its</span>
      <Segmented name="of" choices={OF} value={of} onChoose={(value) => change({ of: value }, false)} />
      {answer && text && <span data-testid="flame-share" data-matched={answer.matched} data-whole={answer.whole}>“{text}” is <b>{units.percent(answer.matched, answer.whole)}</b> <span class="soft">{MEASURED[of](answer.matched)} of {MEASURED[of](answer.whole)}</span></span>}
      {answer && !text && <span class="soft">{MEASURED[of](answer.whole)} in all{answer.left_out ? `; the ${units.count(answer.left_out)} narrowest paths are left out` : ""}</span>}
    </div>
  );
  return (
    <section class="panel flame">
      {tools}
      {problem && <p class="error">{problem}</p>}
      {missing ? <Empty flag={missing[1]}>{missing[0] === "memory" ? "Memory was" : `The ${missing[0]} were`} not recorded.</Empty>
        : !answer ? !problem && <p class="soft">Adding up …</p>
        : !answer.nodes.total.length ? <Empty flag={range.value ? undefined : of === "flops" ? "--flops" : of === "bytes" ? "--memory" : ""}>{of === "flops" ? "No call has FLOPs" : of === "bytes" ? "No call kept memory" : "No calls were recorded"}{range.value ? " in this range" : ""}.</Empty>
        : <Graph answer={answer} by={by} of={of} text={text} focus={focus} />}
    </section>
  );
}

function Graph({ answer, by, of, text, focus }: { answer: Answer; by: string; of: string; text: string; focus: string }) {
  const { nodes, names } = answer;
  const keys = useMemo(() => keysOf(nodes, names), [answer]);
  const [hovered, hover] = useState<[Part, number] | null>(null);
  const [inside, choose] = useState<[string, number]>(["", -1]);
  const frame = useRef<HTMLDivElement>(null);
  const top = focus ? -1 : keys.indexOf(query.value.top || "-");
  const at = focus ? -1 : keys.indexOf(query.value.at || "-");
  useEffect(() => { if (frame.current && focus) frame.current.scrollTop = 0; }, [focus]);
  const lookOf = (part: Part): Look => ({
    text: (node) => textOf(nameOf(names, part.nodes.label[node], focus)),
    color: (node, palette) => palette[familyOf(nameOf(names, part.nodes.label[node], focus))],
    pale: text ? (node) => part.nodes.label[node] >= 0 && !names[part.nodes.label[node]][4] : undefined,
  });
  const shown: [Part, number] | null = hovered ?? (focus ? (inside[1] >= 0 ? [inside[0] === "callers" ? answer.callers! : answer.callees!, inside[1]] : answer.callees?.nodes.total.length ? [answer.callees, 0] : null) : at >= 0 ? [answer, at] : top >= 0 ? [answer, top] : null);
  const whole = (part: Part) => <Icicle key="whole" tree={part.nodes} look={lookOf(part)} top={top} chosen={at} name="flame graph: arrows move, Enter makes a box the whole width, Escape goes back" testid="flame-canvas" onChoose={(node) => change({ at: node < 0 ? "" : keys[node] })} onTop={(node) => change({ top: node < 0 ? "" : keys[node], at: node < 0 ? "" : keys[node] }, false)} onHover={(node) => hover(node < 0 ? null : [part, node])} />;
  const half = (which: "callers" | "callees") => {
    const part = answer[which]!;
    return part.nodes.total.length === 0 ? null : <Icicle key={which} tree={part.nodes} look={lookOf(part)} top={-1} chosen={inside[0] === which ? inside[1] : -1} inverted={which === "callers"} withoutRoot={which === "callers"} name={which} testid={which === "callers" ? "flame-callers" : "flame-canvas"} onChoose={(node) => choose([which, node])} onTop={(node) => { const name = node < 0 ? null : nameOf(names, part.nodes.label[node], focus); if (name && name[0] !== focus) { choose(["", -1]); change({ name: name[0] }, false); } }} onHover={(node) => hover(node < 0 ? null : [part, node])} />;
  };
  return (
    <>
      <Told part={shown?.[0] ?? null} node={shown?.[1] ?? -1} answer={answer} of={of} by={by} focus={focus} top={top} keys={keys} />
      <div class="icicles" ref={frame} onKeyDown={(event) => { if (event.key === "Escape" && focus && inside[1] < 0) change({ name: "" }, false); }}>
        {focus && answer.callers && answer.callees ? answer.callees.nodes.total.length === 0 ? <Empty>No {by === "call" ? "call" : "box"} has this name{range.value ? " in this range" : ""}.</Empty> : (
          <>
            <p class="sandwich-title">callers, the nearest at the bottom</p>
            {answer.callers.nodes.total.length > 1 ? half("callers") : <p class="soft">Nobody calls it.</p>}
            <p class="sandwich-title">it, and its callees</p>
            {half("callees")}
          </>
        ) : whole(answer)}
      </div>
      <Legend nodes={nodes} names={names} />
    </>
  );
}

/** What is chosen or pointed at, and where to go from it. */
function Told({ part, node, answer, of, by, focus, top, keys }: { part: Part | null; node: number; answer: Answer; of: string; by: string; focus: string; top: number; keys: string[] }) {
  const leave = focus ? <button class="plain" onClick={() => change({ name: "" }, false)}>← whole graph</button> : top >= 0 ? <button class="plain" onClick={() => change({ top: "", at: "" }, false)}>← whole width</button> : null;
  if (!part || node < 0) return <div class="told" aria-live="polite">{leave}<span class="soft">Click a box or move with the arrows; Enter or a double click makes it the whole width.</span></div>;
  const { nodes } = part;
  const name = nameOf(answer.names, nodes.label[node], focus);
  const parent = nodes.parent[node];
  const isCall = !/frame|module_path/.test(name[1]);
  const path = name[1] === "module_path" ? modulePath(name) : null;
  return (
    <div class="told" aria-live="polite" data-testid="flame-told" data-name={name[0]} data-total={nodes.total[node]}>
      {leave}
      <b title={name[0]}>{textOf(name)}</b>
      <span>{MEASURED[of](nodes.total[node])}, {units.percent(nodes.total[node], answer.whole)} of all{parent >= 0 && part === answer ? `, ${units.percent(nodes.total[node], nodes.total[parent])} of the box above` : ""}</span>
      {part !== answer.callers && <span class="soft">{nodes.self[node] ? `${MEASURED[of](nodes.self[node])} of its own` : "nothing of its own"}{nodes.calls[node] && of !== "calls" ? `, ${units.count(nodes.calls[node])} calls` : ""}{of === "time" ? "" : `, ${units.time(nodes.ns[node])}`}</span>}
      <span class="links">
        {part === answer && <button class="link" onClick={() => change({ top: keys[node], at: keys[node] }, false)}>whole width</button>}
        {name[0] !== focus && <button class="link" data-testid="flame-sandwich" onClick={() => change({ name: name[0], top: "", at: "" }, false)}>callers and callees</button>}
        {isCall && <button class="link" onClick={() => void goToSlowest({ name: name[0] })}>slowest call</button>}
        {isCall && <a href={href("timeline", { q: name[0], begin: "", end: "" })}>timeline</a>}
        {isCall && <a href={href("ops", { q: name[0], ...(by === "call" ? {} : { by: "name" }) })}>ops</a>}
        {path && <a href={href("modules", { at: path, q: "" })}>module</a>}
        {path && <a href={href("ops", { by: "name,module", module: path, q: "" })}>its ops</a>}
        {name[2] && <a href={href("source", { file: name[2], line: String(name[3]), q: "" })}>source</a>}
      </span>
    </div>
  );
}

function Legend({ nodes, names }: { nodes: Nodes; names: Name[] }) {
  const used = useMemo(() => {
    const own = new Map<string, number>();
    nodes.label.forEach((number, at) => { const key = familyOf(names[number]); own.set(key, (own.get(key) ?? 0) + nodes.self[at]); });
    return [...own].sort(([, a], [, b]) => b - a).map(([key]) => key);
  }, [nodes]);
  const stack = names.some(([, kind]) => /frame/.test(kind));
  const called: Record<string, string> = stack ? { range: "your lines", module: "lines of libraries" } : {};
  return <div class="legend-line">{used.map((name) => <span key={name}><Colored class="swatch" color={name} />{called[name] ?? name}</span>)}</div>;
}

function nameOf(names: Name[], number: number, focus: string): Name {
  return number >= 0 ? names[number] : (names.find(([text]) => text === focus) ?? [focus, "op", null, null, false]);
}

/** A module's label is its path and its class. */
const modulePath = (name: Name): string | null => (name[0].startsWith("(") ? null : name[0].replace(/: [^:]*$/, ""));

function textOf(name: Name): string {
  if (name[1] === "module_path") {
    const path = modulePath(name);
    return path === null ? name[0] : `${path.split(".").pop()}${name[0].slice(path.length)}`;
  }
  const frame = /frame/.test(name[1]) ? /^(.*):(\d+) (.*)$/.exec(name[0]) : null;
  return frame ? `${frame[3]}  ${units.tail(frame[1], 1)}:${frame[2]}` : boxLabel(name[0], name[1]);
}

function familyOf(name: Name) {
  if (name[1] === "own_frame") return "range" as const;
  if (name[1] === "frame" || name[1] === "module_path") return "module" as const;
  return family(name[0], name[1]);
}

/** A short text for each node that is the same as long as its path is: for addresses. */
function keysOf(nodes: Nodes, names: Name[]): string[] {
  const keys: string[] = [];
  nodes.label.forEach((number, at) => {
    let hash = 2166136261;
    for (const letter of `${nodes.parent[at] < 0 ? "" : keys[nodes.parent[at]]}/${names[number][0]}/${names[number][1]}`) hash = Math.imul(hash ^ letter.codePointAt(0)!, 16777619);
    keys.push((hash >>> 0).toString(36));
  });
  return keys;
}
