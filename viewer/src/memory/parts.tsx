/** Parts that both screens of memory share: a moment, a block in full, and tables that the keyboard moves in. */
import type { ComponentChildren } from "preact";
import { ask } from "../api.ts";
import { href } from "../state.ts";
import * as units from "../units.ts";
import { Colored, useAnswer } from "../widgets.tsx";
import type { Block, Moment, Place, WholeBlock } from "./answers.ts";
import { CATEGORY_FAMILY, plain } from "./colors.ts";

export const when = (at: Moment | null): string => (!at || at.event < 0 ? "the beginning" : at.time === null ? `event ${units.count(at.event)}` : units.time(at.time));

/** Arrows move from row to row, Enter opens the one that has the focus. */
export function rowKeys(event: KeyboardEvent): void {
  const row = (event.target as HTMLElement).closest("tr");
  if (!row || (event.target as HTMLElement).closest("a, button")) return;
  const next = event.key === "ArrowDown" ? row.nextElementSibling : event.key === "ArrowUp" ? row.previousElementSibling : event.key === "Home" ? row.parentElement!.firstElementChild : event.key === "End" ? row.parentElement!.lastElementChild : null;
  if (next) (next as HTMLElement).focus();
  else if (event.key === "Enter" || event.key === " ") row.click();
  else return;
  event.preventDefault();
}

export const Category = ({ name }: { name: string }) => <><Colored class="swatch" color={CATEGORY_FAMILY[name] ?? "copy"} />{plain(name)}</>;

export function SourceLink({ place, children }: { place: Place | null; children: ComponentChildren }) {
  return place && place.line > 0 ? <a href={href("source", { file: place.file, line: String(place.line) })} onClick={(event) => event.stopPropagation()}>{children}</a> : <>{children}</>;
}

export const isKnown = (name: string): boolean => !!name && !name.startsWith("(");

/** The rows of blocks; each leads to its block. */
export function BlockTable({ rows, picked, pick }: { rows: Block[]; picked: number | null; pick: (block: number) => void }) {
  return (
    <table class="grid">
      <thead><tr><th class="n">Bytes</th><th>Category</th><th>Line</th><th>Op</th><th class="n">Made</th><th class="n">Freed</th><th class="n">Address</th></tr></thead>
      <tbody onKeyDown={rowKeys}>{rows.map((row) => (
        <tr key={row.block} tabIndex={0} class={row.block === picked ? "picked" : ""} data-testid="block" data-block={row.block} data-bytes={row.size} onClick={() => pick(row.block)}>
          <td class="n">{units.bytes(row.size)}</td><td><Category name={row.category} /></td><td class="line" title={row.stack}><SourceLink place={row.source}>{row.stack}</SourceLink></td>
          <td class="line" title={row.op}>{row.op}</td>
          <td class="n">{row.older ? <span class="ghost">older</span> : when(row.made)}</td><td class="n">{row.freed ? when(row.freed) : "–"}</td><td class="n code">{row.address ?? "–"}</td>
        </tr>
      ))}</tbody>
    </table>
  );
}

/** One block with all that is known of it. */
export function BlockDetails({ device, block, close, others }: { device: string; block: number; close: () => void; others?: "memory" | "segments" }) {
  const { answer, problem } = useAnswer(`block ${device} ${block}`, () => ask<WholeBlock>("block", { device, block }));
  if (problem) return <p class="error">{problem}</p>;
  if (!answer || answer.block !== block) return <p class="soft">Looking it up …</p>;
  const shown = ["user", "library", "torch", "native"].map((owner) => answer.frames.filter((frame) => frame.owner === owner)).reduce((all, some) => (all.length ? all : some), []);
  return (
    <div class="block-details" data-testid="details" aria-live="polite">
      <h2><span data-testid="details-name">Block of {units.bytes(answer.size)}</span><small><Category name={answer.category} />{answer.older && ", older than the history"}</small><button class="plain close" aria-label="close" onClick={close}>×</button></h2>
      <dl class="facts">
        <dt>bytes</dt><dd data-testid="details-bytes" data-bytes={answer.size}>{units.count(answer.size)}{answer.address && <> at <code>{answer.address}</code></>}</dd>
        <dt>lives</dt><dd>{answer.older ? "before the history" : when(answer.made)} to {answer.freed ? when(answer.freed) : "the end"}{answer.lives_ns !== null && <>: {units.time(answer.lives_ns)}{(answer.older || !answer.freed) && " were seen"}</>}</dd>
        <dt>op</dt><dd>{answer.op_id !== null ? <a href={href("timeline", { op: `${answer.process}:${answer.op_id}`, begin: "", end: "" })}>{isKnown(answer.op) ? answer.op : `call ${answer.op_id}`}</a> : isKnown(answer.op) ? answer.op : "–"}</dd>
        <dt>module</dt><dd>{isKnown(answer.module) ? <a href={href("modules", { q: answer.module })}>{answer.module}</a> : "–"}</dd>
        {others === "segments" && answer.address && <><dt>lies in</dt><dd><a href={href("segments", { device, event: String(Math.max(answer.made.event, -1)), segment: answer.address })}>its segment, when it was made</a></dd></>}
        {others === "memory" && <><dt>life</dt><dd><a href={href("memory", { device, by: "blocks", block: String(block), event: String(answer.made.event) })}>among the blocks around it</a></dd></>}
      </dl>
      <div class="frames">
        {shown.slice(0, 12).map((frame, at) => <div key={at}><SourceLink place={frame.owner === "native" ? null : frame}>{units.tail(frame.file)}{frame.line > 0 && `:${frame.line}`}</SourceLink>  {frame.function}</div>)}
        {answer.frames.length > shown.length && <div class="soft">and {units.many(answer.frames.length - shown.length, "frame")} of libraries, torch and C++</div>}
        {!answer.frames.length && <div class="soft">{answer.older ? "Nothing tells who made it: it is older than the history." : "No stack: record with --stacks."}</div>}
      </div>
    </div>
  );
}

export function Devices({ devices, device, pick }: { devices: string[]; device: string; pick: (device: string) => void }) {
  if (devices.length < 2) return null;
  return <select aria-label="device" value={device} onChange={(event) => pick(event.currentTarget.value)}>{devices.map((name, number) => <option key={number} value={number}>{name}</option>)}</select>;
}
