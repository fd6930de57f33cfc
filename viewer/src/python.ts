/** Python source in parts that have colours of their own, line by line. Only looks: what is not understood is plain. */

export type Kind = "" | "comment" | "string" | "keyword" | "number" | "defined";
export type Part = [kind: Kind, text: string];

const KEYWORDS = new Set(
  "False None True and as assert async await break class continue def del elif else except finally for from global if import in is lambda match nonlocal not or pass raise return self try while with yield".split(" "),
);
// Each is tried at a place once, and none looks back. A string that never ends goes on until the end.
const TOKENS = new RegExp(
  [
    String.raw`(?<comment>#[^\n]*)`,
    String.raw`(?<string>(?:\b[rRbBuUfF]{1,2})?(?:"""(?:[^\\]|\\[^])*?(?:"""|$)|'''(?:[^\\]|\\[^])*?(?:'''|$)|"(?:[^"\\\n]|\\[^])*?(?:"|$|(?=\n))|'(?:[^'\\\n]|\\[^])*?(?:'|$|(?=\n))))`,
    String.raw`(?<word>[A-Za-z_]\w*)`,
    String.raw`(?<number>\d[\w.]*)`,
  ].join("|"),
  "g",
);
/** Beyond this a file is plain. */
const MOST = 1 << 19;

/** Lines end as Python ends them; nothing after the last end is no line. */
export function colored(text: string): Part[][] {
  const lines: Part[][] = [[]];
  const add = (kind: Kind, part: string) => {
    part.split("\n").forEach((line, at) => {
      if (at) lines.push([]);
      if (line) lines[lines.length - 1].push([kind, line]);
    });
  };
  const whole = text.replaceAll(/\r\n?/g, "\n");
  let done = 0;
  let before = "";
  for (const found of whole.length > MOST ? [] : whole.matchAll(TOKENS)) {
    const [part] = found;
    const { comment, string, word } = found.groups!;
    const kind = comment ? "comment" : string ? "string" : !word ? "number" : KEYWORDS.has(word) ? "keyword" : before === "def" || before === "class" ? "defined" : "";
    before = word ?? "";
    if (!kind) continue;
    add("", whole.slice(done, found.index));
    add(kind, part);
    done = found.index + part.length;
  }
  add("", whole.slice(done));
  if (lines.length > 1 && !lines[lines.length - 1].length) lines.pop();
  return lines;
}
