"""Tests of managers that run on a directory and on a database in every run; at night all of them do."""

from __future__ import annotations

__all__ = ["is_chosen"]

CHOSEN = {
    "test_applied_and_failed_commits": """
        test_a_kept_signal_in_a_commit_that_was_applied_and_reported_as_failed_is_kept_once
        test_a_signal_in_a_commit_that_was_applied_and_reported_as_failed_is_delivered_once
        test_an_abort_in_a_commit_that_was_applied_and_reported_as_failed_says_that_it_was_accepted
        test_an_end_in_a_commit_that_was_applied_and_reported_as_failed_resolves_the_handle
    """,
    "test_authoring": """
        test_a_best_effort_rollback_skips_what_cannot_be_undone_and_lists_it
        test_each_visit_of_a_state_is_undone_and_states_without_rollback_are_left_out
    """,
    "test_debouncing": """
        test_a_removed_run_leaves_its_key_for_a_new_one
        test_a_submit_behind_the_begin_is_another_run_with_keys_of_its_own
        test_it_waits_on_in_the_next_life_of_the_manager
        test_many_callers_at_once_are_one_run
        test_the_last_submit_runs_and_all_handles_are_of_its_run
    """,
    "test_kinds_of_managers": """
        test_a_manager_is_of_the_kind_that_the_name_of_its_test_says
    """,
    "test_life": """
        test_a_callback_for_an_end_that_is_known_needs_no_thread_for_ever_after_a_stop
        test_a_cancelled_await_does_not_abort
        test_a_handler_that_stops_a_manager_while_its_engine_is_loaded_stops_it
        test_a_second_stop_that_does_not_drain_cuts_short_the_waiting_of_the_first
        test_a_waiting_caller_is_told_when_the_manager_stops
        test_nothing_needs_a_main_guard_and_classes_of_a_script_work
        test_the_constructor_touches_nothing
        test_the_environment_factory_runs_in_each_worker
    """,
    "test_limits": """
        test_a_late_step_among_others_is_killed_and_the_others_run_again
        test_a_step_beyond_its_memory_fails_as_any_step_that_raises
        test_limits_that_cannot_go_together_are_refused
        test_steps_that_wait_run_at_once_in_one_worker
    """,
    "test_locks_and_poison": """
        test_a_lock_says_whether_it_is_for_a_step_or_came_from_a_child
        test_the_lock_table_agrees_with_memory_while_procedures_come_and_go
        test_two_contended_keys_show_their_own_waiters_in_order
        test_what_can_be_no_key_is_not_cleared_but_refused
    """,
    "test_parked_waits": """
        test_a_future_has_the_output_or_the_error_of_the_handle
        test_a_patient_call_waits_for_the_class
        test_a_time_limit_names_the_parked_member
        test_a_tree_whose_undo_needs_the_parked_member_says_so
        test_a_virtual_clock_is_moved_to_the_end_of_the_grace
        test_another_procedure_of_the_same_id_is_parked_anew
        test_the_grace_is_counted_by_the_managers_clock_from_its_start
        test_what_becomes_parked_behind_a_wait_ends_it
    """,
    "test_reads_that_fail": """
        test_an_answer_to_a_step_of_a_lost_commit_changes_nothing
        test_an_event_whose_read_fails_comes_after_those_of_the_open_batch_and_behind_the_commit_under_way
        test_commits_that_the_store_lost_are_told_with_their_numbers_and_work_goes_on_from_what_is_there
        test_each_read_may_fail_once_and_all_that_was_asked_for_is_done
        test_while_reads_fail_verbs_are_refused_in_words_and_running_steps_go_on
    """,
    "test_repairing": """
        test_a_cleared_poison_key_is_in_the_managers_own_audit
        test_a_failed_root_is_vouched_for
        test_a_procedure_that_refuses_to_abort_is_asked_again_whenever_a_step_ends
        test_a_rollback_on_demand_asks_nobody
        test_a_rollback_that_gave_up_is_taken_up_where_it_stopped_and_frees_its_keys
        test_a_running_step_is_killed_by_force_and_its_parent_goes_on
        test_an_abort_by_force_kills_the_running_step
        test_what_nobody_knows_is_unknown_to_every_verb
    """,
    "test_requests": """
        test_a_forced_abort_kills_a_step_that_does_not_listen
        test_a_step_can_ask_about_another_procedure
        test_progress_is_shown_and_an_abort_reaches_the_running_step
    """,
    "test_restarting": """
        test_a_poisoned_key_is_to_be_cleared_first
        test_a_retried_procedure_keeps_its_generation_and_its_keys
        test_of_many_racing_restarts_one_is_the_next_generation
    """,
    "test_running": """
        test_a_failure_is_rolled_back_and_carries_the_remote_traceback
        test_a_parent_resumes_with_the_outcomes_of_its_children_in_order
        test_an_aborted_procedure_raises_procedure_aborted
        test_many_are_submitted_in_one_commit_and_listed_in_order
        test_steps_are_numbered_from_one_and_the_log_closes_with_a_commit
        test_the_same_submit_twice_is_one_procedure
    """,
    "test_crashes": """
        test_a_step_that_crashes_too_often_fails_with_the_reason_in_words
        test_a_step_whose_worker_is_killed_runs_again_and_counts_a_crash
        test_outputs_and_failures_are_there_after_a_restart
    """,
    "test_retention": """
        test_a_failure_that_left_poison_stays_until_an_operator_has_dealt_with_it
        test_a_handle_of_what_was_removed_says_that_it_is_unknown
        test_an_acknowledged_result_leaves_early_and_the_others_stay_also_across_a_restart
        test_finished_trees_leave_after_their_time_and_the_unfinished_stay
    """,
    "test_watching": """
        test_a_rollback_is_told_too
        test_a_watch_tells_every_transition_once_and_ends_with_the_procedure
    """,
    "test_signalling": """
        test_a_child_gets_signals_once_it_is_there
        test_a_payload_beyond_the_limit_is_refused
        test_a_procedure_that_cannot_take_a_payload_is_parked_and_goes_on_when_its_class_can
        test_a_signal_to_one_that_retention_removed_is_refused_and_not_kept_for_the_next_of_its_id
        test_as_many_signals_as_may_wait_are_kept_and_the_next_is_refused
        test_events_are_removed_when_they_were_kept_too_long_and_signals_are_not
        test_signals_are_listed_the_oldest_first_and_withdrawn_by_receiver_name_and_number
        test_what_is_no_id_is_refused_with_the_call_that_takes_names
    """,
    "test_submit_many": """
        test_a_handle_is_no_value_but_may_be_referred_to_and_marked
        test_a_wrong_pair_is_found_before_anything_is_done_with_the_others
        test_handles_are_in_the_order_of_the_procedures_also_of_those_that_exist
        test_it_takes_generators_sets_and_nothing
    """,
    "test_supervision": """
        test_a_bug_in_the_pool_of_workers_breaks_the_engine_loudly
        test_a_bug_is_told_also_when_all_slots_were_parked_before
        test_a_trial_that_fails_parks_the_slot_for_twice_as_long_and_one_that_lives_forgets
        test_kills_from_outside_cost_short_pauses_and_never_the_slot
        test_who_asks_a_broken_engine_again_and_again_does_not_gather_what_the_others_held
    """,
    "test_waiting_for_children": """
        test_a_child_that_is_left_goes_on_after_its_parent_and_survives_a_restart
        test_a_quota_fails_the_step_that_asks_for_too_many_children
        test_any_goes_on_with_the_first_and_the_rest_is_aborted_with_the_parents_end
        test_each_child_resumes_the_parent_and_is_seen_from_then_on
        test_what_a_parent_sees_is_the_same_after_a_restart
    """,
}
"""Names of tests by their module: some of each matter, among those that are done in a moment."""

_NAMES = {module: frozenset(names.split()) for module, names in CHOSEN.items()}


def is_chosen(module: str, name: str) -> bool:
    """True if a test is one of them.

    Args:
        module: Last part of the name of its module.
        name: Name of its function.

    Returns:
        True or False.
    """
    return name in _NAMES.get(module, ())
