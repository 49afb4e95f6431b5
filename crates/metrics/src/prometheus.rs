//! The sink that serves the latest batches to Prometheus over HTTP.

mod endpoint;
mod text;

use std::collections::BTreeMap;
use std::fmt;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use ardea_core::Result;

use crate::settings::MOST_EVERY;
use crate::{Batch, Labels, MetricsSink, SinkSetup};
use endpoint::Endpoint;
pub(crate) use text::Format;

/// The default listen address: the port that OpenTelemetry assigns to Prometheus endpoints, or the
/// next free port.
const DEFAULT_ADDRESS: &str = "127.0.0.1:9464+";

/// The minimum time for which the metrics of a process are served after its last batch.
const SHOWN_FOR: Duration = Duration::from_secs(60);

/// The permitted delay of a batch after a long reporting interval.
const MAX_DELAY: Duration = Duration::from_secs(30);

/// Returns the time for which the metrics of a process are served after this batch. The next batch
/// is due within this time.
fn shown_for(batch: &Batch) -> Duration {
    SHOWN_FOR.max(batch.every.min(MOST_EVERY) + MAX_DELAY)
}

/// A sink that serves the latest batch of each process at `http://ADDRESS/metrics`, in the text
/// format 0.0.4 or, on request, as OpenMetrics.
///
/// In a list of sinks, this sink is written as `prometheus:ADDRESS`; the default address is
/// `127.0.0.1:9464+`. With a `+` after the port, the first free one of the hundred ports from there
/// is used, for several processes on one host. There is neither encryption nor authentication, so
/// an address other than loopback exposes the metrics to the network.
///
/// ```
/// use std::io::{Read, Write};
/// use ardea_core::Timestamp;
/// use ardea_metrics::{Batch, Labels, MetricsSink, Prometheus, Value};
///
/// let mut prometheus = Prometheus::bind("127.0.0.1:0")?;
/// let now = Timestamp::from_secs(1);
/// let mut batch = Batch::new(Labels::of([("job", "a")]), now, now);
/// batch.push("carts_open", &Labels::none(), Value::Gauge(7.0));
/// prometheus.take(&batch)?;
///
/// let mut reader = std::net::TcpStream::connect(prometheus.address())?;
/// reader.write_all(b"GET /metrics HTTP/1.1\r\nHost: a\r\n\r\n")?;
/// let mut answer = String::new();
/// reader.read_to_string(&mut answer)?;
/// assert!(answer.ends_with("# TYPE carts_open gauge\ncarts_open{job=\"a\"} 7\n"));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct Prometheus {
    batches: Arc<LatestBatches>,
    endpoint: Endpoint,
}

/// The latest batch of each process.
#[derive(Default)]
pub(crate) struct LatestBatches(Mutex<BTreeMap<Labels, (Instant, Batch)>>);

impl LatestBatches {
    /// Adds a batch that arrived at `now`.
    fn put(&self, batch: Batch, now: Instant) {
        let mut batches = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        batches.retain(|_, (since, batch)| is_shown(*since, batch, now));
        batches.insert(batch.process.clone(), (now, batch));
    }

    fn render(&self, format: Format, now: Instant) -> String {
        let batches = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let shown = batches
            .values()
            .filter(|(since, batch)| is_shown(*since, batch, now));
        text::render(shown.map(|(_, batch)| batch), format)
    }
}

/// Returns true if a batch that arrived at `since` is still served at `now`.
fn is_shown(since: Instant, batch: &Batch, now: Instant) -> bool {
    now.saturating_duration_since(since) < shown_for(batch)
}

impl Prometheus {
    /// Creates the sink, and serves at `address`, which is `HOST:PORT` or `HOST:PORT+`.
    ///
    /// # Errors
    /// [`InvalidConfig`](ardea_core::ErrorCode::InvalidConfig) if the address is invalid,
    /// [`Network`](ardea_core::ErrorCode::Network) if the address is in use.
    pub fn bind(address: &str) -> Result<Self> {
        let shelf = Arc::new(LatestBatches::default());
        let endpoint = Endpoint::bind(address, Arc::clone(&shelf))?;
        Ok(Prometheus {
            batches: shelf,
            endpoint,
        })
    }

    /// Returns the listen address.
    pub fn address(&self) -> SocketAddr {
        self.endpoint.address()
    }

    pub(crate) fn from_setup(setup: &SinkSetup) -> Result<Self> {
        Prometheus::bind(Prometheus::address_of(setup)?)
    }

    /// Returns the address in the sink's argument, if its syntax is valid. The address is neither
    /// resolved nor bound.
    pub(crate) fn address_of(setup: &SinkSetup) -> Result<&str> {
        let address = setup.argument.as_deref().unwrap_or(DEFAULT_ADDRESS).trim();
        match endpoint::is_address(address) {
            true => Ok(address),
            false => Err(endpoint::no_address(address)),
        }
    }
}

impl MetricsSink for Prometheus {
    fn name(&self) -> &str {
        "prometheus"
    }

    fn take(&mut self, batch: &Batch) -> Result<()> {
        self.batches.put(batch.clone(), Instant::now());
        Ok(())
    }

    fn place(&self) -> String {
        format!("http://{}/metrics", self.address())
    }
}

impl fmt::Debug for Prometheus {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Prometheus({})", self.place())
    }
}

#[cfg(test)]
mod tests {
    use ardea_core::Timestamp;

    use super::*;
    use crate::Value;

    #[test]
    fn a_process_is_shown_for_a_minute_or_until_it_is_late_to_tell_more() {
        let begun = Instant::now();
        let after = |ms| begun + Duration::from_millis(ms);
        let batch = |every_ms: u64| {
            let process = Labels::of([("every", every_ms.to_string())]);
            let at = Timestamp::from_secs(1);
            let mut batch = Batch::new(process, at, at).every(Duration::from_millis(every_ms));
            batch.push("held", &Labels::none(), Value::Gauge(1.0));
            batch
        };
        for (every_ms, shown_ms) in [
            (100, 60_000),
            (1_000, 60_000),
            (30_000, 60_000),
            (45_000, 75_000),
            (60_000, 90_000),
            // Beyond the maximum: such a process must not stay for ever.
            (u64::MAX, 90_000),
        ] {
            let shelf = LatestBatches::default();
            shelf.put(batch(every_ms), begun);
            let is_there = |ms| {
                let text = shelf.render(Format::Text, after(ms));
                text.contains(&format!("every=\"{every_ms}\""))
            };
            assert!(is_there(0) && is_there(shown_ms - 1), "{every_ms}");
            assert!(!is_there(shown_ms), "{every_ms}");
            // A batch of another process removes none that is shown, and retains none that isn't.
            shelf.put(batch(7), after(shown_ms - 1));
            assert!(is_there(shown_ms - 1), "{every_ms}");
            shelf.put(batch(7), after(shown_ms));
            assert_eq!(shelf.0.lock().expect("no panic").len(), 1, "{every_ms}");
        }
    }
}
