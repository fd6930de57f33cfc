/** Keys: one table, which `?` shows. No key is taken while typing. */
import { signal } from "@preact/signals";
import { moving } from "./moving.ts";
import { pointer, shown } from "./screens/timeline.tsx";
import { go, screen, SCREENS } from "./state.ts";

export const help = signal(false);
export const KEYS: [string, string][] = [
  ["W S, Ctrl+wheel", "zoom at the pointer"],
  ["A D, Shift+wheel, Shift+drag", "pan"],
  ["wheel", "scroll the tracks"],
  ["0", "the whole run"],
  ["1 … 9", "screens"],
  ["/, Ctrl+F", "search; Enter and Shift+Enter go through the matches"],
  ["click", "select a call; Esc clears"],
  ["drag", "select an area: its calls, time, bytes and FLOPs"],
  ["F, double click", "centre the selection; F again fits it"],
  [". ,", "next, previous call of the lane; arrows move among calls, outwards and inwards"],
  ["] [", "backward, forward of the call; the other end of a flow, the kernel"],
  ["M", "keep the area as a named mark"],
  ["R", "make the area, the call or the view the range of all screens"],
  ["arrows, Enter", "move among calls, rows, boxes, moments, blocks and segments; open one"],
  ["?", "these keys"],
];

const MOVES: Record<string, () => void> = {
  ".": () => void shown.neighbour(1),
  ",": () => void shown.neighbour(-1),
  ArrowRight: () => void shown.neighbour(1),
  ArrowLeft: () => void shown.neighbour(-1),
  ArrowUp: () => shown.family(true),
  ArrowDown: () => shown.family(false),
  "]": () => shown.partner(true),
  "[": () => shown.partner(false),
};
const held = new Set<string>();
let before = 0;

function glide(now: number): void {
  const seconds = Math.min((now - before) / 1000, 0.05);
  before = now;
  const view = shown.timeline ?? moving.view;
  if (view) for (const key of held) {
    if (key === "w") view.zoom(Math.exp(-3 * seconds), pointer.x);
    if (key === "s") view.zoom(Math.exp(3 * seconds), pointer.x);
    if (key === "a") view.pan(-900 * seconds);
    if (key === "d") view.pan(900 * seconds);
  }
  if (held.size) requestAnimationFrame(glide);
}

export function listenToKeys(): void {
  addEventListener("keydown", (event) => {
    const target = event.target as HTMLElement;
    const search = document.querySelector<HTMLInputElement>('[data-testid="search"]');
    if ((event.key === "f" && (event.ctrlKey || event.metaKey)) || (event.key === "/" && !typing(target))) {
      event.preventDefault();
      search?.focus();
      search?.select();
      return;
    }
    if (event.key === "Escape") {
      help.value = false;
      if (typing(target)) target.blur();
      shown.timeline?.canvas.dispatchEvent(new Event("torchreel-clear"));
      moving.view?.clear();
      return;
    }
    if (typing(target) || event.ctrlKey || event.metaKey || event.altKey) return;
    if (event.key === "?") { help.value = !help.value; return; }
    if (/^[1-9]$/.test(event.key)) { go(SCREENS[Number(event.key) - 1]); return; }
    const timeline = screen.value === "timeline" ? shown.timeline : null;
    const key = event.key.toLowerCase();
    if (!timeline && !moving.view) return;
    if (key === "0") (timeline ?? moving.view)!.show(0, Number.MAX_SAFE_INTEGER);
    if (!timeline && key === "f") moving.view!.fit();
    if (!timeline && key === "r") moving.view!.keep();
    if (timeline && key === "f") shown.focus();
    if (timeline && key === "r") shown.makeRange();
    if (timeline && key === "m") shown.keepMark();
    const move = timeline && MOVES[event.key];
    if (move && (event.key.length === 1 || target === timeline.canvas || target === document.body)) { event.preventDefault(); move(); }
    if ("wasd".includes(key) && !event.repeat) {
      if (!held.size) { before = performance.now(); requestAnimationFrame(glide); }
      held.add(key);
      event.preventDefault();
    }
  });
  addEventListener("keyup", (event) => held.delete(event.key.toLowerCase()));
  addEventListener("blur", () => held.clear());
}

/** Whether keys are text there: not in a checkbox or on a slider. */
const typing = (element: HTMLElement): boolean => (element instanceof HTMLInputElement ? !/^(checkbox|radio|range|button)$/.test(element.type) : /^(TEXTAREA|SELECT)$/.test(element.tagName) || element.isContentEditable);
