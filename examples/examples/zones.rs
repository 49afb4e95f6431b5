//! Prints where flights from New York were the latest to leave for, by time zone: `cargo run --example zones`.

use ardea_examples::zones::delays_by_zone;

fn main() -> ardea::Result<()> {
    delays_by_zone(|line| println!("{line}"))?.run()
}
