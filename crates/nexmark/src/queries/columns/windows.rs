//! The queries over windows of bids, by columns.

use ardea_aggregate::all_with_max;
use ardea_columns::{col, count};
use ardea_pipeline::{Pipeline, Window};

use super::super::QueryRun;
use super::super::windows::{Hot, slide};
use super::{bids, in_millis, timed};

pub(super) fn q5(run: &QueryRun, p: &Pipeline) {
    let slide = slide(run);
    timed(run, bids(run, p, ["auction", "date_time"]))
        .key_by(["auction"])
        .window(Window::sliding(run.window(), slide))
        .aggregate("bids", [count().alias("bids")])
        .select([
            in_millis("window_start"),
            in_millis("window_end"),
            col("auction").into(),
            col("bids").into(),
        ])
        .rows::<Hot>()
        // The results of a window end in one slide, so a window of that length finds their maximum.
        .window_all(Window::tumbling(slide))
        .aggregate("most bids", all_with_max(|hot: &Hot| hot.bids))
        .flat_map(|most| most.value)
        .write_to(run.sink());
}
