/** What a block is for has one colour, the same on both screens; a block older than the history is hatched. */
import { blend, colors, type Family } from "../families.ts";
import { CATEGORIES } from "./answers.ts";

export const CATEGORY_FAMILY: Record<string, Family> = { parameter: "matmul", gradient: "attention", optimizer_state: "optimizer", activation: "elementwise", input: "data", temporary: "normalisation", unknown: "copy" };
export const plain = (category: string): string => category.replace(/_/g, " ");

/** Groups of one category are told apart by shade, in the order of their bytes. */
const SHADES = [1, 0.66, 0.84, 0.5, 0.75, 0.58];

export type Paint = { category: string[]; paler: string[]; shade: (category: string, turn: number) => string; rest: string; palette: ReturnType<typeof colors>; ink: string };

export function paint(): Paint {
  const palette = colors();
  const of = (category: string) => palette[CATEGORY_FAMILY[category] ?? "copy"];
  return {
    palette,
    category: CATEGORIES.map(of),
    paler: CATEGORIES.map((name) => blend(of(name), palette.panel, 0.8)),
    shade: (category, turn) => blend(of(category), palette.panel, SHADES[turn % SHADES.length]),
    rest: palette.none,
    ink: document.documentElement.dataset.theme === "dark" ? "#0d1016" : "#ffffff",
  };
}

/** The shade of each band: the first of its category is full. */
export function turns(bands: { category: string }[]): number[] {
  const seen = new Map<string, number>();
  return bands.map(({ category }) => {
    const turn = seen.get(category) ?? 0;
    seen.set(category, turn + 1);
    return turn;
  });
}

const hatches = new Map<string, CanvasPattern>();
/** Lines over a colour, for what is older than the history. */
export function hatch(pen: CanvasRenderingContext2D, color: string): CanvasPattern {
  const known = hatches.get(color);
  if (known) return known;
  const tile = document.createElement("canvas");
  tile.width = tile.height = 6;
  const drawn = tile.getContext("2d")!;
  drawn.strokeStyle = color;
  drawn.lineWidth = 1.4;
  drawn.beginPath();
  for (const shift of [-6, 0, 6]) { drawn.moveTo(shift - 1, 7); drawn.lineTo(shift + 7, -1); }
  drawn.stroke();
  const pattern = pen.createPattern(tile, "repeat")!;
  hatches.set(color, pattern);
  return pattern;
}
