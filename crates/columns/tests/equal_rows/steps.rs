//! Steps on single records, conversions and refusals.

use ardea_columns::{ColumnBatch, Columns, IntoColumns, Literal, col, lit};
use ardea_connectors::collections::items;
use ardea_core::{Bounded, Chunk, ErrorCode, Inbox, Ordinal, Outbox, Processor, Result};
use ardea_engine::NodeConfig;
use ardea_pipeline::{Pipeline, Untimed};
use arrow_array::cast::AsArray;
use arrow_array::types::UInt64Type;
use arrow_schema::DataType;
use proptest::prelude::*;
use serde::Deserialize;

use crate::bids::{Bid, bids, nodes, schema};

proptest! {
    #![proptest_config(ProptestConfig::with_cases(40))]

    #[test]
    fn both_copies_of_a_stream_have_all_records(bids in bids(), node in nodes()) {
        let p = Pipeline::new("copies");
        let all = p.read_from(items(bids.clone())).into_columns(schema());
        let (one, two) = all.tee();
        let (one, two) = (one.rows::<Bid>().collect(), two.filter(col("price").gt(5)).rows::<Bid>().collect());
        p.run_with(node).unwrap();
        let high = bids.iter().filter(|bid| bid.price > Some(5)).cloned();
        prop_assert_eq!(two.take(), high.collect::<Vec<_>>());
        prop_assert_eq!(one.take(), bids);
    }

    #[test]
    fn rows_are_the_same_after_a_way_through_columns(bids in bids()) {
        let p = Pipeline::new("there and back");
        let back = p.read_from(items(bids.clone())).into_columns(schema()).rows::<Bid>().collect();
        p.run().unwrap();
        prop_assert_eq!(back.take(), bids);
    }
}

fn columns(p: &Pipeline) -> Columns<Bounded, Untimed> {
    let bid = |price| Bid {
        name: "a".into(),
        auction: 1,
        price,
        rate: 0.5,
        time: 1,
    };
    p.read_from(items(vec![bid(Some(1)), bid(None), bid(Some(3))]))
        .into_columns(schema())
}

#[test]
fn a_step_that_does_not_fit_fails_the_job_and_names_the_columns() {
    let p = Pipeline::new("wrong");
    let wrong = columns(&p).filter(col("prize").gt(1)).select(["name"]);
    assert!(
        wrong
            .schema()
            .unwrap_err()
            .to_string()
            .contains("price: Int64")
    );
    wrong.rows::<Bid>().collect();
    let error = p.run().unwrap_err();
    assert_eq!(error.code(), ErrorCode::InvalidJob);
    assert!(error.to_string().contains("prize"), "{error}");
}

/// Emits the first record of each key of an instance.
struct FirstOfKeysP {
    seen: std::collections::BTreeSet<u64>,
}

impl Processor for FirstOfKeysP {
    fn process(&mut self, _: Ordinal, inbox: &mut Inbox, outbox: &mut Outbox) -> Result<()> {
        if !outbox.accepts_chunk(Ordinal::FIRST) {
            return Ok(());
        }
        let batch = inbox.batch::<ColumnBatch>()?.take();
        let keys = batch.records().column(1).as_primitive::<UInt64Type>();
        let is_first = keys.values().iter().map(|key| Some(self.seen.insert(*key)));
        let first = batch.filter(&is_first.collect())?;
        outbox.offer_chunk(Ordinal::FIRST, &mut Chunk::new(first))?;
        Ok(())
    }
}

#[test]
fn a_custom_step_receives_all_records_of_its_keys() {
    let p = Pipeline::new("first of keys");
    let bid = |auction| Bid {
        name: "a".into(),
        auction,
        price: None,
        rate: 0.0,
        time: 0,
    };
    let first = p
        .read_from(items((0..10_000).map(|n| bid(n % 100)).collect::<Vec<_>>()))
        .into_columns(schema())
        .rebalance("spread")
        .key_by(["auction"])
        .custom("first", schema(), |_| {
            Ok(FirstOfKeysP {
                seen: Default::default(),
            })
        })
        .rows::<Bid>()
        .collect();
    p.run_with(NodeConfig::with_threads(3)).unwrap();
    let mut auctions: Vec<_> = first.take().iter().map(|bid| bid.auction).collect();
    auctions.sort();
    assert_eq!(auctions, (0..100).collect::<Vec<_>>());
}

#[test]
fn records_that_are_no_row_become_dead_letters() {
    #[derive(Debug, PartialEq, Deserialize)]
    struct Priced {
        price: i64,
        answer: u8,
    }
    let p = Pipeline::new("priced");
    let answer = lit(42).cast(DataType::UInt8).alias("answer");
    let rows = columns(&p).with_column(answer).rows::<Priced>().collect();
    p.run().unwrap();
    let priced = |price| Priced { price, answer: 42 };
    assert_eq!(rows.take(), [priced(1), priced(3)]);
}

#[test]
fn a_literal_of_any_type_is_a_column() {
    let p = Pipeline::new("constants");
    let nothing = lit(false)
        .and(ardea_columns::Expr::Literal(Literal::Null))
        .alias("never");
    let flags = columns(&p).select([nothing]).rows::<Flag>().collect();
    p.run().unwrap();
    assert_eq!(flags.take().len(), 3);
}

#[derive(Debug, Deserialize)]
struct Flag {
    #[expect(dead_code, reason = "the record is only counted")]
    never: Option<bool>,
}
