//! The torture test: a job with all kinds of state runs on a real cluster under random faults that
//! follow from a seed. Its published results must equal those of a simple program, record by
//! record.
//!
//! ```text
//! scripts/torture.sh --seed 7 --faults 200     `make torture ARGS="…"`
//! ```
//!
//! In reading order. Functions of a seed only: `random`, `inputs`, `plan` (the sequence of faults),
//! `oracle` (the expected results), `verdict` (the differences from the actual results). The job:
//! `job`. Its environment: `network` (hosts, with their own networks if namespaces are permitted),
//! `cluster`, `services` (Kafka, PostgreSQL), `disk`, `feeder`; `environment` contains all of
//! these. The execution of faults: `faults`; a complete run: `run`.
//!
//! Without arguments it is a test suite: tests of the pure modules, and a short run. This program
//! is also the job.

use std::process::ExitCode;

mod cluster;
mod disk;
mod environment;
mod faults;
mod feeder;
mod inputs;
mod job;
mod network;
mod oracle;
mod plan;
mod random;
mod run;
mod services;
mod verdict;

#[path = "../hosts/ground.rs"]
mod ground;
#[path = "../hosts/poll.rs"]
#[expect(dead_code, reason = "times here are in milliseconds")]
mod poll;
#[path = "../settings/mod.rs"]
mod settings;
#[path = "../cluster/suite.rs"]
mod suite;

use run::RunOptions;
use suite::Test;

const TESTS: &[Test] = &[
    Test {
        name: "a_plan_follows_from_its_seed_and_from_nothing_else",
        run: plan::promises::a_plan_follows_from_its_seed_and_from_nothing_else,
    },
    Test {
        name: "each_kind_of_fault_comes_in_a_plan_as_long_as_there_are_kinds",
        run: plan::promises::each_kind_of_fault_comes_in_a_plan_as_long_as_there_are_kinds,
    },
    Test {
        name: "what_a_machine_can_not_do_is_in_no_plan",
        run: plan::promises::what_a_machine_can_not_do_is_in_no_plan,
    },
    Test {
        name: "the_job_is_given_time_to_recover_again_and_again_and_at_the_end",
        run: plan::promises::the_job_is_given_time_to_recover_again_and_again_and_at_the_end,
    },
    Test {
        name: "events_follow_from_seed_and_number_and_lie_in_the_order_of_their_times",
        run:
            inputs::promises::events_follow_from_seed_and_number_and_lie_in_the_order_of_their_times,
    },
    Test {
        name: "an_event_is_read_as_it_was_written_and_nothing_else_is_one",
        run: inputs::promises::an_event_is_read_as_it_was_written_and_nothing_else_is_one,
    },
    Test {
        name: "pairs_are_of_one_key_and_second_and_what_is_near_of_one_key_and_300_ms",
        run:
            oracle::promises::pairs_are_of_one_key_and_second_and_what_is_near_of_one_key_and_300_ms,
    },
    Test {
        name: "rates_are_of_all_windows_that_hold_an_order",
        run: oracle::promises::rates_are_of_all_windows_that_hold_an_order,
    },
    Test {
        name: "a_key_is_silent_when_no_payment_came_for_long_enough_and_at_the_end",
        run: oracle::promises::a_key_is_silent_when_no_payment_came_for_long_enough_and_at_the_end,
    },
    Test {
        name: "balances_are_of_orders_and_payments",
        run: oracle::promises::balances_are_of_orders_and_payments,
    },
    Test {
        name: "each_record_that_is_wrong_is_told_for_what_it_is",
        run: verdict::promises::each_record_that_is_wrong_is_told_for_what_it_is,
    },
    Test {
        name: "what_has_not_come_yet_may_come",
        run: verdict::promises::what_has_not_come_yet_may_come,
    },
    Test {
        name: "what_comes_out_is_the_same_whatever_goes_wrong",
        run: what_comes_out_is_the_same_whatever_goes_wrong,
    },
    Test {
        name: "what_comes_out_is_the_same_in_micro_batches_whatever_goes_wrong",
        run: what_comes_out_is_the_same_in_micro_batches_whatever_goes_wrong,
    },
];

/// Runs a short torture test on this machine's own network, with a random seed, which is printed.
fn what_comes_out_is_the_same_whatever_goes_wrong() {
    run::run(&RunOptions::short()).unwrap_or_else(|why| panic!("{why}"));
}

/// As above, with `mode=micro-batch`.
fn what_comes_out_is_the_same_in_micro_batches_whatever_goes_wrong() {
    run::run(&RunOptions::short_in_batches()).unwrap_or_else(|why| panic!("{why}"));
}

fn main() -> ExitCode {
    if job::is_asked_for() {
        return ardea::main(job::build);
    }
    match RunOptions::of_command_line() {
        Ok(None) => suite::run(TESTS),
        Ok(Some(wish)) => match run::run(&wish) {
            Ok(()) => ExitCode::SUCCESS,
            Err(_) => ExitCode::FAILURE,
        },
        Err(wrong) => {
            eprintln!("torture: {wrong}");
            ExitCode::from(2)
        }
    }
}
