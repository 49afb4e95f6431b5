//! Must not compile: sort without end.

use ardea_core::{Source, Unbounded};
use ardea_pipeline::Pipeline;

fn sorted(endless: Source<u64, Unbounded>) {
    let p = Pipeline::new("sorted");
    p.read_from(endless).sort_by_key("numbers", |n| *n).collect();
}

fn main() {}
