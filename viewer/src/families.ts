/** One colour per family of calls, the same on every screen, and never by chance. */

export const FAMILIES = ["communication", "data", "optimizer", "attention", "convolution", "matmul", "normalisation", "index", "copy", "elementwise", "module", "range"] as const;
export type Family = (typeof FAMILIES)[number];

const PATTERNS: [Family, RegExp][] = [
  ["communication", /c10d|ncclKernel|all_?reduce|all_?gather|reduce_scatter|broadcast_coalesced|nccl|gloo/i],
  ["data", /DataLoader|collate|pin_memory/],
  ["optimizer", /^Optimizer\.|_fused_|addcdiv|addcmul|lerp|_foreach/],
  ["attention", /attention|sdpa|flash|fmha/i],
  ["convolution", /conv/i],
  ["matmul", /(^|[^a-z])(ba?d?d?b?mm|addmm|mm|bmm|addmv|mv|dot|matmul|linear|einsum)|gemm|cutlass|cublas|Mm|Addmm|Bmm|Linear/],
  ["normalisation", /norm|softmax/i],
  ["index", /embedding|index|gather|scatter|nll|cross_entropy|nonzero|Embedding|Nll/i],
  ["copy", /[Mm]emcpy|[Mm]emset|copy|clone|contiguous|::to$|_to_copy|::cat|stack|empty|view|reshape|transpose|permute|expand|slice|select|as_strided|detach|::t$|split|zero|fill|View|Transpose|TBackward|Expand|Slice|Select|AccumulateGrad|Clone|ones|full/],
];

export function family(name: string, kind: string): Family {
  const plain = label(name, kind);
  if (/DataLoader/.test(name)) return "data";
  if (/^Optimizer\./.test(name)) return "optimizer";
  if (kind === "module" || kind === "python") return "module";
  if (kind === "range") return "range";
  return PATTERNS.find(([, pattern]) => pattern.test(plain))?.[0] ?? "elementwise";
}

/** A call's name without what torch writes around it. */
export function label(name: string, kind: string): string {
  if (kind === "module") return name.replace(/^nn\.Module: /, "");
  return name.replace(/^autograd::engine::evaluate_function: /, "").replace(/^torch::autograd::/, "");
}

/** The colours of the theme that is on. */
export function colors(): Record<Family | "none" | "ground" | "panel" | "line" | "ink" | "soft" | "accent" | "memory" | "backward", string> {
  const style = getComputedStyle(document.documentElement);
  const names = [...FAMILIES, "none", "ground", "panel", "line", "ink", "soft", "accent", "memory", "backward"] as const;
  return Object.fromEntries(names.map((name) => [name, style.getPropertyValue(`--${name}`).trim()])) as ReturnType<typeof colors>;
}

export function blend(color: string, back: string, part: number): string {
  const rgb = (hex: string) => [1, 3, 5].map((at) => parseInt(hex.slice(at, at + 2), 16));
  const [a, b] = [rgb(color), rgb(back)];
  return `#${a.map((value, at) => Math.round(value * part + b[at] * (1 - part)).toString(16).padStart(2, "0")).join("")}`;
}
