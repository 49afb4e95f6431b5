// The causes for which a job is slow, late or stuck, with the figures that show them.

import { segment } from "../api/client";
import type { CauseView, Diagnosis, FigureView, JobDescription } from "../api/types";
import { Badge, ErrorBox, Name } from "../components/basics";
import { bytes, percent, rate, seconds, short, shortened } from "../format";
import { useResource } from "../live";
import { jobLink } from "../route";

/** Time between two diagnoses. The figures are means of ten seconds. */
const EVERY_MS = 5_000;
/** A severity from which a cause slows the job down; below it is a remark. */
const SLOWS_FROM = 0.3;

export function WhyPanel({ job }: { job: JobDescription }) {
  const found = useResource<Diagnosis>(`/jobs/${segment(job.name)}/why`, {}, EVERY_MS);
  const causes = found.data?.causes ?? [];
  return (
    <section class="why" aria-label="why">
      <h2>Why</h2>
      {found.error !== null && found.data === null && <ErrorBox error={found.error} />}
      {found.data !== null && !found.data.is_measured && <p class="hint">Its processes have not reported metrics yet.</p>}
      {found.data !== null && causes.length === 0 && <p class="hint">No figure shows a problem.</p>}
      <ol class="causes">
        {causes.map((cause) => (
          <Cause key={`${cause.kind} ${cause.subject}`} cause={cause} job={job} />
        ))}
      </ol>
    </section>
  );
}

function Cause({ cause, job }: { cause: CauseView; job: JobDescription }) {
  return (
    <li>
      <p class="cause">
        <Badge tone={tone(cause.severity)}>{cause.kind.replaceAll("_", " ")}</Badge>{" "}
        {cause.subject !== null && <Subject subject={cause.subject} job={job} />}
        <span class="hint"> severity {percent(cause.severity)}</span>
      </p>
      <p>{shortened(cause.summary, 1_000)}</p>
      <dl class="cause-figures">
        {cause.figures.map((figure) => (
          <div key={figure.name}>
            <dt>
              <bdi>{shortened(figure.name, 200)}</bdi>
            </dt>
            <dd>{figureText(figure)}</dd>
          </div>
        ))}
      </dl>
      <p class="advice">{shortened(cause.advice, 1_000)}</p>
    </li>
  );
}

/** The subject of a cause. A step or an instance of it leads to the step's panel. */
function Subject({ subject, job }: { subject: string; job: JobDescription }) {
  const isStep = (name: string) => job.vertices.some((it) => it.name === name);
  const end = subject.lastIndexOf("#");
  const step = isStep(subject) ? subject : end < 0 ? null : subject.slice(0, end);
  if (step === null || !isStep(step)) return <Name text={subject} most={80} />;
  return (
    <a href={jobLink(job.name, "graph", step)}>
      <Name text={subject} most={80} />
    </a>
  );
}

function tone(severity: number): string {
  return severity < SLOWS_FROM ? "muted" : severity < 0.7 ? "warn" : "bad";
}

export function figureText({ value, unit }: FigureView): string {
  switch (unit) {
    case "ratio":
      return `${Math.round(value * 100)} %`;
    case "seconds":
      return seconds(value);
    case "bytes":
      return bytes(value);
    case "count":
      return short(value);
    case "per_second":
      return rate(value);
    case "cores":
      return `${value.toFixed(2)} cores`;
  }
}
