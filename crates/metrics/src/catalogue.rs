//! The catalogue of Ardea's built-in metrics: names, kinds, labels, and aggregation over instances.
//!
//! A name consists of `ardea_`, the measured thing, the base unit (`seconds`, `bytes`, `ratio`),
//! and `_total` for a counter. `docs/metrics.md` shows the same table; a test compares the two.

use Fold::{Max, Min, Sum};
use Kind::{Counter, Gauge, Histogram};

/// The labels of an instance's metrics; `job` and `container` are the labels of its process.
pub const INSTANCE: &[&str] = &["job", "container", "vertex", "instance"];
/// The labels of a process's metrics.
pub const PROCESS: &[&str] = &["job", "container"];
/// The labels of a metric of a job with a guarantee, reported by its leader.
pub const JOB: &[&str] = &["job"];
/// The labels of the metrics of a connection between containers; `peer` is the container at the
/// other end, and `transport` the kind of the connection, such as `shm`.
pub const LINK: &[&str] = &["job", "container", "peer", "transport"];

/// The labels of the metrics of a process's output; `stream` is `stdout` or `stderr`.
pub const OUTPUT: &[&str] = &["job", "container", "stream"];

/// The kind of a metric's value.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Kind {
    /// [`Value::Counter`](crate::Value::Counter).
    Counter,
    /// [`Value::Gauge`](crate::Value::Gauge).
    Gauge,
    /// [`Value::Histogram`](crate::Value::Histogram).
    Histogram,
}

impl Kind {
    /// Returns the kind's name in the Prometheus text formats.
    pub const fn as_str(self) -> &'static str {
        match self {
            Kind::Counter => "counter",
            Kind::Gauge => "gauge",
            Kind::Histogram => "histogram",
        }
    }
}

/// The aggregation of a gauge over several instances. Counters are always summed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Fold {
    /// The sum.
    Sum,
    /// The maximum.
    Max,
    /// The minimum.
    Min,
}

impl Fold {
    /// Returns the name of the aggregation in `docs/metrics.md`.
    pub const fn as_str(self) -> &'static str {
        match self {
            Fold::Sum => "sum",
            Fold::Max => "max",
            Fold::Min => "min",
        }
    }
}

/// A built-in metric.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Metric {
    /// The metric's name.
    pub name: &'static str,
    /// The kind of the metric's value.
    pub kind: Kind,
    /// The metric's labels. One further label may be named in [`about`](Self::about).
    pub labels: &'static [&'static str],
    /// The aggregation of the values over instances.
    pub fold: Fold,
    /// The description of the metric, as a sentence without a full stop.
    pub about: &'static str,
}

macro_rules! metrics {
    ($($(#[$doc:meta])* $id:ident = $name:literal, $kind:ident, $labels:expr, $fold:ident, $about:literal;)*) => {
        $(
            #[doc = $about]
            pub const $id: Metric = Metric {
                name: $name,
                kind: $kind,
                labels: $labels,
                fold: $fold,
                about: $about,
            };
        )*

        /// All built-in metrics.
        pub const ALL: &[Metric] = &[$($id),*];
    };
}

/// The labels of [`EXCEPTIONS`].
const EXCEPTION: &[&str] = &["job", "container", "vertex", "instance", "code"];
/// The labels of [`MESSAGES_FAILED`].
const FAILED: &[&str] = &["job", "container", "vertex", "instance", "reason"];
/// The labels of [`COMPLETE_QUANTILE`].
const QUANTILE: &[&str] = &["job", "container", "vertex", "instance", "quantile"];
/// The labels of [`SENT_BYTES`]; `to` is the receiving vertex.
const EDGE: &[&str] = &["job", "container", "vertex", "to"];
/// The labels of [`PAIR_RECORDS`]; `to` and `to_instance` are the receiving instance.
const PAIR: &[&str] = &[
    "job",
    "container",
    "vertex",
    "instance",
    "to",
    "to_instance",
];
/// The labels of [`SINK_DROPPED`].
const SINK: &[&str] = &["job", "container", "sink"];

metrics! {
    RECORDS_IN = "ardea_records_in_total", Counter, INSTANCE, Sum, "records read, over all inputs";
    RECORDS_OUT = "ardea_records_out_total", Counter, INSTANCE, Sum, "records written, over all outputs";
    LATE = "ardea_late_records_total", Counter, INSTANCE, Sum, "records behind the watermark and the allowed lateness";
    LATE_IN_PART = "ardea_late_in_part_records_total", Counter, INSTANCE, Sum, "late records that some of their sliding windows missed, because these had closed, and others counted";
    BAD = "ardea_bad_records_total", Counter, INSTANCE, Sum, "records sent to dead letters or dropped because they could not be processed";
    BUSY = "ardea_busy_seconds_total", Counter, INSTANCE, Sum, "wall-clock time spent working; for steps that share a tasklet, estimated from samples";
    BUSY_CPU = "ardea_busy_cpu_seconds_total", Counter, INSTANCE, Sum, "processor time in the time spent working, estimated from samples; less than that if the step waits or other processes use its core";
    CHAIN = "ardea_chain_seconds_total", Counter, INSTANCE, Sum, "time in which other steps that share its tasklet worked";
    BLOCKED = "ardea_blocked_seconds_total", Counter, INSTANCE, Sum, "time idle because outputs were full: backpressure";
    IDLE = "ardea_idle_seconds_total", Counter, INSTANCE, Sum, "time idle with nothing to do";
    BLOCKED_SLICES = "ardea_blocked_slices_total", Counter, INSTANCE, Sum, "slices that found the outputs full";
    LONGEST_SLICE = "ardea_longest_slice_seconds", Gauge, INSTANCE, Max, "the longest time so far without yielding to other tasklets";
    QUEUE_FILL = "ardea_queue_fill_ratio", Gauge, INSTANCE, Max, "fill level of the fullest input queue, from 0 to 1";
    WATERMARK = "ardea_watermark_seconds", Gauge, INSTANCE, Min, "event time of the watermark, in seconds since 1970; absent before the first watermark and after the last";
    WATERMARK_LAG = "ardea_watermark_lag_seconds", Gauge, INSTANCE, Max, "lag of event time behind the clock; large when old data is read, which is no fault";
    LATENCY = "ardea_latency_seconds", Histogram, INSTANCE, Sum, "time from a source to the instance, of latency markers that each source sends ten times a second through the same queues as records; for a sink, end-to-end latency";
    LATENCY_QUANTILE = "ardea_latency_quantile_seconds", Gauge, QUANTILE, Max, "quantile of the time from a source to the instance, of the latency markers since the last batch";
    EPOCHS = "ardea_epochs_total", Counter, INSTANCE, Sum, "epochs ended";
    MICRO_BATCHES = "ardea_micro_batches_total", Counter, INSTANCE, Sum, "micro-batches ended; this and the one below exist only in micro-batch mode, and the records read divided by it are those of a micro-batch";
    MICRO_BATCH_WAIT = "ardea_micro_batch_wait_seconds_total", Counter, INSTANCE, Sum, "time between the end of a micro-batch on the first input and on the last";
    CUTS = "ardea_snapshots_total", Counter, INSTANCE, Sum, "snapshots completed; this and the five below exist only for jobs with a guarantee";
    SNAPSHOT_ENTRIES = "ardea_snapshot_entries_total", Counter, INSTANCE, Sum, "entries of these snapshots";
    SNAPSHOT_BYTES = "ardea_snapshot_bytes_total", Counter, INSTANCE, Sum, "bytes of these entries, before compression";
    SNAPSHOT_SECONDS = "ardea_snapshot_seconds_total", Counter, INSTANCE, Sum, "time from the end of each epoch at the instance until its snapshot was complete, while records were processed";
    SNAPSHOT_BUSY = "ardea_snapshot_busy_seconds_total", Counter, INSTANCE, Sum, "the part of that time in which records waited";
    ALIGNED = "ardea_aligned_seconds_total", Counter, INSTANCE, Sum, "time between the barrier on the first input and on the last; exactly-once jobs block inputs that are ahead for this time";
    STATE_KEYS = "ardea_state_keys", Gauge, INSTANCE, Sum, "keys whose state the instance has in memory; this and the three below exist for steps with keyed state, while there is any";
    STATE_BYTES = "ardea_state_bytes", Gauge, INSTANCE, Sum, "approximate memory of these keys: their table, and their sizes estimated from a sample";
    STATE_DISK_KEYS = "ardea_state_disk_keys", Gauge, INSTANCE, Sum, "keys whose state the instance has on disk";
    STATE_DISK_BYTES = "ardea_state_disk_bytes", Gauge, INSTANCE, Sum, "bytes of these keys on disk, without indexes";
    RESTARTS = "ardea_instance_restarts_total", Counter, INSTANCE, Sum, "restarts of the instance within its process";
    EXCEPTIONS = "ardea_exceptions_total", Counter, EXCEPTION, Sum, "errors and panics of the instance, and ends of its process, by error code";
    INSTANCE_PROCESS = "ardea_instance_process_id", Gauge, INSTANCE, Max, "process id, on its host, of an instance with a separate process; 0 while that is down";
    INSTANCE_PROCESS_RESTARTS = "ardea_instance_process_restarts_total", Counter, INSTANCE, Sum, "restarts of the process that runs the step's code; this and the three below exist for steps in a process of their own";
    INSTANCE_PROCESS_CPU = "ardea_instance_process_cpu_seconds_total", Counter, INSTANCE, Sum, "processor time of these processes";
    INSTANCE_PROCESS_RESIDENT = "ardea_instance_process_resident_bytes", Gauge, INSTANCE, Sum, "memory that the present process holds";
    INSTANCE_PROCESS_OMITTED = "ardea_instance_process_omitted_lines_total", Counter, INSTANCE, Sum, "lines of the process's output that were not logged, because there were too many";
    RECEIVED_BYTES = "ardea_received_bytes_total", Counter, INSTANCE, Sum, "bytes of records received by the instance from other containers, including frames";
    SENT_BYTES = "ardea_sent_bytes_total", Counter, EDGE, Sum, "bytes of records sent by the vertex's instances in the container to those of another vertex elsewhere, including frames";
    VERTEX_PAIR_RECORDS = "ardea_vertex_pair_records_total", Counter, EDGE, Sum, "records sent by the vertex's instances in the container to those of another vertex, there or elsewhere; without steps that share a tasklet";
    PAIR_RECORDS = "ardea_pair_records_total", Counter, PAIR, Sum, "records sent by the instance to an instance of another vertex, in the container or elsewhere; of each container the 256 busiest pairs";
    MESSAGES_EMITTED = "ardea_messages_emitted_total", Counter, INSTANCE, Sum, "tuples that the spout has emitted, tracked or not";
    MESSAGES_ACKED = "ardea_messages_acked_total", Counter, INSTANCE, Sum, "messages of the spout that were processed completely";
    MESSAGES_FAILED = "ardea_messages_failed_total", Counter, FAILED, Sum, "messages of the spout that failed: by a bolt, by a timeout, or by the loss of a worker";
    MESSAGES_PENDING = "ardea_messages_pending", Gauge, INSTANCE, Sum, "messages of the spout that are neither acked nor failed yet";
    COMPLETE_LATENCY = "ardea_complete_latency_seconds", Histogram, INSTANCE, Sum, "time from the emission of a message until all tuples derived from it were processed";
    COMPLETE_QUANTILE = "ardea_complete_latency_quantile_seconds", Gauge, QUANTILE, Max, "quantile of the complete latency, of the messages acked since the last batch";
    LINK_BYTES_IN = "ardea_link_bytes_in_total", Counter, LINK, Sum, "bytes of frames received from the peer";
    LINK_BYTES_OUT = "ardea_link_bytes_out_total", Counter, LINK, Sum, "bytes of frames sent to the peer";
    LINK_FRAMES_IN = "ardea_link_frames_in_total", Counter, LINK, Sum, "frames received from the peer";
    LINK_STRAY_RECORDS = "ardea_link_stray_records_total", Counter, LINK, Sum, "records received for streams that are not open here, such as those of removed instances";
    LINK_CONNECTED = "ardea_link_connected", Gauge, LINK, Sum, "1 while there is a connection of this transport to the peer, else 0";
    RING_CAPACITY = "ardea_ring_capacity_bytes", Gauge, LINK, Sum, "size of the ring in shared memory through which frames of the peer arrive; this and the five below exist for connections of the transport `shm`";
    RING_FILL = "ardea_ring_fill_bytes", Gauge, LINK, Sum, "bytes in that ring that were not received yet";
    RING_MESSAGES = "ardea_ring_messages_total", Counter, LINK, Sum, "messages received through that ring, each with up to 64 KiB of frames that the peer sent together";
    RING_ABANDONED = "ardea_ring_abandoned_slots_total", Counter, LINK, Sum, "slots of that ring that the peer reserved and gave up, or did not complete before its end";
    RING_SLEEPS = "ardea_ring_sleeps_total", Counter, LINK, Sum, "times that the network thread slept while that ring was empty";
    RING_FULL = "ardea_ring_full_total", Counter, LINK, Sum, "times that the network thread had to wait for room in the ring to the peer";
    KEPT_BYTES = "ardea_kept_output_bytes", Gauge, PROCESS, Sum, "output since the last checkpoint that a worker keeps, to restore another worker alone";
    REUSED_FRAMES = "ardea_kept_frames_reused_total", Counter, PROCESS, Sum, "kept frames that were sent again to a worker that was restored alone";
    REPEATED_BATCHES = "ardea_micro_batches_repeated_total", Counter, PROCESS, Sum, "micro-batches that this worker has got again from one that was restored alone; it drops them and runs none again";
    LOST_RECORDS = "ardea_lost_records_total", Counter, PROCESS, Sum, "records in flight when a container was lost, and those received for instances that do not exist";
    LOST_BACKCHANNEL_MESSAGES = "ardea_lost_backchannel_messages_total", Counter, PROCESS, Sum, "messages outside the graph, such as acks, that were received and could not be delivered";
    OUTPUT_BYTES = "ardea_output_bytes_total", Counter, OUTPUT, Sum, "bytes that the container has written to `stream`, standard output or standard error";
    OUTPUT_REMOVED = "ardea_output_removed_bytes_total", Counter, OUTPUT, Sum, "bytes written to `stream` that were removed, since output files are bounded";
    CPU = "ardea_process_cpu_seconds_total", Counter, PROCESS, Sum, "processor time of the process";
    RESIDENT = "ardea_process_resident_bytes", Gauge, PROCESS, Sum, "memory that the process holds";
    THREADS = "ardea_process_threads", Gauge, PROCESS, Sum, "threads of the process";
    OPEN_FDS = "ardea_process_open_fds", Gauge, PROCESS, Sum, "files, sockets and pipes that the process has open";
    STARTED = "ardea_process_start_time_seconds", Gauge, PROCESS, Max, "start time of the process, in seconds since 1970";
    THROTTLED = "ardea_process_throttled_seconds_total", Counter, PROCESS, Sum, "time in which the control group of the process held its threads back";
    PAUSED = "ardea_process_paused_seconds_total", Counter, PROCESS, Sum, "time in which the process stood still, because its machine was paused or gave it no processor; counted from a fifth of a second on";
    CPU_PRESSURE = "ardea_machine_cpu_pressure_ratio", Gauge, PROCESS, Max, "share of the last ten seconds in which a thread of the machine waited for a processor; this and the one below exist where the system measures them";
    MEMORY_PRESSURE = "ardea_machine_memory_pressure_ratio", Gauge, PROCESS, Max, "share of the last ten seconds in which a thread of the machine waited for memory";
    EPOCHS_COMMITTED = "ardea_epochs_committed_total", Counter, JOB, Sum, "committed epochs of the job, since its leader was elected";
    EPOCHS_ABORTED = "ardea_epochs_aborted_total", Counter, JOB, Sum, "aborted epochs of the job, since its leader was elected";
    EPOCH_INTERVAL = "ardea_epoch_interval_seconds", Gauge, JOB, Max, "present checkpoint interval; with checkpoints.every=auto the tuned one";
    EPOCH_SECONDS = "ardea_epoch_seconds", Gauge, JOB, Max, "time from the trigger of the newest committed epoch until its checkpoint was recorded";
    EPOCH_BYTES = "ardea_epoch_bytes", Gauge, JOB, Sum, "bytes that were written for the newest committed epoch";
    EPOCH_AGE = "ardea_epoch_age_seconds", Gauge, JOB, Max, "time since the newest epoch was committed";
    ROLLBACKS = "ardea_rollbacks_total", Counter, JOB, Sum, "rollbacks of the job to the newest committed epoch, since its leader was elected";
    ATTEMPT = "ardea_attempt", Gauge, JOB, Max, "execution attempt of the job: incremented with each rollback and update";
    RESTORE_SECONDS = "ardea_restore_seconds", Gauge, JOB, Max, "time from the request of the present attempt until all instances had their initial state; reported by the leader that observed it";
    PLACEMENT_CUT = "ardea_placement_cut_records_per_second", Gauge, JOB, Max, "records a second between hosts under the present plan, in the last window; this and the two below exist with `placement.mode`";
    PLACEMENT_BEST_CUT = "ardea_placement_best_cut_records_per_second", Gauge, JOB, Max, "records a second between hosts under the best plan for the traffic of that window, after the cost of its moves";
    PLACEMENTS = "ardea_placements_total", Counter, JOB, Sum, "better placements that were proposed or carried out, since the leader of the job was elected";
    FINDINGS = "ardea_optimizer_findings_total", Counter, JOB, Sum, "findings of the optimizer that were proposed or carried out, since the leader of the job was elected; exists with `optimizer.mode`";
    SINK_DROPPED = "ardea_metrics_dropped_batches_total", Counter, SINK, Sum, "batches that a metrics sink missed, because it was too slow or failed";
}

/// Returns the built-in metric of this name, if there is one. The names of a histogram's lines,
/// such as `…_count`, also find the histogram's metric.
pub fn find(name: &str) -> Option<&'static Metric> {
    let plain = ["_bucket", "_sum", "_count"]
        .iter()
        .find_map(|suffix| name.strip_suffix(suffix));
    ALL.iter()
        .find(|metric| metric.name == name)
        .or_else(|| ALL.iter().find(|metric| Some(metric.name) == plain))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_follow_the_rule() {
        for metric in ALL {
            assert!(metric.name.starts_with("ardea_"), "{}", metric.name);
            let is_total = metric.name.ends_with("_total");
            assert_eq!(is_total, metric.kind == Kind::Counter, "{}", metric.name);
            assert!(!metric.about.ends_with('.'), "{}", metric.about);
            assert_eq!(find(metric.name), Some(metric), "names are given once");
        }
        assert_eq!(
            find("ardea_complete_latency_seconds_bucket"),
            Some(&COMPLETE_LATENCY)
        );
        assert_eq!(find("ardea_nothing"), None);
    }

    #[test]
    fn the_guide_shows_the_same_table() {
        let guide = include_str!("../../../docs/metrics.md");
        let rows: Vec<&str> = guide
            .lines()
            .filter(|line| line.starts_with("| `ardea_"))
            .collect();
        let expected: Vec<String> = ALL
            .iter()
            .map(|metric| {
                let labels = metric.labels.join(", ");
                format!(
                    "| `{}` | {} | {labels} | {} | {} |",
                    metric.name,
                    metric.kind.as_str(),
                    metric.fold.as_str(),
                    metric.about
                )
            })
            .collect();
        assert_eq!(rows, expected, "docs/metrics.md");
    }
}
