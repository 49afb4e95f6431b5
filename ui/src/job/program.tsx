// The dialogs that send a program: the submission of a job, and an upgrade with its comparison of
// states.

import { useState } from "preact/hooks";
import { command, RequestError } from "../api/client";
import type { JobDescription, ProgramAction, StateComparison } from "../api/types";
import { Badge, ErrorBox, Name } from "../components/basics";
import { Dialog } from "../components/dialog";
import { shortened } from "../format";
import { jobLink } from "../route";

interface Given {
  file: File | null;
  name: string;
  arguments: string;
  settings: string;
}

const NOTHING: Given = { file: null, name: "", arguments: "", settings: "" };

/** Returns the words of a line of arguments: separated by spaces, or one per line. */
export function argumentsOf(text: string): string[] {
  const words = text.match(/"[^"]*"|'[^']*'|\S+/g) ?? [];
  return words.map((word) => (/^(["']).*\1$/s.test(word) ? word.slice(1, -1) : word));
}

/** Returns the settings of lines `key=value`. */
export function settingsOf(text: string): Record<string, string> {
  const lines = text.split("\n").map((line) => line.trim()).filter((line) => line !== "" && !line.startsWith("#"));
  const pairs = lines.map((line) => {
    const end = line.indexOf("=");
    if (end < 1) throw new RequestError("", `"${shortened(line, 80)}" is no setting`, "write key=value, one per line");
    return [line.slice(0, end).trim(), line.slice(end + 1).trim()] as const;
  });
  return Object.fromEntries(pairs);
}

async function send<T>(action: ProgramAction, given: Given, job: string | undefined): Promise<T> {
  if (given.file === null) throw new RequestError("", "no file is chosen", "choose a topology (.yaml) or a program");
  const sent = await command<{ result: T }>("POST", "/programs", {
    action,
    file: given.file.name,
    content: await base64Of(given.file),
    ...(job === undefined ? {} : { job }),
    arguments: argumentsOf(given.arguments),
    settings: settingsOf(given.settings),
  });
  return sent.result;
}

function base64Of(file: File): Promise<string> {
  return new Promise((done, failed) => {
    const reader = new FileReader();
    reader.onload = () => done(String(reader.result).replace(/^[^,]*,?/, ""));
    reader.onerror = () => failed(new RequestError("", "the file cannot be read", reader.error?.message ?? null));
    reader.readAsDataURL(file);
  });
}

/** A form that sends a program, and shows the failure. */
function useSending() {
  const [isBusy, setBusy] = useState(false);
  const [error, setError] = useState<RequestError | null>(null);
  const run = async (send: () => Promise<void>) => {
    setBusy(true);
    setError(null);
    try {
      await send();
    } catch (failure) {
      setError(failure instanceof RequestError ? failure : new RequestError("", String(failure)));
    }
    setBusy(false);
  };
  return { isBusy, error, run };
}

function Fields({ given, onChange }: { given: Given; onChange: (given: Given) => void }) {
  return (
    <>
      <label class="field">
        Topology (.yaml) or program
        <input type="file" required onChange={(event) => onChange({ ...given, file: event.currentTarget.files?.[0] ?? null })} />
      </label>
      <label class="field">
        Arguments
        <input value={given.arguments} onInput={(event) => onChange({ ...given, arguments: event.currentTarget.value })} />
      </label>
      <label class="field">
        Settings (key=value, one per line)
        <textarea
          rows={3}
          placeholder="guarantee=exactly-once"
          value={given.settings}
          onInput={(event) => onChange({ ...given, settings: event.currentTarget.value })}
        />
      </label>
    </>
  );
}

export function SubmitDialog({ onClose }: { onClose: () => void }) {
  const [given, setGiven] = useState<Given>(NOTHING);
  const { isBusy, error, run } = useSending();
  const submit = (event: Event) => {
    event.preventDefault();
    void run(async () => {
      const name = given.name.trim();
      const submitted = await send<{ job?: string }>("submit", given, name === "" ? undefined : name);
      onClose();
      if (submitted.job !== undefined) location.hash = jobLink(submitted.job);
    });
  };
  return (
    <Dialog title="Submit a job" onClose={onClose}>
      <form onSubmit={submit}>
        <p class="dialog-text">
          The file is sent to the host, which submits it as <code>ardea submit</code> does. A program runs on the host to
          describe its job.
        </p>
        <Fields given={given} onChange={setGiven} />
        <label class="field">
          Name (by default that of the program)
          <input value={given.name} onInput={(event) => setGiven({ ...given, name: event.currentTarget.value })} />
        </label>
        {error !== null && <ErrorBox error={error} />}
        <div class="buttons">
          <button type="button" onClick={onClose}>
            Cancel
          </button>
          <button type="submit" class="primary" disabled={isBusy}>
            {isBusy ? "…" : "Submit"}
          </button>
        </div>
      </form>
    </Dialog>
  );
}

/** Upgrades a job. One with a guarantee shows first what becomes of its states. */
export function UpgradeDialog({ job, onClose }: { job: JobDescription; onClose: () => void }) {
  const [given, setGiven] = useState<Given>(NOTHING);
  const [comparison, setComparison] = useState<StateComparison | null>(null);
  const { isBusy, error, run } = useSending();
  const hasStates = job.epochs !== null && given.file !== null && !/\.ya?ml$/.test(given.file.name);
  const isCompared = comparison !== null || !hasStates;
  const change = (next: Given) => {
    setGiven(next);
    setComparison(null);
  };
  const submit = (event: Event) => {
    event.preventDefault();
    void run(async () => {
      if (!isCompared) return setComparison(await send<StateComparison>("diff", given, job.name));
      await send("upgrade", given, job.name);
      return onClose();
    });
  };
  return (
    <Dialog title={`Upgrade ${shortened(job.name, 60)}`} onClose={onClose}>
      <form onSubmit={submit}>
        <p class="dialog-text">
          The job stops and its new program continues with its state. If the new program does not start, the job returns to
          this one.
        </p>
        <Fields given={given} onChange={change} />
        {comparison !== null && <States comparison={comparison} />}
        {error !== null && <ErrorBox error={error} />}
        <div class="buttons">
          <button type="button" onClick={onClose}>
            Cancel
          </button>
          <button type="submit" class={isCompared ? "danger" : "primary"} disabled={isBusy || comparison?.possible === false}>
            {isBusy ? "…" : isCompared ? "Upgrade" : "Compare"}
          </button>
        </div>
      </form>
    </Dialog>
  );
}

const VERDICT_TONES: Record<string, string> = { keep: "good", add: "good", migrate: "busy", drop: "warn", impossible: "bad" };

function States({ comparison }: { comparison: StateComparison }) {
  return (
    <section aria-label="states" aria-live="polite">
      <h3>{comparison.possible ? "What becomes of each state" : "The upgrade is impossible"}</h3>
      {comparison.states.length === 0 && <p class="hint">Neither program has state.</p>}
      <ul class="problems">
        {comparison.states.map((it) => (
          <li key={`${it.vertex}/${it.state}`}>
            <Badge tone={VERDICT_TONES[it.verdict] ?? "muted"}>{it.verdict}</Badge>{" "}
            <Name text={`${it.vertex}/${it.state}`} most={80} /> {it.what?.map((what) => shortened(what, 300)).join("; ")}
          </li>
        ))}
      </ul>
    </section>
  );
}
