// What concerns all conversations: the overview, importing a log, notifications.
import { useRef, useState } from "react";
import { useCan } from "../me.ts";
import { canNotify, setNotifies, useNotifies } from "../notifications.ts";
import { navigate } from "../route.ts";
import { Dialog } from "../ui/dialog.tsx";
import { Menu } from "../ui/menu.tsx";
import { Problem } from "../ui/state.tsx";
import { refreshSessions } from "./store.ts";

export function More() {
  const [error, setError] = useState<unknown>(null);
  const picker = useRef<HTMLInputElement>(null);
  const canPublish = useCan("publish");
  const notifies = useNotifies();
  const load = async (file: File) => {
    const { importLog } = await import("../share/export.ts");
    const id = await importLog(await file.text(), file.name.replace(/\.\w+$/, ""));
    refreshSessions();
    navigate({ session: id, at: null });
  };
  return (
    <>
      <Menu
        label="More"
        entries={[
          {
            name: "Overview",
            icon: "trace",
            run: () => navigate({ session: null, at: null, pane: null, page: "overview" }),
          },
          ...(canPublish ? [{ name: "Import events", icon: "file" as const, run: () => picker.current?.click() }] : []),
          ...(canNotify()
            ? [
                {
                  name: notifies ? "Turn notifications off" : "Notify me of questions",
                  icon: "bolt" as const,
                  run: () => void setNotifies(!notifies),
                },
              ]
            : []),
        ]}
      />
      <input
        ref={picker}
        type="file"
        accept=".ndjson,.jsonl,application/x-ndjson"
        aria-label="Log to import"
        hidden
        onChange={({ target }) => {
          const [file] = target.files ?? [];
          if (file !== undefined) load(file).catch(setError);
          target.value = "";
        }}
      />
      {error !== null && (
        <Dialog title="Import failed" onClose={() => setError(null)}>
          <Problem error={error} />
        </Dialog>
      )}
    </>
  );
}
