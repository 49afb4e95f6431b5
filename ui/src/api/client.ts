// Requests to the REST interface.

import type { ProblemDetails } from "./types";

/** The error of a request: the server's own, or a lost connection. */
export class RequestError extends Error {
  constructor(
    readonly code: string,
    message: string,
    readonly hint: string | null = null,
    readonly status = 0,
  ) {
    super(message);
  }

  /** True if no server has answered. */
  get isUnreachable(): boolean {
    return this.status === 0;
  }

  get isUnauthorized(): boolean {
    return this.status === 401;
  }
}

/** Creates the error that the server describes. */
export function errorOf(problem: ProblemDetails, status: number): RequestError {
  const message = problem.detail ?? problem.message ?? problem.title ?? "the request failed";
  return new RequestError(problem.code ?? "", message, problem.hint ?? null, status);
}

const TOKEN_KEY = "ardea.token";
const unauthorizedListeners = new Set<() => void>();

/** Returns the token that the user has entered in this tab, if any. */
export function token(): string | null {
  return sessionStorage.getItem(TOKEN_KEY);
}

/** Sets the token of this tab; `null` removes it. */
export function setToken(secret: string | null): void {
  if (secret === null) sessionStorage.removeItem(TOKEN_KEY);
  else sessionStorage.setItem(TOKEN_KEY, secret);
}

/** Calls `listener` when the server refuses the token. Returns a function that ends that. */
export function onUnauthorized(listener: () => void): () => void {
  unauthorizedListeners.add(listener);
  return () => unauthorizedListeners.delete(listener);
}

export type Query = Record<string, string | number | boolean | undefined>;

/** Returns the address of a path of the interface, relative to the page. */
export function address(path: string, query: Query = {}): string {
  const given = Object.entries(query).filter(([, value]) => value !== undefined && value !== "");
  const parameters = new URLSearchParams(given.map(([name, value]) => [name, String(value)]));
  const text = parameters.toString();
  return `../v1${path}${text === "" ? "" : `?${text}`}`;
}

/** Sends a request and returns its response if it is a success. */
export async function send(
  method: string,
  path: string,
  options: { query?: Query; body?: unknown; signal?: AbortSignal } = {},
): Promise<Response> {
  // The host forwards requests about jobs that another host leads.
  const headers: Record<string, string> = { "ardea-forward": "1" };
  const secret = token();
  if (secret !== null) headers["authorization"] = `Bearer ${secret}`;
  if (options.body !== undefined) headers["content-type"] = "application/json";
  let response: Response;
  try {
    response = await fetch(address(path, options.query), {
      method,
      headers,
      cache: "no-store",
      body: options.body === undefined ? null : JSON.stringify(options.body),
      signal: options.signal ?? null,
    });
  } catch (error) {
    if (options.signal?.aborted) throw error;
    throw new RequestError("", "the server cannot be reached", "the page tries again by itself");
  }
  if (response.ok) return response;
  if (response.status === 401) unauthorizedListeners.forEach((listener) => listener());
  throw errorOf(await problemOf(response), response.status);
}

async function problemOf(response: Response): Promise<ProblemDetails> {
  try {
    return (await response.json()) as ProblemDetails;
  } catch {
    return { code: "", detail: `the server answered with status ${response.status}`, hint: null };
  }
}

/** Reads a JSON resource. */
export async function get<T>(path: string, query: Query = {}, signal?: AbortSignal): Promise<T> {
  const response = await send("GET", path, signal === undefined ? { query } : { query, signal });
  return (await response.json()) as T;
}

/** Sends a command; returns its JSON result, if it has one. */
export async function command<T = void>(
  method: "POST" | "PUT" | "DELETE",
  path: string,
  body?: unknown,
  query: Query = {},
): Promise<T> {
  const response = await send(method, path, { query, body });
  const text = await response.text();
  return (text === "" ? undefined : JSON.parse(text)) as T;
}

/** Returns a name as a segment of a path. */
export function segment(name: string): string {
  return encodeURIComponent(name);
}
