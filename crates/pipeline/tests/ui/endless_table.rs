//! Must not compile: endless table.

use ardea_core::{Source, Unbounded};
use ardea_pipeline::Pipeline;

fn joined(flights: Source<u64, Unbounded>, planes: Source<(u64, String), Unbounded>) {
    let p = Pipeline::new("joined");
    let planes = p.read_from(planes);
    p.read_from(flights).hash_join("planes", planes, |flight| *flight, |plane| plane.0, |_, plane| plane.1.clone()).collect();
}

fn main() {}
