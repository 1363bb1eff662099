import { StrictMode } from "react";
import { createRoot } from "react-dom/client";
import "./theme.css";
import { App, preloadRoute } from "./app.tsx";

const root = document.getElementById("root");
if (root !== null) {
  preloadRoute();
  createRoot(root).render(
    <StrictMode>
      <App />
    </StrictMode>,
  );
}
