// The dead letters of a step: records that it could not process.

import { useEffect, useState } from "preact/hooks";
import { get, RequestError, segment } from "../api/client";
import type { DeadLetterPage, DeadLetterView } from "../api/types";
import { ErrorBox, Name } from "../components/basics";
import { bytes, plural, short, shortened, time } from "../format";

const PAGE = 20;
/** Maximum number of pages without a letter of the step that are read for one page. */
const MOST_EMPTY = 50;
const SHOWN_CHARACTERS = 4_000;

interface Letters {
  letters: DeadLetterView[];
  next: string | null;
}

/** Lists the dead letters of a step, if it has any. `bad` is their number since the start. */
export function DeadLetters({ job, step, bad }: { job: string; step: string; bad: number }) {
  const [found, setFound] = useState<Letters | null>(null);
  const [error, setError] = useState<RequestError | null>(null);
  const [isBusy, setBusy] = useState(false);
  const load = async (before: Letters | null) => {
    setBusy(true);
    try {
      const page = await nextPage(job, step, before?.next ?? null);
      setFound({ letters: [...(before?.letters ?? []), ...page.letters], next: page.next });
      setError(null);
    } catch (failure) {
      setError(failure instanceof RequestError ? failure : new RequestError("", String(failure)));
    }
    setBusy(false);
  };
  const hasAny = bad > 0;
  useEffect(() => {
    setFound(null);
    if (hasAny) void load(null);
  }, [job, step, hasAny]);
  if (!hasAny) return null;
  return (
    <section class="dead-letters" aria-label="dead letters">
      <div class="heading">
        <h3>Dead letters ({short(bad)})</h3>
        <div class="buttons">
          <button type="button" class="small" disabled={isBusy} onClick={() => void load(null)}>
            Reload
          </button>
          {found !== null && found.letters.length > 0 && <Download job={job} step={step} letters={found.letters} />}
        </div>
      </div>
      {error !== null && <ErrorBox error={error} />}
      {found !== null && found.letters.length === 0 && <p class="hint">No bad record of this step is stored: it drops them, or its files are full.</p>}
      <ul class="problems">
        {found?.letters.map((letter, index) => <Letter key={index} letter={letter} />)}
      </ul>
      {found?.next != null && found.letters.length > 0 && (
        <button type="button" disabled={isBusy} onClick={() => void load(found)}>
          {isBusy ? "…" : `More than ${found.letters.length}`}
        </button>
      )}
    </section>
  );
}

/** Reads pages until one has a letter of the step. */
async function nextPage(job: string, step: string, after: string | null): Promise<DeadLetterPage> {
  let page: DeadLetterPage = { letters: [], next: after };
  for (let number = 0; number < MOST_EMPTY; number += 1) {
    page = await get<DeadLetterPage>(`/jobs/${segment(job)}/dead-letters`, {
      vertex: step,
      limit: PAGE,
      after: page.next ?? undefined,
    });
    if (page.letters.length > 0 || page.next === null) break;
  }
  return page;
}

function Letter({ letter }: { letter: DeadLetterView }) {
  const record = letter.text ?? letter.base64 ?? "";
  // A long record is scrolled, with the keyboard too.
  const isLong = record.length > 200 || record.split("\n").length > 5;
  return (
    <li>
      <p>
        <Name text={letter.origin} most={80} /> · {bytes(letter.bytes)}
        {letter.base64 !== null && " · Base64"}
        {letter.at_ms !== null && ` · ${time(letter.at_ms)}`} · container {letter.container}
      </p>
      <p class="bad-text">
        <bdi>{shortened(letter.reason, 500)}</bdi>
      </p>
      <pre class="wrap" dir="auto" {...(isLong ? { tabIndex: 0, role: "group", "aria-label": "record" } : {})}>
        {shortened(record, SHOWN_CHARACTERS)}
      </pre>
    </li>
  );
}

/** Offers the loaded letters as a file of JSON lines, as the setting `dead_letters` writes them. */
function Download({ job, step, letters }: { job: string; step: string; letters: DeadLetterView[] }) {
  const save = () => {
    const lines = letters.map(({ vertex, origin, reason, text, base64 }) =>
      JSON.stringify({ vertex, origin, reason, ...(text !== null ? { raw: text } : { raw_base64: base64 }) }),
    );
    const url = URL.createObjectURL(new Blob([`${lines.join("\n")}\n`], { type: "application/x-ndjson" }));
    const link = document.createElement("a");
    link.href = url;
    link.download = `${fileName(job)}-${fileName(step)}-dead-letters.jsonl`;
    link.click();
    URL.revokeObjectURL(url);
  };
  return (
    <button type="button" class="small" onClick={save}>
      Save {plural(letters.length, "letter")}
    </button>
  );
}

function fileName(name: string): string {
  return name.replace(/[^\w.-]+/g, "_").slice(0, 60);
}
