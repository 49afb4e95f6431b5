// The events of a job as a time line, with its failures and recoveries.

import type { NoteView, ProblemView } from "../api/types";
import { Empty, Name } from "../components/basics";
import { ms, shortened, time } from "../format";

interface Entry {
  at: number;
  text: string;
  tone: string;
}

export function Timeline({ notes, problems }: { notes: NoteView[]; problems: ProblemView[] }) {
  const entries: Entry[] = notes.map((note) => ({ at: note.at_ms, text: note.text, tone: toneOf(note.text) }));
  const recoveries = recoveriesOf(notes);
  if (entries.length === 0 && problems.length === 0) return <Empty>Nothing has happened yet.</Empty>;
  return (
    <section>
      {recoveries.length > 0 && (
        <>
          <h2>Recoveries</h2>
          <ul class="recoveries">
            {recoveries.map((it) => (
              <li key={it.from} class={it.to === null ? "warn" : "good"}>
                <strong>{time(it.from)}</strong>{" "}
                {it.to === null ? "still recovering" : `recovered within ${ms(it.to - it.from)}`}: <Name text={it.cause} most={300} />
              </li>
            ))}
          </ul>
        </>
      )}
      {problems.length > 0 && (
        <>
          <h2>Failures</h2>
          <ul class="problems">
            {problems.slice(0, 50).map((it) => (
              <li key={it.instance}>
                <p>
                  <Name text={it.instance} most={80} /> · {it.count}× · last {time(it.at_ms)}
                </p>
                <pre class="wrap">{shortened(it.message, 2_000)}</pre>
              </li>
            ))}
          </ul>
        </>
      )}
      <h2>Events</h2>
      <ol class="timeline">
        {[...entries].reverse().map((entry, index, all) => {
          const before = all[index + 1];
          return (
            <li key={`${entry.at} ${index}`} class={entry.tone}>
              <time dateTime={new Date(entry.at).toISOString()}>{time(entry.at)}</time>
              <span class="gap">{before === undefined ? "" : `+${ms(entry.at - before.at)}`}</span>
              <span class="event">
                <Name text={entry.text} most={1_000} />
              </span>
            </li>
          );
        })}
      </ol>
    </section>
  );
}

/** Beginnings of failures from which a job recovers. */
const LOSS =
  /was ended by signal|ended with code [1-9]|was given up|host that is lost|has ended, the reason|can't go on|no heartbeat/;
const BAD = new RegExp(`${LOSS.source}|fail|was refused|safe mode|damaged|not possible`);
const GOOD = /is running|is finished|has joined/;

function toneOf(text: string): string {
  if (BAD.test(text)) return "bad";
  return GOOD.test(text) ? "good" : "plain";
}

interface Recovery {
  from: number;
  to: number | null;
  cause: string;
}

/** Returns the times from a failure until the job ran again, the latest first. */
export function recoveriesOf(notes: NoteView[]): Recovery[] {
  const found: Recovery[] = [];
  let open: Recovery | null = null;
  let hasRun = false;
  for (const note of notes) {
    if (note.text === "the job is running") {
      if (open !== null) found.push({ ...open, to: note.at_ms });
      open = null;
      hasRun = true;
    } else if (note.text === "the job is being killed" || note.text === "the job is paused") {
      open = null;
    } else if (hasRun && open === null && LOSS.test(note.text)) {
      open = { from: note.at_ms, to: null, cause: note.text };
    }
  }
  if (open !== null) found.push(open);
  return found.reverse();
}
