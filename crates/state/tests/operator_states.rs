//! An operator with several states, failed at any call and restored.

use std::any::Any;
use std::borrow::Cow;
use std::time::Duration;

use ardea_aggregate::{Aggregate, max};
use ardea_core::{
    Checkpointed, Epoch, ErrorCode, Guarantee, Inbox, Instance, InstanceContext, Ordinal, Outbox,
    PartitionId, Processor, Progress, Result, SnapshotRequest, SnapshotWriter, StateChunk,
    Timestamp, Watermark,
};
use ardea_state::{
    AggregatingState, KeyedState, ListState, MapState, NamedState, OperatorState, StateFields,
};
use ardea_testkit::{ProcessorTest, TestInput};

/// A shop, a product and a price.
type Sale = (u8, u8, i64);
/// The shop, the revenue of the product, the sum of all prices, the highest price, and the number
/// of sales in the last ten seconds of sales.
type Report = (u8, i64, i64, i64, u32);

struct Sales<A: Aggregate<i64, Acc: Send>> {
    revenue: MapState<u8, u8, i64>,
    prices: ListState<u8, i64>,
    highest: AggregatingState<u8, i64, A>,
    recent: KeyedState<u8, u32>,
}

impl<A: Aggregate<i64, Acc: Send>> StateFields for Sales<A> {
    fn fields(&mut self) -> Vec<&mut dyn NamedState> {
        vec![
            &mut self.revenue,
            &mut self.prices,
            self.highest.accumulators(),
            &mut self.recent,
        ]
    }
}

struct Reports<A: Aggregate<i64, Acc: Send>>(OperatorState<Sales<A>>);

impl<A: Aggregate<i64, Acc: Send, Out = Option<i64>>> Processor for Reports<A> {
    fn init(&mut self, context: &InstanceContext) -> Result<()> {
        self.0.open(context)
    }

    fn process(&mut self, _: Ordinal, inbox: &mut Inbox, outbox: &mut Outbox) -> Result<()> {
        let mut lane = outbox.lane::<Report>(Ordinal::FIRST)?;
        let room = lane.room();
        let Sales {
            revenue,
            prices,
            highest,
            recent,
        } = &mut *self.0;
        for ((shop, product, price), time) in inbox.rows::<Sale>()?.drain_front(room) {
            if price < 0 {
                // A return closes the product.
                revenue.remove(&shop, &product);
                prices.pop_front(&shop);
            }
            *revenue.entry(&shop, &product, || 0)? += price;
            prices.push(&shop, price)?;
            highest.add(&shop, &price)?;
            let slot = recent.slot(Cow::Owned(shop), || 0)?;
            let Some((_, recent, _)) = recent.use_at(slot, time) else {
                continue;
            };
            *recent += 1;
            let report = (
                shop,
                revenue.get(&shop, &product).copied().unwrap_or(0),
                prices.iter(&shop).sum(),
                highest.result(&shop).flatten().unwrap_or(0),
                *recent,
            );
            lane.push(report, time);
        }
        Ok(())
    }

    fn on_watermark(&mut self, watermark: Watermark, outbox: &mut Outbox) -> Result<Progress> {
        self.0.recent.set_watermark(watermark);
        if !self.0.recent.remove_expired(2)? {
            return Ok(Progress::MADE);
        }
        outbox.watermark(watermark);
        Ok(Progress::DONE)
    }

    fn checkpointed(&mut self) -> Option<&mut dyn Checkpointed> {
        Some(&mut self.0)
    }

    fn hand_over_state(self: Box<Self>) -> Option<Box<dyn Any + Send>> {
        self.0.into_memory()
    }
}

fn reports() -> impl Processor {
    let mut recent = KeyedState::checkpointed("recent");
    recent.set_ttl(Duration::from_secs(10));
    Reports(OperatorState::new(Sales {
        revenue: MapState::checkpointed("revenue"),
        prices: ListState::checkpointed("prices"),
        highest: AggregatingState::checkpointed("highest", max(|price: &i64| *price)),
        recent,
    }))
}

#[test]
fn every_state_of_an_operator_survives_a_failure_at_any_call() {
    let at = Timestamp::from_secs;
    let input = TestInput::new()
        .record((1, 1, 10), at(1))
        .record((2, 1, 5), at(2))
        .record((1, 2, 7), at(3))
        .watermark(at(3))
        .record((1, 1, 4), at(4))
        .record((1, 1, -2), at(5))
        .watermark(at(14))
        .record((2, 1, 1), at(14))
        .record((1, 2, 1), at(14))
        .watermark(at(30))
        .record((1, 1, 3), at(31));
    ProcessorTest::new(reports)
        .keyed_input::<Sale, u8>(input, |sale| sale.0)
        .output::<Report>([
            (1, 10, 10, 10, 1),
            (2, 5, 5, 5, 1),
            (1, 7, 17, 10, 2),
            (1, 14, 21, 10, 3),
            (1, -2, 9, 10, 4),
            (2, 6, 6, 5, 1),
            (1, 8, 10, 10, 5),
            (1, 1, 13, 10, 1),
        ])
        .survives()
        .run();
}

#[test]
fn a_state_without_serializers_is_refused_where_it_would_be_lost() {
    let with = |guarantee| InstanceContext {
        guarantee,
        ..InstanceContext::detached("sums")
    };
    let mut state: KeyedState<u8, u32> = KeyedState::new("sums");
    assert!(state.open(&with(Guarantee::None)).is_ok());
    let error = state.open(&with(Guarantee::ExactlyOnce)).unwrap_err();
    assert_eq!(error.code(), ErrorCode::InvalidJob);
    assert!(error.to_string().contains("\"sums\""), "{error}");
}

/// Keeps a count per key, and violates a rule of the state's interface.
struct Careless {
    counts: KeyedState<u64, u64>,
    opens: bool,
    returns: bool,
}

impl Processor for Careless {
    fn init(&mut self, context: &InstanceContext) -> Result<()> {
        match self.opens {
            true => self.counts.open(context),
            false => Ok(()),
        }
    }

    fn process(&mut self, _: Ordinal, inbox: &mut Inbox, _: &mut Outbox) -> Result<()> {
        for (key, _) in inbox.rows::<u64>()?.drain_front(usize::MAX) {
            self.counts.slot(Cow::Owned(key), || 0)?;
        }
        Ok(())
    }

    fn checkpointed(&mut self) -> Option<&mut dyn Checkpointed> {
        match self.returns {
            true => Some(&mut self.counts),
            false => None,
        }
    }
}

/// Starts an exactly-once instance of two, gives it the keys and takes its snapshot.
fn snapshot_of(opens: bool, returns: bool, keys: std::ops::Range<u64>) -> Result<()> {
    let counts = KeyedState::checkpointed("counts");
    let mut careless = Careless {
        counts,
        opens,
        returns,
    };
    let context = InstanceContext {
        guarantee: Guarantee::ExactlyOnce,
        instance: Instance {
            index: 0,
            parallelism: 2,
        },
        ..InstanceContext::detached("careless")
    };
    careless.init(&context)?;
    context.state_registry.check(&mut careless)?;
    for key in keys {
        careless.counts.slot(Cow::Owned(key), || 0)?;
    }
    careless.counts.take_snapshot(SnapshotRequest {
        epoch: Epoch(1),
        since: None,
        is_last: false,
    })?;
    let mut chunk = StateChunk::default();
    let mut writer = SnapshotWriter::new(&mut chunk, usize::MAX);
    while !careless.counts.write_snapshot(&mut writer)?.done {}
    Ok(())
}

#[test]
fn a_state_that_is_opened_but_not_returned_is_refused() {
    let error = snapshot_of(true, false, 0..0).unwrap_err();
    assert_eq!(error.code(), ErrorCode::InvalidJob);
    assert!(error.to_string().contains("\"counts\""), "{error}");
}

#[test]
fn a_state_that_is_returned_but_not_opened_fails_its_first_snapshot() {
    let error = snapshot_of(false, true, 0..0).unwrap_err();
    assert!(error.is_permanent(), "{error}");
    assert!(error.to_string().contains("not opened"), "{error}");
}

#[test]
fn a_key_of_another_instance_fails_the_snapshot() {
    let error = snapshot_of(true, true, 0..20).unwrap_err();
    assert!(error.is_permanent(), "{error}");
    assert!(error.to_string().contains("another instance"), "{error}");
    let own = (0..20).find(|key: &u64| PartitionId::of(key).owner(2) == 0);
    let own = own.expect("one of twenty keys belongs to the first instance");
    assert!(snapshot_of(true, true, own..own + 1).is_ok());
}
