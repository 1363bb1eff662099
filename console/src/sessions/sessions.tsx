export function Sessions({ selected }: { selected: string | null }) {
  return <nav aria-label="Sessions">{selected}</nav>;
}
