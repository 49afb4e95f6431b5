// The actions on a job, each with its confirmation.

import { command, segment } from "../api/client";
import type { JobDescription, JobSummary, Phase } from "../api/types";
import type { Action } from "../components/dialog";
import { bytes, plural, shortened } from "../format";
import { UpgradeDialog } from "./program";

export interface LabelledAction {
  label: string;
  action: Action;
  isDangerous?: boolean;
}

const ACTIVE: Phase[] = ["starting", "running", "recovering", "updating", "reading"];

/** Returns the actions that a job's phase allows, for the list of jobs. */
export function jobActions(job: JobSummary): LabelledAction[] {
  const actions: LabelledAction[] = [];
  if (ACTIVE.includes(job.phase)) actions.push({ label: "Pause", action: pause(job) });
  if (job.phase === "paused") actions.push({ label: "Resume", action: resume(job) });
  if (!["killing", "gone", "finished"].includes(job.phase)) {
    actions.push({ label: "Kill", action: kill(job), isDangerous: true });
  }
  return actions;
}

/** Returns true for a job that runs in its own process, which alone controls it. */
export function isEmbedded(job: { scheduler: string }): boolean {
  return job.scheduler === "none";
}

/** Returns all actions on a job. */
export function allActions(job: JobDescription): LabelledAction[] {
  if (isEmbedded(job)) return [];
  const more: LabelledAction[] = [{ label: "Rescale", action: rescale(job) }];
  if (job.epochs !== null) more.push({ label: "Savepoint", action: savepoint(job) });
  if (job.phase === "safe_mode") more.push({ label: "Recover", action: recover(job) });
  more.push({ label: "Upgrade", action: upgrade(job) });
  const [first, ...rest] = jobActions(job);
  return first === undefined ? more : [first, ...more, ...rest];
}

const path = (job: JobSummary, rest = "") => `/jobs/${segment(job.name)}${rest}`;
const named = (job: JobSummary) => shortened(job.name, 60);

function pause(job: JobSummary): Action {
  return {
    title: `Pause ${named(job)}?`,
    text: <p>Its sources read nothing until the job is resumed.</p>,
    confirm: "Pause",
    run: () => command("POST", path(job, "/pause")),
  };
}

function resume(job: JobSummary): Action {
  return {
    title: `Resume ${named(job)}?`,
    text: <p>Its sources read again.</p>,
    confirm: "Resume",
    run: () => command("POST", path(job, "/resume")),
  };
}

function kill(job: JobSummary): Action {
  return {
    title: `Kill ${named(job)}?`,
    text: (
      <p>
        The job stops for good, and its state is deleted: {job.phase.replace("_", " ")},{" "}
        {plural(job.instance_count, "instance")} in {plural(job.container_count, "container")}. Its logs are kept for a day.
      </p>
    ),
    confirm: "Kill",
    isDangerous: true,
    // Only this submission: a new job of the same name is not meant.
    run: () => command("DELETE", path(job), undefined, { submission: job.submission }),
  };
}

export function restart(job: JobSummary, container: number): Action {
  return {
    title: `Restart container ${container} of ${named(job)}?`,
    text: <p>Its process ends and is started again. A job with a guarantee continues from its last checkpoint.</p>,
    confirm: "Restart",
    run: () => command("POST", path(job, `/containers/${container}/restart`)),
  };
}

function savepoint(job: JobSummary): Action {
  const given = { to: "" };
  return {
    title: `Savepoint of ${named(job)}`,
    text: (
      <p>
        All state of the job is written to a folder. The job keeps running. The folder is on the host that leads the job; it
        must be empty or missing.
      </p>
    ),
    fields: (
      <label class="field">
        Folder (absolute path)
        <input required placeholder="/var/lib/ardea/savepoints/…" onInput={(event) => (given.to = event.currentTarget.value)} />
      </label>
    ),
    confirm: "Write",
    run: async () => {
      const made = await command<{ place: string; epoch: number }>("POST", path(job, "/savepoint"), { to: given.to });
      return `The savepoint of epoch ${made.epoch} is complete: ${made.place}`;
    },
  };
}

function rescale(job: JobDescription): Action {
  const wanted = new Map<string, number>();
  let containers = job.container_count;
  return {
    title: `Rescale ${named(job)}`,
    text: <p>The job keeps running. Keys and their state move to the new instances.</p>,
    fields: (
      <div class="grid-fields">
        {job.vertices.map((vertex) => (
          <label key={vertex.name} class="field row">
            <bdi>{shortened(vertex.name, 40)}</bdi>
            <input
              type="number"
              min={1}
              max={10_000}
              defaultValue={String(vertex.parallelism)}
              onInput={(event) => wanted.set(vertex.name, Number(event.currentTarget.value))}
            />
          </label>
        ))}
        <label class="field row">
          <em>containers</em>
          <input
            type="number"
            min={1}
            max={10_000}
            defaultValue={String(job.container_count)}
            onInput={(event) => (containers = Number(event.currentTarget.value))}
          />
        </label>
      </div>
    ),
    confirm: "Rescale",
    run: async () => {
      const before = new Map(job.vertices.map((it) => [it.name, it.parallelism]));
      const changed = [...wanted].filter(([name, count]) => before.get(name) !== count);
      if (changed.length > 0) await command("PUT", path(job, "/parallelism"), { parallelism: Object.fromEntries(changed) });
      if (containers !== job.container_count) await command("PUT", path(job, "/container-count"), { containers });
      if (changed.length === 0 && containers === job.container_count) return "Nothing was changed.";
      return undefined;
    },
  };
}

function recover(job: JobDescription): Action {
  const given = { from: "latest", epoch: "" };
  const choose = (event: Event & { currentTarget: HTMLInputElement }) => (given.from = event.currentTarget.value);
  return {
    title: `Leave safe mode: ${named(job)}`,
    text: <p>{job.epochs?.safe_mode ?? job.reason ?? "The job waits for a decision."}</p>,
    fields: (
      <fieldset>
        <legend>Continue from</legend>
        <label class="choice">
          <input type="radio" name="from" value="latest" defaultChecked onChange={choose} /> the latest committed epoch
        </label>
        <label class="choice">
          <input type="radio" name="from" value="epoch" onChange={choose} /> an earlier epoch:{" "}
          <input type="number" min={0} aria-label="epoch" onInput={(event) => (given.epoch = event.currentTarget.value)} />
        </label>
        <label class="choice">
          <input type="radio" name="from" value="nothing" onChange={choose} /> nothing: all input is read again
        </label>
      </fieldset>
    ),
    confirm: "Recover",
    isDangerous: true,
    run: () => {
      const body =
        given.from === "epoch"
          ? { from_epoch: Number(given.epoch) }
          : given.from === "nothing"
            ? { from_nothing: true }
            : {};
      return command("POST", path(job, "/recover"), body);
    },
  };
}

function upgrade(job: JobDescription): Action {
  return { dialog: (onClose) => <UpgradeDialog job={job} onClose={onClose} /> };
}

export function checkFiles(job: JobSummary): Action {
  return {
    title: `Check the checkpoints of ${named(job)}?`,
    text: <p>All files of its checkpoints are read and verified. For a running job this ends an epoch.</p>,
    confirm: "Check",
    run: async () => {
      const found = await command<{ checkpoints: { damage?: { message: string }; state_bytes: number }[] }>(
        "POST",
        path(job, "/checkpoints/check"),
      );
      const damaged = found.checkpoints.filter((it) => it.damage !== undefined);
      const read = found.checkpoints.reduce((all, it) => Math.max(all, it.state_bytes), 0);
      return damaged.length === 0
        ? `${plural(found.checkpoints.length, "checkpoint")} verified, up to ${bytes(read)} of state.`
        : `${plural(damaged.length, "checkpoint")} damaged: ${damaged[0]?.damage?.message ?? ""}`;
    },
  };
}
