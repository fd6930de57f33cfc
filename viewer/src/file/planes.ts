/** Byte planes: columns of whole numbers, all lowest bytes first; see torchreel/web/html/planes.py. */

export type Columns = [name: string, width: number][];

export type Numbers = Uint8Array | Uint16Array | Uint32Array | Float64Array;

/** The columns of a blob, each by its name, as it is written: numbers from 0 on, in the smallest array that holds them. */
export function columns(data: Uint8Array, layout: Columns, length: number): Map<string, Numbers> {
  const found = new Map<string, Numbers>();
  let at = 0;
  for (const [name, width] of layout) {
    const values = width <= 1 ? new Uint8Array(length) : width <= 2 ? new Uint16Array(length) : width <= 4 ? new Uint32Array(length) : new Float64Array(length);
    for (let plane = 0, scale = 1; plane < width; plane++, scale *= 256, at += length) addPlane(values, data.subarray(at, at + length), scale);
    found.set(name, values);
  }
  return found;
}

function addPlane(values: Numbers, plane: Uint8Array, scale: number): void {
  for (let i = 0; i < plane.length; i++) if (plane[i]) values[i] += plane[i] * scale;
}

/** 0, 1, 2, 3 ... stand for 0, -1, 1, -2 ... */
export const signed = (value: number): number => (value % 2 ? -(value + 1) / 2 : value / 2);

/** 0 stands for nothing. */
export const nullable = (value: number): number | null => (value === 0 ? null : signed(value - 1));
