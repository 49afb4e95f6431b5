//! The encoding of a batch as postcard. Each text and each set of labels is encoded once.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::hash::Hash;
use std::sync::Arc;
use std::time::Duration;

use ardea_core::{Error, ErrorCode, Result, Timestamp};
use serde::{Deserialize, Serialize};

use crate::{Batch, Buckets, Labels, MetricName, Quantiles, Sample, Value};

/// The maximum size of a batch in bytes: some 100,000 samples.
pub const MOST_BATCH_BYTES: usize = 1 << 20;

/// The first byte of an encoded batch. A decoder refuses any other value.
const FORMAT: u8 = 2;

/// The maximum integer that is encoded as a varint; integers up to it are exact as `f64`.
const MOST_WHOLE: f64 = (1u64 << 53) as f64;

#[derive(Serialize, Deserialize)]
struct Wire<'a> {
    #[serde(borrow)]
    texts: Vec<&'a str>,
    /// The sets of labels: pairs of indexes into `texts`, for name and value.
    label_sets: Vec<Vec<(u32, u32)>>,
    bounds: Vec<Vec<f64>>,
    process: u32,
    started_micros: i64,
    at_micros: i64,
    every: Duration,
    samples: Vec<WireSample>,
}

#[derive(Serialize, Deserialize)]
struct WireSample {
    name: u32,
    labels: u32,
    value: WireValue,
}

#[derive(Serialize, Deserialize)]
enum WireValue {
    Counter(Number),
    Gauge(Number),
    Histogram {
        bounds: u32,
        counts: Vec<u64>,
        sum: f64,
    },
    Summary {
        values: Vec<(f64, f64)>,
        sum: f64,
        count: u64,
    },
}

#[derive(Serialize, Deserialize)]
enum Number {
    Whole(u64),
    Other(f64),
}

impl Number {
    fn of(number: f64) -> Self {
        // Except −0, which would be decoded as 0.
        let is_whole = number.fract() == 0.0 && number.is_sign_positive() && number <= MOST_WHOLE;
        if is_whole {
            Number::Whole(number as u64)
        } else {
            Number::Other(number)
        }
    }

    fn get(&self) -> f64 {
        match *self {
            Number::Whole(number) => number as f64,
            Number::Other(number) => number,
        }
    }
}

/// A table of distinct values in the order of first use.
struct Table<T> {
    places: HashMap<T, u32>,
}

impl<T: Hash + Eq + Clone> Table<T> {
    fn new() -> Self {
        Table {
            places: HashMap::new(),
        }
    }

    /// Returns the index of a value, and true if it is new.
    fn place(&mut self, thing: T) -> (u32, bool) {
        let next = u32::try_from(self.places.len()).unwrap_or(u32::MAX);
        match self.places.entry(thing) {
            Entry::Occupied(place) => (*place.get(), false),
            Entry::Vacant(place) => (*place.insert(next), true),
        }
    }
}

/// The tables of texts and sets of labels, each of which is written once.
struct Tables<'a> {
    texts: Vec<&'a str>,
    text_places: Table<&'a str>,
    label_sets: Vec<Vec<(u32, u32)>>,
    label_places: Table<&'a Labels>,
    bounds: Vec<Vec<f64>>,
}

impl<'a> Tables<'a> {
    fn text(&mut self, text: &'a str) -> u32 {
        let (place, is_new) = self.text_places.place(text);
        if is_new {
            self.texts.push(text);
        }
        place
    }

    fn labels(&mut self, labels: &'a Labels) -> u32 {
        let (place, is_new) = self.label_places.place(labels);
        if is_new {
            let set = labels
                .iter()
                .map(|(name, value)| (self.text(name), self.text(value)))
                .collect();
            self.label_sets.push(set);
        }
        place
    }

    fn bounds(&mut self, bounds: &[f64]) -> u32 {
        let known = self.bounds.iter().position(|known| known == bounds);
        let place = known.unwrap_or_else(|| {
            self.bounds.push(bounds.to_vec());
            self.bounds.len() - 1
        });
        u32::try_from(place).unwrap_or(u32::MAX)
    }

    fn value(&mut self, value: &Value) -> WireValue {
        match value {
            Value::Counter(number) => WireValue::Counter(Number::of(*number)),
            Value::Gauge(number) => WireValue::Gauge(Number::of(*number)),
            Value::Histogram(buckets) => WireValue::Histogram {
                bounds: self.bounds(&buckets.bounds),
                counts: buckets.counts.clone(),
                sum: buckets.sum,
            },
            Value::Summary(quantiles) => WireValue::Summary {
                values: quantiles.values.clone(),
                sum: quantiles.sum,
                count: quantiles.count,
            },
        }
    }
}

pub(crate) fn encode(batch: &Batch) -> Result<Vec<u8>> {
    let mut tables = Tables {
        texts: Vec::new(),
        text_places: Table::new(),
        label_sets: Vec::new(),
        label_places: Table::new(),
        bounds: Vec::new(),
    };
    let process = tables.labels(&batch.process);
    let samples = batch
        .samples
        .iter()
        .map(|sample| WireSample {
            name: tables.text(sample.name.as_str()),
            labels: tables.labels(&sample.labels),
            value: tables.value(&sample.value),
        })
        .collect();
    let wire = Wire {
        texts: tables.texts,
        label_sets: tables.label_sets,
        bounds: tables.bounds,
        process,
        started_micros: batch.started.as_micros(),
        at_micros: batch.at.as_micros(),
        every: batch.every,
        samples,
    };
    let bytes = postcard::to_extend(&wire, vec![FORMAT])
        .map_err(|error| broken("a batch of metrics can't be encoded").because(error))?;
    if bytes.len() > MOST_BATCH_BYTES {
        return Err(too_large(bytes.len()).hint("report fewer samples at a time"));
    }
    Ok(bytes)
}

pub(crate) fn decode(bytes: &[u8]) -> Result<Batch> {
    if bytes.len() > MOST_BATCH_BYTES {
        return Err(too_large(bytes.len()));
    }
    let wire: Wire<'_> = match bytes.split_first() {
        None => return Err(broken("a batch of metrics is empty")),
        Some((&FORMAT, rest)) => postcard::from_bytes(rest)
            .map_err(|error| broken("a batch of metrics can't be read").because(error))?,
        Some((other, _)) => {
            return Err(broken(format!(
                "a batch of metrics has format {other}, this process reads format {FORMAT}"
            )));
        }
    };
    let label_sets = wire
        .label_sets
        .iter()
        .map(|set| {
            let pairs = set
                .iter()
                .map(|(name, value)| Ok((*at(&wire.texts, *name)?, *at(&wire.texts, *value)?)));
            Ok(Labels::of(pairs.collect::<Result<Vec<_>>>()?))
        })
        .collect::<Result<Vec<Labels>>>()?;
    let bounds: Vec<Arc<[f64]>> = wire.bounds.iter().map(|b| Arc::from(&**b)).collect();
    let mut names: HashMap<u32, MetricName> = HashMap::new();
    let mut samples = Vec::with_capacity(wire.samples.len());
    for sample in wire.samples {
        let name = match names.entry(sample.name) {
            Entry::Occupied(name) => name.get().clone(),
            Entry::Vacant(place) => place
                .insert(MetricName::new(at(&wire.texts, sample.name)?))
                .clone(),
        };
        samples.push(Sample {
            name,
            labels: at(&label_sets, sample.labels)?.clone(),
            value: value(sample.value, &bounds)?,
        });
    }
    Ok(Batch {
        process: at(&label_sets, wire.process)?.clone(),
        started: Timestamp::from_micros(wire.started_micros),
        at: Timestamp::from_micros(wire.at_micros),
        every: wire.every,
        samples,
    })
}

fn value(value: WireValue, bounds: &[Arc<[f64]>]) -> Result<Value> {
    Ok(match value {
        WireValue::Counter(number) => Value::Counter(number.get()),
        WireValue::Gauge(number) => Value::Gauge(number.get()),
        WireValue::Histogram {
            bounds: place,
            counts,
            sum,
        } => {
            let bounds = at(bounds, place)?;
            let is_rising = bounds.windows(2).all(|pair| pair[0] < pair[1]);
            let is_finite = bounds.iter().all(|bound| bound.is_finite());
            if !is_rising || !is_finite || counts.len() != bounds.len() + 1 {
                return Err(broken("a histogram in a batch of metrics makes no sense"));
            }
            Value::Histogram(Buckets {
                bounds: Arc::clone(bounds),
                counts,
                sum,
            })
        }
        WireValue::Summary { values, sum, count } => {
            Value::Summary(Quantiles { values, sum, count })
        }
    })
}

fn at<T>(things: &[T], place: u32) -> Result<&T> {
    things.get(place as usize).ok_or_else(|| {
        broken(format!(
            "a batch of metrics points at place {place}, which it hasn't"
        ))
    })
}

fn too_large(bytes: usize) -> Error {
    broken(format!(
        "a batch of metrics of {bytes} bytes is larger than {MOST_BATCH_BYTES}"
    ))
}

fn broken(what: impl Into<String>) -> Error {
    Error::new(ErrorCode::BrokenBatch, what)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::InstanceCounters;
    use ardea_core::MetricsSnapshot;
    use proptest::prelude::*;

    fn value() -> impl Strategy<Value = Value> {
        prop_oneof![
            any::<f64>().prop_map(Value::Counter),
            (0u64..u64::MAX).prop_map(|n| Value::Counter(n as f64)),
            any::<f64>().prop_map(Value::Gauge),
            prop::collection::vec(0.0f64..100.0, 0..40).prop_map(|seen| {
                let mut buckets = Buckets::new(&[1.0, 10.0]);
                seen.iter().for_each(|value| buckets.observe(*value));
                Value::Histogram(buckets)
            }),
            (any::<f64>(), any::<u64>()).prop_map(|(sum, count)| Value::Summary(Quantiles {
                values: vec![(0.5, sum), (0.99, 2.0)],
                sum,
                count
            })),
        ]
    }

    fn batch() -> impl Strategy<Value = Batch> {
        let labels = prop::collection::vec(("[a-c]", ".{0,3}"), 0..4).prop_map(Labels::of);
        let sample = ("[a-z_:]{1,4}", labels.clone(), value());
        let samples = prop::collection::vec(sample, 0..20);
        (labels, any::<i64>(), any::<Duration>(), samples).prop_map(
            |(process, at, every, samples)| {
                let at = Timestamp::from_micros(at);
                let mut batch = Batch::new(process, at, at).every(every);
                for (name, labels, value) in samples {
                    batch.push(&*name, &labels, value);
                }
                batch
            },
        )
    }

    proptest! {
        #[test]
        fn what_is_encoded_reads_back(batch in batch()) {
            let bytes = batch.encode().expect("it is small");
            prop_assert_eq!(Batch::decode(&bytes).expect("just encoded"), batch);
        }

        #[test]
        fn garbage_gives_an_error_or_a_batch_and_never_a_panic(
            mut bytes in prop::collection::vec(any::<u8>(), 0..200)
        ) {
            let _ = Batch::decode(&bytes);
            bytes.insert(0, FORMAT);
            if let Ok(batch) = Batch::decode(&bytes) {
                prop_assert!(batch.samples.len() <= bytes.len());
            }
        }

        #[test]
        fn a_damaged_batch_does_no_harm(batch in batch(), at in any::<prop::sample::Index>(), to: u8) {
            let mut bytes = batch.encode().expect("it is small");
            let at = at.index(bytes.len());
            bytes[at] = to;
            if let Ok(batch) = Batch::decode(&bytes) {
                batch.samples.iter().for_each(|sample| sample.value.lines(|_| {}));
            }
        }
    }

    #[test]
    fn a_second_of_twenty_instances_has_a_few_kilobytes() {
        let process = Labels::of([("job", "word-count"), ("container", "12")]);
        let at = Timestamp::from_secs(1_700_000_000);
        let mut batch = Batch::new(process, at, at);
        for instance in 0..20 {
            let counters = MetricsSnapshot {
                records_in: 123_456_789,
                records_out: 987_654_321,
                busy: Duration::from_millis(123_457),
                watermark: at,
                ..MetricsSnapshot::default()
            };
            InstanceCounters::new("split sentences", instance, counters).write(&mut batch);
        }
        let per_sample = batch.encode().expect("small").len() as f64 / batch.samples.len() as f64;
        assert!(400.0 * per_sample < 5_000.0, "{per_sample} bytes a sample");
    }

    #[test]
    fn other_formats_and_too_large_ones_are_refused_in_words() {
        let error = Batch::decode(&[7, 0]).expect_err("format 7");
        assert_eq!(error.code(), ErrorCode::BrokenBatch);
        assert!(error.to_string().contains("format 7"), "{error}");
        assert!(Batch::decode(&[]).is_err());
        let error = Batch::decode(&vec![FORMAT; MOST_BATCH_BYTES + 1]).expect_err("too large");
        assert!(error.to_string().contains("larger"), "{error}");
        let mut batch = Batch::new(Labels::none(), Timestamp::UNIX_EPOCH, Timestamp::UNIX_EPOCH);
        batch.push(
            "a",
            &Labels::of([("x", "y".repeat(MOST_BATCH_BYTES))]),
            Value::Gauge(0.0),
        );
        assert!(batch.encode().is_err());
    }
}
