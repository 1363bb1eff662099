import { StrictMode } from "react";
import { createRoot } from "react-dom/client";
import "./theme.css";
import { App, prepare } from "./app.tsx";

const root = document.getElementById("root");
if (root !== null) {
  prepare();
  createRoot(root).render(
    <StrictMode>
      <App />
    </StrictMode>,
  );
}
