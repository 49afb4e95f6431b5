//! Windows by count and by time.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use crate::parts::{Numbers, Seen, run};
use ardea_topology::{
    Collector, Failure, Outcome, Reliability, TopologyBuilder, Window, WindowTuples, Windowed,
    WindowedBolt,
};

/// The numbers of each window, and how many of them were fresh.
type Noted = Arc<Mutex<Vec<(Vec<i64>, usize)>>>;

struct Note {
    noted: Noted,
    fails_once_at: Option<i64>,
}

impl WindowedBolt for Note {
    fn execute(&mut self, window: &WindowTuples<'_>, _: &mut Collector<'_>) -> Outcome {
        let numbers: Result<Vec<i64>, _> = window.iter().map(|tuple| tuple.int("number")).collect();
        let numbers = numbers?;
        if let Some(at) = self.fails_once_at.take_if(|at| numbers.contains(at)) {
            return Err(Failure::new(format!("not with {at}")));
        }
        self.noted
            .lock()
            .unwrap()
            .push((numbers, window.fresh().len()));
        Ok(())
    }
}

/// Returns the windows of the numbers below `end`, and the observations of their spout.
fn windows(window: Window, end: u64, fails_once_at: Option<i64>) -> (Vec<(Vec<i64>, usize)>, Seen) {
    let (noted, seen) = (Noted::default(), Arc::new(Mutex::new(Seen::default())));
    let (note, shared) = (Arc::clone(&noted), Arc::clone(&seen));
    let mut builder = TopologyBuilder::new("windows");
    builder.reliability(Reliability::AtLeastOnce);
    builder.spout("numbers", 1, move || Numbers::tracked(end, &shared));
    builder
        .bolt("note", 1, move || {
            let noted = Arc::clone(&note);
            Windowed::new(
                window,
                Note {
                    noted,
                    fails_once_at,
                },
            )
        })
        .shuffle("numbers");
    run(&builder.build().unwrap());
    let windows = std::mem::take(&mut *noted.lock().unwrap());
    let seen = std::mem::take(&mut *seen.lock().unwrap());
    (windows, seen)
}

#[test]
fn tumbling_windows_by_count_hold_each_tuple_once_and_the_last_what_is_left() {
    let (windows, seen) = windows(Window::tumbling_count(100), 250, None);
    let expected = [
        (0..100).collect(),
        (100..200).collect(),
        (200..250).collect::<Vec<i64>>(),
    ];
    assert_eq!(
        windows,
        expected.map(|numbers: Vec<i64>| (numbers.clone(), numbers.len()))
    );
    assert_eq!(seen.acked.len(), 250);
    assert!(seen.failed.is_empty());
}

#[test]
fn sliding_windows_by_count_hold_the_latest_tuples() {
    let (windows, seen) = windows(Window::sliding_count(10, 4), 5001, None);
    for (number, (window, fresh)) in windows.iter().enumerate() {
        let next = (number as i64 + 1) * 4;
        let end = next.min(5001);
        assert_eq!(*window, ((next - 10).max(0)..end).collect::<Vec<_>>());
        assert_eq!(*fresh, if end == 5001 { 1 } else { 4 });
    }
    assert_eq!(windows.len(), 5001usize.div_ceil(4));
    assert_eq!(seen.acked.len(), 5001);
}

#[test]
fn windows_by_time_hold_every_tuple_as_often_as_they_overlap() {
    let slide = Duration::from_millis(1);
    let (tumbling, seen) = windows(Window::tumbling_time(slide), 20_000, None);
    let all: Vec<i64> = tumbling
        .iter()
        .flat_map(|(numbers, _)| numbers.clone())
        .collect();
    assert_eq!(all, (0..20_000).collect::<Vec<_>>());
    assert_eq!(seen.acked.len(), 20_000);
    let (sliding, seen) = windows(Window::sliding_time(slide * 3, slide), 20_000, None);
    assert!(
        sliding
            .iter()
            .all(|(numbers, _)| numbers.is_sorted_by(|a, b| a + 1 == *b))
    );
    assert_eq!(
        sliding.iter().map(|(_, fresh)| fresh).sum::<usize>(),
        20_000
    );
    assert_eq!(seen.acked.len(), 20_000);
}

#[test]
fn a_window_that_fails_fails_all_its_tuples_and_they_come_again() {
    let (windows, seen) = windows(Window::tumbling_count(10), 100, Some(33));
    let mut all: Vec<i64> = windows
        .into_iter()
        .flat_map(|(numbers, _)| numbers)
        .collect();
    all.sort_unstable();
    assert_eq!(all, (0..100).collect::<Vec<_>>());
    assert_eq!(seen.failed.len(), 10);
    assert_eq!(seen.acked.len(), 100);
}

#[test]
fn what_comes_again_after_the_end_is_let_go_of_although_its_window_is_not_full() {
    let (windows, seen) = windows(Window::tumbling_count(10), 95, Some(93));
    let mut all: Vec<i64> = windows
        .into_iter()
        .flat_map(|(numbers, _)| numbers)
        .collect();
    all.sort_unstable();
    assert_eq!(all, (0..95).collect::<Vec<_>>());
    assert_eq!((seen.failed.len(), seen.acked.len()), (5, 95));
}

#[test]
fn a_window_that_can_not_be_kept_fails_the_job() {
    let mut builder = TopologyBuilder::new("windows");
    builder.spout("numbers", 1, || Numbers::untracked(10));
    let note = || Note {
        noted: Noted::default(),
        fails_once_at: None,
    };
    builder
        .bolt("note", 1, move || {
            Windowed::new(Window::sliding_count(2, 3), note())
        })
        .shuffle("numbers");
    let error = builder.build().unwrap().run().unwrap_err().to_string();
    assert!(
        error.contains("let the slide be at most the length"),
        "{error}"
    );
}
