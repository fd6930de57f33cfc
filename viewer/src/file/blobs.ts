/** What an exported page holds: elements of gzipped bytes in base64; see torchreel/web/html/html.py. */

/** Whether this page is such a file. */
export const isFile = typeof document !== "undefined" && document.getElementById("reel-0") !== null;

/** The bytes of a blob. Its element is emptied: they are not needed twice. */
export async function blob(number: number): Promise<Uint8Array> {
  const element = document.getElementById(`reel-${number}`)!;
  const packed = fromBase64(element.textContent ?? "");
  element.textContent = "";
  const stream = new Blob([packed as BlobPart]).stream().pipeThrough(new DecompressionStream("gzip"));
  return new Uint8Array(await new Response(stream).arrayBuffer());
}

export async function json<T>(number: number): Promise<T> {
  return JSON.parse(new TextDecoder().decode(await blob(number))) as T;
}

function fromBase64(text: string): Uint8Array {
  const kind = Uint8Array as unknown as { fromBase64?: (text: string) => Uint8Array };
  if (kind.fromBase64) return kind.fromBase64(text);
  const raw = atob(text);
  const bytes = new Uint8Array(raw.length);
  for (let i = 0; i < raw.length; i++) bytes[i] = raw.charCodeAt(i);
  return bytes;
}
