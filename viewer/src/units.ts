/** Numbers as a person reads them. */

export function time(ns: number): string {
  for (const [unit, size] of [["s", 1e9], ["ms", 1e6], ["µs", 1e3]] as const) {
    if (Math.abs(ns) >= size * 0.9995) return `${digits(ns / size)} ${unit}`;
  }
  return `${Math.round(ns)} ns`;
}

export function bytes(count: number): string {
  for (const [unit, power] of [["GiB", 30], ["MiB", 20], ["KiB", 10]] as const) {
    if (Math.abs(count) >= 2 ** power * 0.9995) return `${digits(count / 2 ** power)} ${unit}`;
  }
  return `${Math.round(count)} B`;
}

export function flops(count: number): string {
  for (const [unit, size] of [["T", 1e12], ["G", 1e9], ["M", 1e6], ["K", 1e3]] as const) {
    if (count >= size) return `${digits(count / size)} ${unit}`;
  }
  return String(count);
}

export function percent(part: number, whole: number): string {
  if (!whole) return "0 %";
  const value = (100 * part) / whole;
  return `${value >= 9.95 || value === 0 ? value.toFixed(0) : value.toFixed(1)} %`;
}

export const count = (value: number): string => Math.round(value).toLocaleString("en-US");

/** A number with its noun: 1 block, 2 blocks. */
export const many = (value: number, noun: string): string => `${count(value)} ${noun}${value === 1 ? "" : "s"}`;

/** Three digits: 1.23, 12.3, 123. */
function digits(value: number): string {
  const size = Math.abs(value);
  if (size >= 999.5) return count(value);
  return value.toFixed(size >= 99.95 ? 0 : size >= 9.995 ? 1 : 2);
}

/** A word of a command as a shell reads it. */
export const shellWord = (word: string): string => (/^[\w@%+=:,./-]+$/.test(word) ? word : `'${word.replaceAll("'", "'\\''")}'`);

/** The last parts of a path. */
export const tail = (path: string, parts = 2): string => path.split(/[/\\]/).slice(-parts).join("/");
