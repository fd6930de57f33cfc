/** A canvas as large as its place on the page and as sharp as the screen, drawn at most once per frame. */

/** How long the last frames of all canvases took to draw, in ms, and how many there were: for window.torchreel. */
export const measured = { frames: [] as number[], painted: 0 };
const KEPT = 600;

export abstract class DrawnCanvas {
  readonly pen: CanvasRenderingContext2D;
  width = 0;
  height = 0;
  private asked = false;

  constructor(readonly canvas: HTMLCanvasElement) {
    this.pen = canvas.getContext("2d", { alpha: false })!;
  }

  protected abstract draw(): void;

  /** Whether it is as large as the page has it, and as sharp as the screen. */
  protected get hasItsSize(): boolean {
    const box = this.canvas.getBoundingClientRect();
    return this.canvas.width === Math.floor(Math.round(box.width) * devicePixelRatio) && this.canvas.height === Math.floor(Math.round(box.height) * devicePixelRatio);
  }

  /** Take the size that the page gives it; what is drawn of it must be drawn again. */
  protected takeSize(): void {
    const box = this.canvas.getBoundingClientRect();
    this.width = Math.round(box.width);
    this.height = Math.round(box.height);
    this.canvas.width = this.width * devicePixelRatio;
    this.canvas.height = this.height * devicePixelRatio;
    this.pen.setTransform(devicePixelRatio, 0, 0, devicePixelRatio, 0, 0);
    this.pen.font = "11px system-ui, sans-serif";
  }

  redraw(): void {
    if (this.asked) return;
    this.asked = true;
    requestAnimationFrame(() => {
      this.asked = false;
      const began = performance.now();
      this.draw();
      measured.frames.push(performance.now() - began);
      if (measured.frames.length > KEPT) measured.frames.shift();
      measured.painted++;
    });
  }
  /** Whether nothing waits to be drawn. */
  get idle(): boolean {
    return !this.asked;
  }
}
