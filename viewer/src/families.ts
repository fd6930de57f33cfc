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

const known = new Map<string, Family>();

export function family(name: string, kind: string): Family {
  const key = `${kind} ${name}`;
  let found = known.get(key);
  if (!found) known.set(key, (found = matched(name, kind)));
  return found;
}

function matched(name: string, kind: string): Family {
  const plain = label(name, kind);
  if (/DataLoader/.test(name)) return "data";
  if (/^Optimizer\./.test(name)) return "optimizer";
  if (kind === "module" || kind === "python") return "module";
  if (kind === "range") return "range";
  return PATTERNS.find(([, pattern]) => pattern.test(plain))?.[0] ?? "elementwise";
}

const ENGINE = "autograd::engine::evaluate_function: ";

/** A call's name without what torch writes around it; of a module with which one it is: mlp: Sequential. */
export function label(name: string, kind: string, module = ""): string {
  if (kind === "module") {
    const of = name.replace(/^nn\.Module: /, "");
    return module && module !== of ? `${module}: ${of}` : of; // the outermost has the name of its class
  }
  return (isEngine(name) ? name.slice(ENGINE.length) : name).replace(/^torch::autograd::/, "");
}

/** The label of a call whose kind is not told, by its name alone. */
export const labelOf = (name: string): string => label(name, name.startsWith("nn.Module: ") ? "module" : "op");

/** Whether a call is autograd's engine around a backward node, which has the same label. */
export const isEngine = (name: string): boolean => name.startsWith(ENGINE);

/** The label as it stands in a box, with the mark of backward. */
export const boxLabel = (name: string, kind: string, module = ""): string => `${label(name, kind, module)}${isEngine(name) ? " ↩" : ""}`;

/** The end of a module's path that its calls are labelled with: of layers.0 both parts. */
export const lastOf = (path: string): string => /[^.]+(\.\d+)?$/.exec(path)?.[0] ?? "";

/** What a label is shortened to before it is cut: aten::mm is mm. */
export const withoutSpace = (text: string): string => text.replace(/^[A-Za-z_]\w*::(?=\w)/, "");

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
