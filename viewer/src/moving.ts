/** What W A S D, 0, F, R and Esc move where there is no timeline: a screen puts its view here while it is shown. */
export type Moved = {
  zoom: (factor: number, x: number) => void;
  pan: (pixels: number) => void;
  show: (begin: number, end: number) => void;
  readonly view: { begin: number; end: number };
  readonly idle: boolean;
  /** Make the selection, or what is in view, the range of all screens. */
  keep: () => void;
  /** Bring the selection into view. */
  fit: () => void;
  clear: () => void;
};
export const moving: { view: Moved | null } = { view: null };
