/** Small parts that several screens share. */
import "./widgets.css";
import type { ComponentChildren, JSX } from "preact";
import { useEffect, useLayoutEffect, useRef, useState } from "preact/hooks";
import type { About } from "./api.ts";
import { recording, revision } from "./growth.ts";
import * as units from "./units.ts";

/** A pen for a canvas whose size comes from the layout, as sharp as the screen is. */
export function penFor(canvas: HTMLCanvasElement): { pen: CanvasRenderingContext2D; width: number; height: number } {
  const { width, height } = canvas.getBoundingClientRect();
  canvas.width = width * devicePixelRatio;
  canvas.height = height * devicePixelRatio;
  const pen = canvas.getContext("2d")!;
  pen.scale(devicePixelRatio, devicePixelRatio);
  pen.font = "11px system-ui, sans-serif";
  return { pen, width, height };
}

/** What a question answered, and what went wrong; asked again when the key changes, and when the reel has grown. */
export function useAnswer<T>(key: string, question: () => Promise<T>): { answer: T | null; problem: string | null } {
  const [found, set] = useState<{ key: string; answer: T | null; problem: string | null }>({ key: "", answer: null, problem: null });
  const took = useRef({ key: "", ms: 0 });
  // At once, not after the next frame: window.torchreel.idle must not be true in between.
  useLayoutEffect(() => {
    let current = true;
    const askIt = () => {
      const began = performance.now();
      question().then(
        (answer) => { took.current = { key, ms: performance.now() - began }; if (current) set({ key, answer, problem: null }); },
        (error: Error) => current && set({ key, answer: null, problem: error.message }),
      );
    };
    // The same question about a reel that grows is asked at most a tenth of the time.
    if (took.current.key !== key) { askIt(); return () => { current = false; }; }
    const late = setTimeout(askIt, 9 * took.current.ms);
    return () => { current = false; clearTimeout(late); };
  }, [key, revision.value]);
  return found.key === key || found.answer ? found : { answer: null, problem: null };
}

/** What is not there, and how to record it: with a flag, or at all if the flag is "". */
export function Empty({ flag, children }: { flag?: string; children?: ComponentChildren }) {
  return (
    <div class="empty" data-testid="empty">
      {children ?? "Nothing of this was recorded."} {flag !== undefined && <>Record with <code>{["torchreel record", flag, "train.py"].filter(Boolean).join(" ")}</code>.</>}
    </div>
  );
}

/** What the recording does not have of the run. */
export function Losses({ about }: { about: About }) {
  const { lost_events, incomplete_processes } = about.summary;
  return (
    <>
      {incomplete_processes.length > 0 && !recording.value && <p class="note" data-testid="incomplete">{incomplete_processes.slice(0, 3).join(", ")}{incomplete_processes.length > 3 && ` and ${units.count(incomplete_processes.length - 3)} others`} did not close the recording: the last moments may be missing.</p>}
      {lost_events > 0 && <p class="note" data-testid="lost">{units.count(lost_events)} events could not be kept: counts and times are too low.</p>}
    </>
  );
}

/** Sizes that come from data are set by script: the page's policy forbids style attributes in markup. */
export function Sized({ width, height, class: name, ...rest }: { width?: string; height?: string } & JSX.HTMLAttributes<HTMLSpanElement>) {
  const part = useRef<HTMLSpanElement>(null);
  useEffect(() => {
    if (width !== undefined) part.current!.style.width = width;
    if (height !== undefined) part.current!.style.height = height;
  }, [width, height]);
  return <span ref={part} class={name} {...rest} />;
}

/** A colour by its family, as a class of its own would be. */
export function Colored({ color, width, class: name }: { color: string; width?: string; class: string }) {
  const part = useRef<HTMLSpanElement>(null);
  useEffect(() => {
    part.current!.style.background = `var(--${color})`;
    if (width !== undefined) part.current!.style.width = width;
  }, [color, width]);
  return <span ref={part} class={name} />;
}

/** A choice of few, all of them in sight. */
export function Segmented<T extends string>({ choices, value, onChoose, name, disabled }: { choices: [T, string][]; value: T; onChoose: (value: T) => void; name: string; disabled?: (value: T) => string | undefined }) {
  return (
    <span class="segmented" role="group" aria-label={name}>
      {choices.map(([key, text]) => <button key={key} aria-pressed={value === key} disabled={disabled?.(key) !== undefined} title={disabled?.(key)} onClick={() => onChoose(key)} data-choice={key}>{text}</button>)}
    </span>
  );
}

/** A part of a whole, as a bar in a cell. */
export function ShareBar({ part, color = "accent" }: { part: number; color?: string }) {
  return <span class="share-track"><Colored class="share-bar" color={color} width={`${Math.max(0, Math.min(100, 100 * part))}%`} /></span>;
}

/** A path or a line: where it is too long, its beginning is shortened, since the end says more. */
export function Path({ text, to }: { text: string; to?: string }) {
  const slash = text.lastIndexOf("/");
  const at = slash >= 0 ? slash + 1 : text.lastIndexOf(".", text.lastIndexOf(".") - 1) + 1;
  const parts = <><span>{text.slice(0, at)}</span><span>{text.slice(at)}</span></>;
  return to ? <a class="path" href={to} title={text}>{parts}</a> : <span class="path" title={text}>{parts}</span>;
}

/** A command to run, with a button that copies it. */
export function Command({ text }: { text: string }) {
  const [copied, set] = useState(false);
  return (
    <span class="command">
      <code data-testid="command">{text}</code>
      <button class="plain" onClick={() => void navigator.clipboard.writeText(text).then(() => set(true), () => {})}>{copied ? "copied" : "copy"}</button>
    </span>
  );
}

/** Arrows, Home and End move between the rows of a table that can have the focus. */
export function moveInRows(event: KeyboardEvent): boolean {
  const table = event.currentTarget as HTMLElement;
  const rows = [...table.querySelectorAll<HTMLElement>("tr[tabindex]")].filter((row) => row.closest("table") === table || table.contains(row));
  const at = rows.indexOf(document.activeElement as HTMLElement);
  const to = { ArrowDown: at + 1, ArrowUp: at - 1, Home: 0, End: rows.length - 1 }[event.key];
  if (to === undefined || at < 0 || !rows[to]) return false;
  event.preventDefault();
  rows[to].focus();
  rows[to].scrollIntoView({ block: "nearest" });
  return true;
}
