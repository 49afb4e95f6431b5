// Streams of the REST interface: server-sent events and JSON lines, over fetch, because an
// EventSource can send no token.

import { errorOf, type Query, RequestError, send } from "./client";
import type { ProblemDetails } from "./types";

const MIN_RETRY_MS = 500;
const MAX_RETRY_MS = 5_000;
/** The server sends something at least every 5 s. */
const SILENCE_MS = 20_000;

/** Yields the lines of a response. */
export async function* linesOf(body: ReadableStream<Uint8Array>, onData?: () => void): AsyncGenerator<string> {
  const reader = body.pipeThrough(new TextDecoderStream() as TransformStream<Uint8Array, string>).getReader();
  let rest = "";
  try {
    for (;;) {
      const { done, value } = await reader.read();
      if (done) break;
      onData?.();
      const parts = (rest + value).split("\n");
      rest = parts.pop() ?? "";
      yield* parts;
    }
    if (rest !== "") yield rest;
  } finally {
    void reader.cancel().catch(() => undefined);
  }
}

export interface StreamHandlers<E> {
  onEvent: (event: E) => void;
  onConnected: () => void;
  /** Called when the stream has broken. It is opened again, unless the error is permanent. */
  onBroken: (error: RequestError) => void;
}

/** Follows server-sent events until the returned function is called. */
export function follow<E>(path: string, query: Query, handlers: StreamHandlers<E>): () => void {
  const stopped = new AbortController();
  void run(path, query, handlers, stopped.signal);
  return () => stopped.abort();
}

async function run<E>(path: string, query: Query, handlers: StreamHandlers<E>, stopped: AbortSignal): Promise<void> {
  let retryMs = MIN_RETRY_MS;
  while (!stopped.aborted) {
    try {
      await once(path, query, handlers, stopped, () => (retryMs = MIN_RETRY_MS));
      if (stopped.aborted) return;
      handlers.onBroken(new RequestError("", "the server has closed the connection"));
    } catch (error) {
      if (stopped.aborted) return;
      const failed = error instanceof RequestError ? error : new RequestError("", "the connection was lost");
      handlers.onBroken(failed);
      // A job that is gone, or a refused token, stays so.
      if (failed.status >= 400 && failed.status < 500 && failed.status !== 408) return;
    }
    await pause(retryMs, stopped);
    retryMs = Math.min(retryMs * 2, MAX_RETRY_MS);
  }
}

async function once<E>(
  path: string,
  query: Query,
  handlers: StreamHandlers<E>,
  stopped: AbortSignal,
  onConnected: () => void,
): Promise<void> {
  const silent = new AbortController();
  const stop = () => silent.abort();
  stopped.addEventListener("abort", stop);
  let timer = setTimeout(stop, SILENCE_MS);
  const heard = () => {
    clearTimeout(timer);
    timer = setTimeout(stop, SILENCE_MS);
  };
  try {
    const response = await send("GET", path, { query, signal: silent.signal });
    if (response.body === null) return;
    onConnected();
    handlers.onConnected();
    for await (const line of linesOf(response.body, heard)) {
      if (!line.startsWith("data:")) continue;
      const event = JSON.parse(line.slice(5)) as E & { fault?: ProblemDetails };
      if (event.fault !== undefined) throw errorOf(event.fault, statusOf(event.fault));
      handlers.onEvent(event);
    }
  } finally {
    clearTimeout(timer);
    stopped.removeEventListener("abort", stop);
    silent.abort();
  }
}

/** Returns the status of an error within a stream. The code of an unknown job is permanent. */
function statusOf(fault: ProblemDetails): number {
  return fault.code === "ARD-604" ? 404 : 503;
}

export function pause(ms: number, signal: AbortSignal): Promise<void> {
  return new Promise((resolve) => {
    const timer = setTimeout(resolve, ms);
    signal.addEventListener("abort", () => {
      clearTimeout(timer);
      resolve();
    });
  });
}
