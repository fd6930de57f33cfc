/** What is looked at, all of it in the URL: /#/screen?begin=&end=&op=process:id&q=&by=&sort=&theme=&marks=&range=begin-end */
import { computed, signal } from "@preact/signals";
import { isFile } from "./file/blobs.ts";

export const SCREENS = ["overview", "timeline", "flame", "ops", "modules", "memory", "segments", "source", "tape", "diff", "edge", "sql"] as const;
export type Screen = (typeof SCREENS)[number];
export type Query = Record<string, string>;

/** In the frame of a notebook there is no address to write to: what is looked at is kept here. */
const framed = location.protocol === "about:";
let address = "";

const parsed = () => {
  const [path, words = ""] = (framed ? address : location.hash).replace(/^#\/?/, "").split("?");
  const screen = (SCREENS as readonly string[]).includes(path) ? (path as Screen) : "overview";
  return { screen, query: Object.fromEntries(new URLSearchParams(words)) as Query };
};

export const place = signal(parsed());
export const screen = computed(() => place.value.screen);
export const query = computed(() => place.value.query);
let taken = location.hash;
/** The browser tells of another address late: whoever is about to change it takes it in first. */
export function catchUp(): void {
  if (location.hash !== taken) takeIn();
}
addEventListener("hashchange", catchUp);
function takeIn(): void {
  taken = location.hash;
  place.value = parsed();
}
if (framed) addEventListener("click", (event) => {
  const link = (event.target as Element).closest?.("a[href]")?.getAttribute("href");
  if (!link?.startsWith("#") || event.defaultPrevented) return;
  event.preventDefault();
  visit(link, true);
});

/** The range that all screens look at, if one was made. On the timeline begin and end are the view, and the range has a word of its own. */
export const range = computed(() => {
  const { begin, end, range } = query.value;
  const found = /^(\d+)-(\d+)$/.exec(screen.value === "timeline" ? (range ?? "") : `${begin}-${end}`);
  return found ? { begin: Number(found[1]), end: Number(found[2]) } : null;
});

export function setRange(begin: number, end: number): void {
  const [from, to] = [String(Math.max(0, Math.round(begin))), String(Math.round(end))];
  change(screen.value === "timeline" ? { range: `${from}-${to}` } : { begin: from, end: to }, false);
}
export function clearRange(): void {
  change(screen.value === "timeline" ? { range: "" } : { begin: "", end: "" }, false);
}

/** What a link to a screen takes along: what was searched for, marks, looks, and the range. */
function kept(to: Screen): Query {
  const words: Query = {};
  for (const key of ["theme", "q", "marks"]) if (query.value[key]) words[key] = query.value[key];
  if (to === "timeline" && screen.value === "timeline") {
    for (const key of ["begin", "end", "range", "hide", "fold"]) if (query.value[key]) words[key] = query.value[key];
  } else if (range.value && !isFile) { // a file's numbers are those of the whole run
    Object.assign(words, { begin: String(range.value.begin), end: String(range.value.end) });
    if (to === "timeline") words.range = `${range.value.begin}-${range.value.end}`;
  }
  return words;
}

export function href(to: Screen, changes: Query = {}): string {
  const words = new URLSearchParams(Object.entries({ ...kept(to), ...changes }).filter(([, value]) => value !== ""));
  return `#/${to}${words.size ? `?${words}` : ""}`;
}

/** Go to a screen, with a step in the browser's history; or without one, for what changes with each frame. */
export function go(to: Screen, changes: Query = {}, replace = false): void {
  visit(href(to, changes), replace);
}

function visit(target: string, replace: boolean): void {
  if (framed) address = target;
  else if (replace) history.replaceState(null, "", target);
  else location.hash = target;
  takeIn();
}

export function change(changes: Query, replace = true): void {
  catchUp();
  go(screen.value, { ...query.value, ...changes }, replace);
}

const preferred = matchMedia("(prefers-color-scheme: dark)");
const systemDark = signal(preferred.matches);
preferred.addEventListener("change", (event) => (systemDark.value = event.matches));
export const theme = computed(() => query.value.theme ?? (systemDark.value ? "dark" : "light"));
