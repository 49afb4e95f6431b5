//! The settings of jobs that survive; what they mean is said at [`Survival`].

use std::num::NonZeroUsize;
use std::time::Duration;

use crate::savepoint::Dropping;
use ardea_config::{Kind, Resolved, Setting};
use ardea_core::{Guarantee, Result};

use crate::local::Survival;

const GUARANTEES: [Guarantee; 3] = [
    Guarantee::None,
    Guarantee::AtLeastOnce,
    Guarantee::ExactlyOnce,
];

const fn duration(least: Duration, most: Duration) -> Kind {
    Kind::Duration { least, most }
}

const HOUR: Duration = Duration::from_secs(3_600);

/// What a job promises when it fails, and how that is kept.
///
/// ```
/// use ardea_config::{Resolver, Schema};
/// use ardea_checkpoint::local::{SURVIVAL_SETTINGS, Survival};
///
/// let schema = Schema::of(SURVIVAL_SETTINGS);
/// let resolved = Resolver::new(&schema).flags(["guarantee=exactly-once"]).resolve()?;
/// assert!(Survival::from_settings(&resolved)?.is_some());
/// assert!(Survival::from_settings(&Resolver::new(&schema).resolve()?)?.is_none());
/// # Ok::<(), ardea_core::Error>(())
/// ```
pub static SURVIVAL_SETTINGS: &[Setting] = &[
    Setting {
        key: "guarantee",
        kind: Kind::Choice(&["none", "at-least-once", "exactly-once"]),
        default: "none",
        about: "what a job promises of its records when it fails, or a process of it dies",
        trades: "none costs nothing; at-least-once costs snapshots; exactly-once also holds back inputs that are ahead at the end of an epoch",
    },
    Setting {
        key: "snapshots.folder",
        kind: Kind::Text,
        default: "",
        about: "the folder of the job's snapshots, or s3://bucket/prefix, which is this job's alone; without one they are in memory. On a cluster: a folder that all hosts see, or a part of a bucket, in which each job gets its own; without one the memory of hosts",
        trades: "in memory they are quicker, and end with the process, or with all hosts of a cluster",
    },
    Setting {
        key: "snapshots.memory",
        kind: Kind::Flag,
        default: "false",
        about: "on a cluster, whether snapshots that are in snapshots.folder are in the memory of hosts as well, as far as there is room",
        trades: "what begins anew reads its state from there, sooner than from most disks; it takes memory, and a snapshot about a millisecond more",
    },
    Setting {
        key: "snapshots.every",
        kind: duration(Duration::from_millis(10), HOUR),
        default: "1s",
        about: "how often an epoch ends, with a snapshot",
        trades: "more often leaves less to be done again, and shows what transactional sinks write sooner; less often costs less",
    },
    Setting {
        key: "snapshots.timeout",
        kind: duration(Duration::from_millis(100), HOUR),
        default: "1m",
        about: "how long a snapshot may take before it is given up; the job goes on",
        trades: "longer lets slow ones succeed, shorter begins the next one sooner",
    },
    Setting {
        key: "snapshots.pause",
        kind: duration(Duration::ZERO, HOUR),
        default: "100ms",
        about: "the least time between two snapshots",
        trades: "longer leaves more of the disk to others",
    },
    Setting {
        key: "snapshots.keep",
        kind: Kind::Count {
            least: 1,
            most: 1_000,
        },
        default: "3",
        about: "how many snapshots are kept",
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
        trades: "more outlast longer troubles of what the job talks to, and tell later of those that stay",
    },
    Setting {
        key: "recovery.stop_within",
        kind: duration(Duration::from_millis(100), HOUR),
        default: "20s",
        about: "how long a first Ctrl-C or SIGTERM waits for a last snapshot, before the job ends without it; in one process",
        trades: "longer outlasts longer troubles of what the job talks to; a service manager that kills should wait longer than this",
    },
    Setting {
        key: "recovery.start_over",
        kind: Kind::Flag,
        default: "false",
        about: "whether to begin with nothing, whatever snapshots.folder has; for the command line",
        trades: "what was remembered is forgotten, and all input is read again",
    },
    Setting {
        key: "recovery.go_back",
        kind: Kind::Flag,
        default: "false",
        about: "whether an exactly-once job may go on from the snapshot before one that is damaged",
        trades: "it goes on, and what was published since is published again",
    },
    Setting {
        key: "recovery.from",
        kind: Kind::Text,
        default: "",
        about: "the folder of a savepoint, or s3://bucket/prefix, that the job begins from, if it has nothing of its own yet",
        trades: "all of it is copied to snapshots.folder before the job begins",
    },
    Setting {
        key: "recovery.drop",
        kind: Kind::Text,
        default: "",
        about: "what of that savepoint may be left behind: vertices, or states as VERTEX/STATE, with commas between them",
        trades: "what is dropped is forgotten; the savepoint keeps it",
    },
];

impl Survival {
    /// As settings say whose schema contains [`SURVIVAL_SETTINGS`]; none if the job promises nothing.
    ///
    /// # Errors
    /// [`Internal`](ardea_core::ErrorCode::Internal) when the schema doesn't contain them.
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
        let survival = match resolved.text("snapshots.folder")? {
            "" => Survival::in_memory(),
            folder => Survival::in_folder(folder),
        };
        let keep = usize::try_from(resolved.count("snapshots.keep")?).unwrap_or(usize::MAX);
        let attempts = resolved.count("recovery.attempts")?;
        let survival = match resolved.text("recovery.from")? {
            "" => survival,
            folder => survival.from_savepoint(folder),
        };
        Ok(Some(
            survival
                .dropping(Dropping::listed(resolved.text("recovery.drop")?))
                .guarantee(guarantee)
                .every(resolved.duration("snapshots.every")?)
                .timeout(resolved.duration("snapshots.timeout")?)
                .pause(resolved.duration("snapshots.pause")?)
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

    fn told(flags: &[&str]) -> Result<Option<Survival>> {
        let schema = Schema::of(SURVIVAL_SETTINGS);
        let flags = flags.iter().copied();
        Survival::from_settings(&Resolver::new(&schema).flags(flags).resolve()?)
    }

    fn survival(flags: &[&str]) -> Option<Survival> {
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
        let book = include_str!("../../../../docs/survival.md");
        for setting in SURVIVAL_SETTINGS {
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
            assert!(book.contains(&row), "docs/survival.md should have {row}");
        }
    }

    #[test]
    fn without_a_guarantee_nothing_survives() {
        assert!(survival(&["snapshots.folder=x"]).is_none());
    }

    #[test]
    fn the_defaults_of_the_settings_are_those_of_a_survival() {
        let told = survival(&["guarantee=exactly-once"]).unwrap();
        assert_eq!(told.epochs(), Survival::in_memory().epochs());
        assert_eq!(told.attempts, Survival::in_memory().attempts);
        assert_eq!(told.stops_within, Survival::in_memory().stops_within);
        assert!(!told.starts_over && !told.goes_back);
    }

    #[test]
    fn every_setting_changes_what_it_names() {
        let told = survival(&[
            "guarantee=at-least-once",
            "snapshots.folder=x/y",
            "snapshots.every=2s",
            "snapshots.timeout=3s",
            "snapshots.pause=4ms",
            "snapshots.keep=5",
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
        assert!(told.starts_over && told.goes_back);
        assert_eq!(told.from, Some("a/b".into()));
        assert!(told.dropping.has("x", "any") && told.dropping.has("y", "z"));
        assert!(!told.dropping.has("y", "a"));
    }
}
