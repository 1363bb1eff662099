// Icons as inline SVG, so that nothing is fetched: 16 by 16, one stroke.
const PATHS = {
  plus: "M8 3v10M3 8h10",
  copy: "M6 6h7v7H6zM3 10V3h7",
  check: "M3 8.5l3.5 3.5L13 4.5",
  close: "M4 4l8 8M12 4l-8 8",
  more: "M3.5 8h.01M8 8h.01M12.5 8h.01",
  back: "M10 3L5 8l5 5",
  right: "M6 3l5 5-5 5",
  down: "M3 6l5 5 5-5",
  send: "M8 13V3M4 7l4-4 4 4",
  stop: "M4.5 4.5h7v7h-7z",
  clip: "M12.5 7.5l-5 5a3 3 0 01-4.2-4.2l5.5-5.5a2 2 0 012.8 2.8l-5.3 5.4a1 1 0 01-1.4-1.4l4.6-4.7",
  retry: "M13 8a5 5 0 11-1.5-3.6M13 2v3h-3",
  fork: "M4.5 3v10M4.5 9c5 0 7-1 7-4M11.5 5V3",
  file: "M4 2h5l3 3v9H4zM9 2v3h3",
  pen: "M3 13l.6-2.8L11 2.8l2.2 2.2-7.4 7.4z",
  trash: "M3 4.5h10M6 4.5V3h4v1.5M4.5 4.5l.5 9h6l.5-9",
  save: "M8 3v7M5 7.5l3 3 3-3M3 13h10",
  search: "M7 11.5a4.5 4.5 0 110-9 4.5 4.5 0 010 9zM10.5 10.5L14 14",
  sun: "M8 5.2a2.8 2.8 0 110 5.6 2.8 2.8 0 010-5.6zM8 1.2v1.4M8 13.4v1.4M1.2 8h1.4M13.4 8h1.4M3.2 3.2l1 1M11.8 11.8l1 1M3.2 12.8l1-1M11.8 4.2l1-1",
  moon: "M13 9.5A5.5 5.5 0 016.5 3a5.5 5.5 0 106.5 6.5z",
  auto: "M8 2.5a5.5 5.5 0 110 11zM8 2.5a5.5 5.5 0 100 11",
  keys: "M2 4.5h12v7H2zM4.5 7h.01M7 7h.01M9.5 7h.01M12 7h.01M5 9.3h6",
  link: "M6.5 9.5l3-3M7 4.5l1.5-1.5a2.8 2.8 0 014 4L11 8.5M9 11.5L7.5 13a2.8 2.8 0 01-4-4L5 7.5",
  trace: "M2.5 4h6M5 8h6M7.5 12h6",
  play: "M5 3.5l7 4.5-7 4.5z",
  pause: "M5.5 3.5v9M10.5 3.5v9",
  pin: "M9.5 2.5l4 4-3 1-2.5 3-3-3 3-2.5zM6 10l-3.5 3.5",
  bolt: "M9 2L4 9h4l-1 5 5-7H8z",
} as const;

export type IconName = keyof typeof PATHS;

export function Icon({ name, size = 16 }: { name: IconName; size?: number }) {
  return (
    <svg className="icon" width={size} height={size} viewBox="0 0 16 16" aria-hidden="true" focusable="false">
      <path
        d={PATHS[name]}
        fill="none"
        stroke="currentColor"
        strokeWidth="1.5"
        strokeLinecap="round"
        strokeLinejoin="round"
      />
    </svg>
  );
}
