import { type DragEvent, type ReactNode, useState } from "react";
import { useCan } from "../me.ts";
import { Icon } from "../ui/icon.tsx";
import type { Files } from "./files.ts";

/** Files may be dropped anywhere on a conversation, by whoever may write. */
export function DropFrame({ files, children }: { files: Files; children: ReactNode }) {
  const [isOver, setOver] = useState(false);
  const canChat = useCan("chat");
  const has = (event: DragEvent) => canChat && event.dataTransfer.types.includes("Files");
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
