// The steps of a job as a table: the same figures as the graph.

import type { JobDescription, TopView } from "../api/types";
import { Meter, Name, Scroll, busyTone } from "../components/basics";
import { bytes, percent, rate, seconds } from "../format";
import { jobLink } from "../route";
import type { SlowStep } from "./figures";

export function Steps(props: { name: string; top: TopView | null; job: JobDescription; slow: SlowStep[] }) {
  const slow = new Set(props.slow.map((it) => it.step.vertex));
  const rows = props.top?.vertices ?? [];
  return (
    <section class="steps">
      <h2>Steps</h2>
      <Scroll>
        <table>
          <thead>
            <tr>
              <th scope="col">Step</th>
              <th scope="col" class="right">
                Instances
              </th>
              <th scope="col" class="right">
                In
              </th>
              <th scope="col" class="right">
                Out
              </th>
              <th scope="col">Busy</th>
              <th scope="col">Blocked</th>
              <th scope="col" class="right">
                Queue
              </th>
              <th scope="col" class="right">
                Latency p99
              </th>
              <th scope="col" class="right">
                Watermark lag
              </th>
              <th scope="col" class="right">
                State
              </th>
              <th scope="col" class="right">
                Restarts
              </th>
              <th scope="col" class="right">
                Problems
              </th>
            </tr>
          </thead>
          <tbody>
            {rows.map((it) => (
              <tr key={it.vertex} class={slow.has(it.vertex) ? "slow" : ""}>
                <th scope="row">
                  <a href={jobLink(props.name, "graph", it.vertex)}>
                    <Name text={it.vertex} most={40} />
                  </a>
                </th>
                <td class="right">{it.instances}</td>
                <td class="right">{rate(it.records_in_per_s)}</td>
                <td class="right">{rate(it.records_out_per_s)}</td>
                <td>
                  <Meter share={it.busy} label="busy" tone={busyTone(it.busy)} />
                </td>
                <td>
                  <Meter share={it.backpressure} label="blocked" tone="blocked" />
                  {it.waits_for !== null && (
                    <small>
                      {" "}
                      by <Name text={it.waits_for} most={20} />
                    </small>
                  )}
                </td>
                <td class="right">{percent(it.queue_fill)}</td>
                <td class="right">{seconds(it.latency_p99_s)}</td>
                <td class="right">{seconds(it.lag_s)}</td>
                <td class="right">{it.state === null ? "–" : bytes(it.state.bytes + it.state.disk_bytes)}</td>
                <td class="right">{it.restarts}</td>
                <td class="right">{it.problems}</td>
              </tr>
            ))}
          </tbody>
        </table>
      </Scroll>
    </section>
  );
}
