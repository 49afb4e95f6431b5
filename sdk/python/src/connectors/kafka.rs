//! Kafka topics.

mod registry;

use std::sync::Arc;
use std::time::Duration;

use ardea_columns::{ColumnDecoder, ColumnRecord, Columns, FieldPath};
use ardea_connectors::kafka::{
    self, KafkaSink, Message, Outgoing, Positions, Protobuf, Sasl, Start, Tls, Topics,
};
use ardea_core::{Error, ErrorCode, Result, Timestamp};
use ardea_pipeline::Pipeline;

use super::as_bounded;
use super::sink_message::{MessageParts, MessageValue, SinkMessage, messages};
use super::source_message::{MetadataValue, Origin, SourceMessage, read_messages};
use crate::lowering::{Branch, EventTime, SourceTable};
use crate::plan::{
    KafkaSecurity, KafkaSinkPlan, KafkaSourcePlan, KafkaStart, MessageFormat, MetadataField,
    RegistryFormat, SaslMechanism, SaslPlan, TlsPlan, TopicsPlan,
};
use registry::{RegistryRecord, RegistryValues, avro_of, registry_of};

/// Reads topics.
pub(super) fn read(pipeline: &Pipeline, plan: KafkaSourcePlan) -> Result<SourceTable> {
    let topics = match plan.topics {
        TopicsPlan::Names(names) => Topics::from(names),
        TopicsPlan::Matching(pattern) => Topics::matching(pattern),
    };
    let mut source = kafka::read(plan.brokers, topics)
        .start(start_of(plan.start)?)
        .out_of_order(plan.out_of_order.into())
        .idle_after(plan.idle_after.map(Duration::from))
        .max_ahead(plan.max_ahead.map(Duration::from))
        .on_lost_position(plan.on_lost_position.into())
        .on_error(plan.messages.on_error.into());
    if let Some(parallelism) = plan.parallelism {
        source = source.parallelism(parallelism);
    }
    if let Some(group) = plan.group {
        source = source.group(group);
    }
    if let Some(every) = plan.look_for_partitions_every {
        source = source.look_for_partitions_every(every.into());
    }
    if plan.require_timestamps {
        source = source.require_timestamps();
    }
    if plan.skip_damaged_batches {
        source = source.skip_damaged_batches();
    }
    let KafkaSecurity { tls, sasl } = plan.security;
    if let Some(tls) = tls {
        source = source.tls(tls_of(tls));
    }
    if let Some(sasl) = sasl {
        source = source.sasl(sasl_of(sasl));
    }
    for (name, value) in plan.properties {
        source = source.property(name, value);
    }
    if let (MessageFormat::Json(fields), []) = (&plan.messages.format, &plan.messages.metadata[..])
    {
        // Decoded from the memory of the client.
        let schema = fields.schema();
        macro_rules! batches {
            ($source:expr) => {
                match plan.until_present {
                    true => $source.until_present().build_batches::<ColumnRecord>(),
                    false => as_bounded($source.build_batches::<ColumnRecord>()),
                }
            };
        }
        let source = match &plan.registry {
            None => batches!(source.format::<(), _>(ColumnDecoder::json(fields.schema())?)),
            Some(registry) => {
                let names = schema.fields().iter();
                let paths: Vec<_> = names
                    .map(|it| FieldPath::from(it.name().as_str()))
                    .collect();
                let decoder = ColumnDecoder::json_at(Arc::clone(&schema), &paths)?;
                match registry.format {
                    RegistryFormat::Avro => {
                        batches!(source.avro_batches(avro_of(registry), decoder))
                    }
                    RegistryFormat::Protobuf => {
                        let protobuf = Protobuf::new(registry_of(registry));
                        batches!(source.protobuf_batches(protobuf, decoder))
                    }
                }
            }
        };
        let stream = pipeline.read_from(source).with_source_time();
        return Ok(SourceTable {
            table: Columns::from_stream(stream, schema),
            time: EventTime::OfSource,
            is_bounded: plan.until_present,
        });
    }
    let metadata = plan.messages.metadata.clone();
    let source = source.decode(move |message| Ok(copied(message, &metadata)));
    let source = match plan.until_present {
        true => source.until_present().build(),
        false => as_bounded(source.build()),
    };
    let kind = (EventTime::OfSource, plan.until_present);
    read_messages(pipeline.read_from(source), &plan.messages, kind)
}

/// Copies a message with the parts that are asked for.
fn copied(message: &Message<'_>, metadata: &[MetadataField]) -> SourceMessage {
    let metadata = metadata.iter().map(|field| match field {
        MetadataField::Key => MetadataValue::Bytes(message.key.map(<[u8]>::to_vec)),
        MetadataField::Topic | MetadataField::Subject => {
            MetadataValue::Text(message.topic.to_string())
        }
        MetadataField::Partition => MetadataValue::Number(message.partition.into()),
        MetadataField::Offset | MetadataField::Sequence => MetadataValue::Number(message.offset),
        MetadataField::Timestamp => MetadataValue::Time(message.timestamp),
    });
    SourceMessage {
        value: message.value.map(<[u8]>::to_vec),
        metadata: metadata.collect(),
        origin: Some(Origin {
            stream: message.topic.to_string(),
            partition: Some(message.partition),
            number: message.offset,
        }),
    }
}

fn start_of(start: KafkaStart) -> Result<Start> {
    Ok(match start {
        KafkaStart::Earliest => Start::Earliest,
        KafkaStart::Latest => Start::Latest,
        KafkaStart::At(micros) => Start::At(Timestamp::from_micros(micros)),
        KafkaStart::Stored(group) => Start::Stored { group },
        KafkaStart::Positions(topics) => {
            let topics = topics.into_iter().map(|(topic, offsets)| {
                let offsets = offsets.into_iter().map(|(partition, offset)| {
                    let number = partition.parse::<i32>().map_err(|_| {
                        let what = format!("{partition:?} is no number of a partition");
                        Error::new(ErrorCode::InvalidJob, what)
                    })?;
                    Ok((number, offset))
                });
                Ok((topic, offsets.collect::<Result<Positions>>()?))
            });
            Start::TopicPositions(topics.collect::<Result<_>>()?)
        }
    })
}

fn tls_of(plan: TlsPlan) -> Tls {
    let mut tls = Tls::new();
    if let Some(file) = plan.ca_file {
        tls = tls.ca_file(file);
    }
    if let Some((certificate, key)) = plan.client_certificate {
        tls = tls.client_certificate(certificate, key);
    }
    if let Some(password) = plan.key_password {
        tls = tls.key_password(password);
    }
    match plan.accepts_any_host_name {
        true => tls.accept_any_host_name(),
        false => tls,
    }
}

fn sasl_of(plan: SaslPlan) -> Sasl {
    let SaslPlan { user, password, .. } = plan;
    match plan.mechanism {
        SaslMechanism::Plain => Sasl::plain(user, password),
        SaslMechanism::ScramSha256 => Sasl::scram_sha_256(user, password),
        SaslMechanism::ScramSha512 => Sasl::scram_sha_512(user, password),
    }
}

/// Writes to a topic.
pub(super) fn write(input: Branch, mut plan: KafkaSinkPlan, has_lines: bool) -> Result<()> {
    let parts = MessageParts {
        value: MessageValue::of(plan.outgoing.value.take()),
        cells: plan.key.take().into_iter().collect(),
        required_cells: 0,
        policy: plan.outgoing.on_error.into(),
    };
    let stream = messages(input, parts, has_lines)?;
    if let Some(registry) = &plan.registry {
        let values = RegistryValues::of(registry)?;
        let records = stream.map(values.records());
        let (brokers, topic) = (plan.brokers.clone(), plan.topic.clone());
        let sink = kafka::write(brokers, topic, |record: &RegistryRecord, out| {
            put_key(record.key.as_ref(), out)
        });
        let sink = match values {
            RegistryValues::Avro(values, _) => sink.avro(values),
            RegistryValues::Protobuf(values) => sink.protobuf(values),
        };
        records.write_to_local(with_options(sink, plan));
        return Ok(());
    }
    let (brokers, topic) = (plan.brokers.clone(), plan.topic.clone());
    let sink = kafka::write(brokers, topic, |message: &SinkMessage, out| {
        if let Some(value) = &message.value {
            out.value(value);
        }
        put_key(message.cells.first().and_then(Option::as_ref), out)
    });
    stream.write_to(with_options(sink, plan));
    Ok(())
}

fn put_key(key: Option<&Vec<u8>>, out: &mut Outgoing) -> std::result::Result<(), String> {
    if let Some(key) = key {
        out.key(key);
    }
    Ok(())
}

/// Sets the options of a sink.
fn with_options<T, F>(mut sink: KafkaSink<T, F>, plan: KafkaSinkPlan) -> KafkaSink<T, F>
where
    T: Send + 'static,
    F: Fn(&T, &mut Outgoing) -> std::result::Result<(), String> + Send + Sync + 'static,
{
    sink = sink.on_error(plan.outgoing.on_error.into());
    if let Some(parallelism) = plan.parallelism {
        sink = sink.parallelism(parallelism);
    }
    if plan.at_least_once {
        sink = sink.at_least_once();
    }
    if let Some(bytes) = plan.hold_at_most {
        sink = sink.hold_at_most(bytes);
    }
    let KafkaSecurity { tls, sasl } = plan.security;
    if let Some(tls) = tls {
        sink = sink.tls(tls_of(tls));
    }
    if let Some(sasl) = sasl {
        sink = sink.sasl(sasl_of(sasl));
    }
    for (name, value) in plan.properties {
        sink = sink.property(name, value);
    }
    sink
}
