// The checkpoints of a job with a guarantee: duration, size, failures.

import { segment } from "../api/client";
import type { CheckpointsView, JobDescription, MetricsRange } from "../api/types";
import { Badge, Empty, ErrorBox, Figure, Loading, Name, Scroll } from "../components/basics";
import { Chart } from "../components/chart";
import type { Action } from "../components/dialog";
import { bytes, ms, percent, seconds, shortened } from "../format";
import { useNow, useResource } from "../live";
import { checkFiles } from "./actions";

export function Checkpoints({ job, onAction }: { job: JobDescription; onAction: (action: Action) => void }) {
  const epochs = job.epochs;
  if (epochs === null) {
    return (
      <Empty>
        <p>This job has no guarantee, so it takes no checkpoints.</p>
        <p>
          Submit it with <code>--set guarantee=exactly-once</code>.
        </p>
      </Empty>
    );
  }
  return (
    <section>
      <dl class="figures">
        <Figure label="Guarantee" value={epochs.guarantee} tone="text" />
        <Figure label="Latest epoch" value={epochs.committed === null ? "–" : String(epochs.committed)} />
        <Figure label="Took" value={ms(epochs.took_ms)} />
        <Figure label="Written" value={bytes(epochs.written_bytes)} />
        <Figure label="Committed" value={String(epochs.committed_count)} />
        <Figure label="Aborted" value={String(epochs.aborted_count)} tone={epochs.aborted_count > 0 ? "warn" : ""} />
        <Figure label="Rollbacks" value={String(epochs.rolled_back_count)} tone={epochs.rolled_back_count > 0 ? "warn" : ""} />
        <Figure
          label="Attempt"
          value={String(epochs.life)}
          {...(epochs.restored_in_ms === null ? {} : { note: ` restored in ${ms(epochs.restored_in_ms)}` })}
        />
      </dl>
      <History job={job.name} />
      <List job={job} onAction={onAction} />
    </section>
  );
}

function History({ job }: { job: string }) {
  const now = useNow(5_000);
  const from = Math.floor((now - 600_000) / 5_000) * 5_000;
  const path = `/jobs/${segment(job)}/metrics/range`;
  const took = useResource<MetricsRange>(path, { name: "ardea_epoch_seconds", from_ms: from });
  const size = useResource<MetricsRange>(path, { name: "ardea_epoch_bytes", from_ms: from });
  const every = useResource<MetricsRange>(path, { name: "ardea_epoch_interval_seconds", from_ms: from });
  const points = (range: MetricsRange | null) =>
    (range?.series[0]?.points ?? []).map((point) => ({ at: point.at_ms, value: point.value }));
  const interval = points(every.data);
  return (
    <div class="charts">
      <Chart label="Duration of checkpoints" format={seconds} lines={[{ label: "took", tone: "info", points: points(took.data) }]} />
      <Chart label="Size of checkpoints" format={bytes} lines={[{ label: "written", tone: "good", points: points(size.data) }]} />
      <Chart label="Interval of checkpoints" format={seconds} lines={[{ label: "interval", tone: "info", points: interval }]} />
      <Chart
        label="Share of time in checkpoints"
        format={percent}
        lines={[{ label: "coordination", tone: "warn", points: sharesOf(points(took.data), interval) }]}
      />
    </div>
  );
}

interface Point {
  at: number;
  value: number | null;
}

/** Returns the duration of checkpoints as a share of the interval at the same time. */
export function sharesOf(took: Point[], interval: Point[]): Point[] {
  const byTime = new Map(interval.map((it) => [it.at, it.value]));
  return took.map(({ at, value }) => {
    const every = byTime.get(at) ?? null;
    return { at, value: value === null || every === null || every <= 0 ? null : Math.min(value / every, 1) };
  });
}

function List({ job, onAction }: { job: JobDescription; onAction: (action: Action) => void }) {
  const list = useResource<CheckpointsView>(`/jobs/${segment(job.name)}/checkpoints`, {}, 5_000);
  if (list.error !== null && list.data === null) return <ErrorBox error={list.error} />;
  if (list.data === null) return <Loading what="the checkpoints" />;
  const latest = [...list.data.checkpoints].reverse();
  return (
    <>
      <div class="heading">
        <h2>Usable checkpoints</h2>
        <button type="button" onClick={() => onAction(checkFiles(job))}>
          Verify files
        </button>
      </div>
      <p class="hint">
        in <Name text={list.data.folder} most={120} />
      </p>
      <Scroll>
        <table>
          <thead>
            <tr>
              <th scope="col" class="right">
                Epoch
              </th>
              <th scope="col">Committed</th>
              <th scope="col" class="right">
                Took
              </th>
              <th scope="col" class="right">
                Written
              </th>
              <th scope="col" class="right">
                State
              </th>
              <th scope="col">Slowest step</th>
              <th scope="col" class="right">
                Alignment
              </th>
              <th scope="col">Files</th>
            </tr>
          </thead>
          <tbody>
            {latest.map((it) => {
              const slowest = it.vertices.reduce<(typeof it.vertices)[number] | null>(
                (worst, vertex) => (worst === null || vertex.took_ms > worst.took_ms ? vertex : worst),
                null,
              );
              const aligned = Math.max(...it.vertices.map((vertex) => vertex.aligned_ms ?? 0), 0);
              return (
                <tr key={it.epoch}>
                  <th scope="row" class="right">
                    {it.epoch}
                  </th>
                  <td>{it.committed_at ?? "–"}</td>
                  <td class="right">{ms(it.took_ms)}</td>
                  <td class="right">{bytes(it.written_bytes)}</td>
                  <td class="right">{bytes(it.state_bytes)}</td>
                  <td>
                    {slowest !== null && (
                      <>
                        <Name text={slowest.name} most={30} /> <small>{ms(slowest.took_ms)}</small>
                      </>
                    )}
                  </td>
                  <td class="right">{ms(aligned)}</td>
                  <td>
                    {it.damage === undefined ? (
                      <Badge tone="good">usable</Badge>
                    ) : (
                      <span title={it.damage.message}>
                        <Badge tone="bad">damaged</Badge> {shortened(it.damage.message, 80)}
                      </span>
                    )}
                  </td>
                </tr>
              );
            })}
          </tbody>
        </table>
      </Scroll>
      {latest.length === 0 && <p class="hint">No checkpoint is complete yet.</p>}
    </>
  );
}
