import { StrictMode } from "react";
import { createRoot } from "react-dom/client";
import { newId } from "turnwire/react";
import { Chat, client } from "./chat";

// The server refuses something, cannot be reached, or somebody else has answered first.
addEventListener("unhandledrejection", ({ reason }) => alert(reason));

// The id of the session is in the address: a reload continues it, and whoever has the link follows it live.
const id = location.hash.slice(1) || newId();
history.replaceState(null, "", `#${id}`);
addEventListener("hashchange", () => location.reload());

const root = createRoot(document.getElementById("root")!);
const chat = (
  <StrictMode>
    <Chat id={id} />
  </StrictMode>
);
// Returns the session if it exists.
void client.create({ id }).then(() => root.render(chat));
