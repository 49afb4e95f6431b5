//! Runs some hundred seeds of each simulation; `ARDEA_SIM_SEEDS` and `ARDEA_SIM_FROM` select
//! others. A failure names its seed and the command to reproduce it.

use ardea_sim::{
    AttemptsReport, EpochsReport, GridReport, run_attempts, run_epochs, run_faults, run_flow,
    run_grid, run_large, run_resets, run_start,
};

fn seeds(usual: u64) -> std::ops::Range<u64> {
    let number = |name, usual| match std::env::var(name) {
        Ok(text) => text
            .parse()
            .unwrap_or_else(|_| panic!("{name}={text} is no number")),
        Err(_) => usual,
    };
    let from: u64 = number("ARDEA_SIM_FROM", 0);
    from..from + number("ARDEA_SIM_SEEDS", usual)
}

#[test]
fn after_faults_and_commands_every_job_is_as_its_user_wants() {
    for seed in seeds(200) {
        if let Err(failure) = run_faults(seed) {
            let log = failure.log.join("\n");
            panic!(
                "{log}\nseed {seed}: {}; again: ardea-sim --seed {seed} --log",
                failure.what
            );
        }
    }
}

#[test]
fn seeds_that_have_found_faults_stay_well() {
    for seed in [3, 11, 160, 1_014, 100_291, 211_175] {
        if let Err(failure) = run_faults(seed) {
            panic!("seed {seed}: {}", failure.what);
        }
    }
}

#[test]
fn what_sinks_publish_is_what_the_committed_epochs_have_read_whatever_befalls_the_job() {
    let mut total = EpochsReport::default();
    let seeds = seeds(1_000);
    let usual = seeds.end - seeds.start >= 1_000;
    for seed in seeds {
        match run_epochs(seed) {
            Ok(report) => total += report,
            Err(failure) => {
                let log = failure.log.join("\n");
                panic!(
                    "{log}\nseed {seed}: {}; again: ardea-sim --epochs --seed {seed} --log",
                    failure.what
                );
            }
        }
    }
    // Success is meaningful only if faults have occurred.
    let happened = [
        total.aborted,
        total.rolled_back,
        total.safe_modes,
        total.ended,
    ];
    assert!(
        !usual || happened.iter().all(|count| *count > 100),
        "{total:?}"
    );
}

#[test]
fn a_job_with_a_guarantee_loses_and_doubles_nothing_through_faults_updates_and_upgrades() {
    let mut total = AttemptsReport::default();
    let seeds = seeds(1_000);
    let usual = seeds.end - seeds.start >= 1_000;
    for seed in seeds {
        match run_attempts(seed) {
            Ok(report) => total += report,
            Err(failure) => {
                let log = failure.log.join("\n");
                panic!(
                    "{log}\nseed {seed}: {}; again: ardea-sim --lives --seed {seed} --log",
                    failure.what
                );
            }
        }
    }
    // Success is meaningful only if faults have occurred.
    let happened = [
        total.handed_over,
        total.reminded,
        total.early,
        total.resumed,
        total.safe_modes,
        total.taken_back,
        total.finished,
        total.upgraded,
        total.rolled_back,
    ];
    assert!(
        !usual || happened.iter().all(|count| *count > 20),
        "{total:?}"
    );
}

#[test]
fn a_healthy_job_lives_on_when_connections_break_on_machines_that_have_too_much_to_do() {
    for seed in seeds(100) {
        match run_resets(seed) {
            Ok(report) => {
                assert_eq!(report.lives, 0, "seed {seed}: {report:?}");
                assert!(report.committed > 5, "seed {seed}: {report:?}");
            }
            Err(failure) => {
                let log = failure.log.join("\n");
                panic!(
                    "{log}\nseed {seed}: {}; again: ardea-sim --resets --seed {seed} --log",
                    failure.what
                );
            }
        }
    }
}

#[test]
fn seeds_of_lives_that_have_found_faults_stay_well() {
    for seed in [686, 701_688] {
        if let Err(failure) = run_attempts(seed) {
            panic!("seed {seed}: {}", failure.what);
        }
    }
}

#[test]
fn a_grid_loses_nothing_and_never_has_two_primaries_through_faults() {
    let mut total = GridReport::default();
    let seeds = seeds(1_000);
    let usual = seeds.end - seeds.start >= 1_000;
    let count = seeds.end - seeds.start;
    for seed in seeds {
        match run_grid(seed) {
            Ok(report) => total += report,
            Err(failure) => {
                let log = failure.log.join("\n");
                panic!(
                    "{log}\nseed {seed}: {}; again: ardea-sim --grid --seed {seed} --log",
                    failure.what
                );
            }
        }
    }
    // Success is meaningful only if faults have occurred and were checked.
    let happened = [
        total.promoted,
        total.handed_over,
        total.filled,
        total.unknown,
        total.lost,
    ];
    assert!(
        !usual || happened.iter().all(|count| *count > 100),
        "{total:?}"
    );
    assert!(total.stuck * 5 <= count, "{total:?}");
    assert!(!usual || total.ended * 100 <= count, "{total:?}");
    assert!(total.unexplained <= count / 10, "{total:?}");
}

#[test]
fn a_grid_ends_if_who_was_to_stay_dies_just_when_the_other_one_leaves() {
    let report = run_grid(900_227).unwrap_or_else(|failure| panic!("{}", failure.what));
    assert_eq!(report.ended, 1, "{report:?}");
}

#[test]
fn a_job_of_a_hundred_containers_comes_through_faults() {
    for seed in seeds(200).take(2) {
        if let Err(failure) = run_large(seed, 100, 1_000, 20) {
            panic!("{}\nseed {seed}: {}", failure.log.join("\n"), failure.what);
        }
    }
}

#[test]
fn a_job_of_a_thousand_containers_comes_through_faults() {
    let seed = seeds(1).start;
    if let Err(failure) = run_large(seed, 1_000, 5_000, 20) {
        panic!(
            "seed {seed}: {}; again: ardea-sim --large 1 --from {seed} --instances 5000",
            failure.what
        );
    }
}

#[test]
fn a_job_of_a_thousand_containers_starts() {
    let report =
        run_start(0, 1_000, 20_000, false).unwrap_or_else(|failure| panic!("{}", failure.what));
    assert!(report.stopwatch.messages >= 3_000);
}

#[test]
fn flow_control_bounds_what_is_kept_and_never_stops_for_good() {
    for seed in seeds(200) {
        run_flow(seed, 20_000).unwrap_or_else(|broken| panic!("seed {seed}: {broken}"));
    }
}

#[test]
fn a_seed_says_everything() {
    for seed in seeds(200).take(5) {
        let (once, again) = (run_faults(seed).unwrap(), run_faults(seed).unwrap());
        assert_eq!(once.steps, again.steps);
    }
}
