//! Resync of partitions without entries.

use std::time::Duration;

use ardea_grid::protocol::ReplicaConfig;

use super::{Bench, holder, record};

#[test]
fn a_copy_of_a_partition_that_never_had_an_entry_is_whole_after_one_round_trip() {
    for is_synchronous in [true, false] {
        let config = ReplicaConfig {
            is_synchronous,
            ..ReplicaConfig::default()
        };
        let mut bench = Bench::new(2, config, u64::MAX);
        bench.install(&record(1, 1, &[holder(1, 1)], &[]));
        bench.install(&record(2, 1, &[holder(1, 1)], &[holder(2, 2)]));
        assert_eq!(bench.under_way.len(), 1, "the begin of the stream");
        bench.deliver(0);
        assert!(!bench.copies[&2].wants_entries());
        assert_eq!(bench.under_way.len(), 1, "the progress of the copy");
        bench.deliver(0);
        assert_eq!(bench.copies[&1].claims(0).len(), 1);
    }
}

#[test]
fn a_write_before_the_first_word_to_a_copy_is_part_of_it() {
    let mut bench = Bench::new(2, ReplicaConfig::default(), u64::MAX);
    bench.install(&record(1, 1, &[holder(1, 1)], &[]));
    bench.install(&record(2, 1, &[holder(1, 1)], &[holder(2, 2)]));
    bench.under_way.clear();
    let put = bench.put(1, "key", "value");
    assert!(bench.is_answered(put), "no other copy is whole");
    bench.now += Duration::from_secs(1);
    bench.calm();
    assert_eq!(bench.copies[&1].claims(0).len(), 1);
    assert_eq!(bench.copies[&1].content(), bench.copies[&2].content());
    assert_eq!(bench.copies[&2].content().len(), 1);
}
