// Which words two texts share: the longest common sequence, for texts that people compare.

export interface Part {
  text: string;
  kind: "same" | "removed" | "added";
}

/** Beyond this the texts are compared line by line. */
const MAX_WORDS = 1500;

export function diff(before: string, now: string): Part[] {
  const split = (text: string, pattern: RegExp) => text.split(pattern).filter((part) => part !== "");
  let [a, b] = [split(before, /(\s+)/), split(now, /(\s+)/)];
  if (a.length > MAX_WORDS || b.length > MAX_WORDS) [a, b] = [split(before, /(?<=\n)/), split(now, /(?<=\n)/)];
  if (a.length > MAX_WORDS || b.length > MAX_WORDS)
    return [
      { text: before, kind: "removed" },
      { text: now, kind: "added" },
    ];
  const width = b.length + 1;
  const lengths = new Uint16Array((a.length + 1) * width);
  for (let i = a.length - 1; i >= 0; i--)
    for (let j = b.length - 1; j >= 0; j--)
      lengths[i * width + j] =
        a[i] === b[j]
          ? (lengths[(i + 1) * width + j + 1] ?? 0) + 1
          : Math.max(lengths[(i + 1) * width + j] ?? 0, lengths[i * width + j + 1] ?? 0);
  const parts: Part[] = [];
  const add = (text: string, kind: Part["kind"]) => {
    const last = parts.at(-1);
    if (last?.kind === kind) last.text += text;
    else parts.push({ text, kind });
  };
  let [i, j] = [0, 0];
  while (i < a.length || j < b.length) {
    if (i < a.length && j < b.length && a[i] === b[j]) {
      add(a[i] ?? "", "same");
      i += 1;
      j += 1;
    } else if (
      j >= b.length ||
      (i < a.length && (lengths[(i + 1) * width + j] ?? 0) >= (lengths[i * width + j + 1] ?? 0))
    ) {
      add(a[i] ?? "", "removed");
      i += 1;
    } else {
      add(b[j] ?? "", "added");
      j += 1;
    }
  }
  return parts;
}
