//! A custom metrics sink: sends the metrics of a process to a StatsD server over UDP.
//!
//! Counters are sent as increments, labels as tags in the format of DogStatsD, with as many lines
//! as fit into a datagram. As usual for StatsD, delivery is not confirmed.

use std::collections::HashMap;
use std::net::UdpSocket;

use ardea::Result;
use ardea::core::{Error, ErrorCode};
use ardea_metrics::{Batch, Line, MetricsSink, Sample, SinkSetup};

/// The largest datagram that passes an Ethernet and its tunnels without fragmentation.
const MAX_DATAGRAM_BYTES: usize = 1_432;

/// The sink `statsd:HOST:PORT`; add it with
/// `MetricsSinks::builtin().with("statsd", |setup| Ok(Box::new(Statsd::new(setup)?)))`.
#[derive(Debug)]
pub struct Statsd {
    socket: UdpSocket,
    server: String,
    /// The last value of each counter.
    counters: HashMap<String, f64>,
}

impl Statsd {
    /// Creates a sink for the server named by the sink's argument.
    pub fn new(setup: &SinkSetup) -> Result<Self> {
        let server = setup.required("statsd:HOST:PORT")?.to_string();
        let socket =
            UdpSocket::bind(("0.0.0.0", 0)).map_err(|error| unreachable_server(&server, error))?;
        let connected = socket.connect(&server);
        connected
            .map_err(|error| unreachable_server(&server, error).hint("write statsd:HOST:PORT"))?;
        Ok(Statsd {
            socket,
            server,
            counters: HashMap::new(),
        })
    }

    fn line(&mut self, batch: &Batch, sample: &Sample, line: Line<'_>) -> String {
        let labels = sample.labels.over(&batch.process);
        let tags = labels.iter().chain(line.label);
        let plain = |text: &str| text.replace([':', '|', ',', '#', '\n'], "_");
        let tags: Vec<_> = tags
            .map(|(name, value)| format!("{name}:{}", plain(value)))
            .collect();
        let (name, tags) = (format!("{}{}", sample.name, line.suffix), tags.join(","));
        if !line.is_counter {
            // A gauge with a sign would be read as a change: it is set to zero first.
            let zero = format!("{name}:0|g|#{tags}\n");
            let zero = if line.number < 0.0 { &zero } else { "" };
            return format!("{zero}{name}:{}|g|#{tags}\n", line.number);
        }
        let before = self.counters.insert(format!("{name}|{tags}"), line.number);
        let grown = match before {
            Some(before) if before <= line.number => line.number - before,
            _ => line.number,
        };
        format!("{name}:{grown}|c|#{tags}\n")
    }
}

impl MetricsSink for Statsd {
    fn name(&self) -> &str {
        "statsd"
    }

    fn take(&mut self, batch: &Batch) -> Result<()> {
        let mut lines = Vec::new();
        for sample in &batch.samples {
            sample
                .value
                .lines(|line| lines.push(self.line(batch, sample, line)));
        }
        let mut datagram = String::new();
        let mut sent = Ok(0);
        for line in lines.into_iter().chain([String::new()]) {
            if line.is_empty() || datagram.len() + line.len() > MAX_DATAGRAM_BYTES {
                sent = sent.and(self.socket.send(datagram.as_bytes()));
                datagram.clear();
            }
            datagram += &line;
        }
        sent.map(drop)
            .map_err(|error| unreachable_server(&self.server, error))
    }

    fn place(&self) -> String {
        format!("udp {}", self.server)
    }
}

fn unreachable_server(server: &str, error: std::io::Error) -> Error {
    Error::new(
        ErrorCode::Network,
        format!("metrics can't be sent to {server}"),
    )
    .because(error)
}
