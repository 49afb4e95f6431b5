//! Tests of the stateful map: state, timers, time-to-live, little room.

use super::*;
use crate::keyed::{flat_map_stateful, map_stateful, on_disk_tests};
use crate::test_driver::{Drive, LaneOutput, at};
use ardea_core::{Chunk, OutboxRuntime, PARTITION_COUNT, PartitionRestore, Rows};
use ardea_state::MIN_BUFFERED;
use proptest::prelude::*;
use std::collections::{BTreeMap, HashMap};

type Out<'a, 'o> = KeyedContext<'a, 'o, (u8, i64)>;

fn secs(n: u64) -> Duration {
    Duration::from_secs(n)
}

fn key(record: &(u8, i64)) -> u8 {
    record.0
}

fn partitions(step: &mut dyn Processor) -> &mut dyn PartitionRestore {
    step.state().partitions()
}

#[test]
fn each_key_has_its_own_state() {
    Drive::every_schedule(|drive| {
        let f = |sum: &mut i64, key: &u8, (_, n): (u8, i64)| {
            *sum += n;
            (*key, *sum)
        };
        let records: Vec<_> = (0..60).map(|n| (((n % 7) as u8, n), at(n))).collect();
        let mut sums = StatefulMapP::new(Arc::new(map_stateful(key, || 0i64, f)));
        let seen = drive.records(records.clone()).run::<(u8, i64)>(&mut sums);
        let mut model = HashMap::new();
        let expected: Vec<_> = records
            .iter()
            .map(|((key, n), time)| {
                let sum = model.entry(*key).or_insert(0);
                *sum += n;
                ((*key, *sum), *time)
            })
            .collect();
        assert_eq!(seen.records(), expected);
        assert_eq!(sums.keys(), 7);
    });
}

#[test]
fn a_record_may_have_many_outputs() {
    Drive::every_schedule(|drive| {
        let f = |_: &mut (), key: &u8, (_, n): (u8, i64)| vec![(*key, n); n as usize];
        let mut repeat = StatefulMapP::new(Arc::new(flat_map_stateful(key, || (), f)));
        let seen = drive
            .records((0..9).map(|n| ((1u8, n), at(n))))
            .watermark(at(9))
            .run::<(u8, i64)>(&mut repeat);
        assert_eq!(
            seen.values(),
            (0..9)
                .flat_map(|n| vec![(1, n); n as usize])
                .collect::<Vec<_>>()
        );
        assert_eq!(seen.events().last(), Some(&LaneOutput::Watermark(at(9))));
    });
}

#[test]
fn event_timers_fire_in_order_before_the_watermark_and_the_rest_at_the_end() {
    Drive::every_schedule(|drive| {
        let logic = KeyedLogic {
            key,
            create: || (),
            on_record: |_: &mut (), _: &u8, (_, n): (u8, i64), _: Timestamp, out: &mut Out| {
                out.set_event_timer(at(n))
            },
            on_timer: |_: &mut (), key: &u8, time: Timestamp, out: &mut Out| {
                out.emit((*key, time.as_millis() / 1000));
                out.set_event_timer(time + secs(100)); // renews itself and would never end
            },
        };
        let records =
            [(1u8, 30i64), (2, 10), (1, 20), (2, 10), (3, 55)].map(|record| (record, at(0)));
        let seen = drive
            .records(records)
            .watermark(at(20))
            .watermark(at(40))
            .watermark(Timestamp::MAX)
            .run::<(u8, i64)>(&mut StatefulMapP::new(Arc::new(logic)));
        let fired = |key, n| LaneOutput::Record((key, n), at(n));
        let expected = [
            fired(2, 10),
            fired(1, 20),
            LaneOutput::Watermark(at(20)),
            fired(1, 30),
            LaneOutput::Watermark(at(40)),
            fired(3, 55),
            fired(2, 110),
            fired(1, 120),
            fired(1, 130),
            LaneOutput::Watermark(Timestamp::MAX),
        ];
        assert_eq!(seen.events(), expected);
    });
}

/// A window after this step would reject a record at the end of time, and the job would fail.
#[test]
fn a_timer_beyond_the_last_event_time_emits_at_the_last_event_time() {
    Drive::every_schedule(|drive| {
        let logic = KeyedLogic {
            key,
            create: || (),
            on_record: |_: &mut (), _: &u8, _: (u8, i64), time: Timestamp, out: &mut Out| {
                out.set_event_timer(time + secs(100));
            },
            on_timer: |_: &mut (), key: &u8, time: Timestamp, out: &mut Out| {
                out.emit((*key, 0));
                out.emit_at((*key, 1), time + secs(1));
            },
        };
        let seen = drive
            .records([((1u8, 0i64), Timestamp::LAST_EVENT)])
            .watermark(Timestamp::MAX)
            .run::<(u8, i64)>(&mut StatefulMapP::new(Arc::new(logic)));
        let last = |n| LaneOutput::Record((1, n), Timestamp::LAST_EVENT);
        assert_eq!(
            seen.events(),
            [last(0), last(1), LaneOutput::Watermark(Timestamp::MAX)]
        );
    });
}

#[test]
fn processing_timers_fire_when_the_clock_comes_to_them() {
    Drive::every_schedule(|drive| {
        let logic = KeyedLogic {
            key,
            create: || (),
            on_record: |_: &mut (), _: &u8, (_, n): (u8, i64), _: Timestamp, out: &mut Out| match n
            {
                0 => out.clear_processing_timers(),
                n => out.set_processing_timer(secs(n as u64)),
            },
            on_timer: |_: &mut (), key: &u8, time: Timestamp, out: &mut Out| {
                assert_eq!(out.fired(), Some(TimerKind::Processing));
                out.emit((*key, time.as_millis() / 1000));
            },
        };
        let records =
            |records: &[(u8, i64)]| records.iter().map(|r| (*r, at(0))).collect::<Vec<_>>();
        let seen = drive
            .records(records(&[(1, 5), (2, 3), (3, 4), (4, 99)]))
            .advance(secs(2))
            .records(records(&[(3, 0)]))
            .advance(secs(8))
            .run::<(u8, i64)>(&mut StatefulMapP::new(Arc::new(logic)));
        assert_eq!(seen.values(), [(2, 3), (1, 5)]);
    });
}

#[test]
fn a_cleared_key_starts_anew_and_its_timers_are_gone() {
    let logic = KeyedLogic {
        key,
        create: || 0i64,
        on_record: |count: &mut i64, key: &u8, (_, n): (u8, i64), _: Timestamp, out: &mut Out| {
            *count += 1;
            out.emit((*key, *count));
            out.set_event_timer(at(n));
            if n == 3 {
                out.clear_state();
            }
        },
        on_timer: |_: &mut i64, key: &u8, _: Timestamp, out: &mut Out| out.emit((*key, -1)),
    };
    let mut map = StatefulMapP::new(Arc::new(logic));
    let records = [(1u8, 5i64), (1, 3), (1, 9), (2, 3)].map(|record| (record, at(0)));
    let seen = Drive::default()
        .records(records)
        .watermark(at(50))
        .run::<(u8, i64)>(&mut map);
    assert_eq!(seen.values(), [(1, 1), (1, 2), (1, 1), (2, 1), (1, -1)]);
    assert_eq!(map.keys(), 1);
}

#[test]
fn a_key_that_is_not_touched_for_its_time_to_live_is_forgotten() {
    Drive::every_schedule(|drive| {
        let f = |count: &mut i64, key: &u8, _: (u8, i64)| {
            *count += 1;
            (*key, *count)
        };
        let mut counts = StatefulMapP::new(Arc::new(map_stateful(key, || 0i64, f))).ttl(secs(10));
        let seen = drive
            .records([((1u8, 0i64), at(0)), ((2, 0), at(0)), ((1, 0), at(8))])
            .watermark(at(10))
            .records([((1u8, 0i64), at(10)), ((2, 0), at(11))])
            .watermark(at(21))
            .records([((1u8, 0i64), at(21))])
            .run::<(u8, i64)>(&mut counts);
        assert_eq!(
            seen.values(),
            [(1, 1), (2, 1), (1, 2), (1, 3), (2, 1), (1, 1)]
        );
        assert_eq!(counts.keys(), 1);
    });
}

#[test]
fn timers_before_the_end_of_a_time_to_live_fire_before_the_key_is_forgotten() {
    Drive::every_schedule(|drive| {
        let logic = KeyedLogic {
            key,
            create: || 0i64,
            on_record: |_: &mut i64, _: &u8, (_, n): (u8, i64), _: Timestamp, out: &mut Out| {
                if n > 0 {
                    out.set_event_timer(at(n));
                }
            },
            on_timer: |_: &mut i64, key: &u8, time: Timestamp, out: &mut Out| {
                out.emit((*key, time.as_millis() / 1000));
            },
        };
        // The key first expires at 4, then at 9: before the timer at 12, but after the one at 8.
        let mut map = StatefulMapP::new(Arc::new(logic)).ttl(secs(4));
        let seen = drive
            .records([((1u8, 0i64), at(0)), ((1, 8), at(5)), ((2, 12), at(5))])
            .watermark(at(20))
            .run::<(u8, i64)>(&mut map);
        assert_eq!(seen.values(), [(1, 8)]);
    });
}

proptest! {
    #[test]
    fn timers_fire_like_a_sorted_list(
        records in prop::collection::vec((0u8..4, 0i64..50), 0..60),
        marks in prop::collection::btree_set(0i64..60, 0..5),
        room in 1usize..6,
    ) {
        let logic = KeyedLogic {
            key,
            create: || (),
            on_record: |_: &mut (), _: &u8, (_, n): (u8, i64), _: Timestamp, out: &mut Out| out.set_event_timer(at(n)),
            on_timer: |_: &mut (), key: &u8, time: Timestamp, out: &mut Out| out.emit((*key, time.as_millis() / 1000)),
        };
        let mut slots = Vec::new();
        for (key, _) in &records {
            if !slots.contains(key) {
                slots.push(*key);
            }
        }
        let mut model: BTreeMap<(i64, usize), u8> = BTreeMap::new();
        for (key, n) in &records {
            model.insert((*n, slots.iter().position(|slot| slot == key).unwrap()), *key);
        }
        let expected: Vec<_> = model.iter().map(|((n, _), key)| (*key, *n)).collect();
        let mut drive = Drive::with_room(room).records(records.iter().map(|record| (*record, at(0))));
        for mark in &marks {
            drive = drive.watermark(at(*mark));
        }
        let seen = drive.run::<(u8, i64)>(&mut StatefulMapP::new(Arc::new(logic)));
        prop_assert_eq!(seen.values(), expected);
    }
}

#[test]
fn records_wait_where_they_are_when_too_many_are_aside() {
    let mut step = on_disk_tests::stateful(None);
    step.init(&Drive::default().context).unwrap();
    assert!(partitions(&mut step).enable_lazy_restore(0));
    let (mut inbox, mut outbox) = (Inbox::default(), Outbox::new(1, 1));
    let many = (1..=MIN_BUFFERED as i64 + 3).map(|n| ((1u8, n), at(0)));
    inbox.fill(Chunk::new(Rows::from_iter(many)));
    for _ in 0..2 {
        let left = step.process(Ordinal::FIRST, &mut inbox, &mut outbox);
        assert_eq!((left.unwrap(), inbox.len()), ((), 3));
    }
    partitions(&mut step)
        .on_partition_restored(PartitionId::of(&1u8))
        .unwrap();
    while !step.catch_up(&mut outbox).unwrap().done {
        outbox.take_chunk(0, Chunk::default);
    }
    for left in [2, 1, 0] {
        outbox.take_chunk(0, Chunk::default);
        step.process(Ordinal::FIRST, &mut inbox, &mut outbox)
            .unwrap();
        assert_eq!(inbox.len(), left);
    }
}

#[test]
fn while_keys_come_back_all_that_is_due_comes_before_a_record_and_is_called_for() {
    let mut step = on_disk_tests::stateful(None);
    step.init(&Drive::default().context).unwrap();
    assert!(partitions(&mut step).enable_lazy_restore(0));
    let all = (0..PARTITION_COUNT).filter_map(PartitionId::from_index);
    all.for_each(|partition| {
        partitions(&mut step)
            .on_partition_restored(partition)
            .unwrap()
    });
    let timers = 2 * TIMERS_PER_CALL as i64 + 1;
    let (mut inbox, mut outbox) = (Inbox::default(), Outbox::new(1, 4 * TIMERS_PER_CALL));
    // Each sixth record sets a timer this many seconds later.
    let records = (1..=timers).map(|n| ((1u8, 6 * n), at(0)));
    inbox.fill(Chunk::new(Rows::from_iter(records)));
    step.process(Ordinal::FIRST, &mut inbox, &mut outbox)
        .unwrap();
    outbox.take_chunk(0, Chunk::default);
    let due = Watermark(at(6 * timers));
    assert!(!step.on_watermark(due, &mut outbox).unwrap().done);
    inbox.fill(Chunk::new(Rows::from_iter([((2u8, 5i64), due.0)])));
    let mut left = Vec::new();
    for _ in 0..2 {
        outbox.take_wake_at();
        step.process(Ordinal::FIRST, &mut inbox, &mut outbox)
            .unwrap();
        left.push((inbox.len(), outbox.take_wake_at().is_some()));
    }
    assert_eq!(left, [(1, true), (0, false)]);
}
