//! The sink that sends batches to an OpenTelemetry collector (OTLP over HTTP, binary).

mod message;
mod request;
mod url;

use std::time::Duration;

use ardea_core::Result;
use prost::Message;

use crate::{Batch, MetricsSink, SinkSetup};
use url::CollectorUrl;

/// Time limit of a request, and of each of its steps.
const TIMEOUT: Duration = Duration::from_secs(10);

/// A sink that sends each batch to an OpenTelemetry collector as an `ExportMetricsServiceRequest`
/// in a POST request.
///
/// In a list of sinks, this sink is written as `otlp:URL`, such as
/// `otlp:http://127.0.0.1:4318/v1/metrics`; the setting `metrics.otlp` adds it. The labels of the
/// process are attributes of the resource, with the service name `ardea`. Counters are cumulative
/// sums since the start of the process. There is neither encryption nor authentication: a collector
/// on the same machine can forward the metrics.
#[derive(Debug)]
pub struct Otlp {
    url: CollectorUrl,
}

impl Otlp {
    /// Creates the sink. It connects for each batch, so the collector may be started later.
    ///
    /// # Errors
    /// [`InvalidConfig`](ardea_core::ErrorCode::InvalidConfig) if the URL is invalid or does not
    /// begin with `http://`.
    pub fn new(url: &str) -> Result<Self> {
        let url = CollectorUrl::parse(url)?;
        Ok(Otlp { url })
    }

    pub(crate) fn from_setup(setup: &SinkSetup) -> Result<Self> {
        Otlp::new(Otlp::url_of(setup)?)
    }

    /// Returns the URL in the sink's argument, if it is valid.
    pub(crate) fn url_of(setup: &SinkSetup) -> Result<&str> {
        let url = setup.required("otlp:http://HOST:4318/v1/metrics")?;
        CollectorUrl::parse(url).map(|_| url)
    }
}

impl MetricsSink for Otlp {
    fn name(&self) -> &str {
        "otlp"
    }

    fn take(&mut self, batch: &Batch) -> Result<()> {
        let body = message::request(batch).encode_to_vec();
        request::post(&self.url, &body, TIMEOUT)
    }

    fn place(&self) -> String {
        self.url.to_string()
    }
}
