/** Areas that were kept under a name, in the URL: marks=begin-end:name,begin-end:name */
export type Mark = { begin: number; end: number; name: string };

export function readMarks(text: string | undefined): Mark[] {
  return (text ?? "").split(",").flatMap((word) => {
    const found = /^(\d+)-(\d+):(.*)$/.exec(word);
    if (!found) return [];
    let name = found[3];
    try { name = decodeURIComponent(name); } catch { /* as it is */ }
    return [{ begin: Number(found[1]), end: Number(found[2]), name }];
  });
}

export const writeMarks = (marks: Mark[]): string => marks.map(({ begin, end, name }) => `${begin}-${end}:${encodeURIComponent(name)}`).join(",");
