/** A view of an axis: nanoseconds, or numbers of events. */
export class AxisView {
  begin = 0;
  end = 1;
  constructor(public whole: number, private readonly least: number) {
    this.end = whole;
  }
  set(begin: number, end: number): void {
    const span = Math.min(Math.max(end - begin, Math.min(this.least, this.whole)), this.whole);
    const middle = (begin + Math.min(end, begin + 2 * this.whole)) / 2;
    this.begin = Math.min(Math.max(Math.min(begin, middle - span / 2), 0), this.whole - span);
    this.end = this.begin + span;
  }
  get span(): number {
    return this.end - this.begin;
  }
  get isWhole(): boolean {
    return this.begin <= 0 && this.end >= this.whole;
  }
  zoom(factor: number, part: number): void {
    const at = this.begin + part * this.span;
    const span = Math.min(Math.max(this.span * factor, Math.min(this.least, this.whole)), this.whole);
    this.begin = Math.min(Math.max(at - part * span, 0), this.whole - span);
    this.end = this.begin + span;
  }
  pan(part: number): void {
    const span = this.span;
    this.begin = Math.min(Math.max(this.begin + part * span, 0), this.whole - span);
    this.end = this.begin + span;
  }
}

/** Round steps for an axis, about so many. */
export function ticks(begin: number, end: number, about: number, least = 0): number[] {
  const rough = Math.max((end - begin) / Math.max(about, 1), least);
  if (!(rough > 0)) return [];
  const power = 10 ** Math.floor(Math.log10(rough));
  const every = [1, 2, 5, 10].map((many) => many * power).find((many) => many >= rough)!;
  const found = [];
  for (let at = Math.ceil(begin / every) * every; at <= end && found.length < 100; at += every) found.push(at);
  return found;
}

/** Round steps of bytes: halves and wholes of powers of two. */
export function byteTicks(most: number, about: number): number[] {
  if (!(most > 0)) return [];
  let every = 2 ** Math.ceil(Math.log2(most / about));
  if (most / every < about / 2) every /= 2;
  const found = [];
  for (let at = every; at <= most && found.length < 50; at += every) found.push(at);
  return found;
}
