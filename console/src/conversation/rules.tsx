// The rules that were accepted in a session: which calls run without a question, and how to take that back.
import { useState } from "react";
import type { PermissionRule } from "turnwire/message";
import { client } from "../client.ts";
import { useCan } from "../me.ts";
import { Dialog } from "../ui/dialog.tsx";
import { Problem } from "../ui/state.tsx";
import type { Decided } from "./decisions.ts";
import { describeRule } from "./rule.ts";

export function Rules({ session, decided }: { session: string; decided: Decided }) {
  const [isOpen, setOpen] = useState(false);
  const [error, setError] = useState<unknown>(null);
  const canRevoke = useCan("approve");
  const { rules, refresh } = decided;
  const revoke = (rule: PermissionRule) => {
    setError(null);
    client.session(session).revoke(rule).then(refresh, setError);
  };
  if (rules.length === 0 && !isOpen) return null;
  return (
    <>
      <button type="button" className="link rules-open" onClick={() => setOpen(true)}>
        {rules.length === 1 ? "1 rule" : `${rules.length} rules`}
      </button>
      {isOpen && (
        <Dialog title="Accepted rules" onClose={() => setOpen(false)}>
          <p className="dim">
            Calls that a rule covers run without a question in this session. A revoked rule stops applying when the next
            reply starts; calls that already ran are not undone.
          </p>
          {error !== null && <Problem error={error} />}
          {rules.length === 0 && <p>No rules: every call that needs an approval asks for it.</p>}
          <ul className="rules-list">
            {rules.map((rule) => (
              <li key={describeRule(rule)}>
                <span>{describeRule(rule)}</span>
                {canRevoke && (
                  <button
                    type="button"
                    className="button small bad"
                    aria-label={`Revoke: ${describeRule(rule)}`}
                    onClick={() => revoke(rule)}
                  >
                    Revoke
                  </button>
                )}
              </li>
            ))}
          </ul>
        </Dialog>
      )}
    </>
  );
}
