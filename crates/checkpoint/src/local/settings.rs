//! The fault-tolerance settings of jobs; see [`FaultTolerance`] for their meaning.

use std::num::NonZeroUsize;
use std::time::Duration;

use crate::savepoint::AllowedDrops;
use ardea_config::{Kind, Resolved, Setting};
use ardea_core::{Guarantee, Result};

use crate::local::FaultTolerance;

const GUARANTEES: [Guarantee; 3] = [
    Guarantee::None,
    Guarantee::AtLeastOnce,
    Guarantee::ExactlyOnce,
];

const fn duration(least: Duration, most: Duration) -> Kind {
    Kind::Duration { least, most }
}

const HOUR: Duration = Duration::from_secs(3_600);

/// The fault-tolerance settings of a job.
///
/// ```
/// use ardea_config::{Resolver, Schema};
/// use ardea_checkpoint::local::{FAULT_TOLERANCE_SETTINGS, FaultTolerance};
///
/// let schema = Schema::of(FAULT_TOLERANCE_SETTINGS);
/// let resolved = Resolver::new(&schema).flags(["guarantee=exactly-once"]).resolve()?;
/// assert!(FaultTolerance::from_settings(&resolved)?.is_some());
/// assert!(FaultTolerance::from_settings(&Resolver::new(&schema).resolve()?)?.is_none());
/// # Ok::<(), ardea_core::Error>(())
/// ```
pub static FAULT_TOLERANCE_SETTINGS: &[Setting] = &[
    Setting {
        key: "guarantee",
        kind: Kind::Choice(&["none", "at-least-once", "exactly-once"]),
        default: "none",
        about: "the processing guarantee for records when a job or one of its processes fails",
        trades: "none costs nothing; at-least-once costs checkpoints; exactly-once also holds back inputs that are ahead at the end of an epoch",
    },
    Setting {
        key: "checkpoints.folder",
        kind: Kind::Text,
        default: "",
        about: "the folder of the job's checkpoints, or s3://bucket/prefix, used by this job only; without one they are in memory. On a cluster: a folder that all hosts see, or a part of a bucket, in which each job gets its own; without one the memory of hosts",
        trades: "in memory they are quicker, and end with the process, or with all hosts of a cluster",
    },
    Setting {
        key: "checkpoints.memory",
        kind: Kind::Flag,
        default: "false",
        about: "on a cluster, whether checkpoints in checkpoints.folder are also kept in the memory of hosts, as far as there is room",
        trades: "a restart reads its state from memory, faster than from most disks; it takes memory, and about a millisecond per checkpoint",
    },
    Setting {
        key: "checkpoints.every",
        kind: Kind::DurationOrAuto {
            least: Duration::from_millis(10),
            most: HOUR,
        },
        default: "1s",
        about: "how often an epoch ends, with a checkpoint; auto is the shortest interval of which checkpoints take at most a tenth",
        trades: "shorter leaves less to repeat after a failure, and publishes the output of transactional sinks sooner; longer costs less",
    },
    Setting {
        key: "checkpoints.timeout",
        kind: duration(Duration::from_millis(100), HOUR),
        default: "1m",
        about: "the time after which a checkpoint is aborted; the job goes on",
        trades: "longer lets slow ones succeed, shorter begins the next one sooner",
    },
    Setting {
        key: "checkpoints.pause",
        kind: duration(Duration::ZERO, HOUR),
        default: "100ms",
        about: "the least time between two checkpoints",
        trades: "longer leaves more of the disk to others",
    },
    Setting {
        key: "checkpoints.keep",
        kind: Kind::Count {
            least: 1,
            most: 1_000,
        },
        default: "3",
        about: "how many checkpoints are kept",
        trades: "more leave more to go back to if one is damaged, and take more room",
    },
    Setting {
        key: "recovery.attempts",
        kind: Kind::Count {
            least: 0,
            most: 1_000_000,
        },
        default: "5",
        about: "how often in a row a job is restarted without progress, before it ends with the reason",
        trades: "more survive longer outages of external systems, and report permanent ones later",
    },
    Setting {
        key: "recovery.stop_within",
        kind: duration(Duration::from_millis(100), HOUR),
        default: "20s",
        about: "how long a first Ctrl-C or SIGTERM waits for a last checkpoint, before the job ends without it; in one process",
        trades: "longer survives longer outages of external systems; the kill timeout of a service manager should be longer than this",
    },
    Setting {
        key: "recovery.start_over",
        kind: Kind::Flag,
        default: "false",
        about: "whether to start without state and ignore checkpoints.folder; for the command line",
        trades: "all state is discarded, and all input is read again",
    },
    Setting {
        key: "recovery.go_back",
        kind: Kind::Flag,
        default: "false",
        about: "whether an exactly-once job may go on from the checkpoint before one that is damaged",
        trades: "it goes on, and what was published since is published again",
    },
    Setting {
        key: "recovery.from",
        kind: Kind::Text,
        default: "",
        about: "the folder of a savepoint, or s3://bucket/prefix, that the job starts from, if it has no state yet",
        trades: "all of it is copied to checkpoints.folder before the job begins",
    },
    Setting {
        key: "recovery.drop",
        kind: Kind::Text,
        default: "",
        about: "the state of that savepoint that may be dropped: vertices, or states as VERTEX/STATE, separated by commas",
        trades: "dropped state is lost to the job; the savepoint keeps it",
    },
];

impl FaultTolerance {
    /// Creates the settings from a resolved configuration whose schema contains
    /// [`FAULT_TOLERANCE_SETTINGS`]; `None` if the job has no guarantee.
    ///
    /// # Errors
    /// [`Internal`](ardea_core::ErrorCode::Internal) if the schema does not contain these settings.
    pub fn from_settings(resolved: &Resolved) -> Result<Option<Self>> {
        let name = resolved.choice("guarantee")?;
        let guarantee = GUARANTEES
            .into_iter()
            .find(|guarantee| guarantee.as_str() == name)
            .ok_or_else(|| resolved.refuse("guarantee", "there is none of this name"))?;
        if !guarantee.keeps_state() {
            return match resolved.text("recovery.from")? {
                "" => Ok(None),
                _ => Err(resolved.refuse(
                    "recovery.from",
                    "a job without a guarantee has no state to begin with: give it one, as with guarantee=exactly-once",
                )),
            };
        }
        let survival = match resolved.text("checkpoints.folder")? {
            "" => FaultTolerance::in_memory(),
            folder => FaultTolerance::in_folder(folder),
        };
        let keep = usize::try_from(resolved.count("checkpoints.keep")?).unwrap_or(usize::MAX);
        let attempts = resolved.count("recovery.attempts")?;
        let survival = match resolved.text("recovery.from")? {
            "" => survival,
            folder => survival.from_savepoint(folder),
        };
        let survival = match resolved.duration_or_auto("checkpoints.every")? {
            Some(every) => survival.every(every),
            None => survival.every_auto(),
        };
        Ok(Some(
            survival
                .dropping(AllowedDrops::listed(resolved.text("recovery.drop")?))
                .guarantee(guarantee)
                .timeout(resolved.duration("checkpoints.timeout")?)
                .pause(resolved.duration("checkpoints.pause")?)
                .keep(NonZeroUsize::new(keep).unwrap_or(NonZeroUsize::MIN))
                .stop_within(resolved.duration("recovery.stop_within")?)
                .attempts(u32::try_from(attempts).unwrap_or(u32::MAX))
                .start_over(resolved.flag("recovery.start_over")?)
                .go_back(resolved.flag("recovery.go_back")?),
        ))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ardea_config::{Resolver, Schema};

    fn told(flags: &[&str]) -> Result<Option<FaultTolerance>> {
        let schema = Schema::of(FAULT_TOLERANCE_SETTINGS);
        let flags = flags.iter().copied();
        FaultTolerance::from_settings(&Resolver::new(&schema).flags(flags).resolve()?)
    }

    fn survival(flags: &[&str]) -> Option<FaultTolerance> {
        told(flags).unwrap()
    }

    #[test]
    fn state_to_begin_with_is_refused_where_nothing_is_promised() {
        let error = told(&["recovery.from=saved"]).unwrap_err();
        assert!(error.to_string().contains("guarantee"), "{error}");
        assert!(told(&["recovery.from=saved", "guarantee=exactly-once"]).is_ok());
    }

    #[test]
    fn the_book_has_a_row_for_each_setting_with_its_default() {
        let book = include_str!("../../../../docs/fault-tolerance.md");
        for setting in FAULT_TOLERANCE_SETTINGS {
            let default = match setting.default {
                "" => "|".to_string(),
                "false" => "| off |".to_string(),
                text => format!("| {text} |"),
            };
            let row = format!("| `{}` {default}", setting.key);
            let book = book
                .replace("| 1 s |", "| 1s |")
                .replace("| 1 m |", "| 1m |")
                .replace("| 20 s |", "| 20s |");
            let book = book.replace("| 100 ms |", "| 100ms |");
            assert!(
                book.contains(&row),
                "docs/fault-tolerance.md should have {row}"
            );
        }
    }

    #[test]
    fn without_a_guarantee_nothing_survives() {
        assert!(survival(&["checkpoints.folder=x"]).is_none());
    }

    #[test]
    fn the_defaults_of_the_settings_are_those_of_a_survival() {
        let told = survival(&["guarantee=exactly-once"]).unwrap();
        assert_eq!(told.epochs(), FaultTolerance::in_memory().epochs());
        assert_eq!(told.attempts, FaultTolerance::in_memory().attempts);
        assert_eq!(told.stops_within, FaultTolerance::in_memory().stops_within);
        assert!(!told.starts_over && !told.goes_back);
    }

    #[test]
    fn every_setting_changes_what_it_names() {
        let told = survival(&[
            "guarantee=at-least-once",
            "checkpoints.folder=x/y",
            "checkpoints.every=2s",
            "checkpoints.timeout=3s",
            "checkpoints.pause=4ms",
            "checkpoints.keep=5",
            "recovery.attempts=6",
            "recovery.stop_within=7s",
            "recovery.start_over=on",
            "recovery.go_back=on",
            "recovery.from=a/b",
            "recovery.drop=x, y/z",
        ])
        .unwrap();
        assert_eq!(told.promised(), Guarantee::AtLeastOnce);
        assert!(format!("{:?}", told.place).contains("x/y"));
        let millis = [told.every, told.timeout, told.pause].map(|time| time.as_millis());
        assert_eq!(millis, [2_000, 3_000, 4]);
        assert_eq!((told.keep.get(), told.attempts), (5, 6));
        assert_eq!(told.stops_within, Duration::from_secs(7));
        assert!(told.starts_over && told.goes_back && !told.tunes_interval);
        let tuned = survival(&["guarantee=exactly-once", "checkpoints.every=auto"]);
        assert!(tuned.unwrap().epochs().tunes_interval);
        assert_eq!(told.from, Some("a/b".into()));
        assert!(told.dropping.has("x", "any") && told.dropping.has("y", "z"));
        assert!(!told.dropping.has("y", "a"));
    }
}
