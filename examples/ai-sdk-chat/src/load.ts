import { APICallError, type UIMessage } from "ai";

/** The messages of a chat as Turnwire has them. Waits until the server can be reached. */
export async function load(id: string): Promise<UIMessage[]> {
  for (;;) {
    const response = await fetch(`/v1/sessions/${id}/messages?wire=ai-sdk&limit=500`).catch(() => null);
    if (response?.ok) return (await response.json()).messages;
    // The first message creates the session.
    if (response?.status === 404) return [];
    if (response && response.status < 500) throw new Error(await response.text());
    await new Promise((resolve) => setTimeout(resolve, 500));
  }
}

/** Whether the connection was lost or not made. Other errors are those of a reply, or Turnwire refused the request. */
export const isLost = (error?: Error) =>
  error instanceof TypeError || (APICallError.isInstance(error) && (error.statusCode ?? 500) >= 500);
