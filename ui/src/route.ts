// The route of the page: the fragment of its address, so that the page works below any path.

import { useEffect, useState } from "preact/hooks";

export type Route =
  | { view: "jobs" }
  | { view: "job"; job: string; tab: string; step: string | null }
  | { view: "history"; job: string }
  | { view: "cluster" }
  | { view: "maps"; map: string | null };

export function parseRoute(fragment: string): Route {
  const [path = "", query = ""] = fragment.replace(/^#\/?/, "").split("?", 2);
  const [view, name, tab] = path.split("/").map(decoded);
  const step = new URLSearchParams(query).get("step");
  switch (view) {
    case "jobs":
      return name ? { view: "job", job: name, tab: tab || "graph", step } : { view: "jobs" };
    case "history":
      return name ? { view: "history", job: name } : { view: "jobs" };
    case "cluster":
      return { view: "cluster" };
    case "maps":
      return { view: "maps", map: name || null };
    default:
      return { view: "jobs" };
  }
}

function decoded(part: string): string {
  try {
    return decodeURIComponent(part);
  } catch {
    return part;
  }
}

export function jobLink(job: string, tab = "graph", step: string | null = null): string {
  const query = step === null ? "" : `?step=${encodeURIComponent(step)}`;
  return `#/jobs/${encodeURIComponent(job)}/${tab}${query}`;
}

export function useRoute(): Route {
  const [route, setRoute] = useState(() => parseRoute(location.hash));
  useEffect(() => {
    const changed = () => setRoute(parseRoute(location.hash));
    addEventListener("hashchange", changed);
    return () => removeEventListener("hashchange", changed);
  }, []);
  return route;
}
