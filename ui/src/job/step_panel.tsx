// The panel of a step: its instances, their skew, watermarks, state and errors.

import { useState } from "preact/hooks";
import type { JobDescription, TopView } from "../api/types";
import { Figure, Meter, Name, Scroll, busyTone } from "../components/basics";
import { bytes, percent, rate, seconds, short, shortened, time } from "../format";
import { DeadLetters } from "./dead_letters";
import { COMPUTES, type InstanceFigures, instances, type Samples, skewOf, type SlowStep, watermarkHolder } from "./figures";

const SHOWN = 50;

export function StepPanel(props: {
  job: JobDescription;
  step: string;
  top: TopView | null;
  samples: Samples;
  slow: SlowStep[];
  onClose: () => void;
}) {
  const { job, step, top } = props;
  const load = top?.vertices.find((it) => it.vertex === step) ?? null;
  const figures = props.samples.vertex === step ? instances(props.samples) : [];
  const vertex = job.vertices.find((it) => it.name === step);
  const problems = job.problems.filter((it) => it.instance.slice(0, it.instance.lastIndexOf("#")) === step);
  const late = figures.reduce((all, it) => all + it.late, 0);
  const bad = figures.reduce((all, it) => all + it.bad, 0);
  const onKey = (event: KeyboardEvent) => {
    if (event.key === "Escape") props.onClose();
  };
  return (
    <aside class="panel" aria-label={`step ${shortened(step, 80)}`} onKeyDown={onKey}>
      <div class="heading">
        <h2>
          <Name text={step} most={80} />
        </h2>
        <button type="button" class="quiet" aria-label="close the panel" onClick={props.onClose}>
          ✕
        </button>
      </div>
      <dl class="figures small">
        <Figure label="In" value={rate(load?.records_in_per_s)} />
        <Figure label="Out" value={rate(load?.records_out_per_s)} />
        <Figure label="Busy" value={percent(load?.busy)} note={cpuNote(load?.busy ?? null, load?.busy_cpu ?? null)} />
        <Figure label="Blocked" value={percent(load?.backpressure)} />
        <Figure label="Queue" value={percent(load?.queue_fill)} />
        <Figure label="Latency p99" value={seconds(load?.latency_p99_s)} />
        <Figure label="Watermark lag" value={seconds(load?.lag_s)} />
        <Figure
          label="State"
          value={load?.state == null ? "–" : bytes(load.state.bytes + load.state.disk_bytes)}
          {...(load?.state == null ? {} : { note: ` ${short(load.state.keys + load.state.disk_keys)} keys` })}
        />
        <Figure label="Late records" value={short(late)} tone={late > 0 ? "warn" : ""} />
        <Figure label="Bad records" value={short(bad)} tone={bad > 0 ? "warn" : ""} />
        <Figure label="Restarts" value={String(load?.restarts ?? vertex?.restarts ?? 0)} />
        <Figure label="Errors" value={String(vertex?.exceptions ?? 0)} tone={(vertex?.exceptions ?? 0) > 0 ? "bad" : ""} />
      </dl>
      <Findings step={step} figures={figures} slow={props.slow} job={job.name} />
      <Instances figures={figures} count={vertex?.parallelism ?? 0} />
      <DeadLetters job={job.name} step={step} bad={bad} />
      {problems.length > 0 && (
        <section>
          <h3>Last errors</h3>
          <ul class="problems">
            {problems.slice(0, 10).map((it) => (
              <li key={it.instance}>
                <p>
                  <Name text={it.instance} most={60} /> · {it.count}× · last {time(it.at_ms)}
                </p>
                <pre class="wrap">{shortened(it.message, 2_000)}</pre>
              </li>
            ))}
          </ul>
        </section>
      )}
    </aside>
  );
}

function cpuNote(busy: number | null, cpu: number | null): string {
  return busy !== null && cpu !== null && busy - cpu > 0.15 ? ` ${percent(cpu)} cpu` : "";
}

/** What is conspicuous about the step, in words. */
function Findings(props: { step: string; figures: InstanceFigures[]; slow: SlowStep[]; job: string }) {
  const skew = skewOf(props.figures);
  const holder = watermarkHolder(props.figures);
  const slow = props.slow.find((it) => it.step.vertex === props.step);
  const found: string[] = [];
  if (slow !== undefined) {
    found.push(
      slow.step.is_failing
        ? "This step fails again and again; see its last errors."
        : `This step holds the job up. ${advice(slow, skew !== null)}`,
    );
  }
  if (skew !== null) {
    found.push(
      `Skewed: instance ${skew.instance} gets ${percent(skew.share)} of the records, ${skew.factor.toFixed(1)} times the mean.`,
    );
  }
  if (holder !== null) {
    found.push(`Instance ${holder.instance} holds back the watermark: it is ${seconds(holder.behind)} behind the first.`);
  }
  if (found.length === 0) return null;
  return (
    <ul class="findings">
      {found.map((text) => (
        <li key={text}>{text}</li>
      ))}
    </ul>
  );
}

function advice(slow: SlowStep, isSkewed: boolean): string {
  if (isSkewed) return "More instances do not help a skewed key: aggregate in two stages, or split the key.";
  const { busy, busy_cpu: cpu } = slow.step;
  if (busy !== null && cpu !== null && cpu < busy * COMPUTES) {
    return "It waits rather than computes: for an outside system, or for a core that others use.";
  }
  return "Give it more instances (Rescale), or make it cheaper.";
}

function Instances({ figures, count }: { figures: InstanceFigures[]; count: number }) {
  const [isAll, setAll] = useState(false);
  const most = Math.max(...figures.map((it) => it.input || it.output || 0), 1);
  const shown = isAll ? figures : figures.slice(0, SHOWN);
  return (
    <section>
      <h3>Instances ({count})</h3>
      <Scroll>
        <table class="dense">
          <thead>
            <tr>
              <th scope="col">#</th>
              <th scope="col">Records</th>
              <th scope="col">Busy</th>
              <th scope="col">Blocked</th>
              <th scope="col" class="right">
                Queue
              </th>
              <th scope="col" class="right">
                Lag
              </th>
              <th scope="col" class="right">
                State
              </th>
              <th scope="col" class="right">
                Late
              </th>
              <th scope="col" class="right">
                Bad
              </th>
              <th scope="col" class="right">
                Restarts
              </th>
            </tr>
          </thead>
          <tbody>
            {shown.map((it) => {
              const load = it.input || it.output;
              return (
                <tr key={it.instance}>
                  <th scope="row" title={`container ${it.container}`}>
                    {it.instance}
                  </th>
                  <td>
                    <span class="meter" role="img" aria-label={`records ${rate(load)}`}>
                      <span class="track">
                        <span class="fill info" style={{ width: `${((load ?? 0) / most) * 100}%` }} />
                      </span>
                      <span class="number wide">{rate(load)}</span>
                    </span>
                  </td>
                  <td>
                    <Meter share={it.busy} label="busy" tone={busyTone(it.busy)} />
                  </td>
                  <td>
                    <Meter share={it.blocked} label="blocked" tone="blocked" />
                  </td>
                  <td class="right">{percent(it.queue)}</td>
                  <td class="right">{seconds(it.lag)}</td>
                  <td class="right">{bytes(it.stateBytes)}</td>
                  <td class="right">{short(it.late)}</td>
                  <td class="right">{short(it.bad)}</td>
                  <td class="right">{short(it.restarts)}</td>
                </tr>
              );
            })}
            {figures.length === 0 && (
              <tr>
                <td colSpan={10}>measuring …</td>
              </tr>
            )}
          </tbody>
        </table>
      </Scroll>
      {!isAll && figures.length > SHOWN && (
        <button type="button" onClick={() => setAll(true)}>
          Show all {figures.length}
        </button>
      )}
    </section>
  );
}

