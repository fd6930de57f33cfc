/** Where lanes stand: threads and streams below each other, each with its lanes by depth; a folded one is its title alone. */
import type { About } from "../api.ts";

export const ROW = 17;
export const HEAD = 22;

export type Track = { key: string; title: string; top: number; height: number; folded: boolean; lanes: { lane: number; top: number }[] };

export function tracks(about: About, folded: ReadonlySet<string>): Track[] {
  const byThread = new Map<string, { process: number; thread: number; lanes: [number, number][] }>();
  about.lanes.forEach(([process, thread, depth], lane) => {
    const key = `${process}/${thread}`;
    if (!byThread.has(key)) byThread.set(key, { process, thread, lanes: [] });
    byThread.get(key)!.lanes.push([depth, lane]);
  });
  // Threads of a process first, then the streams of its devices.
  const order = [...byThread.entries()].sort(([, a], [, b]) => a.process - b.process || Number(a.thread < 0) - Number(b.thread < 0) || Math.abs(a.thread) - Math.abs(b.thread));
  const all: Track[] = [];
  let top = 0;
  for (const [key, { process, thread, lanes }] of order) {
    const closed = folded.has(key);
    lanes.sort(([a], [b]) => a - b);
    const rows = closed ? [] : lanes.map(([, lane], row) => ({ lane, top: top + HEAD + row * ROW }));
    const height = HEAD + rows.length * ROW + (closed ? 0 : 6);
    all.push({ key, title: title(about, process, thread), top, height, folded: closed, lanes: rows });
    top += height;
  }
  return all;
}

function title(about: About, process: number, thread: number): string {
  const found = about.threads.find((each) => each.process === process && each.id === thread);
  // Threads of one name are told apart by their numbers.
  const alike = found && about.threads.some((each) => each !== found && each.process === process && each.name === found.name);
  const name = found?.name ? `${found.name}${alike ? ` ${found.os_id ?? found.id}` : ""}` : `thread ${thread}`;
  if (about.processes.length < 2) return name;
  const owner = about.processes.find((each) => each.process === process);
  return `${owner?.rank != null ? `rank ${owner.rank}` : process === 0 ? "main" : `pid ${owner?.pid}`} · ${name}`;
}
