//! Prints the destinations with the most delayed departures from New York, by time zone:
//! `cargo run --example zones`.

use ardea_examples::zones::delays_by_zone;

fn main() -> ardea::Result<()> {
    delays_by_zone(|line| println!("{line}"))?.run()
}
