// Attached files: uploaded at once, named in the message when it is sent.
import { useCallback, useMemo, useRef, useState } from "react";
import { client, explain } from "../client.ts";

export interface Attached {
  key: number;
  file: File;
  state: "uploading" | "ready" | "failed";
  url?: string;
  why?: string;
}

export interface Files {
  list: readonly Attached[];
  add(files: Iterable<File>): void;
  remove(key: number): void;
  clear(): void;
  /** Puts back files that could not be sent. */
  restore(list: readonly Attached[]): void;
}

export function useFiles(): Files {
  const [list, setList] = useState<readonly Attached[]>([]);
  const keys = useRef(0);
  const change = useCallback((key: number, with_: Partial<Attached>) => {
    setList((before) => before.map((it) => (it.key === key ? { ...it, ...with_ } : it)));
  }, []);
  const add = useCallback(
    (files: Iterable<File>) => {
      for (const file of files) {
        const key = (keys.current += 1);
        setList((before) => [...before, { key, file, state: "uploading" }]);
        client.upload(file, file.type || "application/octet-stream").then(
          ({ url }) => change(key, { state: "ready", url }),
          (error: unknown) => change(key, { state: "failed", why: explain(error).message }),
        );
      }
    },
    [change],
  );
  const remove = useCallback((key: number) => setList((before) => before.filter((it) => it.key !== key)), []);
  const clear = useCallback(() => setList([]), []);
  const restore = useCallback((list: readonly Attached[]) => setList((now) => [...list, ...now]), []);
  return useMemo(() => ({ list, add, remove, clear, restore }), [list, add, remove, clear, restore]);
}
