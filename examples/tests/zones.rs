//! A test of the output of the topology with a custom grouping, against results computed from the
//! same files by a program in another language.

use std::sync::{Arc, Mutex};

use ardea_examples::zones::delays_by_zone;

const WORST: [&str; 5] = [
    "Central   DSM 26.2 min  MSN 23.6 min  SAT 20.7 min",
    "Eastern   TYS 28.5 min  RIC 23.6 min  ALB 23.6 min",
    "Mountain  DEN 15.2 min  PHX 10.4 min  SLC  9.0 min",
    "Pacific   PDX 16.3 min  BUR 13.5 min  SFO 12.9 min",
    "beyond    BQN 12.4 min  SJU  9.8 min  HNL  9.3 min",
];

#[test]
fn each_zones_worst_delays_are_printed_once_by_whoever_has_the_whole_zone() {
    let printed = Arc::new(Mutex::new(Vec::new()));
    let lines = Arc::clone(&printed);
    let print = move |line: &str| lines.lock().unwrap().push(line.to_string());
    delays_by_zone(print).unwrap().run().unwrap();
    let mut printed = printed.lock().unwrap();
    printed.sort_unstable();
    assert_eq!(*printed, WORST);
}
