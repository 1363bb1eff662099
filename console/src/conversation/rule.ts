// Rules that a person may accept along with a call.
import type { PermissionRule } from "turnwire/message";
import { visible } from "./json.ts";

/** What a rule covers, in words: the server's, where it sends them. */
export function describeRule(rule: PermissionRule): string {
  const { description } = rule as PermissionRule & { description?: unknown };
  if (typeof description === "string" && description) return visible(description);
  const { tool_name, rule_content, behavior } = rule;
  return visible(
    `Always ${behavior} ${rule_content ? `${tool_name} for ${rule_content}` : `every call of ${tool_name}`}`,
  );
}
