/** Who holds it, when? A click on the curve chooses the moment. */
import "./memory.css";
import { useEffect, useRef } from "preact/hooks";
import { ask } from "../api.ts";
import { colors } from "../families.ts";
import { change, query, theme } from "../state.ts";
import * as units from "../units.ts";
import { Colored, Empty, penFor, useAnswer } from "../widgets.tsx";

type Holder = { name: string; bytes: number; percent: number; blocks: number; largest: number; categories: string };
type Memory = { devices: string[]; has_times?: boolean; end?: number; most?: number[]; peak?: number; peak_at?: number | null; at?: number | null; allocated?: number; holders: Holder[] };
const BY: Record<string, string> = { stack: "your line", module: "module", op: "op", category: "category" };

export function MemoryScreen() {
  const by = (query.value.by ?? "") in BY ? query.value.by : "stack";
  const device = query.value.device ?? "0";
  const at = query.value.at ?? "";
  const { answer, problem } = useAnswer(`memory ${device} ${by} ${at}`, () => ask<Memory>("memory", { device, by, ...(at ? { at } : {}) }));
  const canvas = useRef<HTMLCanvasElement>(null);
  useEffect(() => {
    if (canvas.current && answer?.most) draw(canvas.current, answer);
  }, [answer, theme.value]);
  if (problem) return <p class="error">{problem}</p>;
  if (!answer) return <p class="soft">Adding up …</p>;
  if (!answer.devices.length) return <Empty flag="--memory" />;
  const when = (time: number | null | undefined) => (time === null || time === undefined ? "the beginning" : answer.has_times ? units.time(time) : `event ${units.count(time)}`);
  const pick = (event: MouseEvent) => change({ at: String(Math.round((event.offsetX / canvas.current!.getBoundingClientRect().width) * answer.end!)) });
  return (
    <>
      <section class="panel stacked">
        <h2>Memory<small>peak {units.bytes(answer.peak!)} at {when(answer.peak_at)}; click for who held it at another moment</small></h2>
        <canvas ref={canvas} class="curve" data-testid="memory-canvas" onClick={pick} />
      </section>
      <section class="panel">
        <div class="tools">
          {answer.devices.length > 1 && <select aria-label="device" value={device} onChange={(event) => change({ device: event.currentTarget.value, at: "" })}>{answer.devices.map((name, number) => <option key={name} value={number}>{name}</option>)}</select>}
          <label>By <select value={by} onChange={(event) => change({ by: event.currentTarget.value })}>{Object.entries(BY).map(([key, name]) => <option key={key} value={key}>{name}</option>)}</select></label>
          <span>{units.bytes(answer.allocated!)} at {when(answer.at)}</span>
          {at && <button class="plain" onClick={() => change({ at: "" })}>at the peak</button>}
        </div>
        <table class="grid">
          <thead><tr><th>{BY[by]}</th><th class="n">Bytes</th><th class="n">Share</th><th class="n">Blocks</th><th class="n">Largest</th><th>Categories</th></tr></thead>
          <tbody>{answer.holders.map((row) => (
            <tr key={row.name} data-testid="holder-row" data-bytes={row.bytes}><td title={row.name}>{row.name}<Colored class="bar-line" color="memory" width={`${row.percent}%`} /></td><td class="n">{units.bytes(row.bytes)}</td><td class="n">{row.percent.toFixed(1)} %</td><td class="n">{units.count(row.blocks)}</td><td class="n">{units.bytes(row.largest)}</td><td>{row.categories}</td></tr>
          ))}</tbody>
        </table>
      </section>
    </>
  );
}

function draw(canvas: HTMLCanvasElement, memory: Memory): void {
  const { pen, width, height } = penFor(canvas);
  const palette = colors();
  pen.fillStyle = palette.memory;
  const wide = width / memory.most!.length;
  memory.most!.forEach((bytes, at) => pen.fillRect(at * wide, height - (bytes / Math.max(memory.peak!, 1)) * (height - 18), wide + 0.5, height));
  const line = (at: number | null | undefined, color: string, text: string) => {
    if (at === null || at === undefined) return;
    const x = (at / memory.end!) * width;
    pen.fillStyle = color;
    pen.fillRect(x, 0, 1.5, height);
    pen.fillText(text, Math.min(x + 4, width - 90), 11);
  };
  line(memory.peak_at, palette.communication, `peak ${units.bytes(memory.peak!)}`);
  if (memory.at !== memory.peak_at) line(memory.at, palette.accent, units.bytes(memory.allocated!));
}
