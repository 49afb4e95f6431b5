// Figures derived from a job's load: rates of edges, the slow step, totals.

import type { LogicalEdge, Plans, SampleView, TopView, VertexTop } from "../api/types";

/** Share of time from which a step counts as slow. */
const SLOW_BUSY = 0.9;
const BLOCKED = 0.1;
/** Share of the busy time below which a step waits in its calls. */
export const COMPUTES = 0.6;

export interface JobTotals {
  /** Records per second that the sources emit. */
  input: number | null;
  /** Records per second that the sinks read. */
  output: number | null;
  latency: number | null;
  busiest: VertexTop | null;
}

/** Returns the totals of a job. Without its graph, steps that read or write nothing count as its ends. */
export function totals(top: TopView, edges: LogicalEdge[] | null): JobTotals {
  const vertices = top.vertices;
  const hasInput = new Set(edges?.map((edge) => edge.to));
  const hasOutput = new Set(edges?.map((edge) => edge.from));
  const sources = vertices.filter((it) => (edges === null ? !it.records_in_per_s : !hasInput.has(it.vertex)));
  const sinks = vertices.filter((it) => (edges === null ? !it.records_out_per_s : !hasOutput.has(it.vertex)));
  return {
    input: sum(sources.map((it) => it.records_out_per_s)),
    output: sum(sinks.map((it) => it.records_in_per_s)),
    latency: greatest(sinks.map((it) => it.latency_p99_s)) ?? greatest(vertices.map((it) => it.latency_p99_s)),
    busiest: vertices.reduce<VertexTop | null>((best, it) => ((it.busy ?? -1) > (best?.busy ?? -1) ? it : best), null),
  };
}

export function sum(values: (number | null)[]): number | null {
  const known = values.filter((value) => value !== null);
  return known.length === 0 ? null : known.reduce((total, value) => total + value, 0);
}

export function greatest(values: (number | null)[]): number | null {
  const known = values.filter((value) => value !== null);
  return known.length === 0 ? null : Math.max(...known);
}

/** Returns the records per second on an edge, if the figures of its ends determine it. */
export function edgeRate(edge: LogicalEdge, edges: LogicalEdge[], load: Map<string, VertexTop>): number | null {
  const inputs = edges.filter((it) => it.to === edge.to);
  if (inputs.length === 1) return load.get(edge.to)?.records_in_per_s ?? null;
  const outputs = edges.filter((it) => it.from === edge.from);
  if (outputs.length === 1) return load.get(edge.from)?.records_out_per_s ?? null;
  return null;
}

export interface SlowStep {
  step: VertexTop;
  /** Steps that wait for it. */
  blocked: VertexTop[];
}

/** Returns the steps that slow the job down, the worst first. */
export function slowSteps(top: TopView | null): SlowStep[] {
  if (top === null) return [];
  const slow = top.vertices.filter((it) => {
    const holdsUp = top.vertices.some((other) => other.waits_for === it.vertex);
    const isBusy = (it.busy ?? 0) >= SLOW_BUSY && (it.backpressure ?? 0) < BLOCKED;
    return holdsUp || it.is_failing || (isBusy && !waitsForInput(it));
  });
  const found = slow.map((step) => ({
    step,
    blocked: top.vertices.filter((it) => it.waits_for === step.vertex),
  }));
  return found.sort((one, other) => weight(other) - weight(one));
}

/** Returns true for a source that mostly waits for its system, which may have nothing to read. */
function waitsForInput(step: VertexTop): boolean {
  return !step.records_in_per_s && step.busy_cpu !== null && step.busy_cpu < (step.busy ?? 0) * COMPUTES;
}

function weight(slow: SlowStep): number {
  return slow.blocked.length * 10 + (slow.step.is_failing ? 5 : 0) + (slow.step.busy ?? 0);
}

/** The figures of an instance of a step. */
export interface InstanceFigures {
  instance: number;
  container: string;
  input: number | null;
  output: number | null;
  busy: number | null;
  blocked: number | null;
  queue: number | null;
  watermark: number | null;
  lag: number | null;
  stateBytes: number | null;
  stateKeys: number | null;
  late: number;
  bad: number;
  restarts: number;
  exceptions: number;
}

/** The samples of a step, with those of before, from which the rates are computed. */
export interface Samples {
  vertex: string | null;
  at: number;
  now: SampleView[];
  before: Map<string, { value: number; at: number }>;
}

export const NO_SAMPLES: Samples = { vertex: null, at: 0, now: [], before: new Map() };

/** Adds the next samples. */
export function nextSamples(samples: Samples, now: SampleView[]): Samples {
  const vertex = now[0]?.labels["vertex"] ?? null;
  const before = new Map<string, { value: number; at: number }>();
  if (vertex === samples.vertex) {
    for (const one of samples.now) if (one.value !== null) before.set(keyOf(one), { value: one.value, at: one.at_ms });
    // Values that have not been measured again keep their predecessor.
    for (const one of now) {
      const key = keyOf(one);
      const old = samples.before.get(key);
      if (old !== undefined && before.get(key)?.at === one.at_ms) before.set(key, old);
    }
  }
  return { vertex, at: Date.now(), now, before };
}

function keyOf(sample: SampleView): string {
  const { instance = "", container = "", code = "" } = sample.labels;
  return `${sample.name} ${instance} ${container} ${code}`;
}

/** Returns the figures of each instance, by its number. */
export function instances(samples: Samples): InstanceFigures[] {
  const found = new Map<number, InstanceFigures>();
  for (const sample of samples.now) {
    const instance = Number(sample.labels["instance"]);
    if (!Number.isInteger(instance)) continue;
    const figures = found.get(instance) ?? noFigures(instance);
    found.set(instance, figures);
    figures.container = sample.labels["container"] ?? figures.container;
    read(figures, sample, growth(samples, sample));
  }
  return [...found.values()].sort((one, other) => one.instance - other.instance);
}

function noFigures(instance: number): InstanceFigures {
  return {
    instance,
    container: "",
    input: null,
    output: null,
    busy: null,
    blocked: null,
    queue: null,
    watermark: null,
    lag: null,
    stateBytes: null,
    stateKeys: null,
    late: 0,
    bad: 0,
    restarts: 0,
    exceptions: 0,
  };
}

/** Returns the growth of a counter per second; `null` before there are two values. */
function growth(samples: Samples, sample: SampleView): number | null {
  const before = samples.before.get(keyOf(sample));
  if (before === undefined || sample.value === null || sample.at_ms <= before.at) return null;
  const grown = sample.value - before.value;
  return grown < 0 ? null : (grown * 1_000) / (sample.at_ms - before.at);
}

function read(figures: InstanceFigures, sample: SampleView, perSecond: number | null): void {
  const value = sample.value ?? 0;
  switch (sample.name) {
    case "ardea_records_in_total":
      figures.input = perSecond;
      break;
    case "ardea_records_out_total":
      figures.output = perSecond;
      break;
    case "ardea_busy_seconds_total":
      figures.busy = perSecond;
      break;
    case "ardea_blocked_seconds_total":
      figures.blocked = perSecond;
      break;
    case "ardea_queue_fill_ratio":
      figures.queue = value;
      break;
    case "ardea_watermark_seconds":
      figures.watermark = sample.value;
      break;
    case "ardea_watermark_lag_seconds":
      figures.lag = sample.value;
      break;
    case "ardea_state_bytes":
    case "ardea_state_disk_bytes":
      figures.stateBytes = (figures.stateBytes ?? 0) + value;
      break;
    case "ardea_state_keys":
    case "ardea_state_disk_keys":
      figures.stateKeys = (figures.stateKeys ?? 0) + value;
      break;
    case "ardea_late_records_total":
      figures.late += value;
      break;
    case "ardea_bad_records_total":
      figures.bad += value;
      break;
    case "ardea_instance_restarts_total":
      figures.restarts += value;
      break;
    case "ardea_exceptions_total":
      figures.exceptions += value;
      break;
    default:
  }
}

export interface Skew {
  instance: number;
  /** Its share of the records, from 0 to 1. */
  share: number;
  /** Its records as a multiple of the mean. */
  factor: number;
}

/** Returns the instance that gets most records, if it gets clearly more than the mean. */
export function skewOf(figures: InstanceFigures[]): Skew | null {
  const load = figures.map((it) => ({ instance: it.instance, value: it.input || it.output || 0 }));
  const total = load.reduce((all, it) => all + it.value, 0);
  if (load.length < 2 || total === 0) return null;
  const most = load.reduce((best, it) => (it.value > best.value ? it : best));
  const factor = (most.value * load.length) / total;
  return factor >= 1.5 ? { instance: most.instance, share: most.value / total, factor } : null;
}

/** Returns the instance that holds back the step's watermark, if another is clearly ahead. */
export function watermarkHolder(figures: InstanceFigures[]): { instance: number; behind: number } | null {
  const known = figures.filter((it) => it.watermark !== null);
  if (known.length < 2) return null;
  const last = known.reduce((least, it) => (it.watermark! < least.watermark! ? it : least));
  const behind = Math.max(...known.map((it) => it.watermark!)) - last.watermark!;
  return behind >= 1 ? { instance: last.instance, behind } : null;
}

export function loadOf(top: TopView | null): Map<string, VertexTop> {
  return new Map(top?.vertices.map((it) => [it.vertex, it]));
}

export function sinksOf(plans: Plans): string[] {
  const hasOutput = new Set(plans.logical.edges.map((edge) => edge.from));
  return plans.logical.vertices.map((it) => it.name).filter((name) => !hasOutput.has(name));
}
