//! Must not compile: aggregate without end or window.

use ardea_aggregate::count;
use ardea_core::{Source, Unbounded};
use ardea_pipeline::Pipeline;

fn counted(endless: Source<u64, Unbounded>) {
    let p = Pipeline::new("counted");
    p.read_from(endless).key_by(|n| *n).aggregate("numbers", count()).collect();
}

fn main() {}
