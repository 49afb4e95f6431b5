// Small parts of all views.

import type { ComponentChildren } from "preact";
import { useEffect, useRef, useState } from "preact/hooks";
import type { RequestError } from "../api/client";
import type { Phase } from "../api/types";
import { percent, shortened } from "../format";
import type { Connection } from "../live";

/** A name from outside: isolated from the direction of the surrounding text, and never wider than its place. */
export function Name({ text, most = 200 }: { text: string; most?: number }) {
  return (
    <bdi class="name" title={shortened(text, 1_000)}>
      {shortened(text, most)}
    </bdi>
  );
}

const PHASE_TONES: Record<Phase, string> = {
  reading: "busy",
  impossible: "bad",
  starting: "busy",
  running: "good",
  paused: "muted",
  recovering: "warn",
  updating: "busy",
  finished: "muted",
  safe_mode: "bad",
  killing: "warn",
  gone: "muted",
};

export function PhaseBadge({ phase }: { phase: Phase }) {
  return <Badge tone={PHASE_TONES[phase] ?? "muted"}>{phase.replace("_", " ")}</Badge>;
}

export function Badge({ tone, children }: { tone: string; children: ComponentChildren }) {
  return <span class={`badge ${tone}`}>{children}</span>;
}

/** A share from 0 to 1 as a bar with its number. */
export function Meter({ share, label, tone }: { share: number | null; label: string; tone: string }) {
  return (
    <span class="meter" role="img" aria-label={`${label} ${percent(share)}`}>
      <span class="track">
        <span class={`fill ${tone}`} style={{ width: `${Math.min(Math.max(share ?? 0, 0), 1) * 100}%` }} />
      </span>
      <span class="number">{percent(share)}</span>
    </span>
  );
}

/** Returns the tone of a share of time that a step works. */
export function busyTone(share: number | null): string {
  if (share === null) return "muted";
  return share >= 0.9 ? "bad" : share >= 0.6 ? "warn" : "good";
}

export function ErrorBox({ error, children }: { error: RequestError; children?: ComponentChildren }) {
  return (
    <div class="error-box" role="alert">
      <p>
        {error.code !== "" && <code>{error.code}</code>} {error.message}
      </p>
      {error.hint !== null && <p class="hint">{error.hint}</p>}
      {children}
    </div>
  );
}

export function Empty({ children }: { children: ComponentChildren }) {
  return <div class="empty">{children}</div>;
}

/** Placeholder of the same height as the content that is being loaded. */
export function Loading({ what }: { what: string }) {
  return (
    <div class="loading" role="status">
      loading {what} …
    </div>
  );
}

export function Figure({ label, value, note, tone }: { label: string; value: string; note?: string; tone?: string }) {
  return (
    <div class={`figure ${tone ?? ""}`}>
      <dt>{label}</dt>
      <dd>
        {value}
        {note !== undefined && <small>{note}</small>}
      </dd>
    </div>
  );
}

/** Says that the shown figures are old, while the server cannot be reached. */
export function ConnectionBar({ connection }: { connection: Connection }) {
  const isBroken = connection.is === "broken" && !connection.error.isUnauthorized;
  return (
    <div class="connection" aria-live="assertive" role="status">
      {isBroken && (
        <p class="lost">
          <strong>No connection.</strong> {connection.error.message}. The figures are those of before; trying again …
        </p>
      )}
    </div>
  );
}

/** A wide table, which is scrolled within its place. With the keyboard too, if there is need. */
export function Scroll({ children }: { children: ComponentChildren }) {
  const place = useRef<HTMLDivElement>(null);
  const [isCut, setCut] = useState(false);
  useEffect(() => {
    const element = place.current;
    if (element === null) return undefined;
    const observer = new ResizeObserver(() => setCut(element.scrollWidth > element.clientWidth));
    observer.observe(element);
    if (element.firstElementChild !== null) observer.observe(element.firstElementChild);
    return () => observer.disconnect();
  }, []);
  return (
    <div class="scroll" ref={place} {...(isCut ? { tabIndex: 0, role: "group", "aria-label": "table" } : {})}>
      {children}
    </div>
  );
}
