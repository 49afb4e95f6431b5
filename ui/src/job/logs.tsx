// The output of a job's processes, live, with search.

import { useEffect, useMemo, useRef, useState } from "preact/hooks";
import { errorOf, RequestError, segment, send } from "../api/client";
import { linesOf, pause } from "../api/stream";
import type { LogEvent, LogLine } from "../api/types";
import { ErrorBox } from "../components/basics";
import { shortened } from "../format";
import { useVisible } from "../live";

/** Lines that the page retains; older ones are dropped. */
const MOST_LINES = 20_000;
/** Lines that are shown at once. */
const SHOWN = 1_000;
const TAIL = 500;
const RETRY_MS = 2_000;
/** Lines arrive in bursts; the page is drawn at most this often. */
const DRAW_EVERY_MS = 150;

interface Numbered extends LogLine {
  number: number;
}

export function Logs(props: { job: string; containers: number[]; submission?: string; isFollowed: boolean }) {
  const [container, setContainer] = useState<string>("");
  const [source, setSource] = useState<string>("");
  const [wanted, setWanted] = useState("");
  const [isFollowing, setFollowing] = useState(true);
  const { lines, error, isOver } = useLines(props.job, container, source, props.submission, props.isFollowed);
  const matching = useMemo(() => matches(lines, wanted), [lines, wanted]);
  const shown = matching.slice(-SHOWN);
  const box = useRef<HTMLDivElement>(null);
  useEffect(() => {
    if (isFollowing && box.current !== null) box.current.scrollTop = box.current.scrollHeight;
  }, [shown, isFollowing]);
  const onScroll = () => {
    const element = box.current;
    if (element === null) return;
    setFollowing(element.scrollHeight - element.scrollTop - element.clientHeight < 24);
  };
  return (
    <section>
      <div class="controls">
        <label>
          <span class="hidden">Search in the logs</span>
          <input
            type="search"
            placeholder="Search in all containers"
            value={wanted}
            onInput={(event) => setWanted(event.currentTarget.value)}
          />
        </label>
        {props.containers.length > 0 && (
          <label>
            Container{" "}
            <select value={container} onChange={(event) => setContainer(event.currentTarget.value)}>
              <option value="">all</option>
              {props.containers.map((id) => (
                <option key={id} value={String(id)}>
                  {id}
                </option>
              ))}
            </select>
          </label>
        )}
        <label>
          Stream{" "}
          <select value={source} onChange={(event) => setSource(event.currentTarget.value)}>
            <option value="">both</option>
            <option value="stdout">stdout</option>
            <option value="stderr">stderr</option>
          </select>
        </label>
        <label>
          <input type="checkbox" checked={isFollowing} onChange={(event) => setFollowing(event.currentTarget.checked)} /> Follow
        </label>
        <span class="hint" role="status">
          {wanted === "" ? `${lines.length} lines` : `${matching.length} of ${lines.length} lines`}
          {isOver && ", ended"}
        </span>
      </div>
      {error !== null && <ErrorBox error={error} />}
      <div class="log" ref={box} onScroll={onScroll} tabIndex={0} role="region" aria-label="output of the job's processes">
        {shown.map((line) => (
          <div key={line.number} class={line.source}>
            <span class="from">
              {line.container}
              {line.source === "stderr" ? " err" : ""}
            </span>
            <bdi>{shortened(line.text, 4_000)}</bdi>
          </div>
        ))}
        {shown.length === 0 && error === null && <p class="hint">{wanted === "" ? "no output yet" : "no line matches"}</p>}
      </div>
    </section>
  );
}

function matches(lines: Numbered[], wanted: string): Numbered[] {
  const text = wanted.trim().toLowerCase();
  return text === "" ? lines : lines.filter((line) => line.text.toLowerCase().includes(text));
}

/** Reads the lines of a job, and follows them while the page is visible. */
function useLines(job: string, container: string, source: string, submission: string | undefined, isFollowed: boolean) {
  const [lines, setLines] = useState<Numbered[]>([]);
  const [error, setError] = useState<RequestError | null>(null);
  const [isOver, setOver] = useState(false);
  const isVisible = useVisible();
  useEffect(() => {
    if (!isVisible) return undefined;
    const stopped = new AbortController();
    const path = `/jobs/${segment(job)}/logs`;
    const query = {
      container: container === "" ? undefined : container,
      source: source === "" ? undefined : source,
      submission,
      tail: TAIL,
      follow: isFollowed ? true : undefined,
    };
    let all: Numbered[] = [];
    let number = 0;
    let timer: ReturnType<typeof setTimeout> | undefined;
    const draw = () => {
      timer = undefined;
      setLines(all);
    };
    const add = (line: LogLine) => {
      number += 1;
      all.push({ ...line, number });
      // A new array, at most ten times per MOST_LINES lines.
      if (all.length > MOST_LINES * 1.1) all = all.slice(-MOST_LINES);
      timer ??= setTimeout(() => {
        all = [...all];
        draw();
      }, DRAW_EVERY_MS);
    };
    const read = async () => {
      const response = await send("GET", path, { query, signal: stopped.signal });
      setError(null);
      all = [];
      if (response.body === null) return;
      for await (const text of linesOf(response.body)) {
        if (text === "") continue;
        const event = JSON.parse(text) as LogEvent;
        if ("fault" in event) throw errorOf(event.fault, 503);
        add(event.line);
      }
    };
    const run = async () => {
      while (!stopped.signal.aborted) {
        try {
          await read();
          if (!stopped.signal.aborted) setOver(true);
          return;
        } catch (failure) {
          if (stopped.signal.aborted) return;
          const failed = failure instanceof RequestError ? failure : new RequestError("", "the connection was lost");
          setError(failed);
          if (failed.status >= 400 && failed.status < 500) return;
        }
        await pause(RETRY_MS, stopped.signal);
      }
    };
    setOver(false);
    void run();
    return () => {
      stopped.abort();
      clearTimeout(timer);
    };
  }, [job, container, source, submission, isFollowed, isVisible]);
  return { lines, error, isOver };
}
