import { useState } from "react";
import { Dialog } from "./dialog.tsx";

/** A picture that opens large. */
export function Picture({ src, alt }: { src: string; alt: string }) {
  const [isLarge, setLarge] = useState(false);
  return (
    <>
      <button type="button" className="picture-open" aria-label={`Open ${alt} large`} onClick={() => setLarge(true)}>
        <img src={src} alt={alt} />
      </button>
      {isLarge && (
        <Dialog title={alt} isLarge onClose={() => setLarge(false)}>
          <img className="picture-large" src={src} alt={alt} />
        </Dialog>
      )}
    </>
  );
}
