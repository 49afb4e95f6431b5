// The list of jobs, with those that have ended.

import { useEffect, useMemo, useState } from "preact/hooks";
import type { ClusterEvent, HostView, JobSummary, PastJobSummary, TopView } from "../api/types";
import { get, segment } from "../api/client";
import { ConnectionBar, Empty, ErrorBox, Loading, Meter, Name, PhaseBadge, Scroll, busyTone } from "../components/basics";
import { ActionDialog, type Action } from "../components/dialog";
import { ms, plural, rate, seconds, shortened, time } from "../format";
import { jobActions } from "../job/actions";
import { totals } from "../job/figures";
import { SubmitDialog } from "../job/program";
import { useEvents, useNow, useResource } from "../live";
import { jobLink } from "../route";

export interface ClusterState {
  jobs: JobSummary[] | null;
  hosts: HostView[] | null;
  loads: Map<string, TopView>;
}

export const NO_CLUSTER: ClusterState = { jobs: null, hosts: null, loads: new Map() };

export function foldCluster(state: ClusterState, event: ClusterEvent): ClusterState {
  if ("jobs" in event) return { ...state, jobs: event.jobs };
  if ("hosts" in event) return { ...state, hosts: event.hosts };
  if ("loads" in event) return { ...state, loads: new Map(event.loads.map((it) => [it.job, it])) };
  return state;
}

const PAGE = 50;
const SUBMIT: Action = { dialog: (onClose) => <SubmitDialog onClose={onClose} /> };

export function JobsView({ isCluster }: { isCluster: boolean }) {
  const live = useEvents("/events", {}, NO_CLUSTER, foldCluster);
  const past = useResource<PastJobSummary[]>("/history", {}, 10_000);
  const [wanted, setWanted] = useState("");
  const [page, setPage] = useState(0);
  const [action, setAction] = useState<Action | null>(null);
  const jobs = live.state.jobs;
  const matching = useMemo(
    () => (jobs ?? []).filter((job) => job.name.toLowerCase().includes(wanted.trim().toLowerCase())),
    [jobs, wanted],
  );
  const last = Math.max(Math.ceil(matching.length / PAGE) - 1, 0);
  const shown = matching.slice(Math.min(page, last) * PAGE, (Math.min(page, last) + 1) * PAGE);
  const isRefused = live.connection.is === "broken" && live.connection.error.status >= 400 && jobs === null;
  const loads = useLoads(shown, live.state.loads);
  return (
    <>
      <ConnectionBar connection={live.connection} />
      <div class="heading">
        <h1>Jobs</h1>
        <label class="search">
          <span class="hidden">Search jobs</span>
          <input
            type="search"
            placeholder="Search"
            value={wanted}
            onInput={(event) => {
              setWanted(event.currentTarget.value);
              setPage(0);
            }}
          />
        </label>
        {isCluster && (
          <div class="buttons">
            <button type="button" class="primary" onClick={() => setAction(SUBMIT)}>
              Submit a job
            </button>
          </div>
        )}
      </div>
      {isRefused && live.connection.is === "broken" && <ErrorBox error={live.connection.error} />}
      {jobs === null && !isRefused && <Loading what="the jobs" />}
      {jobs !== null && jobs.length === 0 && (
        <Empty>
          <p>There are no jobs.</p>
          <p>
            Submit one here, or by the command line: <code>ardea submit examples/word-count.yaml</code>
          </p>
        </Empty>
      )}
      {jobs !== null && jobs.length > 0 && (
        <JobTable jobs={shown} loads={loads} hasActions={isCluster} onAction={setAction} />
      )}
      {last > 0 && <Pages page={Math.min(page, last)} last={last} onPage={setPage} />}
      <PastJobs past={past.data ?? []} />
      {action !== null && <ActionDialog action={action} onClose={() => setAction(null)} />}
    </>
  );
}

/** Returns the load of each job. That of jobs that other hosts lead is requested from them. */
function useLoads(jobs: JobSummary[], here: Map<string, TopView>): Map<string, TopView> {
  const [elsewhere, setElsewhere] = useState<Map<string, TopView>>(new Map());
  const missing = jobs.filter((job) => !here.has(job.name)).map((job) => job.name);
  const key = JSON.stringify(missing);
  useEffect(() => {
    if (missing.length === 0) return undefined;
    const stopped = new AbortController();
    const load = async () => {
      for (const job of missing) {
        const top = await get<TopView>(`/jobs/${segment(job)}/top`, {}, stopped.signal).catch(() => null);
        if (stopped.signal.aborted) return;
        if (top !== null) setElsewhere((before) => new Map(before).set(job, top));
      }
    };
    void load();
    const timer = setInterval(() => void load(), 5_000);
    return () => {
      stopped.abort();
      clearInterval(timer);
    };
  }, [key]);
  return new Map([...elsewhere, ...here]);
}

interface TableProps {
  hasActions: boolean;
  onAction: (action: Action) => void;
}

function JobTable(props: TableProps & { jobs: JobSummary[]; loads: Map<string, TopView> }) {
  const now = useNow();
  return (
    <Scroll>
      <table class="jobs">
        <thead>
          <tr>
            <th scope="col">Job</th>
            <th scope="col">State</th>
            <th scope="col" class="right">
              Since
            </th>
            <th scope="col" class="right">
              In
            </th>
            <th scope="col" class="right">
              Out
            </th>
            <th scope="col" class="right">
              Latency p99
            </th>
            <th scope="col">Busiest step</th>
            <th scope="col" class="right">
              Containers
            </th>
            <th scope="col">Last failure</th>
            <th scope="col">
              <span class="hidden">Actions</span>
            </th>
          </tr>
        </thead>
        <tbody>
          {props.jobs.map((job) => (
            <JobRow
              key={job.submission}
              job={job}
              top={props.loads.get(job.name) ?? null}
              now={now}
              hasActions={props.hasActions}
              onAction={props.onAction}
            />
          ))}
        </tbody>
      </table>
    </Scroll>
  );
}

function JobRow(props: TableProps & { job: JobSummary; top: TopView | null; now: number }) {
  const { job, top, now } = props;
  const all = top === null ? null : totals(top, null);
  const problem = job.last_problem;
  const actions = props.hasActions ? jobActions(job) : [];
  const busiest = all?.busiest ?? null;
  return (
    <tr data-job={job.name}>
      <th scope="row">
        <a href={jobLink(job.name)}>
          <Name text={job.name} most={60} />
        </a>
      </th>
      <td>
        <PhaseBadge phase={job.phase} />
        {job.leader_changes && <small> leader changes</small>}
        {job.reason !== null && <small title={job.reason}> {shortened(job.reason, 60)}</small>}
      </td>
      <td class="right" title={time(job.since_ms)}>
        {ms(Math.max(now - job.since_ms, 0))}
      </td>
      <td class="right">{rate(all?.input)}</td>
      <td class="right">{rate(all?.output)}</td>
      <td class="right">{seconds(all?.latency)}</td>
      <td>
        {busiest !== null && (
          <>
            <Meter share={busiest.busy} label="busy" tone={busyTone(busiest.busy)} /> <Name text={busiest.vertex} most={20} />
          </>
        )}
      </td>
      <td class="right">
        {job.worker_count}/{job.container_count}
      </td>
      <td class="problem">
        {problem !== null && (
          <span title={shortened(problem.message, 2_000)}>
            {time(problem.at_ms, now)}: <Name text={problem.message} most={60} />
          </span>
        )}
      </td>
      <td class="actions">
        {actions.map(({ label, action, isDangerous }) => (
          <button
            key={label}
            type="button"
            class={isDangerous ? "small danger-text" : "small"}
            aria-label={`${label} ${shortened(job.name, 60)}`}
            onClick={() => props.onAction(action)}
          >
            {label}
          </button>
        ))}
      </td>
    </tr>
  );
}

export function Pages({ page, last, onPage }: { page: number; last: number; onPage: (page: number) => void }) {
  return (
    <nav class="pages" aria-label="pages">
      <button type="button" disabled={page === 0} onClick={() => onPage(page - 1)}>
        Previous
      </button>
      <span>
        Page {page + 1} of {last + 1}
      </span>
      <button type="button" disabled={page === last} onClick={() => onPage(page + 1)}>
        Next
      </button>
    </nav>
  );
}

const PAST_PAGE = 20;

function PastJobs({ past }: { past: PastJobSummary[] }) {
  const [page, setPage] = useState(0);
  if (past.length === 0) return null;
  const last = Math.ceil(past.length / PAST_PAGE) - 1;
  const shown = past.slice(page * PAST_PAGE, (page + 1) * PAST_PAGE);
  return (
    <section>
      <h2>Ended</h2>
      <Scroll>
        <table>
          <thead>
            <tr>
              <th scope="col">Job</th>
              <th scope="col">Ending</th>
              <th scope="col">Ended</th>
              <th scope="col" class="right">
                Ran for
              </th>
              <th scope="col" class="right">
                Instances
              </th>
              <th scope="col">Last failure</th>
            </tr>
          </thead>
          <tbody>
            {shown.map((job) => (
              <tr key={job.submission}>
                <th scope="row">
                  <a href={`#/history/${encodeURIComponent(job.name)}`}>
                    <Name text={job.name} most={60} />
                  </a>
                </th>
                <td>{job.ending.replace("_", " ")}</td>
                <td>{time(job.ended_ms)}</td>
                <td class="right">{ms(job.ended_ms - job.submitted_ms)}</td>
                <td class="right">{job.instance_count}</td>
                <td class="problem">{job.last_problem !== null && <Name text={job.last_problem.message} most={80} />}</td>
              </tr>
            ))}
          </tbody>
        </table>
      </Scroll>
      {last > 0 && <Pages page={page} last={last} onPage={setPage} />}
      <p class="hint">{plural(past.length, "ended job")} recorded</p>
    </section>
  );
}
