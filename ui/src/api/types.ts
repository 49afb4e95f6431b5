// The JSON types of the REST interface, as far as the page reads them.
// Their meaning is described in /v1/openapi.json.

export type Phase =
  | "reading"
  | "impossible"
  | "starting"
  | "running"
  | "paused"
  | "recovering"
  | "updating"
  | "finished"
  | "safe_mode"
  | "killing"
  | "gone";

export interface ProblemView {
  instance: string;
  count: number;
  at_ms: number;
  message: string;
}

export interface JobSummary {
  name: string;
  submission: string;
  phase: Phase;
  reason: string | null;
  since_ms: number;
  container_count: number;
  worker_count: number;
  instance_count: number;
  version: string;
  restarting_count: number;
  last_problem: ProblemView | null;
  leader_changes: boolean;
}

export interface Resources {
  cpu_milli: number;
  memory_bytes: number;
  disk_bytes: number | null;
}

export interface VertexView {
  name: string;
  parallelism: number;
  resources: Resources;
  restarts: number;
  exceptions: number;
}

export type ContainerState = "up" | "suspected" | "down" | "planned";

export interface ContainerView {
  id: number;
  state: ContainerState;
  host: string | null;
  host_name: string | null;
  process: string | null;
  address: string | null;
  heard_ms: number | null;
  restarts: number;
  required: Resources;
  instances: string[];
  transports: Record<string, string>;
}

export interface NoteView {
  at_ms: number;
  text: string;
}

export interface EpochsView {
  guarantee: string;
  life: number;
  has_begun: boolean;
  restored_from: number | null;
  restored_in_ms: number | null;
  committed: number | null;
  is_published: boolean;
  committed_ms: number | null;
  took_ms: number | null;
  written_bytes: number | null;
  committed_count: number;
  aborted_count: number;
  rolled_back_count: number;
  safe_mode: string | null;
  trouble: string | null;
}

export interface UpgradeView {
  stage: string;
  text: string;
  why: string | null;
  other: string | null;
}

export interface JobDescription extends JobSummary {
  program: { package: string; executable: string; arguments: string[] };
  packing: string;
  scheduler: string;
  settings: Record<string, string>;
  master: { host: string; address: string; epoch: number } | null;
  epochs: EpochsView | null;
  upgrade: UpgradeView | null;
  vertices: VertexView[];
  containers: ContainerView[];
  problems: ProblemView[];
  notes: NoteView[];
}

export interface StateTop {
  keys: number;
  bytes: number;
  disk_keys: number;
  disk_bytes: number;
}

export interface VertexTop {
  vertex: string;
  instances: number;
  records_in_per_s: number | null;
  records_out_per_s: number | null;
  busy: number | null;
  busy_cpu: number | null;
  backpressure: number | null;
  waits_for: string | null;
  idle: number | null;
  queue_fill: number | null;
  latency_p99_s: number | null;
  lag_s: number | null;
  restarts: number;
  is_failing: boolean;
  problems: number;
  state: StateTop | null;
}

export interface ContainerTop {
  container: number;
  host: string | null;
  host_name: string | null;
  cpu_cores: number | null;
  memory_bytes: number | null;
  restarts: number;
}

export interface TopView {
  job: string;
  phase: Phase;
  at_ms: number;
  vertices: VertexTop[];
  containers: ContainerTop[];
}

export interface LogicalVertex {
  name: string;
  parallelism: number;
  isolation: string;
  together: string | null;
}

export interface LogicalEdge {
  from: string;
  output: number;
  to: string;
  input: number;
  routing: string;
}

export interface PhysicalContainer {
  id: number;
  state: ContainerState | null;
  host: string | null;
  host_name: string | null;
  groups: { vertices: string[]; instances: number[] }[];
}

export interface Plans {
  job: string;
  version: number | null;
  logical: { vertices: LogicalVertex[]; edges: LogicalEdge[] };
  physical: { containers: PhysicalContainer[] };
}

export interface SampleView {
  name: string;
  labels: Record<string, string>;
  kind: "counter" | "gauge";
  value: number | null;
  at_ms: number;
}

export interface SeriesView {
  name: string;
  labels: Record<string, string>;
  kind: "counter" | "gauge";
  points: { at_ms: number; value: number | null }[];
}

export interface MetricsRange {
  series: SeriesView[];
  step_ms: number;
}

export interface CheckpointVertexView {
  name: string;
  instances: number;
  entries: number;
  written_bytes: number;
  state_bytes: number;
  took_ms: number;
  aligned_ms: number | null;
}

export interface CheckpointView {
  epoch: number;
  damage?: { code: string; message: string };
  generation?: number;
  based_on: number | null;
  committed_at?: string;
  took_ms?: number;
  written_bytes: number;
  state_bytes: number;
  vertices: CheckpointVertexView[];
}

export interface CheckpointsView {
  job: string;
  folder: string;
  state: string;
  committed: number | null;
  checked: boolean;
  checkpoints: CheckpointView[];
}

export interface ClusterInfo {
  name: string;
  version: string;
  state: string;
  packages: string;
  scheduler: string;
  packing: string;
  hosts: number;
  jobs: number;
}

export interface HostView {
  name: string;
  address: string;
  api: string;
  pid: number;
  version: string;
  total: Resources;
  free: Resources;
  containers: { job: string; container: number; process: string | null }[];
  leads: string[];
  drained: boolean;
  holds: number;
}

export interface PastJobSummary {
  name: string;
  submission: string;
  ending: "finished" | "followed" | "rolled_back" | "killed";
  has_run: boolean;
  submitted_ms: number;
  ended_ms: number;
  container_count: number;
  instance_count: number;
  version: string;
  last_problem: ProblemView | null;
}

export interface PastJobDescription extends PastJobSummary {
  machines: string[];
  problems: ProblemView[];
  notes: NoteView[];
}

export interface MapsView {
  maps: { name: string; keys: string; values: string; entries: number; bytes: number }[];
  limit_bytes: number;
  hosts: number;
  unsettled_partitions: number;
}

export interface MapEntriesView {
  entries: { key: unknown; value: unknown }[];
  more: boolean;
}

export interface LogLine {
  container: number;
  source: "stdout" | "stderr";
  text: string;
  continues?: boolean;
  left_out_bytes?: number;
}

/** An error of the interface (RFC 9457). */
export interface ProblemDetails {
  status?: number;
  title?: string;
  detail?: string;
  code: string;
  message?: string;
  hint: string | null;
}

export type LogEvent = { line: LogLine } | { fault: ProblemDetails };

export type ClusterEvent =
  | { jobs: JobSummary[] }
  | { hosts: HostView[] }
  | { loads: TopView[] }
  | { fault: ProblemDetails };

export type JobEvent =
  | { job: JobDescription }
  | { top: TopView }
  | { samples: SampleView[] }
  | { fault: ProblemDetails };

export interface FigureView {
  name: string;
  value: number;
  unit: "ratio" | "seconds" | "bytes" | "count" | "per_second" | "cores";
}

export interface CauseView {
  kind: string;
  subject: string | null;
  /** From 0 to 1. */
  severity: number;
  summary: string;
  figures: FigureView[];
  advice: string;
}

export interface Diagnosis {
  job: string;
  phase: Phase;
  at_ms: number;
  is_measured: boolean;
  causes: CauseView[];
}

export interface DeadLetterView {
  container: number;
  vertex: string;
  origin: string;
  reason: string;
  at_ms: number | null;
  bytes: number;
  text: string | null;
  base64: string | null;
}

export interface DeadLetterPage {
  letters: DeadLetterView[];
  next: string | null;
}

export type ProgramAction = "submit" | "diff" | "upgrade";

/** The comparison of a job's states with those of a program. */
export interface StateComparison {
  possible: boolean;
  states: { vertex: string; state: string; verdict: string; what?: string[] }[];
}
