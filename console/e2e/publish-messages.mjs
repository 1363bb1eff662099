/** A session whose messages an external agent publishes. */
export async function publishMessages(server, id, messages) {
  await server.ask("POST", "/v1/sessions", { id, agent: "external", title: id });
  const events = messages.map(({ role, text, at = Date.now(), content }, n) => {
    const time = new Date(at).toISOString();
    const blocks = content ?? [{ type: "text", id: `t${n}`, text }];
    const message = { id: `m${n}`, name: role === "user" ? "user" : "friday", role, content: blocks, created_at: time };
    return { type: "MESSAGE", id: `e${n}`, created_at: time, message: { ...message, finished_at: time } };
  });
  await server.ask("POST", `/v1/sessions/${id}/events`, events, { "turnwire-producer": "tests.1" });
}
