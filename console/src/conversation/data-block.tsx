// Bytes: pictures, sound, films, and files to save.
import { memo, useEffect, useState } from "react";
import type { DataBlock } from "turnwire/message";
import { BASE, explain, token, useToken } from "../client.ts";
import { Icon } from "../ui/icon.tsx";
import { Picture } from "../ui/picture.tsx";
import { visible } from "./json.ts";
import { blobPath, safeHref } from "./markdown/safe-urls.ts";

export const Data = memo(function Data({ block, growing = false }: { block: DataBlock; growing?: boolean }) {
  const { source, name } = block;
  const media = source.media_type ?? (block.type === "data" ? "" : `${block.type}/*`);
  const url = useSource(block, growing);
  const label = visible(name || media || "file");
  const kind = media.split("/", 1)[0];
  if (growing)
    return (
      <p className="data-wait">
        <bdi>{label}</bdi>: {size(source)} so far
      </p>
    );
  if (url.state === "outside") {
    return (
      <p className="file">
        <Icon name="file" />
        {url.href === null ? (
          <bdi>{label}</bdi>
        ) : (
          <a href={url.href} target="_blank" rel="noopener noreferrer">
            <bdi>{label}</bdi>
          </a>
        )}
        <span className="dim">On another server, not loaded</span>
      </p>
    );
  }
  if (url.state === "failed")
    return (
      <p className="file">
        <Icon name="file" /> <bdi>{label}</bdi> <span className="dim">{url.why}</span>
      </p>
    );
  if (url.state === "loading")
    return (
      <p className="data-wait">
        <bdi>{label}</bdi>: loading
      </p>
    );
  if (kind === "image" && !media.includes("svg")) {
    return (
      <figure className="picture">
        <Picture src={url.url} alt={name || "image"} />
        <figcaption>
          {name && <bdi>{visible(name)}</bdi>} <span>{media}</span>{" "}
          <a href={url.url} download={name || "image"}>
            Save
          </a>
        </figcaption>
      </figure>
    );
  }
  if (kind === "audio") return <audio controls src={url.url} aria-label={label} />;
  if (kind === "video") return <video controls src={url.url} aria-label={label} />;
  return (
    <p className="file">
      <Icon name="file" />
      <a href={url.url} download={name || "file"}>
        <bdi>{label}</bdi>
      </a>
      <span className="dim">{size(source)}</span>
    </p>
  );
});

type Url =
  | { state: "ready"; url: string }
  | { state: "loading" }
  | { state: "outside"; href: string | null }
  | { state: "failed"; why: string };

/** Where the bytes can be had from. A blob is asked for in the name of who signed in, which an element cannot do. */
function useSource({ source }: DataBlock, growing: boolean): Url {
  const path = source.type === "url" ? blobPath(source.url) : null;
  const isSigned = useToken() !== "";
  const [fetched, setFetched] = useState<Url>({ state: "loading" });
  useEffect(() => {
    if (path === null || !isSigned) return;
    const stop = new AbortController();
    let made: string | null = null;
    fetch(`${BASE}/${path}`, { headers: { authorization: `Bearer ${token()}` }, signal: stop.signal })
      .then(async (answer) => {
        if (!answer.ok) throw new Error(`The server answered with status ${answer.status}.`);
        made = URL.createObjectURL(await answer.blob());
        if (stop.signal.aborted) URL.revokeObjectURL(made);
        else setFetched({ state: "ready", url: made });
      })
      .catch(
        (error: unknown) =>
          !stop.signal.aborted &&
          setFetched({ state: "failed", why: `Could not be loaded: ${explain(error).message}` }),
      );
    return () => {
      stop.abort();
      if (made !== null) URL.revokeObjectURL(made);
    };
  }, [path, isSigned]);
  if (source.type === "base64")
    return { state: "ready", url: growing ? "" : `data:${plain(source.media_type)};base64,${source.data}` };
  if (path !== null) return isSigned ? fetched : { state: "ready", url: path };
  if (source.type === "url" && source.url.startsWith("data:")) return { state: "ready", url: source.url };
  return { state: "outside", href: source.type === "url" ? safeHref(source.url) : null };
}

/** A media type that cannot be read as more than one. */
function plain(media: string | undefined): string {
  return media !== undefined && /^[\w.+-]+\/[\w.+-]+$/.test(media) ? media : "application/octet-stream";
}

function size(source: DataBlock["source"]): string {
  return source.type === "base64" ? formatBytes(Math.floor((source.data.length * 3) / 4)) : "";
}

export function formatBytes(n: number): string {
  if (n < 1024) return `${n} B`;
  if (n < 1024 * 1024) return `${Math.round(n / 1024)} KiB`;
  return `${(n / 1024 / 1024).toFixed(1)} MiB`;
}
