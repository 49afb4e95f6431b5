// Live data of the page, as hooks.

import { useEffect, useRef, useState } from "preact/hooks";
import { get, onUnauthorized, type Query, RequestError } from "./api/client";
import { follow } from "./api/stream";

/** State of the connection to the server. */
export type Connection = { is: "connecting" } | { is: "live" } | { is: "broken"; error: RequestError };

export interface Live<S> {
  state: S;
  connection: Connection;
}

/** Follows the events of a path while the page is visible, and folds them into a state. */
export function useEvents<E, S>(path: string, query: Query, initial: S, fold: (state: S, event: E) => S): Live<S> {
  const key = `${path} ${JSON.stringify(query)}`;
  const [live, setLive] = useState<Live<S> & { path: string }>({ path, state: initial, connection: { is: "connecting" } });
  const isVisible = useVisible();
  const latestFold = useRef(fold);
  latestFold.current = fold;
  useEffect(() => {
    // Data of another resource is dropped. That of the same one stays while another part is
    // requested.
    setLive((before) => (before.path === path ? before : { path, state: initial, connection: { is: "connecting" } }));
    if (!isVisible) return undefined;
    return follow<E>(path, query, {
      onEvent: (event) =>
        setLive((before) => ({ path, state: latestFold.current(before.state, event), connection: { is: "live" } })),
      onConnected: () => setLive((before) => ({ ...before, connection: { is: "live" } })),
      onBroken: (error) => setLive((before) => ({ ...before, connection: { is: "broken", error } })),
    });
  }, [key, isVisible]);
  return live.path === path ? live : { state: initial, connection: { is: "connecting" } };
}

export interface Loaded<T> {
  data: T | null;
  error: RequestError | null;
  reload: () => void;
}

/** Loads a resource, and again every `everyMs` while the page is visible, if that is given. */
export function useResource<T>(path: string | null, query: Query = {}, everyMs: number | null = null): Loaded<T> {
  const [loaded, setLoaded] = useState<{ path: string | null; data: T | null; error: RequestError | null }>({
    path,
    data: null,
    error: null,
  });
  const [turn, setTurn] = useState(0);
  const isVisible = useVisible();
  const key = `${path} ${JSON.stringify(query)}`;
  useEffect(() => {
    if (path === null || !isVisible) return undefined;
    const stopped = new AbortController();
    let timer: ReturnType<typeof setTimeout> | undefined;
    const load = async () => {
      try {
        const data = await get<T>(path, query, stopped.signal);
        setLoaded({ path, data, error: null });
      } catch (error) {
        if (stopped.signal.aborted) return;
        const failed = error instanceof RequestError ? error : new RequestError("", String(error));
        setLoaded((before) => ({ path, data: before.path === path ? before.data : null, error: failed }));
      }
      // Without an interval, only a failure is tried again.
      if (!stopped.signal.aborted && everyMs !== null) timer = setTimeout(load, everyMs);
    };
    void load();
    return () => {
      stopped.abort();
      clearTimeout(timer);
    };
  }, [key, everyMs, turn, isVisible]);
  const isCurrent = loaded.path === path;
  return {
    data: isCurrent ? loaded.data : null,
    error: isCurrent ? loaded.error : null,
    reload: () => setTurn((before) => before + 1),
  };
}

/** Returns true while the page's tab is shown. A hidden tab holds no connection. */
export function useVisible(): boolean {
  const [isVisible, setVisible] = useState(() => document.visibilityState !== "hidden");
  useEffect(() => {
    const changed = () => setVisible(document.visibilityState !== "hidden");
    document.addEventListener("visibilitychange", changed);
    return () => document.removeEventListener("visibilitychange", changed);
  }, []);
  return isVisible;
}

/** Returns the present time, renewed every second. */
export function useNow(everyMs = 1_000): number {
  const [now, setNow] = useState(Date.now);
  useEffect(() => {
    const timer = setInterval(() => setNow(Date.now()), everyMs);
    return () => clearInterval(timer);
  }, [everyMs]);
  return now;
}

/** Returns true after the server has refused the token, until `clear` is called. */
export function useUnauthorized(): { isRefused: boolean; clear: () => void } {
  const [isRefused, setRefused] = useState(false);
  useEffect(() => onUnauthorized(() => setRefused(true)), []);
  return { isRefused, clear: () => setRefused(false) };
}

/** Returns the size of an element; zero before it is known. */
export function useSize(place: { current: Element | null }): { width: number; height: number } {
  const [size, setSize] = useState({ width: 0, height: 0 });
  useEffect(() => {
    const element = place.current;
    if (element === null) return undefined;
    const observer = new ResizeObserver(() => setSize({ width: element.clientWidth, height: element.clientHeight }));
    observer.observe(element);
    return () => observer.disconnect();
  }, []);
  return size;
}
