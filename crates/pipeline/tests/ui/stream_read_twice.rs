//! Must not compile: stream read twice.

use ardea_connectors::collections::items;
use ardea_pipeline::Pipeline;

fn main() {
    let p = Pipeline::new("twice");
    let numbers = p.read_from(items(vec![1, 2, 3]));
    let even = numbers.filter(|n| n % 2 == 0).collect();
    let odd = numbers.filter(|n| n % 2 == 1).collect();
    p.run().unwrap();
    assert_eq!(even.len() + odd.len(), 3);
}
