//! Must not compile: float as key.

use ardea_connectors::collections::items;
use ardea_pipeline::Pipeline;

fn main() {
    let p = Pipeline::new("prices");
    let _ = p.read_from(items(vec![1.5f64])).key_by(|price| *price);
}
