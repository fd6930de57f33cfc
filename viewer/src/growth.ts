/** A reel that is still being recorded: looked at again every second, while the page is seen. */
import { signal } from "@preact/signals";
import { ask, type Revision } from "./api.ts";

/** Which state of the reel is shown; each time that it has grown there is another one. */
export const revision = signal(0);
export const recording = signal(false);

const EVERY_MS = 1000;

/** Calls `grown` with the moment from which on there is something new, until the recording ends. */
export function watch(grown: (changedFrom: number) => Promise<void>): void {
  const look = async () => {
    try {
      const now = await ask<Revision>("revision", { since: revision.value }, true);
      if (now.revision !== revision.value) {
        await grown(now.changed_from ?? 0);
        revision.value = now.revision;
      }
      recording.value = now.recording;
    } catch {
      // The server has gone away, which the page says; it may come back.
    }
    if (recording.value) setTimeout(look, document.hidden ? 10 * EVERY_MS : EVERY_MS);
  };
  void look();
}
