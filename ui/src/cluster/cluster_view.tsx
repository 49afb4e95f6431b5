// The hosts of the cluster, with what runs on them.

import { useState } from "preact/hooks";
import { command, segment } from "../api/client";
import type { HostView, TopView } from "../api/types";
import { Badge, ConnectionBar, ErrorBox, Figure, Loading, Meter, Name, busyTone } from "../components/basics";
import { ActionDialog, type Action } from "../components/dialog";
import { bytes, plural, shortened } from "../format";
import { useEvents } from "../live";
import { jobLink } from "../route";
import { foldCluster, NO_CLUSTER } from "./jobs_view";

export function ClusterView() {
  const live = useEvents("/events", {}, NO_CLUSTER, foldCluster);
  const [action, setAction] = useState<Action | null>(null);
  const { hosts, jobs, loads } = live.state;
  const isRefused = live.connection.is === "broken" && live.connection.error.status >= 400 && hosts === null;
  return (
    <>
      <ConnectionBar connection={live.connection} />
      <h1>Cluster</h1>
      {isRefused && live.connection.is === "broken" && <ErrorBox error={live.connection.error} />}
      {hosts === null && !isRefused && <Loading what="the hosts" />}
      {hosts !== null && (
        <dl class="figures">
          <Figure label="Hosts" value={String(hosts.length)} />
          <Figure label="Jobs" value={String(jobs?.length ?? 0)} />
          <Figure label="Containers" value={String(hosts.reduce((all, host) => all + host.containers.length, 0))} />
          <Figure label="Memory in use" value={bytes(memoryOf(loads))} />
        </dl>
      )}
      <div class="hosts">
        {hosts?.map((host) => (
          <Host key={host.name} host={host} loads={loads} onAction={setAction} />
        ))}
      </div>
      {action !== null && <ActionDialog action={action} onClose={() => setAction(null)} />}
    </>
  );
}

function memoryOf(loads: Map<string, TopView>): number {
  let total = 0;
  for (const top of loads.values()) for (const one of top.containers) total += one.memory_bytes ?? 0;
  return total;
}

function Host(props: { host: HostView; loads: Map<string, TopView>; onAction: (action: Action) => void }) {
  const { host, loads } = props;
  const cores = host.total.cpu_milli / 1_000;
  const reserved = (free: number, total: number) => (total === 0 ? 0 : 1 - free / total);
  const cpu = reserved(host.free.cpu_milli, host.total.cpu_milli);
  const memory = reserved(host.free.memory_bytes, host.total.memory_bytes);
  return (
    <section class="host" aria-label={`host ${shortened(host.name, 60)}`}>
      <h2>
        <Name text={host.name} most={60} /> {host.drained ? <Badge tone="warn">drained</Badge> : <Badge tone="good">up</Badge>}
      </h2>
      <p class="hint">
        {host.address} · pid {host.pid} · version {host.version}
      </p>
      <p class="pair">
        <span>
          {cores} cores, reserved <Meter share={cpu} label="reserved cores" tone={busyTone(cpu)} />
        </span>
        <span>
          {bytes(host.total.memory_bytes)}, reserved <Meter share={memory} label="reserved memory" tone={busyTone(memory)} />
        </span>
      </p>
      {host.leads.length > 0 && (
        <p>
          Leads{" "}
          {host.leads.map((job) => (
            <a key={job} class="chip" href={jobLink(job)}>
              <Name text={job} most={30} />
            </a>
          ))}
        </p>
      )}
      <ul class="containers">
        {host.containers.map((it) => {
          const load = loads.get(it.job)?.containers.find((one) => one.container === it.container);
          return (
            <li key={`${it.job} ${it.container}`}>
              <a href={jobLink(it.job, "placement")}>
                <Name text={it.job} most={40} /> container {it.container}
              </a>
              <small>
                {it.process ?? ""}
                {load !== undefined && ` · ${load.cpu_cores?.toFixed(2) ?? "–"} cores · ${bytes(load.memory_bytes)}`}
              </small>
            </li>
          );
        })}
        {host.containers.length === 0 && <li class="hint">no containers</li>}
      </ul>
      <div class="buttons left">
        <button type="button" class="small" onClick={() => props.onAction(host.drained ? undrain(host) : drain(host))}>
          {host.drained ? "End draining" : "Drain"}
        </button>
      </div>
    </section>
  );
}

function drain(host: HostView): Action {
  return {
    title: `Drain ${shortened(host.name, 60)}?`,
    text: <p>No container is placed there any more, and its {plural(host.holds, "container")} move to other hosts.</p>,
    confirm: "Drain",
    run: () => command("POST", `/hosts/${segment(host.name)}/drain`),
  };
}

function undrain(host: HostView): Action {
  return {
    title: `End the draining of ${shortened(host.name, 60)}?`,
    text: <p>Containers may be placed there again. Those that have moved do not return.</p>,
    confirm: "End draining",
    run: () => command("DELETE", `/hosts/${segment(host.name)}/drain`),
  };
}
