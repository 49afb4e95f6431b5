//! Must not compile: keyed records whose type cannot be serialized.

use ardea_connectors::collections::items;
use ardea_pipeline::Pipeline;

#[derive(Clone)]
struct Reading {
    sensor: u32,
}

fn main() {
    let p = Pipeline::new("readings");
    let readings = p.read_from(items(vec![Reading { sensor: 1 }]));
    readings.key_by(|reading| reading.sensor).distinct("sensors").map(|r| r.sensor).collect();
}
