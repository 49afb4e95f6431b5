//! Test environment: brokers, topics and jobs.

use std::io::Write;
use std::path::PathBuf;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use ardea_connectors::collections::items_with_times;
use ardea_connectors::kafka::{Start, read, write};
use ardea_core::Timestamp;
use ardea_engine::{JobConfig, JobHandle, Node, NodeConfig};
use ardea_metastore::conformance::{Server, Skipped};
use ardea_pipeline::Pipeline;
use rdkafka::admin::{AdminClient, AdminOptions, NewPartitions, NewTopic, TopicReplication};
use rdkafka::client::DefaultClientContext;
use rdkafka::consumer::{BaseConsumer, Consumer};
use rdkafka::{ClientConfig, Offset, TopicPartitionList};

/// Timeout of conditions in tests.
const PATIENCE: Duration = Duration::from_secs(90);

/// Starts a broker. If this fails, prints a message and returns `None`.
pub fn own_broker() -> Option<Server> {
    broker_of("kafka.sh")
}

/// Returns the shared broker that does not create topics automatically and aborts transactions
/// after ten seconds. It ends with the process.
pub fn strict_broker() -> Option<String> {
    static BROKER: OnceLock<Option<Server>> = OnceLock::new();
    let broker = BROKER.get_or_init(|| broker_of("kafka-strict.sh"));
    broker.as_ref().map(|server| server.address().to_string())
}

/// Starts a broker with listeners for TLS and SASL.
pub fn secure_broker() -> Option<Server> {
    broker_of("kafka-secure.sh")
}

fn broker_of(script: &str) -> Option<Server> {
    match Server::start(script) {
        Ok(server) => Some(server),
        Err(Skipped(why)) => {
            let _ = writeln!(std::io::stderr(), "SKIPPED tests of Kafka: {why}");
            None
        }
    }
}

/// Returns the shared broker of all non-disruptive tests. It ends with the process.
fn shared_broker() -> Option<String> {
    static BROKER: OnceLock<Option<Server>> = OnceLock::new();
    let broker = BROKER.get_or_init(own_broker).as_ref();
    broker.map(|server| server.address().to_string())
}

/// A topic used by one test.
pub struct Topic {
    pub brokers: String,
    pub name: String,
}

impl Topic {
    /// Creates a topic on the shared broker.
    pub fn new(partitions: i32) -> Option<Topic> {
        shared_broker().map(|brokers| Topic::at(brokers, partitions))
    }

    /// Creates a topic with one partition and the maximum batch size `bytes` on the shared broker.
    pub fn taking(bytes: u32) -> Option<Topic> {
        let limit = bytes.to_string();
        shared_broker().map(|brokers| Topic::with(brokers, 1, &[("max.message.bytes", &limit)]))
    }

    /// Creates a topic with settings on the shared broker.
    pub fn with_settings(partitions: i32, settings: &[(&str, &str)]) -> Option<Topic> {
        shared_broker().map(|brokers| Topic::with(brokers, partitions, settings))
    }

    /// Creates a topic.
    pub fn at(brokers: String, partitions: i32) -> Topic {
        Topic::with(brokers, partitions, &[])
    }

    /// Creates a topic with settings.
    pub fn with(brokers: String, partitions: i32, settings: &[(&str, &str)]) -> Topic {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let topic = Topic {
            brokers,
            name: format!("topic-{number}"),
        };
        topic.make_with(partitions, settings);
        topic
    }

    /// Creates the topic on the broker, also again after its deletion.
    pub fn make(&self, partitions: i32) {
        self.make_with(partitions, &[]);
    }

    fn make_with(&self, partitions: i32, settings: &[(&str, &str)]) {
        let mut new = NewTopic::new(&self.name, partitions, TopicReplication::Fixed(1));
        for (name, value) in settings {
            new = new.set(name, value);
        }
        // A topic being deleted exists for a while.
        eventually("the topic is made", || {
            let made = wait_for(self.admin().create_topics([&new], &AdminOptions::new()));
            made.is_ok_and(|made| made[0].is_ok())
        });
    }

    pub fn delete(&self) {
        let options = AdminOptions::new();
        let gone = wait_for(self.admin().delete_topics(&[&self.name], &options));
        gone.expect("asked")[0].as_ref().expect("deleted");
    }

    /// Removes the records of partition 0 before an offset.
    pub fn delete_records_before(&self, offset: i64) {
        let mut before = TopicPartitionList::new();
        before
            .add_partition_offset(&self.name, 0, Offset::Offset(offset))
            .expect("an offset");
        let options = AdminOptions::new();
        wait_for(self.admin().delete_records(&before, &options)).expect("removed");
    }

    fn admin(&self) -> AdminClient<DefaultClientContext> {
        let mut config = ClientConfig::new();
        config.set("bootstrap.servers", &self.brokers);
        config.create().expect("a client")
    }

    /// Adds partitions until the topic has `partitions`.
    pub fn grow(&self, partitions: usize) {
        let more = NewPartitions::new(&self.name, partitions);
        let made = wait_for(
            self.admin()
                .create_partitions([&more], &AdminOptions::new()),
        );
        made.expect("asked")[0].as_ref().expect("made");
    }

    /// Writes records, given as partition, event time in seconds and text.
    pub fn fill(&self, records: impl IntoIterator<Item = (i32, i64, String)>) {
        let records: Vec<_> = records
            .into_iter()
            .map(|(partition, time, text)| ((partition, text), Timestamp::from_secs(time)))
            .collect();
        let p = Pipeline::new("fill");
        let sink = write(&self.brokers, &self.name, |record: &(i32, String), out| {
            out.partition(record.0).value(&record.1);
            Ok(())
        });
        p.read_from(items_with_times(records)).write_to(sink);
        p.run().expect("written");
    }

    /// Returns all texts of the topic from `start` on, by partition and offset.
    pub fn texts(&self, start: Start) -> Vec<(i32, i64, String)> {
        let p = Pipeline::new("read");
        let source = read(&self.brokers, &self.name)
            .start(start)
            .decode(|message| {
                Ok((
                    message.partition,
                    message.offset,
                    message.text()?.to_string(),
                ))
            })
            .until_present();
        let texts = p.read_from(source.build()).collect();
        p.run().expect("read");
        texts.take_sorted()
    }
}

/// Returns the path of the log file of partition 0 of a topic on a dedicated broker.
pub fn log_of(server: &Server, topic: &Topic) -> PathBuf {
    let folder = server.folder().join("data");
    let partition = folder.join(format!("{}-0", topic.name));
    partition.join("00000000000000000000.log")
}

/// Parses texts as numbers, in ascending order.
pub fn sorted_numbers(texts: impl IntoIterator<Item = String>) -> Vec<u64> {
    let numbers = texts
        .into_iter()
        .map(|text| text.parse().expect("a number"));
    let mut numbers: Vec<u64> = numbers.collect();
    numbers.sort_unstable();
    numbers
}

/// Waits until a consumer group has committed an offset of partition 0 of a topic.
pub fn await_committed(topic: &Topic, group: &str, offset: i64, mut meanwhile: impl FnMut()) {
    let consumer: BaseConsumer = ClientConfig::new()
        .set("bootstrap.servers", &topic.brokers)
        .set("group.id", group)
        .create()
        .expect("a client");
    eventually("the group has the offset", || {
        meanwhile();
        let mut asked = TopicPartitionList::new();
        asked.add_partition(&topic.name, 0);
        let told = consumer.committed_offsets(asked, Duration::from_secs(5));
        told.is_ok_and(|told| told.elements()[0].offset() == Offset::Offset(offset))
    });
}

/// A pipeline that runs until the handle is dropped.
pub struct Running {
    // The node must be dropped after the job.
    pub job: JobHandle,
    _node: Node,
}

impl Running {
    pub fn start(pipeline: &Pipeline) -> Running {
        let node = Node::start(NodeConfig::default()).expect("a node");
        let job = pipeline.submit(&node, JobConfig::default()).expect("runs");
        Running { job, _node: node }
    }
}

/// Polls `condition` until it holds; fails the test when it never does.
pub fn eventually(what: &str, mut condition: impl FnMut() -> bool) {
    let deadline = Instant::now() + PATIENCE;
    while !condition() {
        assert!(Instant::now() < deadline, "never: {what}");
        std::thread::park_timeout(Duration::from_millis(5));
    }
}

fn wait_for<F: Future>(future: F) -> F::Output {
    tokio::runtime::Builder::new_current_thread()
        .build()
        .expect("a runtime")
        .block_on(future)
}
