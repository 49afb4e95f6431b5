//! The interface of metrics sinks, and sinks by name.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use ardea_config::nearest;
use ardea_core::{Error, ErrorCode, Result};

use crate::{Batch, JsonLines, Labels, Prometheus, catalogue};

/// A destination for the batches of a process.
///
/// A sink has a separate thread and may block. In the meantime batches wait in a short queue; while
/// the queue is full, they are dropped for this sink. Batches arrive about once a second, in order.
pub trait MetricsSink: Send {
    /// Returns the sink's name, such as `prometheus`, for messages and for the count of missed
    /// batches.
    fn name(&self) -> &str;

    /// Writes one batch.
    ///
    /// # Errors
    /// Any failure. Failures are counted, and the [report](crate::SinkReport) contains the last
    /// one. The next batch is still passed to the sink.
    fn take(&mut self, batch: &Batch) -> Result<()>;

    /// Returns the sink's destination for messages, such as an address or a file.
    fn place(&self) -> String {
        String::new()
    }
}

/// The parameters from which a sink is created.
#[derive(Clone, Debug)]
pub struct SinkSetup {
    /// The argument after the colon in `NAME:ARGUMENT`, if there is one.
    pub argument: Option<String>,
    /// The labels of the process.
    pub process: Labels,
}

impl SinkSetup {
    /// Returns the argument, for a sink that requires one. `write` is the syntax for the error.
    ///
    /// # Errors
    /// [`InvalidConfig`](ErrorCode::InvalidConfig) without an argument; the error contains the
    /// syntax, such as `statsd:HOST:PORT`.
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

/// The name of the sink for OpenTelemetry collectors.
pub(crate) const OTLP: &str = "otlp";

type Maker = Arc<dyn Fn(&SinkSetup) -> Result<Box<dyn MetricsSink>> + Send + Sync>;

type Checker = Arc<dyn Fn(&SinkSetup) -> Result<()> + Send + Sync>;

/// The factory of the sinks of one name, and the check of their argument.
#[derive(Clone)]
struct SinkKind {
    make: Maker,
    check: Checker,
}

/// The registry of metrics sinks by name. For example,
/// `prometheus:127.0.0.1:9464,json-lines:metrics.jsonl` in a configuration selects two sinks.
///
/// A custom sink is added to the built-in ones:
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
    /// Returns the registry of the sinks of this crate: `prometheus`, `json-lines` and, with the
    /// feature `otlp`, `otlp`.
    pub fn builtin() -> Self {
        let sinks = MetricsSinks(BTreeMap::new())
            .with("prometheus", |setup| {
                Ok(Box::new(Prometheus::from_setup(setup)?))
            })
            .with("json-lines", |setup| {
                Ok(Box::new(JsonLines::from_setup(setup)?))
            })
            .with_check("prometheus", |setup| {
                Prometheus::address_of(setup).map(drop)
            })
            .with_check("json-lines", |setup| JsonLines::path_of(setup).map(drop));
        #[cfg(feature = "otlp")]
        let sinks = sinks
            .with(OTLP, |setup| Ok(Box::new(crate::Otlp::from_setup(setup)?)))
            .with_check(OTLP, |setup| crate::Otlp::url_of(setup).map(drop));
        sinks
    }

    /// Adds a sink that `maker` creates, or replaces the sink of this name.
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

    /// Sets the function with which [`Self::check`] validates the argument of the sink of this
    /// name, if there is such a sink. The function must not open or create anything, because it
    /// runs where a job is submitted.
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

    /// Creates the sinks of a list such as `prometheus, json-lines:metrics.jsonl`, for the process
    /// with these labels.
    ///
    /// # Errors
    /// [`InvalidConfig`](ErrorCode::InvalidConfig) for an unknown name or an invalid argument; the
    /// error of a sink that can't be created.
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

    /// Checks the names and arguments of a list of sinks, without creating a sink or opening
    /// anything. The result is valid for all processes of a job.
    ///
    /// # Errors
    /// [`InvalidConfig`](ErrorCode::InvalidConfig) for an unknown name (with the most similar known
    /// name), or for an invalid argument.
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

    /// Checks the value of `metrics.otlp`: the URL of a collector, or nothing.
    ///
    /// # Errors
    /// [`InvalidConfig`](ErrorCode::InvalidConfig) for an invalid URL, or if this program was built
    /// without the feature `otlp`.
    pub fn check_otlp(&self, url: &str) -> Result<()> {
        if url.trim().is_empty() {
            return Ok(());
        }
        if !self.0.contains_key(OTLP) {
            let what = "this program was built without the feature otlp";
            let error = Error::new(ErrorCode::InvalidConfig, what);
            return Err(error.hint("build it with the feature, or use metrics.sinks"));
        }
        self.check(&format!("{OTLP}:{url}"))
    }

    /// Checks only the names of a list of sinks.
    ///
    /// # Errors
    /// [`InvalidConfig`](ErrorCode::InvalidConfig) for an unknown name (with the most similar known
    /// name).
    pub fn check_names(&self, list: &str) -> Result<()> {
        entries(list).try_for_each(|(name, _)| self.kind(name).map(drop))
    }

    /// Returns the names of the sinks, sorted.
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

/// Splits a list of sinks into names, each with its argument if there is one.
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
