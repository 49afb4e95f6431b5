// Where the instances of a job run, and the traffic between its containers.

import { segment } from "../api/client";
import type { ContainerView, JobDescription, MetricsRange, PhysicalContainer, Plans, TopView } from "../api/types";
import { Badge, Loading, Name, Scroll } from "../components/basics";
import type { Action } from "../components/dialog";
import { bytes, shortened, time } from "../format";
import { useNow, useResource } from "../live";
import { isEmbedded, restart } from "./actions";

const STATE_TONES = { up: "good", suspected: "warn", down: "bad", planned: "busy" } as const;

export function Placement(props: {
  job: JobDescription;
  top: TopView | null;
  plans: Plans | null;
  onAction: (action: Action) => void;
}) {
  const { job, plans } = props;
  const hosts = new Map<string, ContainerView[]>();
  for (const container of job.containers) {
    const host = container.host_name ?? container.host ?? "not placed yet";
    hosts.set(host, [...(hosts.get(host) ?? []), container]);
  }
  return (
    <section>
      {!isEmbedded(job) && (
        <p class="hint">
          Packing policy {job.packing}, scheduler {job.scheduler}
          {plans?.version != null && `, plan ${plans.version}`}
        </p>
      )}
      {plans === null && <Loading what="the plan" />}
      <div class="hosts">
        {[...hosts].map(([host, containers]) => (
          <section key={host} class="host" aria-label={`host ${shortened(host, 60)}`}>
            <h2>
              <Name text={host} most={60} />
            </h2>
            {containers.map((container) => (
              <Container
                key={container.id}
                job={job}
                container={container}
                groups={plans?.physical.containers.find((it) => it.id === container.id)?.groups ?? []}
                top={props.top}
                onAction={props.onAction}
              />
            ))}
          </section>
        ))}
      </div>
      {job.containers.length > 1 && <Traffic job={job} />}
    </section>
  );
}

function Container(props: {
  job: JobDescription;
  container: ContainerView;
  groups: PhysicalContainer["groups"];
  top: TopView | null;
  onAction: (action: Action) => void;
}) {
  const { container, job } = props;
  const load = props.top?.containers.find((it) => it.container === container.id);
  const busy = new Map(props.top?.vertices.map((it) => [it.vertex, it.busy ?? 0]));
  return (
    <div class="container">
      <div class="heading">
        <h3>
          Container {container.id} <Badge tone={STATE_TONES[container.state]}>{container.state}</Badge>
        </h3>
        {!isEmbedded(job) && (
          <button
            type="button"
            class="small"
            aria-label={`restart container ${container.id}`}
            onClick={() => props.onAction(restart(job, container.id))}
          >
            Restart
          </button>
        )}
      </div>
      <p class="hint">
        {container.process ?? "no process"} · {load?.cpu_cores?.toFixed(2) ?? "–"} cores · {bytes(load?.memory_bytes)}
        {container.required.memory_bytes > 0 && ` of ${bytes(container.required.memory_bytes)}`} · {container.restarts} restarts
        {container.heard_ms !== null && container.state !== "up" && ` · last heard ${time(container.heard_ms)}`}
      </p>
      <div class="instances">
        {props.groups.map((group) => (
          <span
            key={group.vertices.join(" ")}
            class={`group ${(busy.get(group.vertices[0] ?? "") ?? 0) >= 0.9 ? "bad" : ""}`}
            title={`instances ${group.instances.join(", ")}`}
          >
            <Name text={group.vertices.join(" + ")} most={40} /> <small>×{group.instances.length}</small>
          </span>
        ))}
        {props.groups.length === 0 && container.instances.map((it) => <span class="group">{shortened(it, 40)}</span>)}
      </div>
    </div>
  );
}

/** Bytes per second between the containers, of the last minute. */
function Traffic({ job }: { job: JobDescription }) {
  const now = useNow(5_000);
  const from = Math.floor((now - 60_000) / 5_000) * 5_000;
  const range = useResource<MetricsRange>(`/jobs/${segment(job.name)}/metrics/range`, {
    name: "ardea_link_bytes_out_total",
    from_ms: from,
  });
  const rates = new Map<string, number>();
  for (const series of range.data?.series ?? []) {
    const values = series.points.map((it) => it.value).filter((it) => it !== null);
    const grown = values.reduce((all, value) => all + value, 0);
    const lasted = (values.length * (range.data?.step_ms ?? 1_000)) / 1_000;
    const key = `${series.labels["container"]} ${series.labels["peer"]}`;
    if (lasted > 0) rates.set(key, (rates.get(key) ?? 0) + grown / lasted);
  }
  const most = Math.max(...rates.values(), 1);
  const ids = job.containers.map((it) => it.id).slice(0, 40);
  return (
    <>
      <h2>Traffic between containers</h2>
      <Scroll>
        <table class="matrix">
          <thead>
            <tr>
              <th scope="col">from \ to</th>
              {ids.map((id) => (
                <th key={id} scope="col">
                  {id}
                </th>
              ))}
            </tr>
          </thead>
          <tbody>
            {ids.map((from) => (
              <tr key={from}>
                <th scope="row">{from}</th>
                {ids.map((to) => {
                  const value = rates.get(`${from} ${to}`);
                  const transport = job.containers.find((it) => it.id === from)?.transports[String(to)];
                  const weight = value === undefined ? 0 : Math.round((value / most) * 28);
                  return (
                    <td key={to} style={{ background: `color-mix(in srgb, var(--info) ${weight}%, transparent)` }} title={transport ?? ""}>
                      {value === undefined ? "" : `${bytes(value)}/s`}
                      {transport !== undefined && <small> {transport}</small>}
                    </td>
                  );
                })}
              </tr>
            ))}
          </tbody>
        </table>
      </Scroll>
    </>
  );
}
