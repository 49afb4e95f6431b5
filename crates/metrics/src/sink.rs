//! The interface of metrics sinks, and sinks by name.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use ardea_config::nearest;
use ardea_core::{Error, ErrorCode, Result};

use crate::{Batch, JsonLines, Labels, Prometheus, catalogue};

/// Takes the batches of a process somewhere.
///
/// A sink has a thread of its own, and may block: what comes meanwhile waits in a short queue, and is dropped for this sink
/// when that is full. Batches come about once a second, in the order of their making.
pub trait MetricsSink: Send {
    /// What it is called in messages and in the count of what it missed: `prometheus`.
    fn name(&self) -> &str;

    /// Takes one batch.
    ///
    /// # Errors
    /// Whatever keeps it from doing so. It is counted, the last one can be asked for, and the next batch comes all the same.
    fn take(&mut self, batch: &Batch) -> Result<()>;

    /// Where it takes them, for messages: an address, a file.
    fn place(&self) -> String {
        String::new()
    }
}

/// What a sink is made from.
#[derive(Clone, Debug)]
pub struct SinkSetup {
    /// What stands behind the colon in `NAME:ARGUMENT`.
    pub argument: Option<String>,
    /// The labels of the process.
    pub process: Labels,
}

impl SinkSetup {
    /// The argument of a sink that can't do without.
    ///
    /// # Errors
    /// [`InvalidConfig`](ErrorCode::InvalidConfig) with what to write: `statsd:HOST:PORT`.
    pub fn required(&self, write: &str) -> Result<&str> {
        let argument = self.argument.as_deref().map(str::trim);
        argument.filter(|text| !text.is_empty()).ok_or_else(|| {
            Error::new(
                ErrorCode::InvalidConfig,
                "a metrics sink lacks its argument",
            )
            .hint(format!("write {write}"))
        })
    }
}

type Maker = Arc<dyn Fn(&SinkSetup) -> Result<Box<dyn MetricsSink>> + Send + Sync>;

type Checker = Arc<dyn Fn(&SinkSetup) -> Result<()> + Send + Sync>;

/// Sinks of one name: how one is made, and how its argument is looked at before.
#[derive(Clone)]
struct SinkKind {
    make: Maker,
    check: Checker,
}

/// Metrics sinks by name: `prometheus:127.0.0.1:9464,json-lines:metrics.jsonl` in a configuration chooses two of them.
///
/// A sink of one's own is added to those that there are:
///
/// ```
/// use ardea_core::Result;
/// use ardea_metrics::{Batch, Labels, MetricsManager, MetricsSink, MetricsSinks};
///
/// struct Console;
///
/// impl MetricsSink for Console {
///     fn name(&self) -> &str {
///         "console"
///     }
///
///     fn take(&mut self, batch: &Batch) -> Result<()> {
///         println!("{} samples of {}", batch.samples.len(), batch.process);
///         Ok(())
///     }
/// }
///
/// let sinks = MetricsSinks::builtin().with("console", |_| Ok(Box::new(Console)));
/// let manager = MetricsManager::start("console", &Labels::none(), &sinks)?;
/// assert_eq!(manager.report()[0].name, "console");
/// # Ok::<(), ardea_core::Error>(())
/// ```
#[derive(Clone)]
pub struct MetricsSinks(BTreeMap<String, SinkKind>);

impl MetricsSinks {
    /// The sinks of this crate: `prometheus`, `json-lines`.
    pub fn builtin() -> Self {
        MetricsSinks(BTreeMap::new())
            .with("prometheus", |setup| {
                Ok(Box::new(Prometheus::from_setup(setup)?))
            })
            .with("json-lines", |setup| {
                Ok(Box::new(JsonLines::from_setup(setup)?))
            })
            .with_check("prometheus", |setup| {
                Prometheus::address_of(setup).map(drop)
            })
            .with_check("json-lines", |setup| JsonLines::path_of(setup).map(drop))
    }

    /// Adds a sink, or replaces the one of this name.
    pub fn with(
        mut self,
        name: impl Into<String>,
        maker: impl Fn(&SinkSetup) -> Result<Box<dyn MetricsSink>> + Send + Sync + 'static,
    ) -> Self {
        let kind = SinkKind {
            make: Arc::new(maker),
            check: Arc::new(|_| Ok(())),
        };
        self.0.insert(name.into(), kind);
        self
    }

    /// Adds to the sink of this name, if there is one, how [`check`](Self::check) looks at its argument: without opening or making
    /// anything, as that is done where a job is submitted, and not where it runs.
    pub fn with_check(
        mut self,
        name: &str,
        check: impl Fn(&SinkSetup) -> Result<()> + Send + Sync + 'static,
    ) -> Self {
        if let Some(kind) = self.0.get_mut(name) {
            kind.check = Arc::new(check);
        }
        self
    }

    /// Makes the sinks of a list such as `prometheus, json-lines:metrics.jsonl`, for the process with these labels.
    ///
    /// # Errors
    /// [`InvalidConfig`](ErrorCode::InvalidConfig) for a name that there isn't, or a wrong argument; what the sink says if it can't
    /// be made.
    pub fn make(&self, list: &str, process: &Labels) -> Result<Vec<Box<dyn MetricsSink>>> {
        entries(list)
            .map(|(name, argument)| {
                let kind = self.kind(name)?;
                let setup = SinkSetup {
                    argument: argument.map(str::to_string),
                    process: process.clone(),
                };
                (kind.check)(&setup)?;
                (kind.make)(&setup)
            })
            .collect()
    }

    /// Whether there are the sinks of such a list, and their arguments are what they must be; none is made, and nothing is opened. A
    /// process of a job makes the same check.
    ///
    /// # Errors
    /// [`InvalidConfig`](ErrorCode::InvalidConfig) for a name that there isn't, with the nearest that there is, or a wrong argument.
    pub fn check(&self, list: &str) -> Result<()> {
        // Every process of a job has these labels.
        let process = Labels::of(catalogue::PROCESS.iter().map(|label| (*label, "0")));
        entries(list).try_for_each(|(name, argument)| {
            (self.kind(name)?.check)(&SinkSetup {
                argument: argument.map(str::to_string),
                process: process.clone(),
            })
        })
    }

    /// Whether there are the sinks of such a list, whatever their arguments are.
    ///
    /// # Errors
    /// [`InvalidConfig`](ErrorCode::InvalidConfig) for a name that there isn't, with the nearest that there is.
    pub fn check_names(&self, list: &str) -> Result<()> {
        entries(list).try_for_each(|(name, _)| self.kind(name).map(drop))
    }

    /// The names, sorted.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.0.keys().map(String::as_str)
    }

    fn kind(&self, name: &str) -> Result<&SinkKind> {
        self.0.get(name).ok_or_else(|| self.unknown(name))
    }

    fn unknown(&self, name: &str) -> Error {
        let names: Vec<_> = self.names().collect();
        let choice = format!("choose among: {}", names.join(", "));
        let hint = match nearest(name, self.names()) {
            Some(meant) => format!("did you mean {meant}? {choice}"),
            None => choice,
        };
        let what = format!("there is no metrics sink {name:?}");
        Error::new(ErrorCode::InvalidConfig, what).hint(hint)
    }
}

/// The names of a list, each with its argument if it has one.
fn entries(list: &str) -> impl Iterator<Item = (&str, Option<&str>)> {
    let entries = list.split(',').map(str::trim);
    let entries = entries.filter(|entry| !entry.is_empty());
    entries.map(|entry| match entry.split_once(':') {
        Some((name, argument)) => (name, Some(argument)),
        None => (entry, None),
    })
}

impl Default for MetricsSinks {
    fn default() -> Self {
        MetricsSinks::builtin()
    }
}

impl fmt::Debug for MetricsSinks {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.names()).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn wrong_arguments_are_found_without_making_a_sink() {
        let sinks = MetricsSinks::builtin();
        for fine in [
            "",
            "prometheus, json-lines:/no/such/folder/{job}-{container}.jsonl",
            "prometheus:127.0.0.1:9464+",
            "prometheus:no.such.host:1,prometheus:[::1]:0",
            "json-lines:a{b}.jsonl".replace("{b}", "{").as_str(),
        ] {
            sinks.check(fine).expect(fine);
        }
        for (wrong, part) in [
            ("prom", "no metrics sink"),
            ("prometheus:", "no address"),
            ("prometheus:xx", "no address"),
            ("prometheus::80", "no address"),
            ("prometheus:127.0.0.1:99999", "no address"),
            ("prometheus:127.0.0.1:80++", "no address"),
            ("prometheus:::1:80", "no address"),
            ("json-lines", "lacks its argument"),
            ("json-lines:", "lacks its argument"),
            ("json-lines: ,prometheus", "lacks its argument"),
            ("json-lines:m-{foo}.jsonl", "no label \"foo\""),
            ("json-lines:m-{}.jsonl", "no label \"\""),
            ("json-lines:/logs/", "no file"),
        ] {
            let error = sinks.check(wrong).expect_err(wrong);
            assert_eq!(error.code(), ErrorCode::InvalidConfig, "{wrong}");
            assert!(error.to_string().contains(part), "{wrong}: {error}");
            let process = Labels::of([("job", "a"), ("container", "1")]);
            let made = sinks.make(wrong, &process).map(|sinks| sinks.len());
            assert_eq!(made.expect_err(wrong).to_string(), error.to_string());
        }
    }

    #[test]
    fn a_sink_of_ones_own_can_have_its_argument_checked_as_well() {
        let sinks = MetricsSinks::builtin()
            .with("statsd", |_| unreachable!("none is made"))
            .with_check("statsd", |setup| {
                setup.required("statsd:HOST:PORT").map(drop)
            });
        sinks.check("statsd:a:1").expect("it has one");
        sinks
            .check_names("statsd, prometheus:x")
            .expect("there are");
        sinks.check_names("statd").expect_err("there is none");
        let error = sinks.check("statsd").expect_err("it has none");
        assert!(error.to_string().contains("statsd:HOST:PORT"), "{error}");
    }
}
