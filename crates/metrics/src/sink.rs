//! The interface of metrics sinks, and sinks by name.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use ardea_core::settings::nearest;
use ardea_core::{Error, ErrorCode, Result};

use crate::{Batch, JsonLines, Labels, Prometheus};

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
        self.argument.as_deref().ok_or_else(|| {
            Error::new(
                ErrorCode::InvalidConfig,
                "a metrics sink lacks its argument",
            )
            .hint(format!("write {write}"))
        })
    }
}

type Maker = Arc<dyn Fn(&SinkSetup) -> Result<Box<dyn MetricsSink>> + Send + Sync>;

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
pub struct MetricsSinks(BTreeMap<String, Maker>);

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
    }

    /// Adds a sink, or replaces the one of this name.
    pub fn with(
        mut self,
        name: impl Into<String>,
        maker: impl Fn(&SinkSetup) -> Result<Box<dyn MetricsSink>> + Send + Sync + 'static,
    ) -> Self {
        self.0.insert(name.into(), Arc::new(maker));
        self
    }

    /// Makes the sinks of a list such as `prometheus, json-lines:metrics.jsonl`, for the process with these labels.
    ///
    /// # Errors
    /// [`InvalidConfig`](ErrorCode::InvalidConfig) for a name that there isn't; what the sink says if it can't be made.
    pub fn make(&self, list: &str, process: &Labels) -> Result<Vec<Box<dyn MetricsSink>>> {
        entries(list)
            .map(|(name, argument)| {
                self.maker(name)?(&SinkSetup {
                    argument: argument.map(str::to_string),
                    process: process.clone(),
                })
            })
            .collect()
    }

    /// Whether there are the sinks of such a list; none is made.
    ///
    /// # Errors
    /// [`InvalidConfig`](ErrorCode::InvalidConfig) for a name that there isn't, with the nearest that there is.
    pub fn check(&self, list: &str) -> Result<()> {
        entries(list).try_for_each(|(name, _)| self.maker(name).map(drop))
    }

    /// The names, sorted.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.0.keys().map(String::as_str)
    }

    fn maker(&self, name: &str) -> Result<&Maker> {
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
