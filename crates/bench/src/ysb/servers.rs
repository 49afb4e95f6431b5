//! Kafka as the source of the events, and Redis as the sink of the results.

use std::io::{self, BufRead, BufReader, ErrorKind, Write};
use std::net::TcpStream;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::thread;
use std::time::{Duration, Instant};

use ardea_connectors::collections::items;
use ardea_connectors::redis::Commands;
use ardea_connectors::{kafka, redis};
use ardea_core::{Error, ErrorCode, Result, Unbounded};
use ardea_engine::{Node, NodeConfig};
use ardea_operators::WindowResult;
use ardea_pipeline::{Pipeline, Stream, Timed};

use super::ads::{AdsLoad, KafkaTopic, RedisHash};
use super::json::{AdView, CampaignTable, JsonAd, JsonAds};
use crate::cluster::{ControlledLoad, Order};
use crate::long_running::accounts::as_many;
use crate::long_running::span::Plan;
use crate::long_running::watch::ResultObserver;
use crate::running::Running;

/// Timeout for the job to read all events.
const READ_WITHIN: Duration = Duration::from_secs(120);

/// Poll interval of the number of events read.
const POLL_INTERVAL: Duration = Duration::from_millis(10);

/// The message that creates the topic. It is no event.
const FIRST_MESSAGE: &str = "{}";

/// Decodes the messages of a topic, and returns the campaigns of the views among them.
pub(super) fn campaigns(
    load: &AdsLoad,
    p: &Pipeline,
    topic: &KafkaTopic,
    watch: &Arc<ResultObserver>,
) -> Stream<u64, Unbounded, Timed> {
    let (table, watch) = (CampaignTable::new(load.campaigns), Arc::clone(watch));
    let messages = kafka::read(topic.brokers.as_str(), topic.name.as_str())
        .parallelism(as_many(load.instances))
        .decode(move |message| {
            watch.filled.fetch_add(1, Ordering::Relaxed);
            Ok(message.value.and_then(|value| table.view(value)))
        });
    p.read_from(messages.build())
        .with_source_time()
        .filter_map(|view: Option<AdView>| view)
        .map(|view| view.campaign)
}

/// Adds each result to the field of its campaign and window, so that a repeated result shows.
pub(super) fn write_results(
    results: Stream<WindowResult<u64, u64>, Unbounded, Timed>,
    hash: &RedisHash,
) {
    let key = hash.key.clone();
    let sink = redis::write(
        hash.url.as_str(),
        move |views: &WindowResult<u64, u64>, commands: &mut Commands| {
            let field = format!("{} {}", views.key, views.end.as_millis());
            let count = i64::try_from(views.value).unwrap_or(i64::MAX);
            commands.hincr_by(key.as_str(), field, count);
        },
    );
    results.write_to(sink.exactly_once().build());
}

/// The job that writes the events to a topic when they are due.
pub(super) struct KafkaFeed {
    job: Running,
    watch: Arc<ResultObserver>,
    _node: Arc<Node>,
}

impl KafkaFeed {
    /// Creates the topic and starts the job, which waits for the start signal.
    pub(super) fn start(load: &AdsLoad, topic: &KafkaTopic) -> Result<Self> {
        let node = Arc::new(Node::start(NodeConfig::with_threads(1))?);
        let (brokers, name) = (topic.brokers.as_str(), topic.name.as_str());
        let first = Pipeline::new("ysb-topic");
        first
            .read_from(items(vec![FIRST_MESSAGE]))
            .write_to_local(kafka::write(brokers, name, |text: &&str, out| {
                out.value(text);
                Ok(())
            }));
        Running::start(&node, first, None)?.join()?;
        let watch = ResultObserver::new(false)?;
        let p = Pipeline::new("ysb-events");
        p.read_from(load.source(JsonAds::new(load.campaigns), &watch))
            .with_source_time()
            .write_to_local(kafka::write(brokers, name, |event: &JsonAd, out| {
                out.value(event.as_bytes());
                Ok(())
            }));
        Ok(KafkaFeed {
            job: Running::start(&node, p, None)?,
            watch,
            _node: node,
        })
    }

    /// Sends the start signal.
    pub(super) fn begin(&self, plan: &Plan) {
        self.watch.handle_order(plan.order());
    }

    /// Waits until all events are written, and until `reader` has read them.
    pub(super) fn finish(self, reader: &ResultObserver, job: &Running) -> Result<()> {
        self.watch.handle_order(Order::Over);
        self.job.join()?;
        let messages = 1 + self.watch.load.emitted.load(Ordering::Relaxed);
        let deadline = Instant::now() + READ_WITHIN;
        while reader.filled.load(Ordering::Relaxed) < messages && !job.is_over() {
            if Instant::now() >= deadline {
                let read = reader.filled.load(Ordering::Relaxed);
                let what = format!("{read} of {messages} messages were read in time");
                return Err(
                    Error::new(ErrorCode::LimitReached, what).hint("give a lower rate (--rate)")
                );
            }
            thread::sleep(POLL_INTERVAL);
        }
        Ok(())
    }
}

/// Returns the results in Redis as triples of campaign, end of window and views, and deletes them.
///
/// # Errors
/// [`ErrorCode::ReadFailed`] if the server does not answer.
pub(super) fn published(hash: &RedisHash) -> Result<Vec<(u64, i64, u64)>> {
    let fields = fields_of(hash).map_err(|error| {
        let what = format!("cannot read the results from {}", hash.url);
        Error::new(ErrorCode::ReadFailed, what)
            .because(error)
            .hint("give a server without password: --redis redis://HOST:PORT")
    })?;
    let results = fields.chunks_exact(2).filter_map(|field| {
        let (campaign, end) = field[0].split_once(' ')?;
        Some((
            campaign.parse().ok()?,
            end.parse().ok()?,
            field[1].parse().ok()?,
        ))
    });
    Ok(results.collect())
}

/// Returns the names and values of a hash's fields, and deletes the hash.
fn fields_of(hash: &RedisHash) -> io::Result<Vec<String>> {
    let address = hash.url.strip_prefix("redis://").unwrap_or(&hash.url);
    let address = address.split('/').next().unwrap_or(address);
    let mut stream = match address.contains(':') {
        true => TcpStream::connect(address)?,
        false => TcpStream::connect((address, 6379))?,
    };
    let (key, length) = (&hash.key, hash.key.len());
    for command in ["HGETALL", "DEL"] {
        let size = command.len();
        write!(
            stream,
            "*2\r\n${size}\r\n{command}\r\n${length}\r\n{key}\r\n"
        )?;
    }
    let mut lines = BufReader::new(stream).lines();
    let head = lines.next().ok_or(ErrorKind::UnexpectedEof)??;
    let count = head.strip_prefix('*').and_then(|count| count.parse().ok());
    let count: usize = count.ok_or_else(|| io::Error::other(head))?;
    // The length of each text is in a line before it.
    let texts = lines.skip(1).step_by(2).take(count);
    texts.collect()
}
