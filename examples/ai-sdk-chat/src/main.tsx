import { StrictMode } from "react";
import { createRoot } from "react-dom/client";
import { Chat } from "./chat";
import { load } from "./load";

// The id of the chat is in the address: a reload continues it. It is the Turnwire session.
const id = location.hash.slice(1) || crypto.randomUUID();
history.replaceState(null, "", `#${id}`);
addEventListener("hashchange", () => location.reload());

const messages = await load(id);
createRoot(document.getElementById("root")!).render(
  <StrictMode>
    <Chat id={id} stored={messages} />
  </StrictMode>,
);
