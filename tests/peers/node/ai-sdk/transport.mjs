// How an application reaches a server. The page docs/ai-sdk.md shows this class.
import { DefaultChatTransport } from "ai";

export class TurnwireTransport extends DefaultChatTransport {
  // Ends the reply. Its stream then ends by itself, with everything in it closed.
  async stop(chatId) {
    const headers = typeof this.headers === "function" ? await this.headers() : await this.headers;
    const url = `${this.api}/${encodeURIComponent(chatId)}/stop`;
    return (this.fetch ?? fetch)(url, { method: "POST", headers, keepalive: true });
  }

  // `stop()` of a chat closes the connection, and that alone stops no reply.
  async sendMessages(options) {
    await this.stopping;
    const { abortSignal, chatId } = options;
    abortSignal?.addEventListener("abort", () => (this.stopping = this.stop(chatId)));
    return super.sendMessages(options);
  }
}
