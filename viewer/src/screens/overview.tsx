/** Where did the time go, and what next? */
import "./overview.css";
import { useEffect, useRef } from "preact/hooks";
import { type About, ask, type Line, type Overview, PHASE_NAMES, PHASES, type Row } from "../api.ts";
import { colors, family, label } from "../families.ts";
import { go, href, theme } from "../state.ts";
import * as units from "../units.ts";
import { Colored, Empty, Losses, Path, penFor, Sized, useAnswer } from "../widgets.tsx";

export function OverviewScreen({ about }: { about: About }) {
  const { answer, problem } = useAnswer("overview", () => ask<Overview>("overview"));
  if (problem) return <p class="error">{problem}</p>;
  if (!answer) return <p class="soft">Adding up …</p>;
  if (!about.summary.ops) return <NoOps hasMemory={about.summary.peak_memory.length > 0 || about.summary.recorded.memory} />;
  return (
    <div class="overview">
      <Losses about={about} />
      <Numbers about={about} overview={answer} />
      <div class="two">
        <StepPanel overview={answer} />
        <FindingsPanel overview={answer} />
      </div>
      <div class="three">
        <OpsPanel rows={answer.ops} part={partText(answer)} />
        <ModulesPanel rows={answer.modules} part={partText(answer)} />
        <LinesPanel rows={answer.lines} part={partText(answer)} />
      </div>
      <MemoryPanel about={about} overview={answer} />
    </div>
  );
}

function NoOps({ hasMemory }: { hasMemory: boolean }) {
  if (!hasMemory) return <Empty flag="">No ops were recorded in this reel.</Empty>;
  return <Empty flag="">No ops were recorded in this reel. It has <a href={href("memory")}>memory over time</a> and <a href={href("segments")}>the state of the allocator</a>.</Empty>;
}

/** Of a long run, what is added up call by call is that of some steps. */
const partText = ({ part }: Overview): string => (part ? `, steps ${units.count(part[0])} to ${units.count(part[1])}` : "");

function Numbers({ about, overview }: { about: About; overview: Overview }) {
  const { step } = overview;
  const peak = about.summary.peak_memory[0];
  return (
    <div class="tiles">
      <div class="panel"><div>{step?.steps ? `a step, median of ${units.count(step.steps)}` : "the run"}</div><div class="number">{units.time(step ? (step.steps ? step.median_ns : step.wall_ns) : about.end)}</div></div>
      <div class="panel"><div>slowest / fastest step</div><div class="number">{step?.steps ? <>{units.time(step.slowest_ns)} <small>/ {units.time(step.fastest_ns)}</small></> : "–"}</div></div>
      <div class="panel"><div>{about.summary.steps ? "ops, and per step" : "ops"}</div><div class="number">{units.count(about.summary.ops)} {about.summary.steps ? <small>/ {units.count(about.summary.ops / about.summary.steps)}</small> : null}</div></div>
      <div class="panel"><div>peak memory{peak ? `, ${peak.device}` : ""}</div><div class="number">{peak ? units.bytes(peak.bytes) : <small>record with --memory</small>}</div></div>
      {overview.devices.length > 0 && <DeviceTile devices={overview.devices} />}
    </div>
  );
}

/** How busy the devices were: the least busy one, since the others may wait for it. */
function DeviceTile({ devices }: { devices: Overview["devices"] }) {
  const [least] = [...devices].sort((a, b) => a.busy_ns / a.wall_ns - b.busy_ns / b.wall_ns);
  return (
    <div class="panel" data-testid="device-busy" data-ns={least.busy_ns}>
      <div>{devices.length > 1 ? `least busy of ${devices.length} devices` : `${least.device} busy`}</div>
      <div class="number">{units.percent(least.busy_ns, least.wall_ns)} <small>{devices.length > 1 ? least.device : `of ${units.time(least.wall_ns)}`}</small></div>
    </div>
  );
}

function StepPanel({ overview }: { overview: Overview }) {
  const { step, columns } = overview;
  if (!step) return <section class="panel"><h2>Where a step goes</h2><Empty /></section>;
  const each = columns.length ? Math.ceil(step.steps / columns.length) : 1;
  const tallest = columns.reduce((most, column) => Math.max(most, column.wall_ns), 1);
  return (
    <section class="panel">
      <h2>Where {step.steps ? "a step" : "the time"} goes<small>{step.steps ? `mean of ${units.many(step.steps, "step")}, ${units.time(step.wall_ns)}${each > 1 ? `; a column is the mean of ${each}` : "; click a column for its timeline"}` : "no steps: call recorder.step(), or record an optimizer"}</small></h2>
      <div class="phases">
        {PHASES.map((phase) => <PhaseBar key={phase} phase={phase} ns={step.phase_ns[phase]} whole={step.wall_ns} />)}
      </div>
      <div class="legend">
        {PHASES.map((phase) => (
          <div key={phase}><span class={`swatch c-${phase}`} />{PHASE_NAMES[phase]}<b>{units.percent(step.phase_ns[phase], step.wall_ns)}</b><span class="soft">{units.time(step.phase_ns[phase])}</span></div>
        ))}
      </div>
      {columns.length > 0 && <div class={`columns ${columns.length > CROWDED ? "crowded" : ""}`}>
        {columns.map((column, at) => (
          <button key={column.first} data-testid="step-column" data-step={column.first} title={`${column.first === column.last ? `step ${column.first}` : `mean of the steps ${column.first} to ${column.last}`}: ${units.time(column.wall_ns)}`}
            onClick={() => go("timeline", { begin: String(column.begin), end: String(column.end) })}>
            {[...PHASES].reverse().map((phase) => <Sized key={phase} class={`part c-${phase}`} height={`${(100 * column.phase_ns[phase]) / tallest}%`} />)}
            {at % Math.ceil(columns.length / (columns.at(-1)!.first < 1000 ? 20 : 10)) === 0 && <span class="at">{units.count(column.first)}</span>}
          </button>
        ))}
        <Median part={step.median_ns / tallest} text={units.time(step.median_ns)} />
      </div>}
    </section>
  );
}

/** Beyond so many, columns stand close. */
const CROWDED = 60;

function Median({ part, text }: { part: number; text: string }) {
  const line = useRef<HTMLDivElement>(null);
  useEffect(() => { line.current!.style.height = `${100 * Math.min(part, 1)}%`; }, [part]);
  return <div class={`median ${part < 0.5 ? "low" : ""}`}><div ref={line}><span>median {text}</span></div></div>;
}

function PhaseBar({ phase, ns, whole }: { phase: string; ns: number; whole: number }) {
  const part = useRef<HTMLButtonElement>(null);
  useEffect(() => { part.current!.style.width = `${(100 * ns) / whole}%`; }, [ns, whole]);
  return <button ref={part} class={`c-${phase}`} data-testid="phase" data-phase={phase} data-ns={ns} aria-label={`${phase}: ${units.time(ns)}`} onClick={() => go("timeline")} />;
}

function FindingsPanel({ overview }: { overview: Overview }) {
  return (
    <section class="panel">
      <h2>What to do next<small>{overview.part ? "saves at most" : "by what it would save at most"}{partText(overview)}</small></h2>
      {overview.findings.length === 0 && <p class="soft">No rule found more than 2 % of a step to save, beside the spread between steps.</p>}
      {overview.findings.map((finding) => (
        <div class="finding" key={finding.rule} data-testid="finding" data-rule={finding.rule} data-saves-ns={finding.saves_ns}>
          <span class="saves">{units.percent(finding.percent, 100)}</span>
          <div>
            <b>{finding.title}</b>
            <p>{finding.sentence} {finding.cure}</p>
            {finding.evidence.slice(0, 2).map((each) => (
              <div key={each.name}><a href={href(each.screen === "timeline" ? "timeline" : "ops", { q: each.query })} title={each.text}>{label(each.name, "op")} →</a></div>
            ))}
          </div>
        </div>
      ))}
    </section>
  );
}

function OpsPanel({ rows, part }: { rows: Row[]; part: string }) {
  const most = rows[0]?.self_ns || 1;
  return (
    <section class="panel">
      <h2><a href={href("ops")}>Ops</a><small>self time{part}</small></h2>
      <table class="bars"><tbody>
        {rows.map((row) => (
          <tr key={row.name}>
            <td><a class="name" href={href("ops", { q: row.name })} title={row.name}>{row.name}</a><Colored class="bar-line" color={family(row.name, "op")} width={`${(100 * row.self_ns) / most}%`} /></td>
            <td class="n">{units.percent(row.self_percent, 100)}</td><td class="n">{units.time(row.self_ns)}</td><td class="n soft">{units.count(row.calls)} ×</td>
          </tr>
        ))}
      </tbody></table>
    </section>
  );
}

function ModulesPanel({ rows, part }: { rows: Row[]; part: string }) {
  const shown = rows.filter((row) => row.module !== "(no module)");
  const most = shown[0]?.self_ns || 1;
  return (
    <section class="panel">
      <h2><a href={href("modules")}>Modules</a><small>self time{part}</small></h2>
      {rows.length === 0 && <Empty flag="--modules" />}
      <table class="bars"><tbody>
        {shown.map((row) => (
          <tr key={row.module as string}>
            <td><Path text={String(row.module)} to={href("modules", { at: String(row.module), q: "" })} /><Colored class="bar-line" color="module" width={`${(100 * row.self_ns) / most}%`} /></td>
            <td class="n">{units.percent(row.self_percent, 100)}</td><td class="n">{units.time(row.self_ns)}</td><td class="n soft">{row.flops ? `${units.flops((row.flops / row.self_ns) * 1e9)}FLOP/s` : ""}</td>
          </tr>
        ))}
      </tbody></table>
    </section>
  );
}

function LinesPanel({ rows, part }: { rows: Line[]; part: string }) {
  const most = rows[0]?.self_ns || 1;
  return (
    <section class="panel">
      <h2><a href={href("source")}>Lines of yours</a><small>{part ? "total" : "with what they led to"}{part}</small></h2>
      {rows.length === 0 && <Empty flag="--stacks" />}
      <table class="bars"><tbody>
        {rows.map((row) => (
          <tr key={`${row.file}:${row.line}`}>
            <td><a class="name" href={href("source", { file: row.file, line: String(row.line) })} title={`${row.file}:${row.line}`}>{units.tail(row.file, 1)}:{row.line} {row.function}</a><Colored class="bar-line" color="range" width={`${(100 * row.self_ns) / most}%`} /></td>
            <td class="n">{units.time(row.self_ns)}</td><td class="n soft">{units.percent(row.backward_ns, row.self_ns)} back</td>
          </tr>
        ))}
      </tbody></table>
    </section>
  );
}

function MemoryPanel({ about, overview }: { about: About; overview: Overview }) {
  const canvas = useRef<HTMLCanvasElement>(null);
  const { memory } = overview;
  useEffect(() => {
    if (!canvas.current || !memory) return;
    const { pen, width, height } = penFor(canvas.current);
    pen.fillStyle = colors().memory;
    const wide = width / memory.most.length;
    memory.most.forEach((bytes, at) => pen.fillRect(at * wide, height - (bytes / memory.peak) * (height - 4), wide + 0.5, height));
    pen.fillStyle = colors().communication;
    pen.fillRect((memory.peak_at / about.end) * width, 0, 2, height);
  }, [memory, theme.value]);
  return (
    <section class="panel memory-strip">
      <h2><a href={href("memory")}>Memory</a>{memory && <small>peak {units.bytes(memory.peak)}<br />at {units.time(memory.peak_at)}</small>}</h2>
      {memory ? <canvas ref={canvas} data-testid="memory-canvas" /> : <Empty flag="--memory" />}
    </section>
  );
}
