//! The queries over windows, by columns.

use ardea_columns::{all_with_max, col, count, count_of, max};
use ardea_pipeline::{Pipeline, Window};

use super::super::QueryRun;
use super::super::joins::NewSeller;
use super::super::windows::{Highest, Hot, slide};
use super::{bids, events, in_millis, required, timed};

/// The key of all records.
const NO_KEY: [&str; 0] = [];

pub(super) fn q5(run: &QueryRun, p: &Pipeline) {
    let slide = slide(run);
    let results = timed(run, bids(run, p, &["auction", "date_time"]))
        .key_by(["auction"])
        .window(Window::sliding(run.window(), slide))
        .aggregate("bids", [count().alias("bids")])
        .select([
            col("window_start").alias("start"),
            col("window_end").alias("end"),
            col("auction"),
            col("bids"),
        ])
        // The results of a window end in one slide, so a window of that length finds their maximum.
        .key_by(NO_KEY)
        .window(Window::tumbling(slide))
        .top("most bids", all_with_max(["bids"]))
        .select([
            in_millis("start", "window_start"),
            in_millis("end", "window_end"),
            "auction".into(),
            "bids".into(),
        ]);
    run.write::<Hot, _>(results);
}

pub(super) fn q7(run: &QueryRun, p: &Pipeline) {
    let results = timed(
        run,
        bids(run, p, &["auction", "bidder", "price", "date_time"]),
    )
    .key_by(NO_KEY)
    .window(Window::tumbling(run.window()))
    .top("highest", all_with_max(["price"]))
    .select([
        in_millis("window_start", "window_start"),
        in_millis("window_end", "window_end"),
        "auction".into(),
        "bidder".into(),
        "price".into(),
    ]);
    run.write::<Highest, _>(results);
}

pub(super) fn q8(run: &QueryRun, p: &Pipeline) {
    let is_person = || col("kind").eq("person");
    let sellers = events(run, p, &["id", "name", "seller", "date_time"])
        .filter(is_person().or(col("kind").eq("auction")))
        .select([
            // The seller, or the person registered.
            col("seller").if_null(col("id")).required().alias("id"),
            col("seller"),
            col("name"),
            is_person().alias("is_person"),
            required("date_time"),
        ]);
    let results = timed(run, sellers)
        .key_by(["id"])
        .window(Window::tumbling(run.window()))
        .aggregate(
            "new sellers",
            [
                max("name").alias("name"),
                max("is_person").alias("has_person"),
                count_of("seller").alias("auctions"),
            ],
        )
        .filter(col("has_person").and(col("auctions").gt(0)))
        .select([
            in_millis("window_start", "window_start"),
            in_millis("window_end", "window_end"),
            "id".into(),
            required("name").into(),
        ]);
    run.write::<NewSeller, _>(results);
}
