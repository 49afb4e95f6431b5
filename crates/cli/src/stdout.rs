//! Results on standard output.

pub use ardea::console::{print, print_json};
