//! Must not compile: window without event time.

use std::time::Duration;

use ardea_connectors::collections::items;
use ardea_pipeline::{Pipeline, Window};

fn main() {
    let p = Pipeline::new("clicks");
    let clicks = p.read_from(items(vec![("ann", 1), ("bob", 2)]));
    let _ = clicks.key_by(|(user, _)| *user).window(Window::tumbling(Duration::from_secs(10)));
}
