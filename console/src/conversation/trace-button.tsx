import { navigate } from "../route.ts";
import { select } from "../selection.ts";
import { Icon } from "../ui/icon.tsx";

/** Shows the step of a call, or of a reply, in the trace. */
export function TraceButton({ reply, call, name }: { reply: string; call: string; name: string }) {
  return (
    <button
      type="button"
      className="icon-button trace-button"
      aria-label={`Show ${name} in the trace`}
      title="Show in the trace"
      onClick={() => {
        select({ from: 0, to: 0, reply, call, by: "conversation" });
        navigate({ pane: "trace" });
      }}
    >
      <Icon name="trace" size={14} />
    </button>
  );
}
