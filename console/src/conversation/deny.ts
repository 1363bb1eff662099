import type { Asking } from "turnwire";
import { client } from "../client.ts";

/** Denies a call, with a reason for the agent. */
export function deny(session: string, { reply_id, tool_call }: Asking, reason: string): Promise<void> {
  const no = {
    confirmed: false,
    tool_call: { id: tool_call.id },
    ...(reason.trim() !== "" && { message: reason.trim() }),
  };
  return client.session(session).say({ type: "USER_CONFIRM_RESULT", reply_id, confirm_results: [no] });
}
