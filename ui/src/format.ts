// Numbers, times and names as texts for people.

const NONE = "–";

/** Formats a count or rate with three significant digits: `20.1 k`. */
export function short(value: number | null | undefined): string {
  if (value === null || value === undefined || !Number.isFinite(value)) return NONE;
  const size = Math.abs(value);
  if (size < 1_000) return trimmed(size < 10 ? value.toFixed(1) : value.toFixed(0));
  for (const [unit, factor] of [["k", 1e3], ["M", 1e6], ["G", 1e9], ["T", 1e12]] as const) {
    if (size < factor * 999.5) return `${(value / factor).toPrecision(3)} ${unit}`;
  }
  return value.toExponential(2);
}

function trimmed(text: string): string {
  return text.endsWith(".0") ? text.slice(0, -2) : text;
}

export function rate(value: number | null | undefined): string {
  const text = short(value);
  return text === NONE ? NONE : `${text}/s`;
}

export function bytes(value: number | null | undefined): string {
  if (value === null || value === undefined) return NONE;
  const units = ["B", "KiB", "MiB", "GiB", "TiB"];
  let size = value;
  let unit = 0;
  while (Math.abs(size) >= 1_024 && unit < units.length - 1) {
    size /= 1_024;
    unit += 1;
  }
  return `${unit === 0 || size >= 100 ? size.toFixed(0) : size.toPrecision(3)} ${units[unit]}`;
}

export function percent(share: number | null | undefined): string {
  if (share === null || share === undefined) return NONE;
  return `${Math.round(Math.min(Math.max(share, 0), 1) * 100)} %`;
}

/** Formats a duration in seconds with a suitable unit. */
export function seconds(value: number | null | undefined): string {
  if (value === null || value === undefined || !Number.isFinite(value)) return NONE;
  const size = Math.abs(value);
  if (size === 0) return "0 s";
  if (size < 0.001) return `${(value * 1e6).toFixed(0)} µs`;
  if (size < 1) return `${(value * 1e3).toPrecision(3)} ms`;
  if (size < 60) return `${value.toFixed(1)} s`;
  if (size < 3_600) return `${Math.floor(value / 60)} min ${Math.floor(value % 60)} s`;
  if (size < 86_400) return `${Math.floor(value / 3_600)} h ${Math.floor((value % 3_600) / 60)} min`;
  if (size < 86_400 * 1_000) return `${Math.floor(value / 86_400)} d ${Math.floor((value % 86_400) / 3_600)} h`;
  return `${(value / (86_400 * 365)).toFixed(1)} years`;
}

export function ms(value: number | null | undefined): string {
  return value === null || value === undefined ? NONE : seconds(value / 1_000);
}

const clock = new Intl.DateTimeFormat(undefined, { hour: "2-digit", minute: "2-digit", second: "2-digit", hour12: false });
const day = new Intl.DateTimeFormat(undefined, { day: "numeric", month: "short", year: "numeric" });

/** Formats a time of today as a clock time, other times with their day. */
export function time(atMs: number, now = Date.now()): string {
  const at = new Date(atMs);
  const text = clock.format(at);
  return new Date(now).toDateString() === at.toDateString() ? text : `${day.format(at)}, ${text}`;
}

export function plural(count: number, one: string): string {
  return `${count} ${one}${count === 1 ? "" : "s"}`;
}

/** Shortens a text to `most` characters, with an ellipsis. */
export function shortened(text: string, most: number): string {
  const characters = Array.from(text);
  return characters.length <= most ? text : `${characters.slice(0, most - 1).join("")}…`;
}
