// Which URLs untrusted text may contain: pages that open in a new tab, and images that are already here.

/** The target of a link; `null` if it is not allowed. */
export function safeHref(href: string): string | null {
  let url: URL;
  try {
    url = new URL(href);
  } catch {
    return null;
  }
  return ["http:", "https:", "mailto:"].includes(url.protocol) ? url.href : null;
}

/** What can be shown without a request to another host: data URLs and blobs of this server. */
export function shownSource(url: string): string | null {
  if (/^data:(?:image\/(?!svg)|audio\/|video\/)/i.test(url)) return url;
  return blobPath(url);
}

/** The path of a blob of this server, whatever host its URL names. */
export function blobPath(url: string): string | null {
  const id = /^(?:https?:\/\/[^/?#]+(?:\/[^?#]*)?)?\/v1\/blobs\/([0-9a-f]{64})$/.exec(url)?.[1];
  return id === undefined ? null : `./v1/blobs/${id}`;
}

const NAMED: Record<string, string> = {
  amp: "&",
  lt: "<",
  gt: ">",
  quot: '"',
  apos: "'",
  nbsp: "\u00a0",
  copy: "©",
  reg: "®",
  trade: "™",
  deg: "°",
  euro: "€",
  pound: "£",
  hellip: "…",
  mdash: "—",
  ndash: "–",
  middot: "·",
  bull: "•",
  times: "×",
  laquo: "«",
  raquo: "»",
  larr: "←",
  rarr: "→",
  le: "≤",
  ge: "≥",
  ne: "≠",
};

/** Character references as the characters that they are; unknown ones stay. */
export function decode(text: string): string {
  if (!text.includes("&")) return text;
  return text.replaceAll(
    /&(?:#(\d{1,7})|#[xX]([0-9a-fA-F]{1,6})|([a-zA-Z]+));/g,
    (whole, dec?: string, hex?: string, name?: string) => {
      if (name !== undefined) return Object.hasOwn(NAMED, name) ? NAMED[name]! : whole;
      const code = dec === undefined ? Number.parseInt(hex ?? "", 16) : Number.parseInt(dec, 10);
      return code > 0 && code <= 0x10ffff && !(code >= 0xd800 && code <= 0xdfff)
        ? String.fromCodePoint(code)
        : "\ufffd";
    },
  );
}
