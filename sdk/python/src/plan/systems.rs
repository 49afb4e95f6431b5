//! The form of sources and sinks of other systems.

use std::collections::BTreeMap;
use std::time::Duration;

use ardea_columns::Expr;
use ardea_core::OnLostPosition;
use arrow_schema::{DataType, Field, TimeUnit};
use serde::Deserialize;

use super::{ErrorPolicy, FieldList};

/// A duration in microseconds.
#[derive(Deserialize, Clone, Copy, Debug)]
#[serde(transparent)]
pub(crate) struct Micros(u64);

impl From<Micros> for Duration {
    fn from(Micros(micros): Micros) -> Self {
        Duration::from_micros(micros)
    }
}

/// The format of the values of messages.
#[derive(Deserialize, Debug)]
#[serde(rename_all = "snake_case")]
pub(crate) enum MessageFormat {
    /// A JSON object with these fields.
    Json(FieldList),
    /// A text, in the column `value`.
    Text,
    /// Bytes, in the column `value`.
    Bytes,
}

/// A part of a message beside its value, as a column.
#[derive(Deserialize, Clone, Copy, PartialEq, Eq, Debug)]
#[serde(rename_all = "snake_case")]
pub(crate) enum MetadataField {
    Key,
    Topic,
    Partition,
    Offset,
    Subject,
    Sequence,
    /// The event time of the message.
    Timestamp,
}

impl MetadataField {
    /// Returns the column.
    pub(crate) fn field(self) -> Field {
        let (name, kind, is_nullable) = match self {
            MetadataField::Key => ("key", DataType::Binary, true),
            MetadataField::Topic => ("topic", DataType::Utf8, false),
            MetadataField::Partition => ("partition", DataType::Int64, false),
            MetadataField::Offset => ("offset", DataType::Int64, false),
            MetadataField::Subject => ("subject", DataType::Utf8, false),
            MetadataField::Sequence => ("sequence", DataType::Int64, false),
            MetadataField::Timestamp => {
                let time = DataType::Timestamp(TimeUnit::Microsecond, None);
                ("timestamp", time, true)
            }
        };
        Field::new(name, kind, is_nullable)
    }
}

/// The values of messages, and how bad ones are treated.
#[derive(Deserialize, Debug)]
pub(crate) struct MessagePlan {
    pub format: MessageFormat,
    #[serde(default)]
    pub metadata: Vec<MetadataField>,
    pub on_error: ErrorPolicy,
}

/// The treatment of a position that the system has lost.
#[derive(Deserialize, Clone, Copy, Debug)]
#[serde(rename_all = "snake_case")]
pub(crate) enum LostPositionPolicy {
    Fail,
    Continue,
}

impl From<LostPositionPolicy> for OnLostPosition {
    fn from(policy: LostPositionPolicy) -> Self {
        match policy {
            LostPositionPolicy::Fail => OnLostPosition::Fail,
            LostPositionPolicy::Continue => OnLostPosition::Continue,
        }
    }
}

/// The topics of a Kafka source.
#[derive(Deserialize, Debug)]
#[serde(rename_all = "snake_case")]
pub(crate) enum TopicsPlan {
    Names(Vec<String>),
    Matching(String),
}

/// The start position of a Kafka source.
#[derive(Deserialize, Debug)]
#[serde(rename_all = "snake_case")]
pub(crate) enum KafkaStart {
    Earliest,
    Latest,
    /// A time in microseconds since 1970.
    At(i64),
    /// The committed offsets of a group.
    Stored(String),
    /// Offsets by topic and partition.
    Positions(BTreeMap<String, BTreeMap<String, i64>>),
}

/// The encryption and authentication of connections to Kafka.
#[derive(Deserialize)]
pub(crate) struct KafkaSecurity {
    pub tls: Option<TlsPlan>,
    pub sasl: Option<SaslPlan>,
}

#[derive(Deserialize)]
pub(crate) struct TlsPlan {
    pub ca_file: Option<String>,
    /// The files of the client certificate and of its key.
    pub client_certificate: Option<(String, String)>,
    pub key_password: Option<String>,
    pub accepts_any_host_name: bool,
}

#[derive(Deserialize)]
pub(crate) struct SaslPlan {
    pub mechanism: SaslMechanism,
    pub user: String,
    pub password: String,
}

#[derive(Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum SaslMechanism {
    Plain,
    ScramSha256,
    ScramSha512,
}

/// The format of values with a schema of a registry.
#[derive(Deserialize, Clone, Copy, PartialEq, Eq, Debug)]
#[serde(rename_all = "snake_case")]
pub(crate) enum RegistryFormat {
    Avro,
    Protobuf,
}

/// A schema registry, and the schema of values there.
#[derive(Deserialize)]
pub(crate) struct RegistryPlan {
    pub format: RegistryFormat,
    pub url: String,
    /// User and password.
    pub basic_auth: Option<(String, String)>,
    pub bearer_token: Option<String>,
    pub give_up_after: Option<Micros>,
    /// The schema of written values, or the reader's schema of Avro.
    pub schema: Option<String>,
    /// The message type of Protocol Buffers.
    pub message: Option<String>,
    pub subject: Option<String>,
    pub registered_only: bool,
}

/// A Kafka source.
#[derive(Deserialize)]
pub(crate) struct KafkaSourcePlan {
    pub brokers: String,
    pub topics: TopicsPlan,
    pub messages: MessagePlan,
    #[serde(default)]
    pub registry: Option<RegistryPlan>,
    pub start: KafkaStart,
    pub until_present: bool,
    pub parallelism: Option<u32>,
    pub out_of_order: Micros,
    pub idle_after: Option<Micros>,
    pub max_ahead: Option<Micros>,
    pub group: Option<String>,
    pub look_for_partitions_every: Option<Micros>,
    pub on_lost_position: LostPositionPolicy,
    pub require_timestamps: bool,
    pub skip_damaged_batches: bool,
    pub security: KafkaSecurity,
    pub properties: BTreeMap<String, String>,
}

/// The message that a record becomes.
#[derive(Deserialize, Debug)]
pub(crate) struct OutgoingPlan {
    /// The value; all columns as a JSON object by default.
    pub value: Option<Expr>,
    pub on_error: ErrorPolicy,
}

/// A Kafka sink.
#[derive(Deserialize)]
pub(crate) struct KafkaSinkPlan {
    pub brokers: String,
    pub topic: String,
    pub outgoing: OutgoingPlan,
    #[serde(default)]
    pub registry: Option<RegistryPlan>,
    pub key: Option<Expr>,
    pub parallelism: Option<u32>,
    pub at_least_once: bool,
    pub hold_at_most: Option<usize>,
    pub security: KafkaSecurity,
    pub properties: BTreeMap<String, String>,
}

/// A NATS JetStream source.
#[derive(Deserialize)]
pub(crate) struct NatsSourcePlan {
    pub url: String,
    pub stream: String,
    pub messages: MessagePlan,
    pub subject: Option<String>,
    pub consumer: Option<String>,
    pub in_flight: Option<u32>,
    pub patience: Option<Micros>,
    pub on_lost_position: LostPositionPolicy,
}

/// A NATS JetStream sink.
#[derive(Deserialize)]
pub(crate) struct NatsSinkPlan {
    pub url: String,
    pub subject: Expr,
    pub id: Option<Expr>,
    pub outgoing: OutgoingPlan,
    pub parallelism: Option<u32>,
    pub idempotent: bool,
}

/// A PostgreSQL source.
#[derive(Deserialize)]
pub(crate) struct PostgresSourcePlan {
    pub url: String,
    pub table: Option<String>,
    /// The statement, if no table is read.
    pub query: Option<String>,
    pub key: String,
    pub fields: FieldList,
    pub page: Option<u32>,
    pub blocks_of: Option<u32>,
    pub parallelism: Option<u32>,
    pub on_lost_position: LostPositionPolicy,
    pub authority: Option<String>,
    pub on_error: ErrorPolicy,
}

/// A PostgreSQL sink.
#[derive(Deserialize)]
pub(crate) struct PostgresSinkPlan {
    pub url: String,
    pub table: String,
    /// The columns that are written; all by default.
    pub columns: Option<Vec<String>>,
    pub upsert: Option<Vec<String>>,
    pub exactly_once: bool,
    pub continues_if_replaced: bool,
    pub parallelism: Option<u32>,
    pub authority: Option<String>,
    pub on_error: ErrorPolicy,
}

/// A command of Redis: its name and arguments.
#[derive(Deserialize)]
pub(crate) struct RedisCommand {
    pub name: String,
    pub arguments: Vec<Expr>,
}

/// A Redis sink.
#[derive(Deserialize)]
pub(crate) struct RedisSinkPlan {
    pub url: String,
    pub commands: Vec<RedisCommand>,
    pub idempotent: bool,
    pub exactly_once: bool,
    pub hash_tag: Option<String>,
    pub hold_at_most: Option<usize>,
    pub parallelism: Option<u32>,
    pub authority: Option<String>,
    pub certificate: Option<(String, String)>,
    pub sentinel_login: Option<(Option<String>, String)>,
    pub on_error: ErrorPolicy,
}

/// Lines from a TCP connection.
#[derive(Deserialize, Debug)]
pub(crate) struct TcpSourcePlan {
    pub address: String,
    /// True for a server that accepts clients.
    pub listens: bool,
    pub messages: MessagePlan,
    pub reconnect: bool,
    pub expose: bool,
    pub max_clients: Option<usize>,
    pub idle_timeout: Option<Micros>,
}

/// Lines to a TCP connection.
#[derive(Deserialize, Debug)]
pub(crate) struct TcpSinkPlan {
    pub address: String,
    pub outgoing: OutgoingPlan,
    pub reconnect: bool,
}

/// Generated numbers.
#[derive(Deserialize, Debug)]
pub(crate) struct GeneratePlan {
    /// Numbers per second; all at once by default.
    pub rate: Option<u64>,
    pub limit: Option<u64>,
    pub parallelism: Option<u32>,
}
