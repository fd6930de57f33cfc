/** What is looked at, all of it in the URL: /#/screen?begin=&end=&op=process:id&q=&by=&sort=&theme=&marks= */
import { computed, signal } from "@preact/signals";

export const SCREENS = ["overview", "timeline", "flame", "ops", "modules", "memory", "segments", "source", "tape", "diff", "edge", "sql"] as const;
export type Screen = (typeof SCREENS)[number];
export type Query = Record<string, string>;

const parsed = () => {
  const [path, words = ""] = location.hash.replace(/^#\/?/, "").split("?");
  const screen = (SCREENS as readonly string[]).includes(path) ? (path as Screen) : "overview";
  return { screen, query: Object.fromEntries(new URLSearchParams(words)) as Query };
};

export const place = signal(parsed());
export const screen = computed(() => place.value.screen);
export const query = computed(() => place.value.query);
addEventListener("hashchange", () => (place.value = parsed()));

export function href(to: Screen, changes: Query = {}): string {
  const kept: Query = {};
  for (const key of ["begin", "end", "theme", "q"]) if (query.value[key]) kept[key] = query.value[key];
  const words = new URLSearchParams(Object.entries({ ...kept, ...changes }).filter(([, value]) => value !== ""));
  return `#/${to}${words.size ? `?${words}` : ""}`;
}

/** Go to a screen, with a step in the browser's history; or without one, for what changes with each frame. */
export function go(to: Screen, changes: Query = {}, replace = false): void {
  const target = href(to, changes);
  if (replace) {
    history.replaceState(null, "", target);
    place.value = parsed();
  } else location.hash = target;
}

export function change(changes: Query, replace = true): void {
  go(screen.value, { ...query.value, ...changes }, replace);
}

/** The range that all screens look at, if one was made. */
export const range = computed(() => {
  const { begin, end } = query.value;
  return /^\d+$/.test(begin ?? "") && /^\d+$/.test(end ?? "") ? { begin: Number(begin), end: Number(end) } : null;
});

const preferred = matchMedia("(prefers-color-scheme: dark)");
const systemDark = signal(preferred.matches);
preferred.addEventListener("change", (event) => (systemDark.value = event.matches));
export const theme = computed(() => query.value.theme ?? (systemDark.value ? "dark" : "light"));
