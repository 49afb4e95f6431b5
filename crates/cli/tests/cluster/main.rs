//! Clusters of one machine as their users see them: the real program, its hosts and containers,
//! under faults and changes.
//!
//! In reading order: `arena` is a cluster in a temporary folder, which is removed completely;
//! `processes` finds its processes; `numbers`, beside this folder, and `tally` are jobs that detect
//! lost records; `suite` runs the tests, which are in the other files.
//!
//! This program is also those jobs: it is their worker in containers, and `submit` makes it submit
//! itself. So it has its own `main`.

use std::process::ExitCode;

mod access;
mod arena;
mod processes;
mod suite;
mod unexpected_workers;

#[path = "../../../instance/tests/javascript/mod.rs"]
mod javascript;
#[path = "../numbers/mod.rs"]
mod numbers;
#[path = "../settings/mod.rs"]
mod settings;
#[path = "../stripped/mod.rs"]
mod stripped;

#[cfg(feature = "s3")]
mod buckets;
mod changes;
#[cfg(feature = "columns")]
mod columns;
mod components;
mod counts;
mod deaths;
mod drains;
mod ended;
mod failures;
mod fuzz;
mod hostile;
mod lifecycle;
mod maps;
mod measured;
mod output;
mod placement;
mod refused_workers;
mod slurm;
mod starts;
mod submits;
mod survives;
mod tally;
mod upgrades;
mod why;

use suite::Test;

const TESTS: &[Test] = &[
    Test {
        name: "what_a_container_prints_is_bounded_and_what_is_left_out_is_told",
        run: output::what_a_container_prints_is_bounded_and_what_is_left_out_is_told,
    },
    Test {
        name: "a_container_bounds_its_output_while_no_host_is_up_and_so_is_what_it_leaves",
        run: output::a_container_bounds_its_output_while_no_host_is_up_and_so_is_what_it_leaves,
    },
    #[cfg(feature = "s3")]
    Test {
        name: "a_job_with_its_checkpoints_in_a_bucket_goes_on_whatever_is_killed_and_away",
        run: buckets::a_job_with_its_checkpoints_in_a_bucket_goes_on_whatever_is_killed_and_away,
    },
    #[cfg(feature = "s3")]
    Test {
        name: "a_program_is_followed_from_one_place_of_checkpoints_to_another",
        run: buckets::a_program_is_followed_from_one_place_of_checkpoints_to_another,
    },
    #[cfg(feature = "s3")]
    Test {
        name: "a_job_whose_bucket_can_not_be_used_is_refused_with_the_reason",
        run: buckets::a_job_whose_bucket_can_not_be_used_is_refused_with_the_reason,
    },
    Test {
        name: "a_shift_of_traffic_is_followed_once_and_the_next_submission_has_the_rates",
        run: placement::a_shift_of_traffic_is_followed_once_and_the_next_submission_has_the_rates,
    },
    Test {
        name: "a_map_that_a_job_writes_is_seen_from_outside_and_outlives_job_and_hosts",
        run: maps::a_map_that_a_job_writes_is_seen_from_outside_and_outlives_job_and_hosts,
    },
    Test {
        name: "a_map_is_changed_from_outside_and_done_away_with",
        run: maps::a_map_is_changed_from_outside_and_done_away_with,
    },
    Test {
        name: "a_job_that_follows_a_map_and_looks_up_in_it_knows_what_it_has_whichever_host_is_killed",
        run: maps::a_job_that_follows_a_map_and_looks_up_in_it_knows_what_it_has_whichever_host_is_killed,
    },
    Test {
        name: "a_submitted_job_is_seen_alike_everywhere_and_leaves_nothing_when_it_is_killed",
        run: lifecycle::a_submitted_job_is_seen_alike_everywhere_and_leaves_nothing_when_it_is_killed,
    },
    Test {
        name: "a_cluster_for_one_job_outlives_its_leader_and_ends_with_the_job",
        run: lifecycle::a_cluster_for_one_job_outlives_its_leader_and_ends_with_the_job,
    },
    Test {
        name: "a_job_that_comes_again_as_its_hosts_are_about_to_end_keeps_hosts",
        run: lifecycle::a_job_that_comes_again_as_its_hosts_are_about_to_end_keeps_hosts,
    },
    Test {
        name: "jobs_are_listed_while_their_leader_changes",
        run: lifecycle::jobs_are_listed_while_their_leader_changes,
    },
    Test {
        name: "a_second_job_without_hosts_for_all_gets_its_own",
        run: lifecycle::a_second_job_without_hosts_for_all_gets_its_own,
    },
    Test {
        name: "who_stops_a_cluster_that_is_down_is_told_which_jobs_go_on",
        run: lifecycle::who_stops_a_cluster_that_is_down_is_told_which_jobs_go_on,
    },
    Test {
        name: "several_who_start_a_cluster_at_once_all_find_it_up",
        run: starts::several_who_start_a_cluster_at_once_all_find_it_up,
    },
    Test {
        name: "a_cluster_that_is_given_what_is_anothers_neither_takes_nor_stops_it",
        run: starts::a_cluster_that_is_given_what_is_anothers_neither_takes_nor_stops_it,
    },
    Test {
        name: "a_truncated_record_costs_no_host_and_no_number",
        run: starts::a_truncated_record_costs_no_host_and_no_number,
    },
    Test {
        name: "a_job_of_its_own_hosts_tells_how_it_ended_and_what_it_wrote_when_they_are_gone",
        run: ended::a_job_of_its_own_hosts_tells_how_it_ended_and_what_it_wrote_when_they_are_gone,
    },
    Test {
        name: "who_follows_what_a_job_writes_has_it_to_the_last_line_and_is_told_its_end",
        run: ended::who_follows_what_a_job_writes_has_it_to_the_last_line_and_is_told_its_end,
    },
    Test {
        name: "a_job_without_a_host_tells_what_it_wrote_and_obeys_the_host_that_comes",
        run: ended::a_job_without_a_host_tells_what_it_wrote_and_obeys_the_host_that_comes,
    },
    Test {
        name: "what_a_job_wrote_on_several_hosts_is_told_by_any_of_them_after_its_end",
        run: ended::what_a_job_wrote_on_several_hosts_is_told_by_any_of_them_after_its_end,
    },
    Test {
        name: "components_in_processes_count_each_tuple_once_while_they_are_killed",
        run: components::components_in_processes_count_each_tuple_once_while_they_are_killed,
    },
    Test {
        name: "isolated_components_count_each_tuple_once_while_they_are_killed",
        run: components::isolated_components_count_each_tuple_once_while_they_are_killed,
    },
    Test {
        name: "an_isolated_bolt_with_state_counts_each_tuple_once_while_it_is_rescaled_and_paused",
        run: components::an_isolated_bolt_with_state_counts_each_tuple_once_while_it_is_rescaled_and_paused,
    },
    Test {
        name: "with_acks_no_death_loses_a_number",
        run: deaths::with_acks_no_death_loses_a_number,
    },
    Test {
        name: "an_instance_that_fails_is_made_anew_alone_and_nothing_is_lost",
        run: failures::an_instance_that_fails_is_made_anew_alone_and_nothing_is_lost,
    },
    Test {
        name: "an_instance_that_fails_again_and_again_ends_its_container_with_the_reason",
        run: failures::an_instance_that_fails_again_and_again_ends_its_container_with_the_reason,
    },
    Test {
        name: "the_process_of_an_instance_is_shown_and_what_ends_it_is_counted",
        run: failures::the_process_of_an_instance_is_shown_and_what_ends_it_is_counted,
    },
    Test {
        name: "what_the_catalogue_promises_is_told_of_each_instance_and_container",
        run: measured::what_the_catalogue_promises_is_told_of_each_instance_and_container,
    },
    Test {
        name: "a_slow_step_slows_its_source_is_named_and_loses_nothing",
        run: measured::a_slow_step_slows_its_source_is_named_and_loses_nothing,
    },
    Test {
        name: "two_containers_have_one_connection_however_many_instances_they_have",
        run: counts::two_containers_have_one_connection_however_many_instances_they_have,
    },
    Test {
        name: "each_message_is_acked_once_however_many_tuples_in_other_containers_came_of_it",
        run: counts::each_message_is_acked_once_however_many_tuples_in_other_containers_came_of_it,
    },
    Test {
        name: "a_step_that_fails_again_and_again_is_named_and_not_those_behind_it",
        run: measured::a_step_that_fails_again_and_again_is_named_and_not_those_behind_it,
    },
    Test {
        name: "an_update_under_load_leaves_others_alone_and_loses_nothing",
        run: changes::an_update_under_load_leaves_others_alone_and_loses_nothing,
    },
    Test {
        name: "a_busy_step_gets_instances_and_gives_them_back_when_it_is_idle",
        run: changes::a_busy_step_gets_instances_and_gives_them_back_when_it_is_idle,
    },
    Test {
        name: "the_optimizer_gives_a_busy_step_instances_and_takes_them_back",
        run: changes::the_optimizer_gives_a_busy_step_instances_and_takes_them_back,
    },
    Test {
        name: "a_host_that_joins_gets_a_part_of_the_job_and_one_that_is_drained_none",
        run: changes::a_host_that_joins_gets_a_part_of_the_job_and_one_that_is_drained_none,
    },
    Test {
        name: "an_update_ends_although_a_container_dies_in_it",
        run: changes::an_update_ends_although_a_container_dies_in_it,
    },
    Test {
        name: "a_job_is_paused_and_its_containers_are_restarted_one_by_one",
        run: changes::a_job_is_paused_and_its_containers_are_restarted_one_by_one,
    },
    Test {
        name: "what_can_not_run_is_refused_with_the_reason",
        run: hostile::what_can_not_run_is_refused_with_the_reason,
    },
    Test {
        name: "a_state_that_can_not_be_read_is_told_where_people_look_and_given_up_by_them",
        run: hostile::a_state_that_can_not_be_read_is_told_where_people_look_and_given_up_by_them,
    },
    Test {
        name: "a_worker_of_another_version_or_cluster_is_turned_away_and_users_are_told_why",
        run: refused_workers::a_worker_of_another_version_or_cluster_is_turned_away_and_users_are_told_why,
    },
    Test {
        name: "garbage_on_every_port_is_borne",
        run: fuzz::garbage_on_every_port_is_borne,
    },
    Test {
        name: "random_bytes_on_every_port_stop_no_job_and_leave_nothing_open",
        run: fuzz::random_bytes_on_every_port_stop_no_job_and_leave_nothing_open,
    },
    Test {
        name: "what_a_submitted_job_fails_of_is_told_by_submit_and_list",
        run: submits::what_a_submitted_job_fails_of_is_told_by_submit_and_list,
    },
    Test {
        name: "a_job_that_is_over_is_told_by_submit_and_remembered",
        run: submits::a_job_that_is_over_is_told_by_submit_and_remembered,
    },
    Test {
        name: "a_submit_that_is_killed_leaves_a_whole_job_or_none",
        run: submits::a_submit_that_is_killed_leaves_a_whole_job_or_none,
    },
    #[cfg(feature = "columns")]
    Test {
        name: "windows_on_columns_are_published_once_although_workers_are_killed",
        run: columns::windows_on_columns_are_published_once_although_workers_are_killed,
    },
    Test {
        name: "what_is_published_is_the_same_whoever_is_killed",
        run: survives::what_is_published_is_the_same_whoever_is_killed,
    },
    Test {
        name: "without_a_folder_checkpoints_are_in_the_memory_of_hosts_and_survive_any_of_them",
        run: survives::without_a_folder_checkpoints_are_in_the_memory_of_hosts_and_survive_any_of_them,
    },
    Test {
        name: "what_is_published_is_the_same_with_other_numbers_of_instances",
        run: survives::what_is_published_is_the_same_with_other_numbers_of_instances,
    },
    Test {
        name: "what_is_published_is_the_same_over_other_numbers_of_workers",
        run: survives::what_is_published_is_the_same_over_other_numbers_of_workers,
    },
    Test {
        name: "a_host_is_drained_under_a_job_and_what_is_published_is_the_same",
        run: drains::a_host_is_drained_under_a_job_and_what_is_published_is_the_same,
    },
    Test {
        name: "a_host_that_was_away_when_its_job_was_killed_ends_what_it_has_of_it",
        run: drains::a_host_that_was_away_when_its_job_was_killed_ends_what_it_has_of_it,
    },
    Test {
        name: "a_drain_goes_on_though_its_command_and_the_leader_are_killed",
        run: drains::a_drain_goes_on_though_its_command_and_the_leader_are_killed,
    },
    Test {
        name: "a_host_that_dies_while_it_is_drained_is_left_all_the_same",
        run: drains::a_host_that_dies_while_it_is_drained_is_left_all_the_same,
    },
    Test {
        name: "a_drain_loses_no_number_of_a_job_without_a_guarantee",
        run: drains::a_drain_loses_no_number_of_a_job_without_a_guarantee,
    },
    Test {
        name: "a_drain_that_can_not_be_is_refused_with_the_reason_and_changes_nothing",
        run: drains::a_drain_that_can_not_be_is_refused_with_the_reason_and_changes_nothing,
    },
    Test {
        name: "an_update_without_room_is_told_and_taken_back_by_itself_or_by_the_numbers_before",
        run: drains::an_update_without_room_is_told_and_taken_back_by_itself_or_by_the_numbers_before,
    },
    Test {
        name: "in_micro_batches_each_worker_is_restored_while_the_others_continue",
        run: survives::in_micro_batches_each_worker_is_restored_while_the_others_continue,
    },
    Test {
        name: "what_is_published_in_micro_batches_is_the_same_whatever_happens",
        run: survives::what_is_published_in_micro_batches_is_the_same_whatever_happens,
    },
    Test {
        name: "the_checkpoints_of_a_job_are_shown_and_checked",
        run: survives::the_checkpoints_of_a_job_are_shown_and_checked,
    },
    Test {
        name: "a_checkpoint_that_is_damaged_is_passed_over_and_that_is_told",
        run: survives::a_checkpoint_that_is_damaged_is_passed_over_and_that_is_told,
    },
    Test {
        name: "a_job_whose_folder_is_away_waits_with_the_reason_and_goes_on_by_itself",
        run: survives::a_job_whose_folder_is_away_waits_with_the_reason_and_goes_on_by_itself,
    },
    Test {
        name: "a_job_that_can_not_keep_its_promise_is_refused_with_the_reason",
        run: survives::a_job_that_can_not_keep_its_promise_is_refused_with_the_reason,
    },
    Test {
        name: "a_job_that_can_not_begin_is_told_for_that_by_all_who_ask",
        run: survives::a_job_that_can_not_begin_is_told_for_that_by_all_who_ask,
    },
    Test {
        name: "a_job_that_fails_again_and_again_waits_for_somebody_to_decide",
        run: survives::a_job_that_fails_again_and_again_waits_for_somebody_to_decide,
    },
    Test {
        name: "one_program_follows_another_and_what_is_published_is_the_same",
        run: upgrades::one_program_follows_another_and_what_is_published_is_the_same,
    },
    Test {
        name: "a_program_that_does_not_come_up_gives_way_to_the_one_before",
        run: upgrades::a_program_that_does_not_come_up_gives_way_to_the_one_before,
    },
    Test {
        name: "a_program_whose_state_is_damaged_does_not_come_up_and_says_why",
        run: upgrades::a_program_whose_state_is_damaged_does_not_come_up_and_says_why,
    },
    Test {
        name: "an_upgrade_from_a_damaged_checkpoint_ends_with_the_reason",
        run: upgrades::an_upgrade_from_a_damaged_checkpoint_ends_with_the_reason,
    },
    Test {
        name: "state_in_the_memory_of_hosts_is_gone_on_from_and_saved_as_well",
        run: upgrades::state_in_the_memory_of_hosts_is_gone_on_from_and_saved_as_well,
    },
    Test {
        name: "an_upgrade_goes_on_though_its_command_and_its_master_are_killed",
        run: upgrades::an_upgrade_goes_on_though_its_command_and_its_master_are_killed,
    },
    Test {
        name: "what_can_not_go_on_is_refused_before_anything_stops",
        run: upgrades::what_can_not_go_on_is_refused_before_anything_stops,
    },
    Test {
        name: "a_savepoint_of_a_job_on_a_cluster_begins_another_there",
        run: upgrades::a_savepoint_of_a_job_on_a_cluster_begins_another_there,
    },
    Test {
        name: "a_skewed_key_and_an_idle_partition_are_named_with_their_figures",
        run: why::a_skewed_key_and_an_idle_partition_are_named_with_their_figures,
    },
    Test {
        name: "a_viewer_sees_and_does_nothing_and_a_revoked_token_opens_no_host",
        run: access::a_viewer_sees_and_does_nothing_and_a_revoked_token_opens_no_host,
    },
    Test {
        name: "containers_in_slurm_jobs_lose_no_number_and_leave_no_job",
        run: slurm::containers_in_slurm_jobs_lose_no_number_and_leave_no_job,
    },
];

fn main() -> ExitCode {
    if let Some(disguise) = unexpected_workers::of_this_worker() {
        if let Err(error) = unexpected_workers::run(disguise) {
            eprintln!("error: {error}");
        }
        return ExitCode::FAILURE;
    }
    #[cfg(feature = "columns")]
    if numbers::is_asked_for() && columns::is_asked_for() {
        return ardea::main(columns::build);
    }
    if numbers::is_asked_for() && why::is_asked_for() {
        return ardea::main(why::build);
    }
    if numbers::is_asked_for() && tally::is_asked_for() {
        return ardea::main(tally::build);
    }
    if numbers::is_asked_for() {
        return ardea::main(numbers::build);
    }
    suite::run(TESTS)
}
