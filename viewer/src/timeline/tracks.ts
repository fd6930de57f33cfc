/** Where lanes stand: threads below each other, each with its lanes by depth. */
import type { About } from "../api.ts";

export const ROW = 17;
export const HEAD = 22;

export type Track = { title: string; top: number; height: number; lanes: { lane: number; top: number }[] };

export function tracks(about: About): Track[] {
  const byThread = new Map<string, { process: number; thread: number; lanes: [number, number][] }>();
  about.lanes.forEach(([process, thread, depth], lane) => {
    const key = `${process}/${thread}`;
    if (!byThread.has(key)) byThread.set(key, { process, thread, lanes: [] });
    byThread.get(key)!.lanes.push([depth, lane]);
  });
  const all: Track[] = [];
  let top = 0;
  for (const { process, thread, lanes } of byThread.values()) {
    lanes.sort(([a], [b]) => a - b);
    const rows = lanes.map(([, lane], row) => ({ lane, top: top + HEAD + row * ROW }));
    const height = HEAD + rows.length * ROW + 6;
    all.push({ title: title(about, process, thread), top, height, lanes: rows });
    top += height;
  }
  return all;
}

function title(about: About, process: number, thread: number): string {
  const found = about.threads.find((each) => each.process === process && each.id === thread);
  const name = found?.name || `thread ${thread}`;
  if (about.processes.length < 2) return name;
  const owner = about.processes.find((each) => each.process === process);
  return `${owner?.rank != null ? `rank ${owner.rank}` : process === 0 ? "main" : `pid ${owner?.pid}`} · ${name}`;
}
