//! Every metric that Ardea itself tells: names, kinds, labels, and how values of several instances become one.
//!
//! Names follow one rule: `ardea_`, what is counted, the unit in its basic form (`seconds`, `bytes`, `ratio`), and
//! `_total` behind a counter. `docs/metrics.md` shows the same table, and a test compares the two.

use Fold::{Max, Min, Sum};
use Kind::{Counter, Gauge, Histogram};

/// The labels of an instance's metrics; `job` and `container` come from its process.
pub const INSTANCE: &[&str] = &["job", "container", "vertex", "instance"];
/// The labels of a process's metrics.
pub const PROCESS: &[&str] = &["job", "container"];
/// The labels of a metric of a job with a guarantee, which its master tells.
pub const JOB: &[&str] = &["job"];
/// The labels of a connection's metrics; `peer` is the container at the other end.
pub const LINK: &[&str] = &["job", "container", "peer"];

/// The labels of the metrics of an output of a process; `stream` is `stdout` or `stderr`.
pub const OUTPUT: &[&str] = &["job", "container", "stream"];

/// What kind of value a metric has.
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
    /// As the text formats call it.
    pub const fn as_str(self) -> &'static str {
        match self {
            Kind::Counter => "counter",
            Kind::Gauge => "gauge",
            Kind::Histogram => "histogram",
        }
    }
}

/// How the gauges of several instances become one. Counters are always added up.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Fold {
    /// Their sum.
    Sum,
    /// The largest.
    Max,
    /// The smallest.
    Min,
}

impl Fold {
    /// As the guide calls it.
    pub const fn as_str(self) -> &'static str {
        match self {
            Fold::Sum => "sum",
            Fold::Max => "max",
            Fold::Min => "min",
        }
    }
}

/// One metric that Ardea tells.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Metric {
    /// Its name.
    pub name: &'static str,
    /// What kind of value it has.
    pub kind: Kind,
    /// What tells its values apart; one more may be named in [`about`](Self::about).
    pub labels: &'static [&'static str],
    /// How values of several instances become one.
    pub fold: Fold,
    /// What it says, in a sentence without a full stop.
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

        /// All of them.
        pub const ALL: &[Metric] = &[$($id),*];
    };
}

/// The labels of [`EXCEPTIONS`].
const EXCEPTION: &[&str] = &["job", "container", "vertex", "instance", "code"];
/// The labels of [`MESSAGES_FAILED`].
const FAILED: &[&str] = &["job", "container", "vertex", "instance", "reason"];
/// The labels of [`COMPLETE_QUANTILE`].
const QUANTILE: &[&str] = &["job", "container", "vertex", "instance", "quantile"];
/// The labels of [`SENT_BYTES`]; `to` is the vertex that reads them.
const EDGE: &[&str] = &["job", "container", "vertex", "to"];
/// The labels of [`SINK_DROPPED`].
const SINK: &[&str] = &["job", "container", "sink"];

metrics! {
    RECORDS_IN = "ardea_records_in_total", Counter, INSTANCE, Sum, "records read, over all inputs";
    RECORDS_OUT = "ardea_records_out_total", Counter, INSTANCE, Sum, "records written, over all outputs";
    LATE = "ardea_late_records_total", Counter, INSTANCE, Sum, "records behind the watermark and the allowed lateness";
    LATE_IN_PART = "ardea_late_in_part_records_total", Counter, INSTANCE, Sum, "records that are missing in those of their sliding windows which had closed, and counted in the others";
    BAD = "ardea_bad_records_total", Counter, INSTANCE, Sum, "records set aside or dropped because they could not be dealt with";
    BUSY = "ardea_busy_seconds_total", Counter, INSTANCE, Sum, "wall-clock time spent working; of steps that share a tasklet, the share of each is estimated from samples";
    BUSY_CPU = "ardea_busy_cpu_seconds_total", Counter, INSTANCE, Sum, "processor time in the time spent working, estimated from samples; less than that where the step waits, or where other processes take its core";
    CHAIN = "ardea_chain_seconds_total", Counter, INSTANCE, Sum, "time in which other steps that share its tasklet worked";
    BLOCKED = "ardea_blocked_seconds_total", Counter, INSTANCE, Sum, "time at rest because outputs were full: backpressure";
    IDLE = "ardea_idle_seconds_total", Counter, INSTANCE, Sum, "time at rest with nothing to do";
    BLOCKED_SLICES = "ardea_blocked_slices_total", Counter, INSTANCE, Sum, "slices that found the outputs full";
    LONGEST_SLICE = "ardea_longest_slice_seconds", Gauge, INSTANCE, Max, "the longest time so far without giving others their turn";
    QUEUE_FILL = "ardea_queue_fill_ratio", Gauge, INSTANCE, Max, "how full the fullest input queue is, from 0 to 1";
    WATERMARK = "ardea_watermark_seconds", Gauge, INSTANCE, Min, "how far event time has come, in seconds since 1970; not told before the first watermark and after the last";
    WATERMARK_LAG = "ardea_watermark_lag_seconds", Gauge, INSTANCE, Max, "how far event time is behind the clock, that is how old it is: large where old data is read, which is no fault";
    LATENCY = "ardea_latency_seconds", Histogram, INSTANCE, Sum, "time from a source to the instance, of marks that each source sends ten times a second and that wait in the same queues as records; of a sink, latency from end to end";
    LATENCY_QUANTILE = "ardea_latency_quantile_seconds", Gauge, QUANTILE, Max, "time from a source to the instance that this share of the marks which came since the last batch did not exceed";
    EPOCHS = "ardea_epochs_total", Counter, INSTANCE, Sum, "epochs ended";
    CUTS = "ardea_cuts_total", Counter, INSTANCE, Sum, "states handed over whole at the ends of epochs; this and the five below are told only of jobs with a guarantee";
    CUT_ENTRIES = "ardea_cut_entries_total", Counter, INSTANCE, Sum, "entries of the states that were handed over";
    CUT_BYTES = "ardea_cut_bytes_total", Counter, INSTANCE, Sum, "bytes of these entries, before they are packed";
    CUT_SECONDS = "ardea_cut_seconds_total", Counter, INSTANCE, Sum, "time from the end of each epoch at the instance until its state was handed over, while records went on";
    CUT_BUSY = "ardea_cut_busy_seconds_total", Counter, INSTANCE, Sum, "the part of that in which records waited";
    ALIGNED = "ardea_aligned_seconds_total", Counter, INSTANCE, Sum, "time between the end of an epoch on the first input and on the last; exactly-once jobs hold what is ahead for so long";
    STATE_KEYS = "ardea_state_keys", Gauge, INSTANCE, Sum, "keys whose state the instance keeps in memory; this and the three below are told of steps that keep a state for each key, while there is one";
    STATE_BYTES = "ardea_state_bytes", Gauge, INSTANCE, Sum, "memory that these keys take, about: their table, and for each what a look at some of them says of its size";
    STATE_DISK_KEYS = "ardea_state_disk_keys", Gauge, INSTANCE, Sum, "keys whose state the instance keeps on disk";
    STATE_DISK_BYTES = "ardea_state_disk_bytes", Gauge, INSTANCE, Sum, "bytes that these keys take there, without what the disk needs to find them";
    RESTARTS = "ardea_instance_restarts_total", Counter, INSTANCE, Sum, "times the instance was started again within its process";
    EXCEPTIONS = "ardea_exceptions_total", Counter, EXCEPTION, Sum, "errors and panics of the instance, and ends of its process, by error code";
    INSTANCE_PROCESS = "ardea_instance_process_id", Gauge, INSTANCE, Max, "the number of the process of an instance that has one of its own, as its host counts; 0 while it is not there";
    RECEIVED_BYTES = "ardea_received_bytes_total", Counter, INSTANCE, Sum, "bytes of records that came to the instance from other containers, with their frames";
    SENT_BYTES = "ardea_sent_bytes_total", Counter, EDGE, Sum, "bytes of records that the vertex's instances in the container sent to those of another elsewhere, with their frames";
    MESSAGES_EMITTED = "ardea_messages_emitted_total", Counter, INSTANCE, Sum, "tuples that the spout has emitted, followed or not";
    MESSAGES_ACKED = "ardea_messages_acked_total", Counter, INSTANCE, Sum, "messages of the spout that were dealt with completely";
    MESSAGES_FAILED = "ardea_messages_failed_total", Counter, FAILED, Sum, "messages of the spout that failed: by a bolt, by a timeout, or with what was lost";
    MESSAGES_PENDING = "ardea_messages_pending", Gauge, INSTANCE, Sum, "messages of the spout that are neither acked nor failed yet";
    COMPLETE_LATENCY = "ardea_complete_latency_seconds", Histogram, INSTANCE, Sum, "time from the emission of a message until all that was made from it had been dealt with";
    COMPLETE_QUANTILE = "ardea_complete_latency_quantile_seconds", Gauge, QUANTILE, Max, "complete latency that this share of the messages which were acked since the last batch did not exceed";
    LINK_BYTES_IN = "ardea_link_bytes_in_total", Counter, LINK, Sum, "bytes of frames that came from the peer";
    LINK_BYTES_OUT = "ardea_link_bytes_out_total", Counter, LINK, Sum, "bytes of frames that went to the peer";
    LINK_FRAMES_IN = "ardea_link_frames_in_total", Counter, LINK, Sum, "frames that came from the peer";
    LINK_STRAY_RECORDS = "ardea_link_stray_records_total", Counter, LINK, Sum, "records that came for streams which nobody here has open, such as those of instances that have left";
    LOST_RECORDS = "ardea_lost_records_total", Counter, PROCESS, Sum, "records that were under way when a container was lost, and those that came for instances which are not there";
    LOST_LETTERS = "ardea_lost_letters_total", Counter, PROCESS, Sum, "news beside the graph, such as acks, that came and could not be delivered";
    OUTPUT_BYTES = "ardea_output_bytes_total", Counter, OUTPUT, Sum, "bytes that the container has written to `stream`, standard output or standard error";
    OUTPUT_LEFT_OUT = "ardea_output_left_out_bytes_total", Counter, OUTPUT, Sum, "bytes written to `stream` that are not kept any more, since files of output are bounded";
    CPU = "ardea_process_cpu_seconds_total", Counter, PROCESS, Sum, "processor time of the process";
    RESIDENT = "ardea_process_resident_bytes", Gauge, PROCESS, Sum, "memory that the process holds";
    THREADS = "ardea_process_threads", Gauge, PROCESS, Sum, "threads of the process";
    OPEN_FDS = "ardea_process_open_fds", Gauge, PROCESS, Sum, "files, sockets and pipes that the process has open";
    STARTED = "ardea_process_start_time_seconds", Gauge, PROCESS, Max, "when the process was started, in seconds since 1970";
    EPOCHS_COMMITTED = "ardea_epochs_committed_total", Counter, JOB, Sum, "epochs of the job that were committed, since its master leads";
    EPOCHS_GIVEN_UP = "ardea_epochs_given_up_total", Counter, JOB, Sum, "epochs of the job that were given up, since its master leads";
    EPOCH_SECONDS = "ardea_epoch_seconds", Gauge, JOB, Max, "from the end of the newest committed epoch being asked for until its snapshot was recorded";
    EPOCH_BYTES = "ardea_epoch_bytes", Gauge, JOB, Sum, "bytes that were written for the newest committed epoch";
    EPOCH_AGE = "ardea_epoch_age_seconds", Gauge, JOB, Max, "how long ago the newest epoch was committed";
    ROLLBACKS = "ardea_rollbacks_total", Counter, JOB, Sum, "times the job went back to the newest committed epoch, since its master leads";
    LIFE = "ardea_life", Gauge, JOB, Max, "which life of the job it is: one more with each rollback and each update";
    RESTORE_SECONDS = "ardea_restore_seconds", Gauge, JOB, Max, "from the present life being asked for until all instances had what they begin with; told by the master that has seen it";
    SINK_DROPPED = "ardea_metrics_dropped_batches_total", Counter, SINK, Sum, "batches that a metrics sink did not take, because it was too slow or failed";
}

/// The metric of this name, if it is one of [`ALL`]; the lines of a histogram belong to it.
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
