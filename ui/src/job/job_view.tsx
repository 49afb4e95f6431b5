// A job: its header, actions, and the views of it.

import { useState } from "preact/hooks";
import { type RequestError, segment } from "../api/client";
import type { JobDescription, JobEvent, Plans, TopView } from "../api/types";
import { Badge, ConnectionBar, ErrorBox, Figure, Loading, Name, PhaseBadge } from "../components/basics";
import { ActionDialog, type Action } from "../components/dialog";
import { ms, plural, rate, seconds, shortened } from "../format";
import { GraphView } from "../graph/graph_view";
import { useEvents, useNow, useResource } from "../live";
import { jobLink } from "../route";
import { allActions, isEmbedded } from "./actions";
import { Checkpoints } from "./checkpoints";
import { nextSamples, NO_SAMPLES, type Samples, type SlowStep, slowSteps, totals } from "./figures";
import { Latency } from "./latency";
import { Logs } from "./logs";
import { Placement } from "./placement";
import { Settings } from "./settings";
import { StepPanel } from "./step_panel";
import { Steps } from "./steps";
import { Timeline } from "./timeline";
import { WhyPanel } from "./why";

interface JobState {
  job: JobDescription | null;
  top: TopView | null;
  samples: Samples;
}

const NO_JOB: JobState = { job: null, top: null, samples: NO_SAMPLES };

function fold(state: JobState, event: JobEvent): JobState {
  if ("job" in event) return { ...state, job: event.job };
  if ("top" in event) return { ...state, top: event.top };
  if ("samples" in event) return { ...state, samples: nextSamples(state.samples, event.samples) };
  return state;
}

const TABS = [
  ["graph", "Graph"],
  ["latency", "Latency"],
  ["checkpoints", "Checkpoints"],
  ["placement", "Placement"],
  ["events", "Events"],
  ["logs", "Logs"],
  ["settings", "Settings"],
] as const;
/** Views of what only clusters have. */
const TABS_OF_CLUSTERS = ["checkpoints", "events", "logs", "settings"];

export function JobView({ job: name, tab, step }: { job: string; tab: string; step: string | null }) {
  const path = `/jobs/${segment(name)}`;
  const isGraph = tab === "graph";
  const live = useEvents(`${path}/events`, { vertex: isGraph && step !== null ? step : undefined }, NO_JOB, fold);
  const { job, top, samples } = live.state;
  // The plan changes with updates, which change the number of instances or containers.
  const shape = job === null ? null : JSON.stringify([job.submission, job.container_count, job.vertices.map((it) => it.parallelism)]);
  const plans = useResource<Plans>(shape === null ? null : `${path}/plan`, {}, 15_000);
  const [action, setAction] = useState<Action | null>(null);
  const error = live.connection.is === "broken" && live.connection.error.status >= 400 ? live.connection.error : null;
  const isOver = error !== null && error.code === "ARD-604";
  const tabs = job !== null && isEmbedded(job) ? TABS.filter(([id]) => !TABS_OF_CLUSTERS.includes(id)) : TABS;
  return (
    <>
      {!isOver && <ConnectionBar connection={live.connection} />}
      <p class="crumbs">
        <a href="#/jobs">Jobs</a>
      </p>
      {error !== null && (job === null || isOver) && (
        <ErrorBox error={error}>
          {isOver && (
            <p>
              <a href={`#/history/${encodeURIComponent(name)}`}>The record of ended jobs of this name</a>
            </p>
          )}
        </ErrorBox>
      )}
      <Heading name={name} job={job} onAction={setAction} isOver={isOver} />
      {job !== null && <Notices job={job} />}
      {(job !== null || error === null) && (
        <nav class="tabs" aria-label="views of the job">
          {tabs.map(([id, label]) => (
            <a key={id} href={jobLink(name, id)} aria-current={id === tab ? "page" : undefined}>
              {label}
            </a>
          ))}
        </nav>
      )}
      {job === null ? (
        error === null && <Loading what="the job" />
      ) : (
        <>
          {isGraph && (
            <Graph name={name} job={job} top={top} plans={plans.data} samples={samples} step={step} error={plans.error} />
          )}
          {tab === "latency" && plans.data !== null && <Latency job={name} plans={plans.data} top={top} />}
          {tab === "checkpoints" && <Checkpoints job={job} onAction={setAction} />}
          {tab === "placement" && <Placement job={job} top={top} plans={plans.data} onAction={setAction} />}
          {tab === "events" && <Timeline notes={job.notes} problems={job.problems} />}
          {tab === "logs" && <Logs job={name} containers={job.containers.map((it) => it.id)} isFollowed />}
          {tab === "settings" && <Settings job={job} />}
        </>
      )}
      {action !== null && <ActionDialog action={action} onClose={() => setAction(null)} />}
    </>
  );
}

function Heading(props: { name: string; job: JobDescription | null; isOver: boolean; onAction: (action: Action) => void }) {
  const { name, job } = props;
  const now = useNow();
  return (
    <div class="heading job-heading">
      <h1>
        <Name text={name} /> {job !== null && !props.isOver && <PhaseBadge phase={job.phase} />}
        {props.isOver && <Badge tone="muted">ended</Badge>}
      </h1>
      {job !== null && !props.isOver && (
        <>
          <span class="hint">
            for {ms(Math.max(now - job.since_ms, 0))} · {plural(job.instance_count, "instance")} in{" "}
            {plural(job.container_count, "container")}
            {job.master !== null && (
              <>
                {" "}
                · led by <Name text={job.master.host} most={40} />
              </>
            )}
          </span>
          <div class="buttons" role="group" aria-label="actions on the job">
            {allActions(job).map(({ label, action, isDangerous }) => (
              <button
                key={label}
                type="button"
                class={isDangerous ? "danger-text" : ""}
                onClick={() => props.onAction(action)}
              >
                {label}
              </button>
            ))}
          </div>
        </>
      )}
    </div>
  );
}

/** What a user has to know about the state of the job. */
function Notices({ job }: { job: JobDescription }) {
  const notices: [string, string][] = [];
  if (job.reason !== null) notices.push(["bad", job.reason]);
  if (job.epochs?.safe_mode != null) notices.push(["bad", `Safe mode: ${job.epochs.safe_mode}`]);
  if (job.epochs?.trouble != null) notices.push(["warn", `Checkpoints: ${job.epochs.trouble}`]);
  if (job.restarting_count > 0) notices.push(["warn", `${plural(job.restarting_count, "container")} being restarted`]);
  if (job.leader_changes) notices.push(["warn", "The leader of the job changes. Its containers keep running."]);
  if (job.upgrade !== null) notices.push(["info", `Upgrade: ${job.upgrade.text}${job.upgrade.why === null ? "" : `: ${job.upgrade.why}`}`]);
  return (
    <div class="notices" aria-live="polite">
      {notices.map(([tone, text]) => (
        <p key={text} class={`notice ${tone}`}>
          {shortened(text, 600)}
        </p>
      ))}
    </div>
  );
}

function Graph(props: {
  name: string;
  job: JobDescription;
  top: TopView | null;
  plans: Plans | null;
  samples: Samples;
  step: string | null;
  error: RequestError | null;
}) {
  const { name, job, top, plans, step } = props;
  const slow = slowSteps(top);
  const all = top === null ? null : totals(top, plans?.logical.edges ?? null);
  const select = (chosen: string | null) => (location.hash = jobLink(name, "graph", chosen));
  const isKnown = step !== null && job.vertices.some((it) => it.name === step);
  return (
    <>
      <dl class="figures">
        <Figure label="In" value={rate(all?.input)} />
        <Figure label="Out" value={rate(all?.output)} />
        <Figure label="Latency p99" value={seconds(all?.latency)} />
        <Figure
          label="Containers up"
          value={`${job.worker_count}/${job.container_count}`}
          tone={job.worker_count < job.container_count ? "bad" : ""}
        />
      </dl>
      <SlowBanner slow={slow} name={name} />
      <div class={`graph-and-panel${isKnown ? " open" : ""}`}>
        {plans === null ? (
          <div class="graph">{props.error === null ? <Loading what="the graph" /> : <ErrorBox error={props.error} />}</div>
        ) : (
          <GraphView plans={plans} top={top} slow={slow} selected={step} onSelect={select} />
        )}
        {isKnown && step !== null && (
          <StepPanel job={job} step={step} top={top} samples={props.samples} slow={slow} onClose={() => select(null)} />
        )}
      </div>
      <WhyPanel job={job} />
      <Steps name={name} top={top} job={job} slow={slow} />
    </>
  );
}

/** Names the slow step in words. The place is kept, so that the graph does not move. */
function SlowBanner({ slow, name }: { slow: SlowStep[]; name: string }) {
  const worst = slow[0];
  return (
    <p class={`slow-banner ${worst === undefined ? "good" : "bad"}`} aria-live="polite">
      {worst === undefined ? (
        "No step holds the job up."
      ) : (
        <>
          <a href={jobLink(name, "graph", worst.step.vertex)}>
            <Name text={worst.step.vertex} most={60} />
          </a>{" "}
          {worst.step.is_failing ? "fails again and again" : `holds the job up: busy ${Math.round((worst.step.busy ?? 0) * 100)} %`}
          {worst.blocked.length > 0 && (
            <>
              ; {worst.blocked.map((it) => shortened(it.vertex, 30)).slice(0, 3).join(", ")}{" "}
              {worst.blocked.length === 1 ? "waits" : "wait"} for it
            </>
          )}
          .
        </>
      )}
    </p>
  );
}
