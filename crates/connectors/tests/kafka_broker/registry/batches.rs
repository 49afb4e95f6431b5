//! Tests of Avro and Protocol Buffers decoded into batches.

use ardea_connectors::format::{BatchDecode, BatchFields, Decode, FieldRecord, FieldValue};
use ardea_connectors::kafka::read;
use ardea_core::{Result, Rows, Timestamp};
use ardea_engine::JobStatus;
use ardea_pipeline::Pipeline;

use super::server::Registry;
use super::{Flight, fill, flights};
use crate::environment::{Running, Topic, eventually};

/// A decoder of flights into batches of rows.
#[derive(Clone, Default)]
struct Flights(Vec<Flight>);

impl Decode<()> for Flights {
    fn decode(&mut self, _: &[u8]) -> std::result::Result<Option<()>, String> {
        Err("it reads typed fields only".to_string())
    }
}

impl BatchDecode for Flights {
    type Batch = Rows<Flight>;

    fn batch_rows(&self) -> usize {
        7
    }

    fn take_batch(&mut self) -> Result<Option<Rows<Flight>>> {
        let times = vec![Timestamp::MIN; self.0.len()];
        self.take_timed_batch(&times)
    }

    fn take_timed_batch(&mut self, times: &[Timestamp]) -> Result<Option<Rows<Flight>>> {
        assert_eq!(self.0.len(), times.len());
        let rows: Rows<Flight> = self.0.drain(..).zip(times.iter().copied()).collect();
        Ok((!rows.is_empty()).then_some(rows))
    }
}

impl BatchFields for Flights {
    fn decode_fields(&mut self, record: &dyn FieldRecord) -> std::result::Result<(), String> {
        let (mut carrier, mut delay) = (None, None);
        record.each_field(&mut |name, value| {
            match (name, value) {
                ("carrier", FieldValue::Text(text)) => carrier = Some(text.to_string()),
                ("delay", FieldValue::Integer(minutes)) => delay = i32::try_from(minutes).ok(),
                ("delay", FieldValue::Null) => {}
                (name, _) => return Err(format!("unexpected field {name}")),
            }
            Ok(())
        })?;
        let carrier = carrier.ok_or("it has no carrier")?;
        self.0.push(Flight { carrier, delay });
        Ok(())
    }
}

#[test]
fn records_come_back_in_batches_and_bad_ones_are_dead_letters() {
    for is_avro in [true, false] {
        let Some(topic) = Topic::new(2) else { return };
        let registry = Registry::start();
        fill(&topic, &registry, is_avro, flights());
        topic.fill([(0, 1, "no flight".to_string())]);
        let p = Pipeline::new("drain");
        let source = read(&topic.brokers, &topic.name).until_present();
        let source = match is_avro {
            true => source
                .avro_batches(registry.client(), Flights::default())
                .build_batches::<Flight>(),
            false => source
                .protobuf_batches(registry.client(), Flights::default())
                .build_batches::<Flight>(),
        };
        let read = p.read_from(source).collect();
        let running = Running::start(&p);
        eventually("it ends", || running.job.status().is_over());
        assert!(matches!(running.job.status(), JobStatus::Completed));
        assert_eq!(read.take_sorted(), flights());
        assert_eq!(running.job.dead_letters().count(), 1);
    }
}
