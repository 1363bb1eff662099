import { type DragEvent, type ReactNode, useState } from "react";
import { Icon } from "../ui/icon.tsx";
import type { Files } from "./files.ts";

/** Files may be dropped anywhere on a conversation. */
export function DropFrame({ files, children }: { files: Files; children: ReactNode }) {
  const [isOver, setOver] = useState(false);
  const has = (event: DragEvent) => event.dataTransfer.types.includes("Files");
  return (
    <main
      className="conversation"
      onDragOver={(event) => {
        if (!has(event)) return;
        event.preventDefault();
        setOver(true);
      }}
      onDragLeave={(event) => !event.currentTarget.contains(event.relatedTarget as Node | null) && setOver(false)}
      onDrop={(event) => {
        if (!has(event)) return;
        event.preventDefault();
        setOver(false);
        files.add(event.dataTransfer.files);
      }}
    >
      {children}
      {isOver && (
        <div className="drop" aria-hidden="true">
          <Icon name="clip" size={24} /> Drop files to attach them
        </div>
      )}
    </main>
  );
}
