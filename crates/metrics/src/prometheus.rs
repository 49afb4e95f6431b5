//! The sink that Prometheus reads: the latest batches, behind an HTTP endpoint.

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

/// The port that OpenTelemetry gives to endpoints for Prometheus, and after it the next free one.
const DEFAULT_ADDRESS: &str = "127.0.0.1:9464+";

/// How long a process is shown after its last batch at least.
const SHOWN_FOR: Duration = Duration::from_secs(60);

/// How much later than the one before a batch may come, of a process that tells its metrics seldom.
const LATE_BY: Duration = Duration::from_secs(30);

/// How long a process is shown after this batch of it: until the next one comes, however seldom it tells its metrics.
fn shown_for(batch: &Batch) -> Duration {
    SHOWN_FOR.max(batch.every.min(MOST_EVERY) + LATE_BY)
}

/// Serves the latest batch of each process at `http://ADDRESS/metrics`, in the text format 0.0.4 or, for who asks, as
/// OpenMetrics.
///
/// As `prometheus:ADDRESS` in a list of sinks. A `+` behind the port takes the first free of the hundred from there, for
/// several processes on one host; the default is `127.0.0.1:9464+`. There is neither encryption nor a password: an address
/// other than loopback shows the metrics to whoever can reach it.
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
    shelf: Arc<Shelf>,
    endpoint: Endpoint,
}

/// The latest batch of each process.
#[derive(Default)]
pub(crate) struct Shelf(Mutex<BTreeMap<Labels, (Instant, Batch)>>);

impl Shelf {
    /// Takes in a batch that came at `now`.
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

/// Whether a batch that came at `since` is shown at `now`.
fn is_shown(since: Instant, batch: &Batch, now: Instant) -> bool {
    now.saturating_duration_since(since) < shown_for(batch)
}

impl Prometheus {
    /// Serves at this address, `HOST:PORT` or `HOST:PORT+`.
    ///
    /// # Errors
    /// [`InvalidConfig`](ardea_core::ErrorCode::InvalidConfig) if it is none, [`Network`](ardea_core::ErrorCode::Network)
    /// if it is in use.
    pub fn bind(address: &str) -> Result<Self> {
        let shelf = Arc::new(Shelf::default());
        let endpoint = Endpoint::bind(address, Arc::clone(&shelf))?;
        Ok(Prometheus { shelf, endpoint })
    }

    /// Where it serves.
    pub fn address(&self) -> SocketAddr {
        self.endpoint.address()
    }

    pub(crate) fn from_setup(setup: &SinkSetup) -> Result<Self> {
        Prometheus::bind(Prometheus::address_of(setup)?)
    }

    /// The address that the sink's argument names, if it can be one; nothing is looked up or bound.
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
        self.shelf.put(batch.clone(), Instant::now());
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
            // More than there may be: whoever says so is not to stay for ever.
            (u64::MAX, 90_000),
        ] {
            let shelf = Shelf::default();
            shelf.put(batch(every_ms), begun);
            let is_there = |ms| {
                let text = shelf.render(Format::Text, after(ms));
                text.contains(&format!("every=\"{every_ms}\""))
            };
            assert!(is_there(0) && is_there(shown_ms - 1), "{every_ms}");
            assert!(!is_there(shown_ms), "{every_ms}");
            // What another process tells takes none away that is shown, and keeps none that isn't.
            shelf.put(batch(7), after(shown_ms - 1));
            assert!(is_there(shown_ms - 1), "{every_ms}");
            shelf.put(batch(7), after(shown_ms));
            assert_eq!(shelf.0.lock().expect("no panic").len(), 1, "{every_ms}");
        }
    }
}
