//! Tests that accumulators continue correctly after serialization.

use std::fmt::Debug;

use ardea_aggregate::{
    Aggregate, TotalF64, all_with_max, and_then, average, bottom_n, collect_list, collect_map,
    collect_set, count, distinct_count, distinct_count_approx, filtering, mapping, max, median,
    min_by_key, pick_any, quantiles, quantiles_relative, reduce, sum, top_n,
};
use ardea_codec::{ExchangeData, codec_of};
use ardea_core::{Chunk, Rows, Timestamp};
use proptest::prelude::*;

/// Returns a serialized and deserialized copy.
fn travelled<T: ExchangeData>(value: T) -> T {
    let codec = codec_of::<T>().unwrap();
    let mut from = Chunk::new(Rows::from_iter([(value, Timestamp::MIN)]));
    let (mut payload, mut to) = (Vec::new(), Chunk::default());
    codec.encode(&mut from, 100, &mut payload).unwrap();
    codec.decode(1, &payload, &mut to).unwrap();
    let mut value = None;
    let rows = to.rows::<T>().unwrap();
    rows.extend_columns(|values, times| {
        value = values.pop();
        times.pop();
    });
    value.unwrap()
}

/// Combines two parts, one of them serialized before, and serializes the result again.
fn check<A>(aggregate: &A, left: &[f64], right: &[f64], name: &str) -> Result<(), TestCaseError>
where
    A: Aggregate<f64, Acc: ExchangeData, Out: PartialEq + Debug>,
{
    let of = |records: &[f64]| {
        let mut acc = aggregate.create();
        for record in records {
            aggregate.accumulate(&mut acc, record);
        }
        acc
    };
    let (mut here, mut there) = (of(left), of(left));
    aggregate.combine(&mut here, &of(right));
    aggregate.combine(&mut there, &travelled(of(right)));
    let there = travelled(there);
    prop_assert_eq!(
        aggregate.finish(&here),
        aggregate.finish(&there),
        "{}",
        name
    );
    if A::DEDUCTS {
        let (mut here, mut there) = (here, there);
        aggregate.deduct(&mut here, &of(left));
        aggregate.deduct(&mut there, &travelled(of(left)));
        prop_assert_eq!(
            aggregate.finish(&here),
            aggregate.finish(&there),
            "{}",
            name
        );
    }
    Ok(())
}

/// Converts to an integer, for aggregates that need one.
fn whole(number: &f64) -> i64 {
    *number as i64
}

fn numbers() -> impl Strategy<Value = Vec<f64>> {
    let number = prop_oneof![
        -100.0..100.0,
        Just(0.0),
        Just(1e300),
        Just(-1e-300),
        Just(f64::INFINITY)
    ];
    prop::collection::vec(number, 0..300)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn accumulators_travel(left in numbers(), right in numbers()) {
        let (l, r) = (&left[..], &right[..]);
        let number = |number: &f64| *number;
        let total = |number: &f64| TotalF64(*number);
        // Compared as text: some sums of infinities are NaN.
        let shown = |value: f64| format!("{value}");
        check(&count(), l, r, "count")?;
        check(&sum(whole), l, r, "sum of integers")?;
        check(&and_then(sum(number), shown), l, r, "sum of floats")?;
        check(&and_then(average(number), |a: Option<f64>| format!("{a:?}")), l, r, "average")?;
        check(&max(total), l, r, "max")?;
        check(&min_by_key(whole), l, r, "min by key")?;
        check(&all_with_max(whole), l, r, "all with max")?;
        check(&top_n(5, total), l, r, "top")?;
        check(&bottom_n(5, total), l, r, "bottom")?;
        check(&collect_list(), l, r, "list")?;
        check(&mapping(whole, collect_set()), l, r, "set")?;
        check(&collect_map(whole, (count(), sum(whole))), l, r, "map")?;
        check(&distinct_count(whole), l, r, "distinct")?;
        check(&distinct_count_approx(whole), l, r, "about distinct")?;
        check(&distinct_count_approx(whole).with_precision(5).unwrap(), l, r, "roughly distinct")?;
        check(&median(number), l, r, "median")?;
        check(&quantiles(number, [0.1, 0.99]).unwrap(), l, r, "quantiles")?;
        check(&quantiles_relative(number, [0.1, 0.99], 0.01).unwrap(), l, r, "relative quantiles")?;
        check(&filtering(|number: &f64| *number > 0.0, count()), l, r, "filtered")?;
        check(&reduce(|a: &mut f64, b: &f64| *a = a.max(*b)), l, r, "reduced")?;
        check(&and_then(pick_any(), |any: Option<f64>| any.is_some()), l, r, "any")?;
    }
}
